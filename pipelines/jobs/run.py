"""What every job shares: checks before the run, the pipeline, its progress, its failures and its end."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import gc
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

from headcount.mechanisms.errors import HeadcountError, InputError
from headcount.pipelines import progress, releases
from headcount.pipelines.flags import account as account_flags
from headcount.pipelines.flags import options
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.jobs import memory
from headcount.pipelines.jobs.direct import Direct, fits
from headcount.pipelines.jobs.job import Job, Looked, Made
from headcount.pipelines.jobs.signals import Signals, Stopped
from headcount.pipelines.jobs.source import Events, Source
from headcount.pipelines.ledger import account as accounts
from headcount.pipelines.pages.written import with_page
from headcount.pipelines.reports import report
from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.publish import announced_first
from headcount.pipelines.sources.domain import domain_digest
from headcount.pipelines.storage import bigquery, stores

# Where a release may be found without the process that reserved it: noise that is drawn before the job, or is kept with what it
# was drawn for; and workers that outlive it.
_KEPT, _WORKERS = "in the files that it reads", "worker processes"

Make = Callable[[type], Made]  # what a job is, by the type of its items


class Engine(Protocol):
    """What runs a job: `runner` is None for this machine, and `here` says whether all of it is in this process."""

    options: Any
    runner: str | None
    here: bool

    def check(self) -> None:
        """Refuse a runner that this machine must not start."""

    def make(self, args: argparse.Namespace, looked: Looked, memory_limit: int | None) -> None:
        """Make what is run; refuses what is wrong."""

    def run(self, job: Job, signals: Signals) -> bool:
        """Run it to its end; False if it was only submitted."""


def run_job(
    args: argparse.Namespace,
    beam_flags: Sequence[str],
    command: str,
    make: Make,
    source: type[Source] | None = None,
    sink: Any = None,
) -> Outcome:
    """Run one job from files to a committed output; `make` gets the item type.

    A job of small files on this machine runs here and without Beam, unless a flag asks for something of Beam; any other is a
    pipeline. The rows are the same. A transform takes contributions and gives (k, rows) for every k in 0..files-1, beyond a
    barrier; or these with the decision that the job came to, which then goes into the report.

    Everything that can be refused is refused before the run; a failed or stopped job leaves no output. It reads events, unless
    another `source` is given, and writes where --output says, unless another `sink` is given, a module like those of `sinks`.
    With a ledger, its cost is reserved before it reads rows.
    """
    kind = Events if source is None else source
    with Signals() as signals:
        asked = engine_of(args, beam_flags)
        local = asked is None or asked.runner is None
        here = asked is None or asked.here
        memory.check_asked(args.memory_limit, here)
        if local:
            memory.keep_freed()
        looked = look(args, asked, command, make, kind, sink)
        source_, release, plan, sink, target, there = looked[:6]
        size = source_.size * source_.days
        memory_limit = memory.limit_for(args.memory_limit, here, size)
        engine = asked or (Direct() if fits(looked) else on_beam([]))
        words = memory.too_little(size, memory_limit, engine.here) if local else None
        if words is not None:
            _tell(words)
        engine.make(args, looked, memory_limit)
        if there and kind.keyed and args.release_id is None:
            account_flags.tell_of_replacing()
        elsewhere = _KEPT if not kind.keyed else engine.runner or (None if engine.here else _WORKERS)
        # Before anything is removed: of two jobs of one release, the second is refused here, and leaves the first alone.
        account = accounts.open_account(args, command, release, plan, target, elsewhere)
        target = dataclasses.replace(target, expected=account.expected)
        prepared = False
        try:
            sink.prepare(target)
            prepared = True
            options.hint(plan.guarantee.epsilon, plan.guarantee.delta)
            if (words := options.table_hint(args)) is not None:
                _tell(words)
            # Workers elsewhere count for themselves: of those, states are told.
            shown = progress.Progress(sys.stderr, source_.expected_rows) if local else nullcontext()
            with shown:
                if not kind.keyed:
                    account.started()
                about = report.About(
                    command,
                    release.id,
                    plan.parameters,
                    plan.note,
                    args.label,
                    args.period,
                    plan.summary,
                    protection(args),
                    args.dataset,
                    report.first_made(release.id, account.date, sink.read_report(target) if there else None),
                )
                digested = kind.keyed if args.ledger is not None and kind.digested else None
                starts = account.started if elsewhere is not None else lambda: None
                job = Job(source_, release, plan, target, sink.commit, about, digested, starts)
                gc.freeze()  # what was imported stays: later collections need not look at it
                gc.enable()
                with announced_first(release.id, account.publishing) if engine.here else nullcontext():
                    finished = engine.run(job, signals)
        except BaseException as error:
            signals.ignore()
            if prepared:
                sink.abandon(target)
            account.failed()
            if signals.received is not None:  # Beam may have wrapped the signal's own exception
                raise Stopped(signals.received) from error
            message = input_error(error) or shortage(error, args.output)
            if message is not None:
                raise InputError(message) from error
            raise
    if not finished:
        return Outcome(args.output, release.id, sink.COMPLETE, charged=account.submitted())
    found = sink.read_report(target)
    charged, unsettled = account.published(found)
    outcome = Outcome(
        args.output,
        release.id,
        sink.COMPLETE,
        json.loads(found),
        sink.written(target),
        target.format,
        charged=charged,
        unsettled=unsettled,
        again=there and not args.overwrite,  # what was there is of this release: any other is refused
    )
    return with_page(outcome) if sink is output else outcome


def engine_of(args: argparse.Namespace, beam_flags: Sequence[str]) -> Engine | None:
    """What runs a job by its flags; None where its files are on this machine and nothing of Beam is asked for: then their size
    decides."""
    places = [*(args.input or ()), args.output, *_public_places(args)]
    asked = beam_flags or args.shards is not None or args.memory_limit is not None
    return None if not asked and all(map(stores.is_local, filter(None, places))) else on_beam(beam_flags)


def on_beam(beam_flags: Sequence[str]) -> Engine:
    """Beam, which is loaded here."""
    from headcount.pipelines.jobs.on_beam import OnBeam

    return OnBeam(beam_flags)


def _public_places(args: argparse.Namespace) -> list[str]:
    """Where public tables and domains lie."""
    given = [getattr(args, name, None) for name in ("join", "domain")]
    found = [each for value in given for each in (value if isinstance(value, list) else [value])]
    return [each.rpartition("=")[2] for each in found if isinstance(each, str)]


def _tables() -> Any:
    from headcount.pipelines.sinks import bigquery as tables

    return tables


def look(
    args: argparse.Namespace,
    engine: Engine | None,
    command: str,
    make: Make,
    kind: type[Source] = Events,
    sink: Any = None,
) -> Looked:
    """Look at the key, the files, their columns and the output of a job; `engine` is what `engine_of` gives."""
    runner = None if engine is None else engine.runner
    if engine is not None:
        engine.check()
    options.require(args, *kind.required)
    account_flags.check(args)
    release = releases.make_release(args, runner) if kind.keyed else releases.make_keyless(args)
    source = kind(args, remote=runner is not None)
    if kind.keyed:
        release = releases.for_rows(release, args)
    made = make(source.item_type)
    plan = made.plan.stating(domain_digest(args, source.keys) | options.join_digest(args))
    release = accounts.identified(release, args, command, plan)
    if sink is None:
        sink = _tables() if bigquery.is_table(args.output) else output
    beam_options = None if engine is None else engine.options
    target = sink.make_target(
        args.output, release.id, args.output_files, args.format, args.overwrite, plan.files, beam_options
    ).of_keys(options.shown_keys(args, source.keys))
    return Looked(source, release, plan, sink, target, sink.refuse(target), made)


def _tell(words: str) -> None:
    print(f"headcount: {words}", file=sys.stderr, flush=True)


_REFUSAL = re.compile(r"headcount\.mechanisms\.errors\.(?:InputError|ParameterError): (.+)")
# Also as Beam's runners repeat them, in words.
_NO_MEMORY = re.compile(r"MemoryError\b|malloc of size|Cannot allocate memory")
_NO_SPACE = re.compile(rf"\[Errno (?:{errno.ENOSPC}|{errno.EFBIG}|{errno.EDQUOT})\]")
_STEP = re.compile(r" \[while running '[^']*'\]")


def input_error(exception: BaseException) -> str | None:
    """The message of the InputError or ParameterError that made a pipeline fail, or None if none did."""
    seen: BaseException | None = exception
    while seen is not None:
        if isinstance(seen, HeadcountError):
            return _one_line(str(seen))
        found = _REFUSAL.search(str(seen))
        if found:
            return _one_line(found.group(1))
        seen = seen.__cause__ or seen.__context__
    return None


def shortage(exception: BaseException, output: str) -> str | None:
    """What to say where memory or a disk ran out, or None if neither did. How much was asked for is not told: that follows from
    the data."""
    seen: BaseException | None = exception
    while seen is not None:
        if isinstance(seen, MemoryError) or _NO_MEMORY.search(str(seen)):
            return (
                "memory ran out, and nothing was released: give a smaller --memory-limit, such as 200M, beyond which rows wait "
                "on disk, or run it on a cluster (docs/limits.md)"
            )
        if _NO_SPACE.search(str(seen)):
            return (
                f"no space is left for --output {output!r}, or in {tempfile.gettempdir()!r}, where rows wait: make room, and "
                "run it again; with a ledger see `headcount ledger show` first, as this release may be charged"
            )
        seen = seen.__cause__ or seen.__context__
    return None


def _one_line(message: str) -> str:
    return _STEP.split(message.splitlines()[0], maxsplit=1)[0].strip()
