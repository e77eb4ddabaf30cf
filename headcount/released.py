"""One call: the command's own checks, mechanism and report, in this process and without Beam.

Guarantee: that of the command. For the same key, release id, parameters and data, the rows are those of the command. With a
ledger, the cost is reserved before any row is read, and spent once the result is returned: it can be looked at then.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from headcount import frames
from headcount.keywords import in_keywords, namespace, spelled
from headcount.mechanisms.counting.input_digest import InputDigest
from headcount.mechanisms.counting.quality import EVERY_ROW, Quality
from headcount.mechanisms.errors import HeadcountError
from headcount.mechanisms.mechanism import Deciding
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.over_values import SearchOverValues, TreeOverValues
from headcount.pipelines import releases
from headcount.pipelines.command import JobCommand, load
from headcount.pipelines.flags import account as flags
from headcount.pipelines.flags import options
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.ledger import account as accounts
from headcount.pipelines.reports import report
from headcount.pipelines.reports.plan import Plan, label_of
from headcount.pipelines.sources.domain import domain_digest
from headcount.result import Released, Result


def released(name: str, parameters: Mapping[str, Any], data: Any) -> Result:
    """The result of a command on a frame."""
    command = load(name)
    assert isinstance(command, JobCommand)
    try:
        return _released(command, namespace(command, parameters), data)
    except HeadcountError as error:
        raise spelled(error) from None


def _released(command: JobCommand[Any], args: argparse.Namespace, data: Any) -> Result:
    command.check(args)
    flags.check(args)
    release = releases.for_rows(releases.make_release(args, None, spell=str), args)
    if command.name == "quantiles":
        item_type: type = int
        mechanism = command.make_mechanism(args, item_type)
        assert isinstance(mechanism, SearchOverValues | TreeOverValues)
        events = frames.values(data, args, mechanism.axis, mechanism.leaves)
    else:
        if hasattr(args, "by"):
            events = frames.people(data, args)
        else:
            if command.name != "total":
                options.require(args, "--item")
            events = frames.every_row(data, args) if args.item is None else frames.counted(data, args)
        item_type = str if events.keys is None else events.keys.item_type
        if getattr(args, "domain", None) is not None:
            args.domain = frames.named_domain(args.domain, events.keys, args.max_item_bytes)
        mechanism = command.make_mechanism(args, item_type)
    digests = domain_digest(args, events.keys) | options.join_digest(args)
    plan = command.plan(args, mechanism, item_type).stating(digests)
    for words in (options.hint_text(plan.guarantee.epsilon, plan.guarantee.delta), options.table_hint(args)):
        if words is not None:
            warnings.warn(in_keywords(words), stacklevel=4)  # where the function was called
    release = accounts.identified(release, args, command.name, plan)
    account = accounts.open_account(args, command.name, release, plan)
    try:
        result = _result(command, args, release, mechanism, plan, events, account.date)
        # What is not said in the ledger is not returned.
        account.published(result.checked(account.expected))
    except BaseException:
        account.failed()
        raise
    return result


def _result(
    command: JobCommand[Any],
    args: argparse.Namespace,
    release: Release,
    mechanism: Any,
    plan: Plan,
    events: frames.Events,
    reserved: str | None,
) -> Result:
    label, decision = plan.drawn_as or label_of(command.name), None
    digest = None if args.ledger is None else InputDigest(release.key_source.fetch(), release.id)
    sums: list[bytes] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in events.batches:
            if digest is not None:
                sums.append(digest.of(batch))
            yield batch

    read = batches()
    if isinstance(mechanism, Deciding):
        rows, decision = mechanism.run_decided(read, release, label)
    else:
        rows = mechanism.run(read, release, label)
    for _ in read:  # what a mechanism has no need of is part of the input, too
        pass
    quality = Quality(**options.quality(args)) if hasattr(args, "suppress_below") else EVERY_ROW
    about = report.About(
        command.name,
        release.id,
        plan.parameters,
        plan.note,
        args.label,
        args.period,
        plan.summary,
        protection(args),
        args.dataset,
        report.first_made(release.id, reserved, None),
    )
    known = None if digest is None else digest.whole(sums)
    return Result(
        Released(rows, options.shown_keys(args, events.keys), quality), about, plan, decision, command.show, known
    )
