"""Columns of a chunk in few bytes, as an Arrow stream: bytes are what a shuffle costs.

A batch of one row holds each column as one list. Strings go as their lengths, in one byte each where that is enough, and
their text, in place of four bytes of offset; integers and codes in as few bytes as hold them. Where rows come name by name, the
number of each name's rows stands for their codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.chunk_store import found
from headcount.mechanisms.batches.names import string_buffers

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of an Arrow stream
_KINDS = tuple((kind, np.iinfo(kind).min, np.iinfo(kind).max) for kind in (np.uint8, np.uint16, np.int32, np.int64))


def to_ipc(batch: pa.RecordBatch, compress: bool = False) -> bytes:
    """The batch as an Arrow stream: what crosses a shuffle (a pickled slice would carry its whole parent).

    `compress` is for what would make one large group; elsewhere it costs more time than the bytes that it saves.
    """
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compress else None)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_ipc(data: bytes) -> pa.RecordBatch:
    """Inverse of `to_ipc`; also of what a `Keeper` makes of its result."""
    with pa.ipc.open_stream(pa.py_buffer(found(data))) as reader:
        return reader.read_next_batch()


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several that have the same columns. pyarrow has this itself from 19 on, which older Beams do not allow."""
    columns = [pa.concat_arrays(parts) for parts in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def pack(columns: Mapping[str, pa.Array], metadata: Mapping[bytes, bytes] | None = None) -> bytes:
    """Columns of strings, int64 or dictionaries of these, without nulls, and metadata, as bytes."""
    parts: dict[str, pa.Array] = {}
    for name, column in columns.items():
        if isinstance(column, pa.DictionaryArray):
            codes = np.asarray(column.indices)
            rows = _rows_of_each(codes, len(column.dictionary))
            kind, codes = ("codes", codes) if rows is None else ("rows", rows)
            parts[f"{name}/{kind}"] = _listed(_narrow(codes))
            column = column.dictionary
            name = f"{name}/names"
        if pa.types.is_string(column.type):
            ends, text = string_buffers(column)
            parts[f"{name}/sizes"] = _listed(_narrow(np.diff(ends)))
            parts[f"{name}/text"] = _listed(text[ends[0] : ends[-1]])
        else:
            parts[name] = _listed(_narrow(np.asarray(column)))
    batch = pa.RecordBatch.from_pydict(parts, metadata=metadata)
    # What `to_ipc` gives of a batch without dictionaries, in one piece: a stream that grows is copied again and again.
    return b"".join((batch.schema.serialize(), batch.serialize(), _END))


def unpack(data: bytes) -> tuple[dict[str, pa.Array], dict[bytes, bytes]]:
    """Inverse of `pack`: the columns, and the metadata."""
    batch = from_ipc(data)
    parts = {name: batch.column(name).values for name in batch.schema.names}
    names = dict.fromkeys(name.split("/")[0] for name in parts)
    return {name: _unpacked(parts, name) for name in names}, batch.schema.metadata or {}


def _unpacked(parts: Mapping[str, pa.Array], name: str) -> pa.Array:
    if f"{name}/codes" in parts:
        return pa.DictionaryArray.from_arrays(parts[f"{name}/codes"], _unpacked(parts, f"{name}/names"))
    if f"{name}/rows" in parts:
        rows = np.asarray(parts[f"{name}/rows"])
        codes = np.repeat(np.arange(len(rows), dtype=np.int32), rows)
        return pa.DictionaryArray.from_arrays(pa.array(codes), _unpacked(parts, f"{name}/names"), safe=False)
    if name in parts:
        return parts[name].cast(pa.int64())
    sizes, text = parts[f"{name}/sizes"], parts[f"{name}/text"]
    ends = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(np.asarray(sizes), out=ends[1:])
    return pa.StringArray.from_buffers(len(sizes), pa.py_buffer(ends), text.buffers()[1] or pa.py_buffer(b""))


def _rows_of_each(codes: np.ndarray, names: int) -> np.ndarray | None:
    """How many rows each name has, where they come name by name, in the order of the names; None where they do not."""
    if len(codes) == 0 or codes[0] != 0 or codes[-1] != names - 1:
        return None
    steps = np.diff(codes)
    starts = np.flatnonzero(steps)
    if len(starts) != names - 1 or int(steps.min(initial=0)) < 0:
        return None
    return np.diff(starts, prepend=-1, append=len(codes) - 1)


def _listed(values: np.ndarray) -> pa.Array:
    """The values as one list, which shares their memory."""
    return pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))


def _narrow(values: np.ndarray) -> np.ndarray:
    """Integers in as few bytes as hold them."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return values.astype(next(kind for kind, low, high in _KINDS if low <= least and most <= high))
