"""One call: the command's own checks, mechanism and report, in this process and without Beam.

Guarantee: that of the command. For the same key, release id, parameters and data, the rows are those of the command. With a
ledger, the cost is reserved before any row is read, and spent once the result is returned: it can be looked at then.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from typing import Any

from headcount.keywords import in_keywords, namespace, spelled
from headcount.mechanisms.errors import HeadcountError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import releases
from headcount.pipelines.command import JobCommand, load
from headcount.pipelines.flags import account as flags
from headcount.pipelines.flags import options
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.in_memory import frames
from headcount.pipelines.in_memory.prepared import prepared
from headcount.pipelines.ledger import account as accounts
from headcount.pipelines.reports import report
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.reports.released import Kept
from headcount.pipelines.reports.released import released as rows_of
from headcount.pipelines.sources.domain import domain_digest
from headcount.result import Result


def released(name: str, parameters: Mapping[str, Any], data: Any) -> Result:
    """The result of a command on a frame."""
    command = load(name)
    assert isinstance(command, JobCommand)
    try:
        return _released(command, namespace(command, parameters), data)
    except HeadcountError as error:
        raise spelled(error) from None


def _released(command: JobCommand[Any], args: argparse.Namespace, data: Any) -> Result:
    command.check_flags(args)
    flags.check(args)
    release = releases.for_rows(releases.make_release(args, None, spell=str), args)
    mechanism, events, item_type = prepared(command, args, data)
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
    keys = options.shown_keys(args, events.keys)
    kept, digested = Kept.of(args), args.ledger is not None
    made = rows_of(mechanism, plan, events.batches, release, command.name, keys, kept, digested)
    return Result(made, about, plan, command.show)
