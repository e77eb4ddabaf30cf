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
from headcount.pipelines.studies.data import Data
from headcount.pipelines.studies.kinds import Kind, Numbers, Told, kind_of
from headcount.pipelines.studies.methods import Method, Promised
from headcount.pipelines.studies.populations.models import Believed

#: The most events that are made up for one release. Of larger populations only two are looked at, with twice as many: the
#: smaller one is made, the more chance there is in its items.
MOST_EVENTS = 1_200_000

#: What is forecast, by the names of the columns: of items, of keys partly public, and of each level of a key in levels.
MEANINGS = {
    "items": "how many items are shown; of a key in levels, how many of each level, such as countries and cities",
    "median_error": "half of the items shown have a count that is this close to the true one, as a share of it, or closer",
    "error_90": "the same for nine tenths of them",
    "held": "the share of the items shown whose interval, low to high, holds the true number",
    "covered": "the share of all events that are of items shown",
    "half_width": "half of the intervals, low to high, reach this far to either side, or less",
    "other": "the share of what a level counts that is in none of its rows with a name, and is summed up as other",
    "users_needed": "about how many users an item needs to be shown",
}

_SEED = 2
_MOST_RELEASES = 6  # of one population, at each promise: small ones cost little, and vary more
_WIDE = 2.0  # standard deviations from the middle to an end of a range
_UNLIKE = 0.1  # how far made-up users are from any others: the standard deviation of a ratio


@dataclasses.dataclass(frozen=True)
class Expected:
    """A number that is forecast: its mean over the populations by the belief in them, and the ends of its range.

    The mean of half widths is that of their logarithms: those of users who do much are many times larger.
    """

    mean: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What one method at one epsilon would give: the numbers of MEANINGS that can be said; or why it is `refused`.

    `decision` is what it would choose, in words, of the likeliest population. Of a key in levels there is one outlook for each
    `level`.
    """

    method: Method
    promised: Promised
    expected: Mapping[str, Expected]
    decision: str | None = None
    refused: str | None = None
    level: str | None = None
    assumed: str | None = None  # of its keys, in words


Cell = tuple[Method, Promised]


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
    kinds = {cell: kind_of(cell[0], _mechanism(*cell)) for cell in cells if cell not in refused}
    found: dict[Cell, list[tuple[Told, float]]] = {cell: [] for cell in cells}
    said: dict[Cell, str | None] = {}
    most = MOST_EVENTS if len(believed) > 2 else 2 * MOST_EVENTS
    for number, (population, belief) in enumerate(believed):
        smaller = max(1.0, population.events / most)
        shard = population.drawn(np.random.default_rng([_SEED, number]), most)
        held = {
            kind: kind.data(shard, population, np.random.default_rng([_SEED, number, 1])) for kind in {*kinds.values()}
        }
        releases = min(_MOST_RELEASES, max(1, int(MOST_EVENTS / 3 / population.events)))
        for cell in cells:
            step(f"{cell[0].name} at epsilon {cell[1].epsilon:g}")
            if cell in refused:
                continue
            for told, words in _releases(cell, kinds[cell], held[kinds[cell]], smaller, releases):
                found[cell].append((told, belief / releases))
                said.setdefault(cell, words)  # that of the first population, the likeliest
    outlooks = []
    for cell in cells:
        if cell in refused:
            outlooks.append(Outlook(*cell, {}, refused=refused[cell]))
            continue
        for part in found[cell][0][0]:
            numbers = {
                name: _expected([(told[part].get(name), belief) for told, belief in found[cell]], name)
                for name in MEANINGS
            }
            known = {name: each for name, each in numbers.items() if each is not None}
            there_are = max(kinds[cell].most(population)[part] for population, _ in believed)
            ends = {"items": float(there_are), "held": 1.0, "other": 1.0}
            for name in ends.keys() & known.keys():
                known[name] = dataclasses.replace(known[name], high=min(known[name].high, ends[name]))
            outlooks.append(Outlook(*cell, known, said[cell], level=part, assumed=kinds[cell].assumed))
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


def _releases(cell: Cell, kind: Kind, data: Data, smaller: float, number: int) -> Iterator[tuple[Told, str | None]]:
    """The numbers of some releases, part by part, and what was decided in each."""
    method, promised = cell
    epsilon, delta = similar_budget(promised.epsilon, promised.delta, smaller)
    made = kind.made(_mechanism(method, promised._replace(epsilon=epsilon, delta=delta)))
    for _ in range(number):
        told, words = kind.numbers(made, data, Release(ephemeral_key()), method)
        yield {part: _larger(values, smaller) for part, values in told.items()}, words


def _larger(values: Numbers, smaller: float) -> Numbers:
    """The same numbers for the whole population: what counts users or events is so many times larger."""
    scaled = {name: values[name] for name in ("users_needed", "half_width") if values.get(name) is not None}
    return values | {name: smaller * value for name, value in scaled.items() if value is not None}


def _expected(values: Sequence[tuple[float | None, float]], name: str) -> Expected | None:
    """The mean of values by the belief in each, and a range on a scale of ratios: two standard deviations, with what users may
    be unlike all of these, and no less than what was seen. Half widths are ratios in their mean, too; shares that are other may
    be near 0, and their range is what was seen."""
    known = [(value, belief) for value, belief in values if value is not None]
    if not known:
        return None
    numbers, weights = (np.array(column, dtype=float) for column in zip(*known, strict=True))
    weights /= weights.sum()
    mean = float(weights @ numbers)
    if mean == 0 or len(numbers) == 1:
        return Expected(mean, float(numbers.min()), float(numbers.max()))
    logs = np.log(np.maximum(numbers, mean / 100))
    if name == "half_width":
        mean = math.exp(float(weights @ logs))
    variance = 0.0 if name == "other" else float(weights @ (logs - weights @ logs) ** 2) * len(logs) / (len(logs) - 1)
    wide = math.exp(_WIDE * math.hypot(math.sqrt(variance), _UNLIKE))
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
