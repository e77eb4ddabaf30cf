"""Tables of any library as Arrow batches: pandas, Polars, DuckDB, and whatever has Arrow's C stream. None is imported here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.packing import concat
from headcount.mechanisms.batches.python_values import column_of, fields_of, is_python
from headcount.mechanisms.errors import InputError

BATCH_ROWS = 1 << 20  # rows in one batch at most, where the frame leaves the choice
FRAMES = "an Arrow table, batch or reader, a pandas or Polars frame, a DuckDB relation, or what has __arrow_c_stream__"

_BATCH_BYTES = 1 << 27  # small batches are put together up to this size


def is_frame(value: Any) -> bool:
    """Whether a value is a table of some library, and no row."""
    return (
        isinstance(value, pa.RecordBatch | pa.Table | pa.RecordBatchReader)
        or hasattr(value, "__arrow_c_stream__")
        or _is_pandas(value)
    )


def collected(value: Any) -> str:
    """What to give in place of a lazy frame, which has no rows yet, of Polars or of Narwhals; nothing for other values."""
    return "give what its .collect() returns" if type(value).__name__ == "LazyFrame" else ""


def frame_reader(frame: Any, columns: Collection[str] | None = None) -> pa.RecordBatchReader:
    """The schema and batches of a frame, each of BATCH_ROWS rows at most, and none that is needlessly small.

    With `columns`, others are left out: those that are there of these names, and the objects that hold nested ones (`user.id`
    lies in `user`). The named levels of a pandas index are columns. A reader, or a DuckDB relation, is read batch by batch.
    """
    reader = _reader(frame, columns)
    wanted = None if columns is None else {*columns, *(path.split(".")[0] for path in columns)}
    kept = [k for k, name in enumerate(reader.schema.names) if wanted is None or name in wanted]
    schema = pa.schema([reader.schema.field(k) for k in kept], reader.schema.metadata)
    found = (pa.RecordBatch.from_arrays([batch.column(k) for k in kept], schema=schema) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, _in_size(found))


def frame_schema(frame: Any) -> pa.Schema:
    """The columns of a frame, without a look at its rows: what only these tell (Python objects in pandas) is of null type."""
    if isinstance(frame, pa.RecordBatch | pa.Table):
        return frame.schema
    return _reader(frame.iloc[:0] if _is_pandas(frame) else frame, None).schema


def table_of(held: Mapping[str, Any], columns: Collection[str] | None = None) -> pa.Table:
    """The table of columns by their names: each of the type that it declares, or of Python values, by their kind.

    With `columns`, others are left alone, since they may hold what Arrow cannot, and a nested one (`user.id`) is a column of
    its own where `user` holds Python objects.
    """
    place, made = Place(first_row=0), {}
    for path in held if columns is None else columns:
        top, _, rest = path.partition(".")
        if path in held:
            made[path] = column_of(held[path], path, place)
        elif rest and top in held and is_python(held[top]):
            found = fields_of(held[top], rest, top, place)
            made |= {} if found is None else {path: column_of(found, path, place)}
        elif rest and top in held:
            made[top] = column_of(held[top], top, place)
    if len({len(column) for column in made.values()}) > 1:
        raise InputError("the columns have different lengths")
    return pa.table(made)


def _is_pandas(value: Any) -> bool:
    """Whether a value is a pandas frame, or one of a class made of it."""
    return any(base.__module__.split(".")[0] == "pandas" for base in type(value).__mro__) and hasattr(value, "columns")


def _reader(frame: Any, columns: Collection[str] | None) -> pa.RecordBatchReader:
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(frame.schema, [frame])
    if isinstance(frame, pa.Table):
        return frame.to_reader()
    if _is_pandas(frame):  # which has such a stream too, and would guess what its objects are from the rows
        return table_of(_of_pandas(frame), columns).to_reader()
    if not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(f"{type(frame).__name__} is no table; {collected(frame) or f'give {FRAMES}'}")
    try:
        return pa.RecordBatchReader.from_stream(frame)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError):  # one column alone has such a stream too
        raise InputError(f"{type(frame).__name__} has no columns; give {FRAMES}") from None


def _of_pandas(frame: Any) -> dict[str, Any]:
    """The columns of a pandas frame and the named levels of its index."""
    levels = [(name, frame.index.get_level_values(k)) for k, name in enumerate(frame.index.names) if name is not None]
    columns = [(name, frame.iloc[:, k]) for k, name in enumerate(frame.columns)]
    held = {str(name): values for name, values in columns + levels}
    if len(held) < len(columns) + len(levels):
        raise InputError("two columns of the pandas frame have one name; rename one of them")
    return held


def _in_size(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows: large batches cut, and small ones together."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS)
            if held and (rows + part.num_rows > BATCH_ROWS or size + part.nbytes > _BATCH_BYTES):
                yield _together(held)
                held, rows, size = [], 0, 0
            held.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if held:
        yield _together(held)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else concat(batches)
