"""How much users do, by what a release of estimates has chosen: the model under which its choices are likely.

A choice is a draw whose chances are known for every population. So are the share of events that a bound leaves out, and the
count that an item needs to be named, where the model of the items ends. A model of users is the better, the likelier all that
is. Each model is tried on a sample of users drawn by it, small since users are alike.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item, squared_norms
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.histogram.stages import StagePlan, Stages
from headcount.mechanisms.partitions.candidates import StrategyCandidate
from headcount.mechanisms.partitions.rounds import STRATEGIES
from headcount.pipelines.studies.populations.item_model import ItemModel
from headcount.pipelines.studies.populations.models import Population, UserModel
from headcount.pipelines.studies.populations.public_values import on_public_values

# Where searches begin, in centre, spread and habit; how they move, and how far they may go. A sample has few events at first.
_STARTS = (0.0, 1.0, 2.0, 3.5, 5.0), (0.3, 0.7, 1.2, 1.8), (0.0, 0.5, 1.0)
_MOVES, _ENDS = (0.4, 0.3, 0.2), ((-1.5, 9.0), (0.05, 3.0), (0.0, 3.0))
_FIRST_EVENTS, _EVENTS = 20_000, 60_000
_SEARCHES, _TRIES = 2, 40
_LEAST_BELIEF = 0.1  # of the best model's, for another one to be looked at

# What is to be expected before anything is known, with standard deviations. And from where on a choice that is less likely
# tells little more, in logarithms: no model of users is quite right.
_SPREAD, _HEAVY_SPREAD, _HABIT = (1.0, 0.7), (1.0, 0.4), (0.2, 0.5)
_MUCH = 4.0

# How well the least count of an item, and the share left out, are known besides their noise.
_LEAST_STDDEV, _LEFT_STDDEV = 0.03, 0.03

_BANDS = 14

# By which root of their number a user's items weigh less.
_ROOTS = {"l2": 1 / 2, "law": 1 / 4}


@dataclasses.dataclass(frozen=True, eq=False)
class UserEvidence:
    """What a release of estimates tells of its users: how it was to choose, what it chose, and what the bound left out."""

    stages: Stages
    plan: StagePlan
    named: int
    groups: int
    left_out: float | None  # None where it is not known
    events: float  # of the items named
    public: np.ndarray | None = None  # how often each public value occurs, where keys are partly public

    @property
    def keys(self) -> int:
        """How many keys are counted."""
        return self.named * (1 if self.public is None else len(self.public))

    @property
    def left_out_stddev(self) -> float:
        """How well the share is known."""
        assert self.plan.totals is not None
        noise = self.plan.totals.stddev * math.sqrt(self.groups) / max(self.events, 1.0)
        return math.hypot(_LEFT_STDDEV, noise)


def fit_users(evidence: UserEvidence, model: ItemModel, seed: int) -> list[tuple[UserModel, float]]:
    """The likeliest models of the users for items of this model, each with the share of the belief in it.

    They are ends of searches from the best starts of each kind: often several models explain the evidence.
    """
    from scipy.optimize import minimize

    counts = model.counts()

    def cost(at: Sequence[float], heavy: bool, events: int) -> float:
        return -_log_likelihood(evidence, model, counts, _model_at(at, heavy), events, seed)

    found = []
    for heavy in (False, True):
        starts = sorted(itertools.product(*_STARTS), key=lambda each: cost(each, heavy, _FIRST_EVENTS))
        for start in starts[:_SEARCHES]:
            simplex = [start, *(np.add(start, move) for move in np.diag(_MOVES))]
            options = {"initial_simplex": simplex, "maxfev": _TRIES, "xatol": 0.02, "fatol": 0.05}
            best = minimize(cost, start, (heavy, _EVENTS), "Nelder-Mead", options=options)
            found.append((float(best.fun), _model_at(best.x, heavy)))
    found.sort(key=lambda each: each[0])
    beliefs = [math.exp(found[0][0] - each) for each, _ in found]
    kept = [(model, belief) for (_, model), belief in zip(found, beliefs, strict=True) if belief >= _LEAST_BELIEF]
    return [(model, belief / sum(belief for _, belief in kept)) for model, belief in kept]


def _model_at(at: Sequence[float], heavy: bool) -> UserModel:
    centre, spread, habit = (float(np.clip(value, *ends)) for value, ends in zip(at, _ENDS, strict=True))
    return UserModel(centre, spread, habit, heavy)


def _log_likelihood(
    evidence: UserEvidence, model: ItemModel, counts: np.ndarray, users: UserModel, events: int, seed: int
) -> float:
    """The logarithm of how likely the evidence is under this model, up to what all models share."""
    population = Population(counts, users)
    sample = _Sample(population.drawn(np.random.default_rng(seed), events), population, evidence.named)
    if evidence.public is not None:
        sample.of_named = on_public_values(sample.of_named, evidence.public, np.random.default_rng(seed))
    parts = [_names_chosen(evidence, sample), *_bounds_chosen(evidence, sample)]
    whole = sum(-_MUCH * math.log1p(-part / _MUCH) for part in parts)
    whole -= (_least_off(evidence, model, sample) ** 2 + _left_out_off(evidence, sample) ** 2) / 2
    expected, stddev = _HEAVY_SPREAD if users.heavy else _SPREAD
    whole -= ((users.spread - expected) / stddev) ** 2 / 2
    return whole - ((users.habit - _HABIT[0]) / _HABIT[1]) ** 2 / 2


class _Sample:
    """Users of a population, what each of their rows is, and how many users each of them stands for."""

    def __init__(self, shard: Shard, population: Population, named: int) -> None:
        self.shard, self.population = shard, population
        self.rank = np.asarray(shard.items)[shard.item]
        self.held = shard.rows_per_user()
        self.user = np.repeat(np.arange(len(shard.users)), self.held)
        self.totals = shard.totals()
        self.stands_for = population.size / len(shard.users)
        self.named = named
        self.of_named = shard.with_items(pa.array(np.arange(named)))

    def kept(self, strategy_items: int, held: np.ndarray, weights: str) -> np.ndarray:
        """What each of a user's items weighs on average, if this number of them is kept."""
        kept = np.minimum(held, strategy_items)
        return kept ** (1 - _ROOTS.get(weights, 0.0)) / held

    def weight_of_event(self, weight: np.ndarray, first: int, last: int) -> float:
        """What an event on items of these ranks weighs on average, for these weights of the rows.

        By the events that are expected: those of a few users who do much vary, and what they weigh does not.
        """
        rows = (self.rank >= first) & (self.rank < last)
        return float(weight[rows].sum() * self.stands_for / self.population.items[first:last].sum())


