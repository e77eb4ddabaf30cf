"""The events of files, or of tables of BigQuery, as a collection of a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from headcount.pipelines.sources import bigquery as source_bigquery
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import Columns, ColumnTypes
from headcount.pipelines.sources.events import Inputs, Task, column_types, read_batches, split_file
from headcount.pipelines.sources.matching import InputFile


@beam.typehints.with_output_types(pa.RecordBatch)
class ReadEvents(beam.PTransform):
    """The events of all files as batches; see `read_batches`.

    `types` are those that `column_types` gave; without them the first file is looked at again.
    """

    def __init__(self, inputs: Inputs, columns: Columns, types: ColumnTypes | None = None) -> None:
        super().__init__()
        self._inputs = inputs
        self._columns = columns
        self._types = types or column_types(inputs, columns)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[pa.RecordBatch]:
        if self._inputs.format == "bigquery":
            tasks = begin | "Tasks" >> beam.Create(self._streams(begin.pipeline.options))
        elif self._inputs.bytes < events.SPLIT_BYTES:  # too little to be spread over workers
            tasks = begin | "Tasks" >> beam.Create(self._inputs.tasks(), reshuffle=False)
        else:
            tasks = (
                begin
                | "Files" >> beam.Create(list(enumerate(self._inputs.files)), reshuffle=False)  # (number, file)
                | "Split" >> beam.ParDo(_Split(self._inputs, self._columns))  # ((number, part), task)
                # A shuffle by a key of its own for each task spreads them over the workers.
                | "Spread" >> beam.GroupByKey()
                | "Tasks" >> beam.FlatMapTuple(_values).with_output_types(Task)
            )
        return tasks | "Batches" >> beam.ParDo(_Read(self._columns, self._types))

    def _streams(self, options: PipelineOptions) -> list[Task]:
        """The tasks of reading tables. Here and not in a worker: a step that ran again would open another snapshot."""
        return [
            Task(file.path, self._inputs.format, stream=stream)
            for file in self._inputs.files
            for stream in source_bigquery.split(file.path, file.size, self._columns, self._types, options)
        ]


@beam.typehints.with_input_types(tuple[int, InputFile])
@beam.typehints.with_output_types(tuple[tuple[int, int], Task])
class _Split(beam.DoFn):
    def __init__(self, inputs: Inputs, columns: Columns) -> None:
        self._format, self._delimiter = inputs.format, inputs.delimiter
        self._columns = columns

    def process(self, numbered: tuple[int, InputFile]) -> Iterator[tuple[tuple[int, int], Task]]:
        number, file = numbered
        for part, task in enumerate(split_file(file, self._format, self._columns, self._delimiter)):
            yield (number, part), task


@beam.typehints.with_input_types(Task)
@beam.typehints.with_output_types(pa.RecordBatch)
class _Read(beam.DoFn):
    def __init__(self, columns: Columns, types: ColumnTypes) -> None:
        self._columns = columns
        self._types = types

    def process(self, task: Task) -> Iterator[pa.RecordBatch]:
        yield from read_batches(task, self._columns, self._types)


def _values(key: tuple[int, int], tasks: Iterable[Task]) -> Iterable[Task]:
    return tasks
