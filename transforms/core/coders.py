"""How elements are encoded where they leave a worker: record batches as Arrow streams, others by their types.

Beam's default pickles a slice together with its whole parent, so a few rows of a large batch with two consumers can take
gigabytes. Importing `headcount.transforms` registers this coder for `pa.RecordBatch`.
"""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

from headcount.mechanisms.batches.packing import from_ipc, to_ipc


def typed(outputs: beam.pvalue.DoOutputsTuple, **types: Any) -> beam.pvalue.DoOutputsTuple:
    """The outputs of a step, with the types of those that are not the main one. Beam takes them itself from 2.72 on only.

    Where Beam checks the elements of a running job, it would hold each output against the type of the main one, and against
    what the consumers of all of them take. So the step has no type from here on; its outputs keep theirs.
    """
    for tag, element_type in types.items():
        outputs[tag].element_type = convert_to_beam_type(element_type)
    step = outputs._transform
    step.with_output_types(Any)
    step._add_type_constraint_from_consumer = _held_to_nothing
    return outputs


def _held_to_nothing(label: str, hints: Any) -> None:
    pass


class RecordBatchCoder(beam.coders.Coder):
    """Record batches as Arrow streams, dictionaries cut to the rows at hand."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        return to_ipc(_compacted(value))

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        return from_ipc(encoded)

    def estimate_size(self, value: pa.RecordBatch) -> int:
        """Beam asks this of the first elements of every step, which here are all; its default encodes them to know."""
        return value.nbytes

    def is_deterministic(self) -> bool:
        return False


def _compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with only those dictionary entries that its rows use, where it has more of them than rows."""
    columns = [
        column.dictionary_decode().dictionary_encode()
        if isinstance(column, pa.DictionaryArray) and len(column.dictionary) > max(len(column), 1)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names, metadata=batch.schema.metadata)


class TableCoder(RecordBatchCoder):
    """Tables as Arrow streams."""

    def encode(self, value: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, value.schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        ) as stream:
            stream.write_table(value)
        return bytes(sink.getvalue())

    def decode(self, encoded: bytes) -> pa.Table:
        return pa.ipc.open_stream(encoded).read_all()


beam.coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)
beam.coders.registry.register_coder(pa.Table, TableCoder)