def _least_off(evidence: UserEvidence, model: ItemModel, sample: _Sample) -> float:
    """How far the count that an item needs is from the one that the items shown tell of, in standard deviations."""
    names = evidence.plan.names
    if names is None:
        return 0.0
    alive = np.ones(len(sample.rank), dtype=bool)
    counts, number = sample.population.items, names.named.max_items
    for each in names.rounds:
        held = np.maximum(np.bincount(sample.user[alive], minlength=len(sample.held)), 1)
        weight = sample.kept(number, held, each.weights)[sample.user] * alive
        if each.weights == "events":
            weight = sample.shard.count / sample.totals[sample.user]
        assert each.plan.threshold_in_counts is not None
        threshold = float(each.plan.threshold_in_counts)
        if each is not names.rounds[-1]:
            typical = sample.weight_of_event(weight, evidence.named // 8, max(evidence.named // 2, 10))
            alive = sample.rank >= np.count_nonzero(counts * typical > threshold)
    typical = max(sample.weight_of_event(weight, 3 * evidence.named // 5, 8 * evidence.named // 5 + 3), 1e-9)
    needed = math.log(threshold / typical / model.least)
    if model.least == 1.0:  # all items are shown: none needs more than the least of them has
        needed = max(0.0, math.log(threshold / typical / counts[min(evidence.named, len(counts)) - 1]))
    return needed / _LEAST_STDDEV


def _left_out_off(evidence: UserEvidence, sample: _Sample) -> float:
    """How far the share that the bound leaves out is from the one that was released, in standard deviations."""
    plan, named = evidence.plan, sample.of_named
    capped = limit_per_item(named, plan.kept.max_per_item) if plan.kept.max_per_item else named
    reached = np.minimum(capped.totals(), plan.kept.totals_bound).sum()
    if plan.counts is None:  # one event of each user
        left = named.totals() / np.maximum(sample.totals, 1)
    else:
        norms = np.sqrt(squared_norms(capped).astype(float))
        left = capped.totals() * np.minimum(1.0, plan.kept.bound / np.maximum(norms, 1e-9))
    if evidence.left_out is None:
        return 0.0
    share = max(0.0, 1 - float(left.sum()) / max(float(reached), 1e-9))
    if evidence.left_out > 0:
        return (share - evidence.left_out) / evidence.left_out_stddev
    return max(0.0, share / evidence.left_out_stddev - 2)  # nothing was seen beyond the noise


def _bounds_chosen(evidence: UserEvidence, sample: _Sample) -> list[float]:
    """The logarithms of the chances of the bounds that were chosen."""
    choice, kept = evidence.stages.clip_choice, evidence.plan.kept
    if choice is None:
        return []
    table = [int(entry * sample.stands_for) for entry in choice.user_table(sample.of_named)]
    found, place = [], choice.caps.index(kept.max_per_item)
    if choice.cap_budget is not None:
        found.append(_chance(choice.cap_exponents(table), place))
    if evidence.plan.counts is not None and choice.candidates:
        table[-1] = max(1, evidence.keys)
        alike = [each for each in choice.candidates if each.max_per_item == kept.max_per_item]
        asked = [(each.bound, each.noise) for each in alike]
        found.append(_chance(choice.counts_exponents(table, alike), asked.index((kept.bound, kept.noise))))
    if choice.norms:
        found.append(_chance(choice.totals_exponents(table, place), choice.norms.index(kept.totals_bound)))
    return found


def _names_chosen(evidence: UserEvidence, sample: _Sample) -> float:
    """The logarithm of the chance of the way in which items were named.

    The sums of an item over all users are what its events weigh on average, in a band of items of about its rank.
    """
    if evidence.plan.names is None or evidence.stages.named_by is not None:
        return 0.0
    choice, counts = evidence.stages.names_choice, sample.population.items
    least = counts[min(evidence.named, len(counts) - 1)] / 6
    ends = np.unique(np.geomspace(1, 1 + np.searchsorted(-counts, -least), _BANDS).astype(int)) - 1
    if len(ends) < 2:
        return 0.0
    counts, band = counts[: ends[-1]], np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    rows = np.flatnonzero(sample.rank < ends[-1])
    of_row, user = band[sample.rank[rows]], sample.user[rows]
    events = np.bincount(band, counts) / sample.stands_for  # that are expected

    def sums(weight: np.ndarray) -> np.ndarray:
        return counts * (np.bincount(of_row, weight[user], len(ends) - 1) / events)[band]

    table = []
    for way in choice.candidates:
        weight = sample.kept(way.items, sample.held, STRATEGIES[way.strategy])
        others = weight * np.where(sample.held > way.items, 1.0, way.others * (1 - 1 / sample.held))
        table.append(_in_units(way, sums(weight), sums(others) if way.in_rounds else None))
    table += [int(np.count_nonzero(sample.held > limit) * sample.stands_for) for limit in choice.limits]
    named = evidence.plan.names.named
    return _log(choice.chances(table)[[way.chosen for way in choice.candidates].index(named)])


def _in_units(way: StrategyCandidate, held: np.ndarray, others: np.ndarray | None) -> int:
    """What items are worth to a way of naming, by the formula of `partitions.auto` and in the units of its table."""
    threshold = way.threshold / 2**10
    start, end, back = (eighths / 8 for eighths in way.shape)
    worth = np.clip(held / threshold - start, 0, end - start).sum()
    if others is not None:
        worth += back * np.maximum(others / threshold - end, 0).sum()
    return round(float(worth) * 8 * way.threshold) << 30


def _chance(exponents: Sequence[Fraction], place: int) -> float:
    return _log(probabilities(exponents)[place])


def _log(chance: float) -> float:
    return math.log(chance + 1e-12)
