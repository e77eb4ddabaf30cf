"""How many items have which count: all that is left of a histogram when its labels are taken off.

A tally of n users has at most sqrt(2n) distinct counts, so that one worker can hold it however many items there are. Tallies
of item shards add up to that of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.errors import ParameterError

#: The largest public number of cells (items that there could be, or buckets).
MOST_CELLS = 2**62 - 1


class Tally(NamedTuple):
    """Distinct values, ascending, and for each the number of cells (at least one) that have it."""

    values: np.ndarray  # int64
    cells: np.ndarray  # int64

    @property
    def total(self) -> int:
        """The sum over all cells."""
        return sum(v * m for v, m in zip(self.values.tolist(), self.cells.tolist(), strict=True))


def make_tally(values: np.ndarray, cells: np.ndarray | None = None) -> Tally:
    """The tally of values, each of a number of cells (default: one); a value may come several times, or with no cell."""
    if cells is None:
        return Tally(*(column.astype(np.int64) for column in np.unique(values, return_counts=True)))
    order = np.argsort(values, kind="stable")
    values, cells = np.asarray(values, dtype=np.int64)[order], np.asarray(cells, dtype=np.int64)[order]
    some = np.flatnonzero(cells)
    values, cells = values[some], cells[some]
    if len(values) == 0:
        return Tally(values, cells)
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return Tally(values[starts], np.add.reduceat(cells, starts))


def add_tallies(chunks: Iterable[bytes]) -> Tally:
    """The tally of the whole from those of all item shards."""
    parts = [unpack(chunk)[0] for chunk in chunks]
    values, cells = ([np.asarray(part[name]) for part in parts] for name in ("value", "cells"))
    nothing = [np.zeros(0, dtype=np.int64)]
    return make_tally(np.concatenate(nothing + values), np.concatenate(nothing + cells))


def of_cells(tally: Tally, cells: int) -> Tally:
    """The tally of exactly this number of cells: with empty ones added or, if there are too many, of the largest values only.

    This never fails, since a failure would tell that somebody holds one item more than there should be. Neither changes
    what one user can do: sorted counts of neighbours differ by no more than the counts themselves, position by position.
    """
    values, held = tally.values[::-1], tally.cells[::-1]
    kept = np.diff(np.minimum(np.cumsum(held), cells), prepend=0)
    missing = cells - int(kept.sum())
    return make_tally(np.append(values, 0), np.append(kept, missing))


def l1_distance(one: Tally, other: Tally) -> int:
    """The sum over all positions by which the sorted values of two tallies differ. Values are not below zero; the shorter
    tally has zeros for the cells that it lacks.
    """
    return sum(l1_parts(one, other)[1].tolist())


def l1_parts(one: Tally, other: Tally) -> tuple[np.ndarray, np.ndarray]:
    """The l1 distance of two tallies in parts: the sum, over all r, by which the numbers of cells with at least r differ.

    For runs of r that end there, what each of them adds.
    """
    ends = np.unique(np.concatenate([[0], one.values, other.values]))
    counts = [np.append(np.cumsum(tally.cells[::-1])[::-1], 0) for tally in (one, other)]
    at_least = [held[np.searchsorted(tally.values, ends[1:])] for tally, held in zip((one, other), counts, strict=True)]
    # Both factors can be of the order of 2^62: as whole numbers of any size.
    return ends[1:], np.diff(ends).astype(object) * np.abs(at_least[0] - at_least[1]).astype(object)


def check_cells(name: str, value: object, reason: str) -> int:
    """A public number of cells, or an error that names it and says why it cannot come from the data."""
    if value is None:
        raise ParameterError(f"{name} must be given, as a public number: {reason}", name)
    return check_whole(name, value, 1, MOST_CELLS, "2^62 - 1")


def pack_tally(tally: Tally) -> bytes:
    """A tally as `add_tallies` takes it."""
    return pack({"value": pa.array(tally.values), "cells": pa.array(tally.cells)})
