"""What every job shares: checks before the run, the pipeline, its progress, its failures and its end."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineState

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.errors import HeadcountError, InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import progress, releases
from headcount.pipelines.flags import account as account_flags
from headcount.pipelines.flags import options
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.jobs import memory, remote
from headcount.pipelines.jobs.evidence import DigestOfInput
from headcount.pipelines.jobs.local import keeps_chunks, local_runner
from headcount.pipelines.jobs.signals import Signals, Stopped
from headcount.pipelines.ledger import account as accounts
from headcount.pipelines.pages.written import with_page
from headcount.pipelines.reports import report
from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.reports.plan import Plan, label_of
from headcount.pipelines.sinks import bigquery as sink_bigquery
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.write import WriteOutput, announced_first
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import Columns
from headcount.pipelines.sources.domain import domain_digest
from headcount.pipelines.storage import bigquery
from headcount.transforms.core.contributions import Contributions
from headcount.transforms.core.release import LOCAL_RUNNER, is_pinned
from headcount.transforms.core.result import CountsAndDecision

_BYTES_PER_SHARD = 16 << 20  # of input without compression: a shard stays below 32 MB
_FEWEST_SHARDS, _MOST_SHARDS = 4, 4096
_FEWEST_TO_SHARE = 32  # workers share shards by a hash of the number: of ten, one of two workers got eight

# Where a release may be found without the process that reserved it: noise that is drawn before the job, or is kept with what it
# was drawn for; and workers that outlive it.
_KEPT, _WORKERS = "in the files that it reads", "worker processes"

_View = TypeVar("_View", bound=PipelineOptions)
# What a job is, by the type of its items: its plan, and its transform for a release and a number of shards.
MakePlan = Callable[[type], tuple[Plan, Callable[[Release, int], beam.PTransform]]]


class Source:
    """What a job reads; made once everything about it that can be refused was refused.

    `required` flags must be given. `keyed` says whether the job draws noise, from the key of a release; else what it reads has
    its noise already. `digested` says whether the rows may be others under the same id, which a ledger must see. `keys` are
    what is counted, where that is known. `size` is about the bytes of the input, without compression.
    """

    required: tuple[str, ...] = ("--input", "--output")
    keyed = False
    digested = True
    item_type: type = str
    keys: Keys | None = None
    size = 0

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        raise NotImplementedError

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """The input of the job's transform."""
        raise NotImplementedError

    def expected_rows(self) -> int | None:
        """About how many rows there are, where that is cheap to tell: for the operator's terminal alone."""
        return None

    def description(self) -> str:
        """What is read, in words for whoever looks before it is."""
        return ""

    @classmethod
    def check_again(cls, args: argparse.Namespace) -> None:
        """Refuse an input that reading would change, where a release is only made again to compare it."""


