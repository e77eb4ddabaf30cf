"""What every job shares: checks before the run, the pipeline, its progress, its failures and its end."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineState

from headcount.mechanisms.errors import InputError
from headcount.mechanisms.guarantee import Guarantee
from headcount.mechanisms.randomness import Release
from headcount.pipelines import failures, options, progress, report, sinks, sources, storage
from headcount.pipelines.command import Stopped
from headcount.transforms.contributions import Contributions

_BYTES_PER_SHARD = 4 << 20  # of input files; compressed, so that a shard stays below 32 MB in memory
_FEWEST_SHARDS, _MOST_SHARDS = 16, 4096


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a command computes from the events, and what it promises.

    `transform` takes contributions and gives (k, rows) for every k in 0..files-1, beyond a barrier.
    `parameters` are the public ones, for the report.
    """

    transform: beam.PTransform
    guarantee: Guarantee
    parameters: report.Parameters


def run_job(
    args: argparse.Namespace,
    beam_flags: Sequence[str],
    command: str,
    make_plan: Callable[[Release, type, int], Plan],
) -> int:
    """Run one job from files to a committed output; `make_plan` gets the release, item type and shard count.

    Everything that can be refused is refused before the run; a failed or stopped job leaves no output.
    """
    options.require(args, "--input", "--user", "--item", "--output")
    beam_options, runner = pipeline_options(beam_flags)
    release = options.make_release(args, runner)
    target = sinks.Target(
        storage.normal(args.output), release.id, args.output_files, args.format, args.overwrite
    )
    inputs = sources.expand_inputs(args.input)
    types = sources.column_types(inputs, args.user, args.item, args.count)
    plan = make_plan(release, types.item, args.shards or shards_for(inputs.bytes))
    sinks.prepare(target)
    content = report.make_report(command, release.id, plan.guarantee, plan.parameters)
    with _signals() as stopped:
        try:
            with progress.Progress(sys.stderr):
                write = sinks.WriteOutput(target, content)
                finished = _run(args, beam_options, runner, inputs, types, plan, write, _label(command))
        except BaseException as error:
            sinks.abandon(target)
            if stopped:  # Beam may have wrapped the signal's own exception
                raise Stopped(stopped[0]) from error
            _raise_refusal(error)
            raise
    if finished:
        print(f"wrote {args.output} (release {release.id})")
    else:
        print(f"submitted; {args.output} is complete when report.json is there (release {release.id})")
    return 0


def pipeline_options(flags: Sequence[str]) -> tuple[PipelineOptions, str | None]:
    """Beam's options, and the runner if another was asked for than the one in this process, which is pinned."""
    given = PipelineOptions(list(flags))
    standard = given.view_as(StandardOptions)
    if options.is_pinned(standard.runner):
        standard.runner = options.LOCAL_RUNNER
        return given, None
    return given, standard.runner


def shards_for(size: int | None) -> int:
    """How many shards of users for this many bytes of input files."""
    wanted = -(-(size or 0) // _BYTES_PER_SHARD)
    return min(max(wanted, _FEWEST_SHARDS), _MOST_SHARDS)


def _run(
    args: argparse.Namespace,
    beam_options: PipelineOptions,
    runner: str | None,
    inputs: sources.Inputs,
    types: sources.ColumnTypes,
    plan: Plan,
    write: sinks.WriteOutput,
    label: str,
) -> bool:
    """Run the pipeline to its end; False if it was only submitted, as the flags asked."""
    pipeline = beam.Pipeline(options=beam_options)
    _ = (
        pipeline
        | "Read" >> sources.ReadEvents(inputs, args.user, args.item, args.count)  # user, item[, count]
        | "Watch" >> beam.ParDo(_Watch())
        | "Contributions" >> Contributions(
            count="count" if args.count else None,
            drop_null=args.drop_null,
            max_item_bytes=args.max_item_bytes,
        )
        | label >> plan.transform  # (k, rows)
        | "Output" >> write
    )
    result = pipeline.run()
    if runner is not None and beam_options.view_as(StandardOptions).no_wait_until_finish:
        return False
    try:
        state = result.wait_until_finish()
    except Stopped:
        result.cancel()
        raise
    if state != PipelineState.DONE:
        raise RuntimeError(f"the job ended in the state {state}; see the pages of the runner")
    return True


@beam.typehints.with_input_types(pa.RecordBatch)
@beam.typehints.with_output_types(pa.RecordBatch)
class _Watch(beam.DoFn):
    """Counts rows for the progress line; batches pass unchanged. Fused with the read, so it follows it."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        progress.advance(batch.num_rows)
        yield batch

    def finish_bundle(self) -> None:
        progress.stage("counting")


def _label(command: str) -> str:
    """The label of a command's transform: part of every subkey, so never changed."""
    return command.title().replace("-", "")


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Turns Ctrl-C and SIGTERM into `Stopped` and notes them, for Beam may wrap what is raised inside it."""
    stopped: list[int] = []

    def stop(number: int, frame: object) -> None:
        stopped.append(number)
        raise Stopped(number)

    if threading.current_thread() is not threading.main_thread():
        yield stopped  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_refusal(error: BaseException) -> None:
    """Raise what Headcount itself refused inside the pipeline as its one line, without Beam's wrapping."""
    message = failures.input_error(error)
    if message is not None:
        raise InputError(message) from error
