"""What audits of independence share: the lanes and words that draws were made from, and a test of two columns of draws."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.randomness import lane_ids
from headcount.mechanisms.randomness.lanes import Lanes

#: The false-alarm rate of one test of independence over the choice of the key (the chi-square law at classes of 25 and more).
ALARM = 1e-8

# Modules that say beside a decision's data which draw of its step it is. All others make one decision for each subkey.
_NUMBERED = {"headcount.mechanisms.count_release.rounds", "headcount.mechanisms.people.table"}


def dependence(one: npt.ArrayLike, other: npt.ArrayLike, classes: int = 5) -> float:
    """The p-value of the chi-square test that two columns of draws, row by row, are independent of each other.

    Each column is cut at its quantiles into so many classes or fewer. Power: `test_joint_noise` measures it; equal columns of a
    thousand rows have a p-value below 1e-100.
    """
    columns = [_classes(np.asarray(column), classes) for column in (one, other)]
    assert len(columns[0]) == len(columns[1]) >= 25 * classes**2, "too few rows for so many classes"
    table = np.zeros((classes, classes))
    np.add.at(table, tuple(columns), 1)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    assert min(table.shape) > 1, "a column that never changes tells nothing"
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def independent(one: npt.ArrayLike, other: npt.ArrayLike, classes: int = 5) -> bool:
    """Whether two columns of draws pass as independent, at a false-alarm rate of ALARM."""
    return dependence(one, other, classes) > ALARM


def _classes(column: np.ndarray, classes: int) -> np.ndarray:
    """The class of each row; one with fewer than a twentieth of all rows goes with the class below (or above)."""
    edges = np.unique(np.quantile(column, np.arange(1, classes) / classes, method="lower"))
    place = np.searchsorted(edges, column)
    for small in np.flatnonzero(np.bincount(place, minlength=classes) < len(column) / 20):
        place[place == small] = small - 1 if small else 1
    return place


class Words:
    """Records every block of the cipher that a lane reads, and what the lane is of.

    `twice` are words that two draws have both read. `shared` are lanes that nothing but data keep apart: data that happen to
    differ hide that two measures have one subkey. So under one subkey an item, a user or a decision may be drawn for once,
    whatever its sum, its rows or its table.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read: dict[bytes, list[np.ndarray]] = {}
        self._names: dict[bytes, list[pa.Table]] = {}
        init, encrypt, digests = Lanes.__init__, Lanes._encrypt, lane_ids._digests

        def keyed(lanes: Lanes, block_key: bytes, ids: npt.NDArray[np.uint64]) -> None:
            init(lanes, block_key, ids)
            lanes.recorded_key = block_key  # type: ignore[attr-defined]

        def recorded(lanes: Lanes, blocks: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
            self._read.setdefault(lanes.recorded_key, []).append(blocks.reshape(-1, 2).copy())  # type: ignore[attr-defined]
            return encrypt(lanes, blocks)

        def named(lane_key: bytes, purpose: bytes, head: Any, pieces: list[Any]) -> npt.NDArray[np.uint64]:
            numbered = sys._getframe(2).f_globals["__name__"] in _NUMBERED  # who asked for lanes
            self._names.setdefault(lane_key, []).append(_names(purpose, head, pieces[0], numbered))
            return digests(lane_key, purpose, head, pieces)

        monkeypatch.setattr(Lanes, "__init__", keyed)
        monkeypatch.setattr(Lanes, "_encrypt", recorded)
        monkeypatch.setattr(lane_ids, "_digests", named)

    def forget(self) -> None:
        """Starts anew."""
        self._read.clear()
        self._names.clear()

    @property
    def all(self) -> int:
        """How many words were read."""
        return sum(len(part) for parts in self._read.values() for part in parts)

    @property
    def twice(self) -> int:
        """How many words were read that had been read before."""
        return sum(_repeated([_mixed(*part.T) for part in parts]) for parts in self._read.values())

    @property
    def shared(self) -> int:
        """How many lanes were asked for under a subkey that had drawn for the same item, user or decision before."""
        whole = map(pa.concat_tables, self._names.values())
        return sum(names.num_rows - _different(names).num_rows for names in whole)


def _names(purpose: bytes, head: Any, first: tuple[npt.NDArray[np.int64], pa.Buffer], numbered: bool) -> pa.Table:
    """What lanes are of, without their data. A user may have several in one call, of other rows each."""
    offsets, content = np.asarray(first[0], np.int64), pa.py_buffer(first[1])
    decides, users = purpose == b"headcount.draws", purpose == b"headcount.users"
    texts = pa.Array.from_buffers(pa.large_binary(), len(head), [None, pa.py_buffer(offsets.tobytes()), content])
    if decides and not numbered:
        texts = pa.nulls(len(head), pa.large_binary())
    names = pa.table({"of": head["draw" if decides else "user" if users else "item"].astype(np.int64), "text": texts})
    return _different(names) if users else names


def _different(names: pa.Table) -> pa.Table:
    return names.group_by(["of", "text"]).aggregate([])


def _mixed(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """One number for each pair: pairs that are equal never have two, and others have one by a chance of 2^-64."""
    mixed = one * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93) + other


def _repeated(parts: list[np.ndarray]) -> int:
    """How many numbers stand in the parts that stood there before."""
    whole = np.sort(np.concatenate(parts))
    return int(np.count_nonzero(whole[1:] == whole[:-1]))
