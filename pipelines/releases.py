"""The release that a command line, YAML or a call asks for: where its key lies, and its id."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeyEnvironment, KeyFile, KeySecret, KeySource, Release, ephemeral_key
from headcount.pipelines.flags import options
from headcount.pipelines.flags.account import AUTO
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.flags.people import person_rows
from headcount.pipelines.flags.protection import window

KEY_SOURCES = ("key_file", "key_env", "key_secret")  # of which one is given


def make_release(args: argparse.Namespace, runner: str | None, spell: Callable[[str], str] = as_flag) -> Release:
    """The release of `add_release`. The object names where the key lies and never holds it.

    Refusals name several parameters, by how whoever gave them spells them.
    """
    source, here = _key_source(args), runner is None
    if runner is not None:
        from headcount.transforms.core.release import is_on_this_machine  # whose package needs Beam, as flags do not

        here = is_on_this_machine(runner)
    secret, file, env = map(spell, ("key_secret", "key_file", "key_env"))
    if source is None:
        if args.release_id is not None:
            raise ParameterError(
                f"{spell('release_id')} {args.release_id!r} repeats a release, which needs the key of that release: "
                f"give {secret}, {file} or {env}"
            )
        if not here:
            raise ParameterError(
                f"the runner {runner} needs a key that its workers can reach: give {secret}, {env} or {file}"
            )
        return Release(ephemeral_key())
    if here:
        source.fetch()  # a bad key is told now and not by a worker
    elif isinstance(source, KeyFile):
        source = KeyFile(os.path.abspath(source.path))  # workers have another working directory
    _refuse_auto(args, spell)
    return Release(source, args.release_id)


def for_rows(release: Release, args: argparse.Namespace) -> Release:
    """The release with the key for rows that are read as the flags of `groups.add_input` say."""
    from headcount.mechanisms.columns.reading import reading
    from headcount.mechanisms.columns.row_schema import asked

    if hasattr(args, "by"):
        return release.of_rows(person_rows(args).reading)
    if getattr(args, "item", None) is not None:
        return release.of_rows(asked(**options.rows(args), prepare=options.preparation(args)).reading)
    found = window(args)
    said = {name: getattr(args, name) for name in ("user", "count", "drop_null", "time_zone")}
    said |= {"window": None if found is None else found.spec} | options.preparation(args).said
    return release.of_rows(reading(**said, **({"value": args.value} if hasattr(args, "value") else {})))


def make_keyless(args: argparse.Namespace) -> Release:
    """The release of a job that draws nothing, since what it reads has its noise already: a name for its output.

    A key that is given is never fetched: the parameters of a template name one for every job.
    """
    _refuse_auto(args, as_flag)
    return Release(ephemeral_key(), args.release_id)


def _refuse_auto(args: argparse.Namespace, spell: Callable[[str], str]) -> None:
    """Refuse an id that follows from parameters where nobody knows whether it was used before, for other events."""
    if args.release_id == AUTO and getattr(args, "ledger", None) is None:
        raise ParameterError(
            f"{spell('release_id')} {AUTO} needs a ledger, which knows whether that release was made before: give "
            f"{spell('ledger')} and {spell('dataset')}, or an id of your own"
        )


def _key_source(args: argparse.Namespace) -> KeySource | None:
    if args.key_file is not None:
        return KeyFile(args.key_file)
    if args.key_env is not None:
        return KeyEnvironment(args.key_env)
    return KeySecret(args.key_secret) if args.key_secret is not None else None
