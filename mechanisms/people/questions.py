"""What is asked of people, as values: the table that answers it, how a user's rows become a record, and what the cells say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.calibration.intervals import outward
from headcount.mechanisms.people.actives import WINDOWS, ActivesRecords
from headcount.mechanisms.people.activity import ActivityRecords
from headcount.mechanisms.people.funnel import FunnelRecords
from headcount.mechanisms.people.records import Records
from headcount.mechanisms.people.retention import RetentionRecords
from headcount.mechanisms.people.shares import Part, deviations, falling, shares
from headcount.mechanisms.people.table import CellNoise

Columns = dict[str, pa.Array]


class Question(Protocol):
    """A question about people."""

    @property
    def name(self) -> str:
        """What it is called: the label of its randomness, unless another is given."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The cells of each row of its table."""

    @property
    def most(self) -> int:
        """The cells of one user, all in one row of the table, at most."""

    @property
    def records(self) -> Callable[[ValueShard], Records]:
        """What makes the records of users."""

    @property
    def values(self) -> int:
        """The numbers that rows carry."""

    def answer(self, cells: np.ndarray, noise: CellNoise) -> Columns:
        """The columns of the result, of noisy cells by values of `by`: for one value after another, `height` rows of each."""

    @property
    def height(self) -> int:
        """The rows of the result for one value of `by`."""


@dataclasses.dataclass(frozen=True)
class FunnelQuestion:
    """How many users came to each step, in this order, the whole path within this number of microseconds if one is given."""

    steps: tuple[str, ...]
    within: int | None = None
    name = "Funnel"
    most = 1
    values = 2

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.steps),)

    @property
    def height(self) -> int:
        return len(self.steps)

    @property
    def records(self) -> FunnelRecords:
        return FunnelRecords(len(self.steps), self.within)

    def answer(self, cells: np.ndarray, noise: CellNoise) -> Columns:
        """A user of depth d has reached all steps up to d. So the users of a step are the sum of the cells from it on."""
        by, steps = cells.shape
        reached = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1]
        draws = np.arange(steps, 0, -1)
        variance = draws * noise.own[0]
        stddev = np.sqrt(variance)
        half = np.where(draws == 1, noise.half, deviations(noise.kurtosis / draws) * stddev)
        low, high = outward(reached - half, reached + half)
        count = np.rint(falling(reached, 1 / draws))
        numbers = {
            "count": count,
            "noise_stddev": np.broadcast_to(stddev, cells.shape),
            "low": np.minimum(low, count),
            "high": np.maximum(high, count),
        }
        numbers |= _of_first(reached, noise) | _of_before(reached, noise)
        made: Columns = {
            "step": pa.array(np.tile(np.arange(1, steps + 1), by)),
            "condition": pa.array(list(self.steps) * by, pa.string()),
        }
        return made | {name: _floats(column) for name, column in numbers.items()}


def _of_first(reached: np.ndarray, noise: CellNoise) -> dict[str, np.ndarray]:
    """The share of the first step that came to each: of cells that both have, and those that the first has besides."""
    steps = reached.shape[1]
    there, besides = np.arange(steps, 0, -1), np.arange(steps)
    return _share_columns("share_of_first", reached, reached[:, :1], _nested(there, besides, noise))


def _of_before(reached: np.ndarray, noise: CellNoise) -> dict[str, np.ndarray]:
    """The share of the step before that came to each; of the first there is none."""
    steps = reached.shape[1]
    there, besides = np.arange(steps, 0, -1), np.ones(steps, dtype=np.int64)
    before = np.concatenate([reached[:, :1], reached[:, :-1]], axis=1)
    made = _share_columns("share_of_before", reached, before, _nested(there, besides, noise))
    for column in made.values():
        column[:, 0] = np.nan
    return made


def _nested(there: np.ndarray, besides: np.ndarray, noise: CellNoise) -> list[Part]:
    """The noise of a sum of cells that is part of another: of `there` cells in both, and of those in the larger alone."""
    own = noise.own[0]
    return [
        Part(1, 1, there * own, noise.kurtosis / np.maximum(there, 1)),
        Part(0, 1, besides * own, noise.kurtosis / np.maximum(besides, 1)),
    ]


def _share_columns(
    name: str, numerator: np.ndarray, denominator: np.ndarray, parts: list[Part]
) -> dict[str, np.ndarray]:
    found = shares(numerator, np.broadcast_to(denominator, numerator.shape), parts)
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))


