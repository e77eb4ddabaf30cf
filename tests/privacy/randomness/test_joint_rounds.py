"""The joint law of rounds and choices: draws one after another, measurements of one count, rounds of a search, steps of a
descent, and choices for equal symbols; each with the shared lane that it must catch.

Keys are fixed; over the choice of the key each test fails with probability 1e-8, all of this file below 1e-6. Each mutation
makes two draws equal, or a function of one another, and is seen with probability above 1 - 1e-9.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.filters import ZcdpFilter
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.bound_choice.papers import baselines
from headcount.mechanisms.choice import run
from headcount.mechanisms.count_release import frames
from headcount.mechanisms.count_release import rounds as count_rounds
from headcount.mechanisms.count_release.frames import Frame
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.rounds import _RoundLanes
from headcount.mechanisms.count_release.top_items import draws_of_top
from headcount.mechanisms.distribution import tables
from headcount.mechanisms.distribution.binomial_choice import BinomialChoice
from headcount.mechanisms.distribution.tables import ValueCounts
from headcount.mechanisms.histogram.auto import auto_bounded_histogram
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.sampled import quantiles
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.mechanisms.sampled.plan import SamplePlan
from headcount.mechanisms.sampled.quantiles import QuantileSearch
from tests.privacy.independence import independent

ITEMS = 6


def of_one_draw(key: bytes, table: bytes, draws: int) -> np.ndarray:
    """A mutation: lane ids that do not hold the number of the draw."""
    return np.repeat(decision_lane_ids(key, table, 1), draws, axis=0)


def frame(items: int = ITEMS, users: int = 10**6) -> Frame:
    """Items with equally many users, far above every threshold."""
    number = np.full(items, users)
    return Frame(pa.array(np.arange(items)), number, number, 0)


# Draws without replacement from equal items: which of those that are left is drawn.


def places(draw: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch, module: Any, runs: int = 1000) -> np.ndarray:
    """The place of each of three draws, a column, for so many keys: uniform below 6, 5 and 4."""
    seen: list[int] = []
    select = module.select_by_excess

    def recorded(excess: Any, denominator: int, lane: Lanes) -> int:
        seen.append(select(excess, denominator, lane))
        return seen[-1]

    with monkeypatch.context() as context:
        context.setattr(module, "select_by_excess", recorded)
        for k in range(runs):
            draw(k.to_bytes(32, "little"))
    return np.array(seen).reshape(runs, 3)


def pass_as_independent(found: np.ndarray) -> bool:
    """Of three draws. (Two that share their words are the remainders of one number by 6 and 5, which tells nothing, but by 6
    and 4, which are both even or both odd.)"""
    assert found.max(axis=0).tolist() == [5, 4, 3]
    return independent(found[:, 0], found[:, 1], classes=6) and independent(found[:, 0], found[:, 2], classes=6)


def test_draws_of_the_top_are_independent_and_words_that_are_read_again_are_caught(monkeypatch):
    top = draws_of_top(Budget(1, 1e-6), 3, k_bar=10, item_type=int)

    def draw(key: bytes) -> None:
        assert top.release(frame(), key).num_rows == 3

    assert pass_as_independent(places(draw, monkeypatch, frames))
    select = frames.select_by_excess

    def rewound(excess: Any, denominator: int, lane: Lanes) -> int:
        lane._drawn[:] = 0
        return select(excess, denominator, lane)

    monkeypatch.setattr(frames, "select_by_excess", rewound)
    assert not pass_as_independent(places(draw, monkeypatch, frames))


def test_rounds_of_a_count_release_draw_independently_and_lanes_without_the_round_are_caught(monkeypatch):
    """The round's number and all that was drawn before are in the lane of its draw: without both, rounds share their words."""
    plan = count_release(Zcdp(1, 1e-6), k_bar=10, item_type=int, start_epsilon=1)
    level = plan.level(plan.start_epsilon)

    def draw(key: bytes) -> None:
        rounds = count_rounds.Rounds(frame(), key, ZcdpFilter(Zcdp(100, 1e-2)), None)  # nothing is measured
        assert all(rounds._draw(level) is not None for _ in range(3))

    assert pass_as_independent(places(draw, monkeypatch, count_rounds))

    def roundless(self: _RoundLanes, kind: str, draws: int, *parameters: Fraction) -> np.ndarray:
        identity = json.dumps([kind, *map(str, parameters)]).encode()
        return decision_lane_ids(self._lane_key, identity, draws)

    monkeypatch.setattr(_RoundLanes, "_ids", roundless)
    assert not pass_as_independent(places(draw, monkeypatch, count_rounds))


# Measurements of one count: Brownian increments.


def increments(monkeypatch: pytest.MonkeyPatch, runs: int = 7) -> np.ndarray:
    """The noise of each measurement (a column) of each item (a row), in its own standard deviations."""
    plan = count_release(
        Zcdp(40, 1e-6), relative_error=1e-4, k_bar=100, noise_reduction=True, item_type=int, start_epsilon=0.2
    )
    drawn: list[np.ndarray] = []
    gaussian = count_rounds.discrete_gaussian

    def recorded(lanes: Lanes, sigma: Fraction) -> np.ndarray:
        noise = gaussian(lanes, sigma)
        drawn.append(noise / float(sigma))
        return noise

    with monkeypatch.context() as context:
        context.setattr(count_rounds, "discrete_gaussian", recorded)
        for k in range(runs):
            plan.release(frame(100, 5000), k.to_bytes(32, "little"))
    whole = [each for each in drawn if len(each) == 100]
    assert len(whole) == 7 * runs, "seven measurements of each of a hundred items"
    return np.concatenate([np.stack(whole[7 * k : 7 * k + 7], axis=1) for k in range(runs)])


