"""The frames of a `beam.Create`: what they tell while the pipeline is built, and a short way to workers in this process.

Beam packs all that a `Create` holds into the job's graph, twice, and squeezes it by bz2: minutes for what a file gives in
seconds. A runner in this process can look at the frames where they are, so only their number goes into the graph. On other
runners the frames travel with the graph as Beam has it; they should be small there.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import DirectOptions

from headcount.mechanisms.batches.frames import frame_schema, is_frame

_THREADS = {"in_memory", "multi_threading"}  # Beam's modes that have all workers in this process

_numbers = itertools.count()
_held: weakref.WeakValueDictionary[int, _Held] = weakref.WeakValueDictionary()


class _Held(list[Any]):
    """A list that a pickle names by its number: for this process, and as long as the pipeline is there."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self._number = next(_numbers)
        _held[self._number] = self

    def __reduce__(self) -> Any:
        return _of_number, (self._number,)


def _of_number(number: int) -> _Held:
    return _held[number]


def created_schema(rows: beam.PCollection) -> pa.Schema | None:
    """The schema of the first frame of a `beam.Create`; None of other collections."""
    created = _created(rows)
    if created is None:
        return None
    if isinstance(created.transform, _CreatedHere):
        return created.transform.schema
    frame = next((each for each in created.transform.values if is_frame(each)), None)
    return None if frame is None else frame_schema(frame)


def keep_here(rows: beam.PCollection) -> None:
    """Leaves the frames of a `beam.Create` out of the graph, if all workers are in this process."""
    created, schema = _created(rows), created_schema(rows)
    runner, options = type(rows.pipeline.runner).__name__, rows.pipeline._options.view_as(DirectOptions)
    if schema is None or runner != "FnApiRunner" or options.direct_running_mode not in _THREADS:
        return
    for part in created.parts:
        # The step that holds the encoded frames; were it another one day, all would still be right, if slow.
        function = getattr(getattr(part.transform, "fn", None), "_fn", None)
        for cell in getattr(function, "__closure__", None) or ():
            if type(cell.cell_contents) is list and len(cell.cell_contents) == len(created.transform.values):
                cell.cell_contents = _Held(cell.cell_contents)
                # What the caller has made stays as it is: it may be a part of another pipeline.
                created.transform = _CreatedHere(schema)


class _CreatedHere(beam.Create):
    """Stands in the graph for a `beam.Create` that has made its steps already."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(())
        self.schema = schema


def _created(rows: beam.PCollection) -> Any:
    """The step of a `beam.Create` that has made a collection; None if none has."""
    parent = None if rows.producer is None else rows.producer.parent
    return parent if parent is not None and isinstance(parent.transform, beam.Create) else None
