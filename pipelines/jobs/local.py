"""The runner in this process, which tells the operator's terminal how far it is."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.job.utils import dict_to_struct
from apache_beam.runners.portability.fn_api_runner.execution import GroupingBuffer
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.worker.bundle_processor import DATA_INPUT_URN, DATA_OUTPUT_URN, DataInputOperation

from headcount.mechanisms.batches.chunk_store import forget, keeping
from headcount.pipelines import progress
from headcount.pipelines.jobs import memory


def keeps_chunks(beam_options: PipelineOptions) -> bool:
    """Whether the worker of the runner in this process is here, too, and not in processes of its own."""
    return beam_options.view_as(DirectOptions).direct_running_mode == "in_memory"


def local_runner(beam_options: PipelineOptions, memory_limit: int | None = None) -> FnApiRunner:
    """The runner in this process, whose worker processes get Beam's options: by itself it leaves them without.

    What it keeps of a run takes at most `memory_limit` bytes of memory (default: any).
    """
    given = beam_options.get_all_options(drop_default=True)
    # Numbers as text: the message knows floats alone, and no flag takes a 2.0 for a 2.
    options = {f"beam:option:{name}:v1": str(value) if type(value) is int else value for name, value in given.items()}
    provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=dict_to_struct(options))
    runner = _LocalRunner(provision_info=ExtendedProvisionInfo(provision))
    if keeps_chunks(beam_options):
        runner.store, runner.memory_limit = secrets.token_hex(8), memory_limit
    return runner


class _LocalRunner(FnApiRunner):
    """Beam's own, which runs stage after stage; what it tells besides changes nothing.

    Where its worker is in this process, `store` is the name of the store in which transforms keep what is large for a run.
    Chunks go when no stage waits for them.
    """

    store: str | None = None
    memory_limit: int | None = None

    def run_stages(self, stage_context: Any, stages: Any) -> Any:
        progress.planned([_step(stage) for stage in stages])
        with nullcontext() if self.store is None else keeping(self.store, self.memory_limit):
            return super().run_stages(stage_context, stages)

    def _execute_bundle(self, runner_execution_context: Any, bundle_context_manager: Any, bundle_input: Any) -> Any:
        handlers = bundle_context_manager.worker_handlers
        progress.begins(bundle_context_manager.stage.name, _parts(bundle_input), lambda: _begun(handlers))
        try:
            done = super()._execute_bundle(runner_execution_context, bundle_context_manager, bundle_input)
        finally:
            progress.ends()
        if self.store is not None:
            with suppress(AttributeError):  # another Beam may hold its inputs elsewhere: then chunks stay to the end
                forget(self.store, list(_waiting(runner_execution_context)))
            memory.give_back()
        return done


def _step(stage: Any) -> progress.Step:
    """A stage as the progress knows it."""

    def buffers(urn: str) -> frozenset[str]:
        return frozenset(each.spec.payload.decode() for each in stage.transforms if each.spec.urn == urn)

    labels = tuple(each.unique_name for each in stage.transforms)
    return progress.Step(stage.name, labels, buffers(DATA_INPUT_URN), buffers(DATA_OUTPUT_URN))


def _waiting(context: Any) -> Iterator[bytes]:
    """All bytes that stages have still to read."""
    queues = (context.queues.ready_inputs, context.queues.watermark_pending_inputs, context.queues.time_pending_inputs)
    inputs = [data for queue in queues for _, data in queue._q]
    for buffer in [*(each for data in inputs for each in data.data.values()), *context.pcoll_buffers.values()]:
        if isinstance(buffer, GroupingBuffer):
            yield from itertools.chain(*(buffer._grouped_output or ()))
            for value in itertools.chain(*buffer._table.values()):
                yield value if isinstance(value, bytes) else repr(value).encode()
        elif not buffer.cleared:
            yield from buffer


def _parts(bundle_input: Any) -> int | None:
    """How many groups a stage has to go through, where its input is grouped."""
    groups = [buffer for buffer in bundle_input.data.values() if isinstance(buffer, GroupingBuffer)]
    table = getattr(groups[0], "_table", None) if len(groups) == 1 else None
    return None if table is None else len(table)


def _begun(handlers: Any) -> int | None:
    """How many groups the worker of this process has begun; None if that is not to be seen, as of other processes."""
    try:
        cache = handlers[0].bundle_processor_cache
        running = [processor for _, processor in [*cache.active_bundle_processors.values()]]
        reads = [op for each in running for op in each.ops.values() if isinstance(op, DataInputOperation)]
        return int(reads[0].index) if len(reads) == 1 else None
    except (AttributeError, IndexError, RuntimeError):  # while it is being set up or taken down
        return None
