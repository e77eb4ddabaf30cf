"""`LevelKeys`: the key columns of rows at every level of a key, from the names of its cells (`levels.tree`)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.columns.keys import ITEM, JOINT, Keys, of_text, taken
from headcount.mechanisms.errors import ParameterError

#: The columns beside those of the key: what the row is a row of, and whether it is what is other there.
LEVEL, OTHER = "level", "other"

#: The level of all rows together.
ALL = "all"


@dataclasses.dataclass(frozen=True)
class LevelKeys(Keys):
    """Key columns of which each is a level below the one before. A row of a level has the columns up to it; those below are
    empty. In a row of what is other, the column of the level itself is empty, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for column in (field.column for field in self.fields):
            if column.days:
                raise ParameterError(
                    f"{column.spec} are windows that overlap, and so no level: they would not add up to what is above them",
                    "levels",
                )
        for name in (LEVEL, OTHER):
            if name in self.names:
                raise taken(name, "levels")

    @property
    def optional(self) -> bool:
        """Whether a key column may be empty."""
        return True

    @property
    def schema(self) -> pa.Schema:
        """The key columns of the output, with those beside them."""
        return pa.schema([(LEVEL, pa.string()), *super().schema, (OTHER, pa.bool_())])

    def decode(self, names: Names) -> list[pa.Array]:
        """The columns of the names of cells: level, key columns, other."""
        level, values, other = self._parts(names)
        shown = [field.shown_values(each) for field, each in zip(self.fields, values, strict=True)]
        return [pa.array([ALL, *self.names]).take(pa.array(level)), *shown, pa.array(other)]

    def _parts(self, names: Names) -> tuple[np.ndarray, list[pa.Array], np.ndarray]:
        """The depth of cells, the values inside of their key columns, null where they have none, and which are other."""
        heads = pc.extract_regex(names, r"(?s)^(?P<depth>[0-9])(?P<other>\+?):(?P<prefix>.*)$")
        depth, other = np.asarray(heads.field(0).cast(pa.int64())), np.asarray(pc.equal(heads.field(1), "+"))
        parts = pc.split_pattern(heads.field(2), JOINT)
        starts, values = np.asarray(parts.offsets), []
        for number, field in enumerate(self.fields):
            absent = depth <= number
            place = pa.array(starts[:-1] + number, mask=absent if absent.any() else None)
            values.append(of_text(field, parts.values.take(place)))
        return depth + other, values, other

    def restore(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Released rows with the columns in place of the names: each below its node, and what is other last."""
        names = rows.column(ITEM)
        level, values, other = self._parts(names)
        columns = dict(zip(self.schema.names, self.decode(names), strict=True))
        columns |= {name: rows.column(name) for name in rows.schema.names if name != ITEM}
        restored = pa.RecordBatch.from_pydict(columns, metadata=rows.schema.metadata)
        by: dict[str, pa.Array] = {}
        for number, each in enumerate(values):
            there = np.where(other & (level == number + 1), 2, np.asarray(each.is_valid()))
            by |= {f"there{number}": pa.array(there), str(number): each}
        return restored.take(pc.sort_indices(pa.table(by), [(name, "ascending") for name in by]))
