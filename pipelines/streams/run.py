"""One stream from files that arrive to a published folder for each window."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineState

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.windows import Windows
from headcount.pipelines.command import say
from headcount.pipelines.flags import options
from headcount.pipelines.flags.protection import protection
from headcount.pipelines.jobs import remote
from headcount.pipelines.jobs.job import Looked
from headcount.pipelines.jobs.on_beam import OnBeam, is_detached, shards_for
from headcount.pipelines.jobs.run import Make, input_error, look
from headcount.pipelines.jobs.signals import Signals, Stopped
from headcount.pipelines.jobs.source import Events, Source
from headcount.pipelines.releases import KEY_SOURCES
from headcount.pipelines.reports.plan import label_of
from headcount.pipelines.reports.report import About
from headcount.pipelines.storage import bigquery
from headcount.pipelines.storage.stores import is_local
from headcount.pipelines.streams import folders
from headcount.pipelines.streams.arriving import Arriving, ReadArriving
from headcount.pipelines.streams.folders import Folders
from headcount.pipelines.streams.guard import taken_along
from headcount.pipelines.streams.looks import Looks
from headcount.pipelines.streams.publish import Publisher
from headcount.pipelines.streams.sink import SumsOfInput, WindowParts
from headcount.transforms.core.result import CountsAndDecision

_INTERVAL = 0.5  # seconds between two looks at what lies aside
_PATIENCE = 10.0  # seconds for a job to end by itself once all is published: on Flink, one with checkpoints never does
# What a stage of Flink holds back for a checkpoint comes behind the clock otherwise, and would be dropped as late.
_ON_FLINK = "--finish_bundle_before_checkpointing"


@dataclasses.dataclass(frozen=True)
class Stream:
    """What makes a job a stream: its public windows, the column of rows' times, and seconds: how long windows wait for files
    that come late, and how often files are looked for."""

    windows: Windows
    time: str
    wait: int
    look_every: int


def run_stream(
    args: argparse.Namespace,
    beam_flags: Sequence[str],
    command: str,
    making: Make,
    source: type[Source] | None,
    stream: Stream,
) -> None:
    """Run a stream until all of its windows are published, or it is stopped; the next start of the same goes on.

    `args` are those of the command that each window is a job of. Everything that can be refused is refused before the run.
    """
    with Signals() as signals:
        engine = _engine(beam_flags)
        beam_options, runner = engine.options, engine.runner
        made, places = _look(args, engine, command, making, source, stream)
        release = Release(made.release.key_source, made.release.id, windows=stream.windows)
        waits = not is_detached(beam_options)
        if args.ledger is not None and not waits:
            raise ParameterError(
                "a stream with --ledger needs a process that waits, since that reserves each window before it is published: "
                "leave out --no_wait_until_finish, or --ledger"
            )
        options.hint(made.plan.guarantee.epsilon, made.plan.guarantee.delta)
        publisher = Publisher(args, command, release, made.plan, places, _say)
        published = publisher.resume(time.time()) if waits else places.published()
        if waits and not publisher.left:
            _say(f"all {stream.windows.number:,} windows are published already")
            return
        try:
            pipeline = _pipeline(args, beam_options, command, made, release, places, stream, published, waits)
            result = pipeline.run()
        except BaseException:
            publisher.close()
            raise
        place = remote.where(str(runner), remote.job_of(result), beam_options)
        if place is not None:
            _tell(place)
        if not waits:
            _say(
                f"submitted; a window is complete when {args.output} has its folder with report.json (release {release.id})"
            )
            return
        try:
            with taken_along():
                _wait(result, publisher)
        except BaseException as error:
            signals.ignore()
            with suppress(Exception):  # a runner that ends by the same signal is no longer there to be told
                result.cancel()
            publisher.close()
            if signals.received is not None:
                raise Stopped(signals.received) from error
            message = input_error(error)
            if message is not None:
                raise InputError(message) from error
            raise
    _say(f"all {stream.windows.number:,} windows are published")


def _engine(flags: Sequence[str]) -> OnBeam:
    """The runner by Beam's flags, of which a stream on Flink needs more; those that are given win.

    Flink's runner makes a table of state for each look at files and drops none (apache/beam#27648). A table has a part for each
    worker that there may ever be: by default 128, 83 kB in all.
    """
    engine = OnBeam(flags)
    if "flink" not in str(engine.runner).lower():
        return engine
    workers = engine.options.view_as(FlinkRunnerOptions).parallelism
    return OnBeam([_ON_FLINK, *([f"--max_parallelism={workers}"] if workers > 0 else []), *flags])


def _look(
    args: argparse.Namespace,
    engine: OnBeam,
    command: str,
    making: Make,
    source: type[Source] | None,
    stream: Stream,
) -> tuple[Looked, Folders]:
    """All that can be refused before anything runs."""
    if engine.runner is None:
        raise ParameterError(
            "the runner of this process closes windows only when all input has ended, and a stream has no end: give --runner "
            "PrismRunner (on this machine), FlinkRunner or DataflowRunner"
        )
    if args.release_id is None or all(getattr(args, name) is None for name in KEY_SOURCES):
        raise ParameterError(
            "a stream that is started again must go on with the same releases: give --key-file (or --key-secret, --key-env) "
            "and --release-id"
        )
    options.require(args, "--input", "--output")
    if any(map(bigquery.is_table, args.input)):
        raise ParameterError("a stream reads files that arrive, and a table is none: give files or a folder by --input")
    kind = source or Events
    assert issubclass(kind, Events)
    timed = type(kind.__name__, (kind,), {"time": stream.time})
    made = look(args, engine, command, making, timed, folders)
    return made, Folders(made.target, stream.windows)


def _pipeline(
    args: argparse.Namespace,
    beam_options: PipelineOptions,
    command: str,
    made: Looked,
    release: Release,
    places: Folders,
    stream: Stream,
    published: frozenset[int],
    aside: bool,
) -> beam.Pipeline:
    beam_options.view_as(StandardOptions).streaming = True
    source, plan = made.source, made.plan
    assert isinstance(source, Events)
    # Workers have another working directory.
    patterns = tuple(os.path.abspath(each) if is_local(each) else each for each in args.input)
    looks = Looks(stream.windows, int(time.time()), stream.look_every, stream.wait)
    arriving = Arriving(patterns, looks, args.input_format, published, args.drop_null)
    source.reader = functools.partial(ReadArriving, arriving)
    pipeline = beam.Pipeline(options=beam_options)
    rows = source.read(pipeline)
    sums = rows | "InputDigest" >> SumsOfInput(release) if args.ledger is not None else None
    shards = args.shards or shards_for(source.size, shared=True)
    results: Any = rows | label_of(command) >> made.made.make_transform(release, shards)
    about = About(
        command,
        release.id,
        plan.parameters,
        plan.note,
        args.label,
        None,
        plan.summary,
        protection(args),
        args.dataset,
    )
    decides = isinstance(results, CountsAndDecision)
    counts, decision = (results.counts, results.decision) if decides else (results, None)
    how: dict[str, Any] = {"aside": aside, "published": published, "sums": sums, "release": release}
    _ = counts | "Output" >> WindowParts(places, about, plan.guarantee, decision, **how)
    return pipeline


def _wait(result: Any, publisher: Publisher) -> None:
    """Publish windows until all are, or the job has ended, or it must not go on."""
    ended, end = threading.Event(), _End()

    def wait() -> None:
        try:
            end.state = result.wait_until_finish()
        except BaseException as error:  # it is raised where the publishing is
            end.error = error
        finally:
            ended.set()

    with remote.watched(result, _tell):
        threading.Thread(target=wait, name="headcount-stream", daemon=True).start()
        while publisher.left and not ended.wait(_INTERVAL):
            publisher.step(time.time())
        if not ended.wait(0 if publisher.left else _PATIENCE):
            result.cancel()
    publisher.step(time.time())
    if not publisher.left:
        return
    if end.error is not None:
        raise end.error
    if end.state != PipelineState.DONE:
        raise RuntimeError(f"the job ended in the state {end.state}; see the pages of the runner")
    raise RuntimeError(f"the job ended without a result for {len(publisher.left):,} windows")


@dataclasses.dataclass
class _End:
    """How a job ended."""

    state: str | None = None
    error: BaseException | None = None


def _say(words: str) -> None:
    """One line for whoever watches, at once."""
    say(words)
    sys.stdout.flush()


def _tell(words: str) -> None:
    print(f"headcount: {words}", file=sys.stderr, flush=True)
