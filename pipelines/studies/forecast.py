"""What a release would give, without any data: methods run whole on made-up users, and scored against what is true of these.

Large populations are made smaller, with a budget under which that makes no difference (`populations.similar`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from headcount.mechanisms.accounting.gaussian import gaussian_sigma
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Mechanism
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
from headcount.pipelines.studies.data import Data, of_shard
from headcount.pipelines.studies.methods import Method, Promised
from headcount.pipelines.studies.populations.models import Believed
from headcount.pipelines.studies.run import run_once
from headcount.pipelines.studies.scores import score

#: The most events that are made up for one release. Of larger populations only two are looked at, with twice as many: the
#: smaller one is made, the more chance there is in its items.
MOST_EVENTS = 1_200_000

#: What is forecast, by the names of the columns.
MEANINGS = {
    "items": "items shown",
    "median_error": "half of the items shown have a count that is this close to the true one, as a share of it, or closer",
    "error_90": "the same for nine tenths of them",
    "held": "the share of the items shown whose interval, low to high, holds the true number",
    "covered": "the share of all events that are of items shown",
    "users_needed": "about how many users an item needs to be shown",
}

_SEED = 2
_MOST_RELEASES = 6  # of one population, at each promise: small ones cost little, and vary more
_WIDE = 2.0  # standard deviations from the middle to an end of a range
_UNLIKE = 0.1  # how far made-up users are from any others: the standard deviation of a ratio


@dataclasses.dataclass(frozen=True)
class Expected:
    """A number that is forecast: its mean over the populations by the belief in them, and the ends of its range."""

    mean: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What one method at one epsilon would give: the numbers of MEANINGS that can be said; or why it is `refused`.

    `decision` is what it would choose, in words, of the likeliest population.
    """

    method: Method
    promised: Promised
    expected: Mapping[str, Expected]
    decision: str | None = None
    refused: str | None = None


Cell = tuple[Method, Promised]
Numbers = dict[str, float | None]


def looked_at(believed: Sequence[Believed]) -> Sequence[Believed]:
    """Of populations that are too large, the likeliest and the last."""
    return [believed[0], believed[-1]] if believed[0][0].events > MOST_EVENTS else believed


def foresee(
    believed: Sequence[Believed],
    methods: Sequence[Method],
    promises: Sequence[Promised],
    step: Callable[[str], None] = lambda doing: None,
) -> list[Outlook]:
    """What the methods would give at these promises, method by method, over all populations that are believed in.

    `step` is told what begins: for each population, each method at each promise.
    """
    cells = [(method, promised) for method in methods for promised in promises]
    refused = {cell: why for cell in cells if (why := _refusal(cell)) is not None}
    found: dict[Cell, list[tuple[Numbers, float]]] = {cell: [] for cell in cells}
    said: dict[Cell, str | None] = {}
    most = MOST_EVENTS if len(believed) > 2 else 2 * MOST_EVENTS
    for number, (population, belief) in enumerate(believed):
        smaller = max(1.0, population.events / most)
        data = of_shard(population.drawn(np.random.default_rng([_SEED, number]), most), int)
        releases = min(_MOST_RELEASES, max(1, int(MOST_EVENTS / 3 / population.events)))
        for cell in cells:
            step(f"{cell[0].name} at epsilon {cell[1].epsilon:g}")
            if cell in refused:
                continue
            for values, words in _releases(cell, data, smaller, releases):
                found[cell].append((values, belief / releases))
                said.setdefault(cell, words)  # that of the first population, the likeliest
    there_are = max(len(population.items) for population, _ in believed)
    outlooks = []
    for cell in cells:
        if cell in refused:
            outlooks.append(Outlook(*cell, {}, refused=refused[cell]))
        else:
            numbers = {name: _expected([(values[name], belief) for values, belief in found[cell]]) for name in MEANINGS}
            known = {name: each for name, each in numbers.items() if each is not None}
            ends = {"items": float(there_are), "held": 1.0}
            for name in ends.keys() & known.keys():
                known[name] = dataclasses.replace(known[name], high=min(known[name].high, ends[name]))
            outlooks.append(Outlook(*cell, known, said[cell]))
    return outlooks


@functools.lru_cache(maxsize=64)
def _mechanism(method: Method, promised: Promised) -> Mechanism:
    """The mechanism of a method for a promise: to calibrate one takes longer than to run it on a small population."""
    return method.mechanism(promised, int)


def _refusal(cell: Cell) -> str | None:
    """Why a method refuses a promise, in the numbers that were given."""
    try:
        _mechanism(*cell)
    except ParameterError as error:
        return str(error)
    return None


def _releases(cell: Cell, data: Data, smaller: float, number: int) -> Iterator[tuple[Numbers, str | None]]:
    """The numbers of some releases, and what was decided in each."""
    method, promised = cell
    epsilon, delta = similar_budget(promised.epsilon, promised.delta, smaller)
    made = _mechanism(method, promised._replace(epsilon=epsilon, delta=delta))
    users = np.sort(data.users)[::-1]
    for _ in range(number):
        rows, decision = run_once(made, data, Release(ephemeral_key()), method.label)
        values: Numbers = dataclasses.asdict(score(rows, data, method.question, decision=decision))
        # Where all items are shown, the least of them says nothing of what is needed.
        values["users_needed"] = smaller * float(users[rows.num_rows - 1]) if 0 < rows.num_rows < len(users) else None
        yield values, None if decision is None else decision.description()


def _expected(values: Sequence[tuple[float | None, float]]) -> Expected | None:
    """The mean of values by the belief in each, and a range on a scale of ratios: two standard deviations, with what users
    may be unlike all of these, and no less than what was seen."""
    known = [(value, belief) for value, belief in values if value is not None]
    if not known:
        return None
    numbers, weights = (np.array(column, dtype=float) for column in zip(*known, strict=True))
    weights /= weights.sum()
    mean = float(weights @ numbers)
    if mean == 0 or len(numbers) == 1:
        return Expected(mean, float(numbers.min()), float(numbers.max()))
    logs = np.log(np.maximum(numbers, mean / 100))
    spread = math.sqrt(float(weights @ (logs - weights @ logs) ** 2) * len(logs) / (len(logs) - 1))
    wide = math.exp(_WIDE * math.hypot(spread, _UNLIKE))
    return Expected(mean, min(mean / wide, float(numbers.min())), max(mean * wide, float(numbers.max())))


_LARGEST_DELTA = 0.01


def similar_budget(epsilon: float, delta: float, smaller: float) -> tuple[float, float]:
    """The epsilon and delta for a population that is this many times smaller."""
    if smaller <= 1:
        return epsilon, delta
    if delta == 0:
        return smaller * epsilon, 0.0
    sigma = gaussian_sigma(epsilon, delta) / smaller
    low, high = math.log(delta), math.log(_LARGEST_DELTA)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_sigma(smaller * epsilon, math.exp(middle)) > sigma else (low, middle)
    return smaller * epsilon, math.exp(low)