@dataclasses.dataclass(frozen=True)
class ActivityQuestion:
    """How many users have how many events, in bins that begin at these numbers."""

    edges: tuple[int, ...]
    name = "Activity"
    most = 1
    values = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.edges),)

    @property
    def height(self) -> int:
        return len(self.edges)

    @property
    def records(self) -> ActivityRecords:
        return ActivityRecords(self.edges)

    def bins(self) -> list[str]:
        """What the bins are called."""
        named = [
            str(low) if high == low + 1 else f"{low}-{high - 1}"
            for low, high in zip(self.edges, self.edges[1:], strict=False)
        ]
        return [*named, f"{self.edges[-1]}+"]

    def answer(self, cells: np.ndarray, noise: CellNoise) -> Columns:
        """The users of each bin, and their share of those of all bins."""
        by, bins = cells.shape
        whole = cells.sum(axis=1, keepdims=True)
        parts = _nested(np.ones(bins, dtype=np.int64), np.full(bins, bins - 1), noise)
        numbers = _counts(cells, noise) | _share_columns("share", cells, whole, parts)
        ends: list[int | None] = [edge - 1 for edge in self.edges[1:]]
        made: Columns = {
            "events": pa.array(self.bins() * by, pa.string()),
            "least": pa.array(list(self.edges) * by, pa.int64()),
            "most": pa.array([*ends, None] * by, pa.int64()),
        }
        return made | {name: _floats(column) for name, column in numbers.items()}


@dataclasses.dataclass(frozen=True)
class RetentionQuestion:
    """Of the users of each first period, how many are there in each later one. Periods begin at these days since 1970."""

    periods: tuple[int, ...]
    name = "Retention"
    values = 1

    @property
    def most(self) -> int:
        return len(self.periods)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(range(len(self.periods), 0, -1))

    @property
    def height(self) -> int:
        return sum(self.sizes)

    @property
    def records(self) -> RetentionRecords:
        return RetentionRecords(self.periods)

    def answer(self, cells: np.ndarray, noise: CellNoise) -> Columns:
        """The users of each cohort by age, and their share of the cohort, which is all of them at age 0."""
        by = len(cells)
        sizes = np.array(self.sizes)
        first = np.repeat(self.records.first_cells(), sizes)
        age = np.arange(len(first)) - first
        later = (age > 0).astype(np.int64)
        parts = [
            Part(1, 0, noise.own * later, noise.kurtosis),
            Part(0, 1, noise.own * later, noise.kurtosis),
            Part(1, 1, noise.shared * later, noise.kurtosis),
        ]
        numbers = _counts(cells, noise) | _share_columns("share", cells, cells[:, first], parts)
        days = np.tile(np.repeat(np.array(self.periods), sizes), by)
        made: Columns = {
            "cohort": pa.array(days.astype("datetime64[D]")),
            "age": pa.array(np.tile(age, by)),
        }
        return made | {name: _floats(column) for name, column in numbers.items()}


@dataclasses.dataclass(frozen=True)
class ActivesQuestion:
    """How many users are active on each day from `first` to `last`, since 1970, and in the windows that end with it."""

    first: int
    last: int
    name = "Actives"
    values = 1

    @property
    def days(self) -> int:
        """How many days there are."""
        return self.last - self.first + 1

    @property
    def most(self) -> int:
        return len(WINDOWS) * self.days

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.most,)

    @property
    def height(self) -> int:
        return self.most

    @property
    def records(self) -> ActivesRecords:
        return ActivesRecords(self.first, self.last)

    def answer(self, cells: np.ndarray, noise: CellNoise) -> Columns:
        """The users of each window, for one day after another, and their share of those of the longest window."""
        by, windows = len(cells), len(WINDOWS)
        shorter = (np.arange(self.most) < (windows - 1) * self.days).astype(np.int64)
        parts = [
            Part(1, 0, noise.own * shorter, noise.kurtosis),
            Part(0, 1, noise.own * shorter, noise.kurtosis),
            Part(1, 1, noise.shared * shorter, noise.kurtosis),
        ]
        longest = np.tile(cells[:, -self.days :], (1, windows))
        numbers = _counts(cells, noise) | _share_columns("share", cells, longest, parts)
        # A longer window has all users of a shorter one: counts are the nearest ones for which that is so.
        by_window = cells.reshape(by, windows, self.days).transpose(0, 2, 1)[:, :, ::-1].reshape(-1, windows)
        count = np.rint(falling(by_window, np.ones(windows)))[:, ::-1].reshape(by, self.days, windows)
        count = count.transpose(0, 2, 1).reshape(by, self.most)
        numbers |= {
            "count": count,
            "low": np.minimum(numbers["low"], count),
            "high": np.maximum(numbers["high"], count),
        }
        dates = np.repeat(np.arange(self.first, self.last + 1), windows)
        made: Columns = {
            "day": pa.array(np.tile(dates, by).astype("datetime64[D]")),
            "window": pa.array(list(WINDOWS) * (self.days * by), pa.int64()),
        }
        by_day = {
            name: column.reshape(by, windows, self.days).transpose(0, 2, 1).reshape(by, self.most)
            for name, column in numbers.items()
        }
        return made | {name: _floats(column) for name, column in by_day.items()}


def _counts(cells: np.ndarray, noise: CellNoise) -> dict[str, np.ndarray]:
    """Noisy cells as counts of users, none below 0."""
    low, high = outward(cells - noise.half, cells + noise.half)
    count = np.maximum(np.rint(cells), 0.0)
    return {
        "count": count,
        "noise_stddev": np.broadcast_to(noise.stddev, cells.shape),
        "low": low,
        "high": high,
    }


def _floats(column: np.ndarray) -> pa.Array:
    """One column of a table, one row after another; NaN is null."""
    return pa.array(np.ascontiguousarray(column).reshape(-1), pa.float64(), from_pandas=True)