def test_increments_and_equal_counts_have_independent_noise_and_one_lane_for_all_is_caught(monkeypatch):
    """700 counts, with seven measurements each that are never exact enough. Two from the same words would give a count away."""
    noise = increments(monkeypatch)
    for one, other in ((0, 1), (1, 2), (0, 6), (5, 6)):
        assert independent(noise[:, one], noise[:, other])
    assert independent(noise[::2, 0], noise[1::2, 0], classes=3)
    monkeypatch.setattr(count_rounds, "decision_lane_ids", of_one_draw)
    shared = increments(monkeypatch)
    assert not independent(shared[:, 0], shared[:, 1]) and not independent(shared[:, 5], shared[:, 6])


# Rounds of a search.


def search_rounds(make_release: Any, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The sampled users left of the middle (a column for each round) in 640 searches: all of 60 users are in the first leaf."""
    seen: list[int] = []
    shown = QuantileSearch._shown

    def recorded(self: QuantileSearch, sampled: np.ndarray) -> tuple[int, int]:
        seen.append(int(sampled[0]))
        return shown(self, sampled)

    search = QuantileSearch(
        SamplePlan(Fraction(1, 3), 1, 1.0, 1e-3, Relation.ADD_REMOVE, 3), Leaves(0, 8, 8), Fraction(1, 2)
    )
    batch = contribution_batch(pa.array(np.arange(60)), pa.array(np.zeros(60, dtype=np.int64)))
    bounded = quantiles.bounded_batches([batch], search.steps, make_release(), "B")
    chunks, origins = quantiles.sums_of(bounded)
    with monkeypatch.context() as context:
        context.setattr(QuantileSearch, "_shown", recorded)
        for k in range(640):
            search.search(chunks, origins, k.to_bytes(32, "little"))
    return np.array(seen).reshape(-1, 3)


def test_rounds_of_a_search_sample_independently_and_reused_bits_are_caught(monkeypatch, make_release):
    """Bin(60, 1/3) anew in each round: with the bits of the first, a user who was sampled once is sampled in all rounds."""
    sampled = search_rounds(make_release, monkeypatch)
    assert independent(sampled[:, 0], sampled[:, 1]) and independent(sampled[:, 1], sampled[:, 2])
    assert abs(sampled.mean() - 20) < 6 * np.sqrt(60 * 2 / 9 / sampled.size)
    thin = quantiles.binomial

    def reused(lanes: Lanes, counts: Any, rate: Fraction, index: Any) -> np.ndarray:
        lanes._drawn[:] = 0
        return thin(lanes, counts, rate, [0, 1])

    monkeypatch.setattr(quantiles, "binomial", reused)
    again = search_rounds(make_release, monkeypatch)
    assert np.array_equal(again[:, 0], again[:, 1]) and not independent(again[:, 1], again[:, 2])


# Choices: of a bound by descent, and of p for each symbol.


def descents(monkeypatch: pytest.MonkeyPatch, runs: int = 100) -> np.ndarray:
    """The noise of the sixteen steps (columns) of a descent, for so many keys."""
    choice = auto_bounded_histogram(
        Budget(1, 1e-3), ["a"], method="dp-gd", noise="gaussian", relation=Relation.REPLACE
    ).auto.choice
    drawn: list[np.ndarray] = []
    gaussian = baselines.discrete_gaussian

    def recorded(lanes: Lanes, sigma: Fraction) -> np.ndarray:
        drawn.append(gaussian(lanes, sigma))
        return drawn[-1]

    with monkeypatch.context() as context:
        context.setattr(baselines, "discrete_gaussian", recorded)
        for k in range(runs):
            run.decide(choice, [0] * choice.entries, k.to_bytes(32, "little"))
    return np.array(drawn)


def test_steps_of_a_descent_draw_independently_and_all_from_one_lane_are_caught(monkeypatch):
    """800 pairs of a step and the next one, and as many of a step and the one half of the way on."""
    noise = descents(monkeypatch)
    assert noise.shape == (100, 16)
    assert independent(noise[:, ::2].ravel(), noise[:, 1::2].ravel())
    assert independent(noise[:, :8].ravel(), noise[:, 8:].ravel())
    monkeypatch.setattr(run, "decision_lane_ids", of_one_draw)
    shared = descents(monkeypatch)
    assert not independent(shared[:, ::2].ravel(), shared[:, 1::2].ravel())


def test_equal_symbols_are_chosen_for_independently_and_choices_from_one_lane_are_caught(monkeypatch):
    """1300 symbols that the same numbers of users have equally often, and 1300 that nobody has: pairs of their choices."""
    choice = BinomialChoice(5, 50, Fraction(1, 4))

    def chosen(held: int) -> np.ndarray:
        value, users = (np.tile(pair, 1300 * held) for pair in ([1, 2], [20, 5]))
        table = ValueCounts(pa.array(np.arange(1300)), np.arange(1301) * 2 * held, value, users)
        return choice.estimates(table, bytes(range(32)), 17)

    for held in (0, 1):
        found = chosen(held)
        assert len(np.unique(found)) > 4
        assert independent(found[::2], found[1::2])
    ids = tables.user_lane_ids
    monkeypatch.setattr(
        tables, "user_lane_ids", lambda key, symbols, *rows: ids(key, pa.array([0] * len(symbols)), *rows)
    )
    assert len(np.unique(chosen(0))) == len(np.unique(chosen(1))) == 1