class Events(Source):
    """Files of events, of which a job takes users, items and counts; a stream takes the `time` of rows, too, and other files
    that come later, by a `reader` of its own."""

    required: tuple[str, ...] = ("--input", "--user", "--item", "--output")
    keyed = True
    time: str | None = None
    reader: Callable[[events.Inputs, Columns, events.ColumnTypes], beam.PTransform] = events.ReadEvents

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        inputs = events.expand_inputs(args.input, args.input_format, args.delimiter)
        self._args, self._inputs = args, inputs.absolute() if remote else inputs
        asked = self._asked(args)
        self._columns = asked if self.time is None else dataclasses.replace(asked, time=self.time)
        self._types = events.column_types(self._inputs, self._columns)
        self.size = self._inputs.decoded(self._types)
        if self._columns.keys:
            self.keys = self._types.keys(self._columns)
            self.item_type = self.keys.item_type

    def _asked(self, args: argparse.Namespace) -> Columns:
        return options.columns(args)

    def expected_rows(self) -> int | None:
        """About how many rows the files have, by the first of them."""
        return events.expected_rows(self._inputs)

    def description(self) -> str:
        """The files, and the types of the columns."""
        number, types = len(self._inputs.files), self._types.schema
        read = ", ".join(f"{name} ({type_})" for name, type_ in zip(types.names, types.types, strict=True))
        return f"reads {number:,} {'file' if number == 1 else 'files'} of {self._inputs.format}: {read}"

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Checked contributions, of batches with the columns of the files."""
        return self._contributions(pipeline | "Read" >> self.reader(self._inputs, self._columns, self._types))

    def _contributions(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | "Contributions" >> Contributions(**options.rows(self._args), schema=self._types.schema)


def run_job(
    args: argparse.Namespace,
    beam_flags: Sequence[str],
    command: str,
    make_plan: MakePlan,
    source: type[Source] | None = None,
    sink: Any = None,
) -> Outcome:
    """Run one job from files to a committed output; `make_plan` gets the item type, and what it gives release and shard count.

    Its transform takes contributions and gives (k, rows) for every k in 0..files-1, beyond a barrier; or these with the
    decision that the job came to, which then goes into the report.

    Everything that can be refused is refused before the run; a failed or stopped job leaves no output. It reads events, unless
    another `source` is given, and writes where --output says, unless another `sink` is given, a module like those of `sinks`.
    With a ledger, its cost is reserved before it reads rows.
    """
    kind = Events if source is None else source
    with Signals() as signals:
        beam_options, runner = pipeline_options(beam_flags)
        here = runner is None and keeps_chunks(beam_options)
        memory_limit = memory.limit_for(args.memory_limit, here)
        if runner is None:
            memory.keep_freed()
        made = look(args, (beam_options, runner), command, make_plan, kind, sink)
        source_, release, plan, sink, target, there = made[:6]
        words = memory.too_little(source_.size, memory_limit, here) if runner is None else None
        if words is not None:
            _tell(words)
        transform = made.make_transform(release, args.shards or shards_for(source_.size, shared=runner is not None))
        if there and kind.keyed and args.release_id is None:
            account_flags.tell_of_replacing()
        elsewhere = _KEPT if not kind.keyed else runner or (None if here else _WORKERS)
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
            shown = nullcontext() if runner is not None else progress.Progress(sys.stderr, source_.expected_rows)
            with shown:
                pipeline = beam.Pipeline(
                    local_runner(beam_options, memory_limit) if runner is None else None, beam_options
                )
                if not kind.keyed:
                    account.started()
                read = source_.read(pipeline)
                digest = None
                if args.ledger is not None and kind.digested:
                    digest = read | "InputDigest" >> DigestOfInput(release, kind.keyed)
                result = read | label_of(command) >> transform
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
                rows, content = _reported(result, plan.guarantee, about, digest)
                _ = rows | "Output" >> WriteOutput(target, content, sink.commit)
                if elsewhere is not None:
                    account.started()
                with announced_first(release.id, account.publishing) if here else nullcontext():
                    finished = _run(pipeline, signals, runner, beam_options)
        except BaseException as error:
            signals.ignore()
            if prepared:
                sink.abandon(target)
            account.failed()
            if signals.received is not None:  # Beam may have wrapped the signal's own exception
                raise Stopped(signals.received) from error
            message = input_error(error)
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


class Looked(NamedTuple):
    """A job of which everything was refused that can be before it runs: no row was read, and nothing is written or reserved.

    `there` says that an earlier output is replaced, or that this very release is there already.
    """

    source: Source
    release: Release
    plan: Plan
    sink: Any
    target: Any
    there: bool
    make_transform: Callable[[Release, int], beam.PTransform]


def look(
    args: argparse.Namespace,
    how: tuple[PipelineOptions, str | None],
    command: str,
    make_plan: MakePlan,
    kind: type[Source] = Events,
    sink: Any = None,
) -> Looked:
    """Look at the key, the files, their columns and the output of a job; `how` it runs is what `pipeline_options` gives."""
    beam_options, runner = how
    options.require(args, *kind.required)
    account_flags.check(args)
    release = releases.make_release(args, runner) if kind.keyed else releases.make_keyless(args)
    source = kind(args, remote=runner is not None)
    if kind.keyed:
        release = releases.for_rows(release, args)
    plan, make_transform = make_plan(source.item_type)
    plan = plan.stating(domain_digest(args, source.keys) | options.join_digest(args))
    release = accounts.identified(release, args, command, plan)
    if sink is None:
        sink = sink_bigquery if bigquery.is_table(args.output) else output
    target = sink.make_target(
        args.output, release.id, args.output_files, args.format, args.overwrite, plan.files, beam_options
    ).of_keys(options.shown_keys(args, source.keys))
    return Looked(source, release, plan, sink, target, sink.refuse(target), make_transform)


def _reported(
    result: beam.PCollection | CountsAndDecision,
    guarantee: Guarantee,
    about: report.About,
    digest: beam.PCollection[str] | None,
) -> tuple[beam.PCollection, bytes | beam.PCollection[bytes]]:
    """The rows of a command's transform, and the report on them: known now, or once the job has decided or seen its input."""
    if isinstance(result, CountsAndDecision):
        beside = [] if digest is None else [beam.pvalue.AsSingleton(digest)]
        made = beam.Map(report.decided_report, about, *beside).with_output_types(bytes)
        return result.counts, result.decision | "Report" >> made
    if digest is None:
        return result, report.make_report(about, guarantee)
    return result, digest | "Report" >> beam.Map(report.plain_report, about, guarantee).with_output_types(bytes)


