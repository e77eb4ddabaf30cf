"""The largest of the released rows: of all, or of each group, such as the five queries with the most users of each country.

Guarantee: what is done to released rows costs nothing (post-processing), and neither does telling how many were left out.
Proof: docs/proofs/histogram.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.columns.keys import ITEM, Keys
from headcount.mechanisms.counting.quality import kept_rows, size_of
from headcount.mechanisms.errors import ParameterError

_MOST = 10**9


@dataclasses.dataclass(frozen=True)
class Largest:
    """The `top` rows with the largest counts of each combination of the key columns `per`; of all rows, where there is none.
    Of equal counts, the first by their keys. A `top` of None keeps all rows."""

    top: int | None = None
    per: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.top is not None:
            check_whole("top", self.top, 1, _MOST)
        elif self.per:
            raise ParameterError(
                f"per {', '.join(self.per)} says of which groups the largest rows are kept: say how many by top (--top)",
                "per",
            )

    def check_columns(self, keys: Keys) -> None:
        """Refuses groups that are no columns of the key, or all of them."""
        for name in self.per:
            if name not in keys.names:
                known = ", ".join(map(repr, keys.names))
                raise ParameterError(f"per {name!r} is no column of the key: give one of {known}", "per")
        if {*self.per} == {*keys.names}:
            raise ParameterError(
                f"per {', '.join(self.per)} has all columns of the key, so that each group is one row: name one column more "
                "by item (--item), of which the largest are kept",
                "per",
            )

    @property
    def why(self) -> str:
        """Why other rows are left out."""
        return f"they are not among the {self.top:,} largest{' of their ' if self.per else ''}{' and '.join(self.per)}"

    def keep(self, files: Sequence[pa.RecordBatch], keys: Keys) -> list[pa.RecordBatch]:
        """Those rows of all files, each in its own; how many are left out of it is in the metadata of its schema."""
        if self.top is None:
            return list(files)
        columns = keys.decode(pa.concat_arrays([rows.column(ITEM) for rows in files]))
        by = {f"key {name}": column for name, column in zip(keys.names, columns, strict=True)}
        groups = [f"key {name}" for name in self.per]
        by["size"] = pa.array(np.concatenate([size_of(rows) for rows in files]))
        others = [(name, "ascending") for name in by if name not in (*groups, "size")]
        order = pc.sort_indices(
            pa.table(by), [*((name, "ascending") for name in groups), ("size", "descending"), *others]
        )
        number = np.arange(len(order))
        begins = number == 0
        for name in groups:
            ranked = by[name].take(order)
            begins[1:] |= np.asarray(pc.not_equal(ranked[1:], ranked[:-1]))
        rank = number - np.maximum.accumulate(np.where(begins, number, 0))
        kept = np.zeros(len(order), dtype=bool)
        kept[np.asarray(order)[rank < self.top]] = True
        ends = np.cumsum([rows.num_rows for rows in files])
        return [
            kept_rows(rows, mine, {self.why: int((~mine).sum())})
            for rows, mine in zip(files, np.split(kept, ends[:-1]), strict=True)
        ]


#: All rows.
ALL_ROWS = Largest()
