"""An output as the last steps of a pipeline: files of rows are written, and committed with the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa

from headcount.pipelines.sinks.output import Target, Written, commit, write_file
from headcount.pipelines.sinks.publish import Commit, publish


@beam.typehints.with_input_types(tuple[int, pa.RecordBatch])
class WriteOutput(beam.PTransform):
    """Write batches (k, rows) for every k in 0..files-1, then commit them with the report.

    The input must lie beyond a barrier after the noise, so that every attempt writes the same rows. The report is known
    now, or is the one element of a collection, where it tells what the job has chosen; what it says of the rows is added at the
    end.
    """

    def __init__(
        self,
        target: Target,
        report: bytes | beam.PCollection[bytes],
        commit: Commit = commit,
    ) -> None:
        super().__init__()
        self._target = target
        self._report = report
        self._commit = commit

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        report = self._report if isinstance(self._report, bytes) else beam.pvalue.AsSingleton(self._report)
        return (
            batches
            | "Write" >> beam.ParDo(_WriteFile(self._target))  # (0, (k, name, digest, summary))
            | "Gather" >> beam.GroupByKey()
            | "Commit" >> beam.ParDo(_Commit(self._target, self._commit), report)
        )


@beam.typehints.with_output_types(tuple[int, tuple[int, str, bytes, str]])
class _WriteFile(beam.DoFn):
    def __init__(self, target: Target) -> None:
        self._target = target

    def process(self, element: tuple[int, pa.RecordBatch]) -> Iterator[tuple[int, tuple[int, str, bytes, str]]]:
        yield 0, write_file(self._target, *element)


class _Commit(beam.DoFn):
    def __init__(self, target: Target, commit: Commit) -> None:
        self._target = target
        self._commit = commit

    def process(self, element: tuple[int, Iterable[tuple[int, str, bytes, str]]], report: bytes) -> None:
        publish(self._target, (Written(*file) for file in element[1]), report, self._commit)