def pipeline_options(flags: Sequence[str]) -> tuple[PipelineOptions, str | None]:
    """Beam's options, and the runner if another was asked for than the one in this process, which is pinned."""
    given = _Options(list(flags))
    FileSystems.set_options(given)  # inputs and output are looked at before there is a pipeline
    standard = given.view_as(StandardOptions)
    if is_pinned(standard.runner):
        standard.runner = LOCAL_RUNNER
        return given, None
    _check_runner(standard.runner)
    return given, standard.runner


class _Options(PipelineOptions):
    """Beam's options, each view of them made once: a view parses all flags, and Beam asks for some hundreds of them."""

    def __init__(self, flags: list[str]) -> None:
        super().__init__(flags)
        object.__setattr__(self, "_views", {})  # by itself Beam takes an attribute for an option

    def view_as(self, cls: type[_View]) -> _View:
        views: dict[type, Any] = self.__dict__["_views"]
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_views": {}}  # a copy has options of its own, and so has views of its own


def _check_runner(runner: str) -> None:
    """Refuse what is neither a name that Beam knows nor, by its dots, a class of somebody's own."""
    known = {name.lower() for name in StandardOptions.KNOWN_RUNNER_NAMES}
    if "." not in runner and not known & {runner.lower(), f"{runner.lower()}runner"}:
        names = ", ".join(name for name in StandardOptions.KNOWN_RUNNER_NAMES if not name.startswith("Test"))
        raise ParameterError(f"unknown runner {runner!r}: give --runner one of {names}, or the full name of a class")


def shards_for(size: int, shared: bool = False) -> int:
    """How many shards of users for this many bytes of input, without compression; more if several workers share them."""
    wanted = -(-size // _BYTES_PER_SHARD)
    return min(max(wanted, _FEWEST_TO_SHARE if shared else _FEWEST_SHARDS), _MOST_SHARDS)


def _run(pipeline: beam.Pipeline, signals: Signals, runner: str | None, beam_options: PipelineOptions) -> bool:
    """Run a pipeline to its end; False if it was only submitted. On another runner, its states are told as they change."""
    gc.freeze()  # what was imported stays: later collections need not look at it
    gc.enable()
    result = pipeline.run()
    if runner is not None:
        place = remote.where(runner, remote.job_of(result), beam_options)
        if place is not None:
            _tell(place)
        if is_detached(beam_options):
            return False
    try:
        with nullcontext() if runner is None else remote.watched(result, _tell):
            state = result.wait_until_finish()
    except Stopped:
        signals.ignore()  # the first one is raised again and again, and would stop the cancelling too
        result.cancel()
        raise
    if state != PipelineState.DONE:
        raise RuntimeError(f"the job ended in the state {state}; see the pages of the runner")
    return True


def _tell(words: str) -> None:
    print(f"headcount: {words}", file=sys.stderr, flush=True)


def is_detached(beam_options: PipelineOptions) -> bool:
    """Whether nobody waits for the job."""
    return bool(beam_options.view_as(StandardOptions).no_wait_until_finish)


_REFUSAL = re.compile(r"headcount\.mechanisms\.errors\.(?:InputError|ParameterError): (.+)")
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


def _one_line(message: str) -> str:
    return _STEP.split(message.splitlines()[0], maxsplit=1)[0].strip()
