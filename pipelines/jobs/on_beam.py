"""A job as a Beam pipeline, on the runner in this process or on another one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions, TypeOptions
from apache_beam.runners.runner import PipelineState

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.jobs import loopback, remote
from headcount.pipelines.jobs.evidence import DigestOfInput
from headcount.pipelines.jobs.job import Job, Looked
from headcount.pipelines.jobs.local import keeps_chunks, local_runner
from headcount.pipelines.jobs.signals import Signals, Stopped
from headcount.pipelines.reports import report
from headcount.pipelines.reports.plan import label_of
from headcount.pipelines.sinks.write import WriteOutput
from headcount.transforms.core.release import LOCAL_RUNNER, is_pinned
from headcount.transforms.core.result import CountsAndDecision

_BYTES_PER_SHARD = 16 << 20  # of input without compression, on workers: a shard stays below 32 MB
_BYTES_PER_SHARD_HERE = 64 << 20  # each has its own list of items, and a share of every batch: fewer take less time
_FEWEST_SHARDS, _MOST_SHARDS = 4, 4096
_FEWEST_TO_SHARE = 32  # workers share shards by a hash of the number: of ten, one of two workers got eight

_View = TypeVar("_View", bound=PipelineOptions)


class OnBeam:
    """Runs a job as a pipeline, by Beam's own flags. `runner` is None for the one in this process, and `here` says whether its
    worker is here, too."""

    def __init__(self, flags: Sequence[str]) -> None:
        self.options, self.runner = pipeline_options(flags)
        self.here = self.runner is None and keeps_chunks(self.options)
        loopback.bind()

    def check(self) -> None:
        """Refuse a runner that starts a server which others reach."""
        loopback.check(self.runner, self.options)

    def make(self, args: argparse.Namespace, looked: Looked, memory_limit: int | None) -> None:
        """Make the transform, which refuses what is wrong."""
        shards = args.shards or shards_for(looked.source.size, shared=self.runner is not None)
        self._transform, self._memory_limit = looked.made.make_transform(looked.release, shards), memory_limit

    def run(self, job: Job, signals: Signals) -> bool:
        """Run the job to its end; False if it was only submitted."""
        here = local_runner(self.options, self._memory_limit) if self.runner is None else None
        pipeline = beam.Pipeline(here, self.options)
        read = job.source.read(pipeline)
        digest = None
        if job.digested is not None:
            digest = read | "InputDigest" >> DigestOfInput(job.release, job.digested)
        result = read | label_of(job.about.command) >> self._transform
        rows, content = _reported(result, job.plan.guarantee, job.about, digest)
        _ = rows | "Output" >> WriteOutput(job.target, content, job.commit)
        job.starts()
        return _run(pipeline, signals, self.runner, self.options)


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
    _check_types(given)
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


def _check_types(options: PipelineOptions) -> None:
    """Refuse Beam's checks of elements in a running job, which none of our steps needs."""
    for name in ("runtime_type_check", "performance_runtime_type_check"):
        if getattr(options.view_as(TypeOptions), name):
            raise ParameterError(
                f"--{name} prints the element whose type is wrong, which may name a user: leave it out, the result is the same"
            )


def _check_runner(runner: str) -> None:
    """Refuse what is neither a name that Beam knows nor, by its dots, a class of somebody's own."""
    known = {name.lower() for name in StandardOptions.KNOWN_RUNNER_NAMES}
    if "." not in runner and not known & {runner.lower(), f"{runner.lower()}runner"}:
        names = ", ".join(name for name in StandardOptions.KNOWN_RUNNER_NAMES if not name.startswith("Test"))
        raise ParameterError(f"unknown runner {runner!r}: give --runner one of {names}, or the full name of a class")


def shards_for(size: int, shared: bool = False) -> int:
    """How many shards of users for this many bytes of input, without compression; more if several workers share them."""
    wanted = -(-size // (_BYTES_PER_SHARD if shared else _BYTES_PER_SHARD_HERE))
    return min(max(wanted, _FEWEST_TO_SHARE if shared else _FEWEST_SHARDS), _MOST_SHARDS)


def _run(pipeline: beam.Pipeline, signals: Signals, runner: str | None, beam_options: PipelineOptions) -> bool:
    """Run a pipeline to its end; False if it was only submitted. On another runner, its states are told as they change."""
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
