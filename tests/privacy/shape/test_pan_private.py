"""Pan-private counters: noise before the first event, no trace of how it was made, and a fresh one for each further view.

The noise is the operating system's, so that these tests draw anew each time: each bound has a false-alarm rate below 1e-7, the
file below 1e-6. What a view costs is exact: the scale is that which the samplers were given (`Draws`).
"""

from __future__ import annotations

import dataclasses
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_laplace
from headcount.mechanisms.randomness.system import laplace
from headcount.mechanisms.shape.isotonic import cumulative_runs
from headcount.mechanisms.shape.papers import pan_private
from headcount.mechanisms.shape.papers.pan_private import PanPrivateMechanism, PanPrivateState, pan_private_counts
from headcount.mechanisms.shape.tallies import Tally, make_tally
from tests.privacy.draws import Draws

MANY = 200_000


@pytest.mark.parametrize("relation", list(Relation))
def test_a_counter_with_one_event_shows_as_often_as_epsilon_allows(relation):
    """T7 on the memory: P[counter >= 1] is p/(1+p) without and 1/(1+p) with one event, to 5.5 standard errors; with half the
    scale the ratio is e^(2 epsilon)."""
    counts = pan_private_counts(Budget(1), buckets=2 * MANY, relation=relation)
    p = math.exp(-1 / relation.users)
    assert counts.scale == relation.users

    def shares(made):
        state = made.start()
        state.count(np.arange(MANY))
        return (state.counters[MANY:] >= 1).mean(), (state.counters[:MANY] >= 1).mean()

    without, with_one = shares(counts)
    error = 5.5 * math.sqrt(0.25 / MANY)
    assert abs(without - p / (1 + p)) < error and abs(with_one - 1 / (1 + p)) < error
    wrong = shares(dataclasses.replace(counts, scale=counts.scale / 2))
    assert math.log(wrong[1] / wrong[0]) > 1.8 / relation.users


@pytest.mark.parametrize("relation", list(Relation))
def test_an_event_in_two_counters_shows_as_often_as_epsilon_allows(relation):
    """Mode "l2" with hashed items: P[both counters >= 1] is (p/(1+p))^2 without and 1/(1+p)^2 with an event, whose ratio is
    e^(epsilon / users) exactly, to 5.5 standard errors; with the noise of one counter it is e^(2 epsilon / users)."""
    made = pan_private_counts(Budget(1), buckets=400, mode="l2", relation=relation)
    counts = dataclasses.replace(made, buckets=2 * MANY, ranks=2 * MANY)
    p = math.exp(-0.5 / relation.users)
    assert counts.scale == 2 * relation.users

    def shares(made):
        state = made.start()
        own = np.arange(MANY)
        state.count(np.concatenate([own, made.buckets + own]))
        both = state.counters.reshape(2, -1).min(axis=0) >= 1
        return both[MANY:].mean(), both[:MANY].mean()

    without, with_one = shares(counts)
    error = 5.5 * math.sqrt(0.25 / MANY)
    assert abs(without - (p / (1 + p)) ** 2) < error and abs(with_one - (1 / (1 + p)) ** 2) < error
    wrong = shares(dataclasses.replace(counts, scale=counts.scale / 2))
    assert math.log(wrong[1] / wrong[0]) > 1.8 / relation.users


def test_all_counters_have_noise_before_the_first_event():
    state = pan_private_counts(Budget(1), buckets=10_000).start()
    assert len(state.counters) == 10_000 and abs((state.counters == 0).mean() - 0.462) < 0.03


# A seed in the memory.


@dataclasses.dataclass(eq=False)
class SeededState(PanPrivateState):
    """The bug: noise that is made from a seed when it is needed, and the seed with it in the memory."""

    seed: bytes = b""

    @classmethod
    def start(cls, size: int, scale: Fraction, seed: bytes) -> SeededState:
        return cls(seeded_noise(size, scale, seed), scale, 1, seed=seed)


def seeded_noise(size: int, scale: Fraction, seed: bytes) -> np.ndarray:
    places = np.arange(2 * size, dtype=np.uint64).reshape(size, 2)
    return discrete_laplace(Lanes(seed, places), scale)


def uncovered(memory: bytes) -> np.ndarray | None:
    """The intruder: takes the noise off with whatever in the memory could be a seed; exact counts are never negative."""
    state = pickle.loads(memory)
    for value in vars(state).values():
        if isinstance(value, bytes) and len(value) == 32:
            counts = state.counters - seeded_noise(len(state.counters), state.scale, value)
            if (counts >= 0).all():
                return counts
    return None


def test_the_memory_holds_no_seed_and_a_seed_would_give_every_count_away():
    events = np.random.default_rng(0).integers(0, 50, 300)
    real = pan_private_counts(Budget(1), buckets=500).start()
    bug = SeededState.start(500, Fraction(1), bytes(range(32)))
    for state in (real, bug):
        state.count(events)
    assert np.array_equal(uncovered(pickle.dumps(bug)), np.bincount(events, minlength=500))
    assert uncovered(pickle.dumps(real)) is None
    assert set(vars(real)) == {"counters", "scale", "noises", "released"}
    again = pan_private_counts(Budget(1), buckets=500).start()
    assert (again.counters == pan_private_counts(Budget(1), buckets=500).start().counters).mean() < 0.6, (
        "nothing can be repeated"
    )


# Two views.


def costs(made: PanPrivateMechanism, intrusions: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The privacy loss of an event before the first view, between any two, and before the output, to whoever sees them all:
    so many memories, all but the last of them announced, and what the rows are made of.

    Two views differ by the events between them and by the noise that came between: an event moves so many counters by one,
    and the noise has the scale that was drawn with. Infinite where no noise came between.
    """
    moved = made.relation.users * (2 if made.ranks else 1)
    with monkeypatch.context() as context:
        draws, released = Draws(context), []

        def recorded(values: np.ndarray, *more: np.ndarray) -> Tally:
            released.append(values)
            return make_tally(values, *more)

        context.setattr(pan_private, "make_tally", recorded)
        context.setattr(pan_private, "summed_shape", lambda *_: None)  # what follows the last draw
        state = made.start()
        views, drawn, events = [np.zeros(made.cells, dtype=np.int64)], [0], np.arange(made.cells) % 3
        for number in range(intrusions):
            if number:
                state.announce_intrusion()
            state.count(np.arange(made.cells), events)
            views.append(state.counters.copy())
            drawn.append(len(draws.noise))
        state.count(np.arange(made.cells), events)
        made.shape(state)
        views.append(np.concatenate(sorted(released, key=lambda part: len(part) != made.buckets)))
        drawn.append(len(draws.noise))
        found = []
        for place in range(1, len(views)):
            noise = draws.noise[drawn[place - 1] : drawn[place]]
            fresh = views[place] - views[place - 1] - events
            assert np.array_equal(fresh, sum((each.drawn for each in noise), np.zeros(made.cells, dtype=np.int64)))
            found.append(float(moved / noise[0].scale) if len(noise) == 1 else math.inf)
    return found


@pytest.mark.parametrize("mode", ["l1", "l2"])
@pytest.mark.parametrize("relation", list(Relation))
def test_every_view_costs_epsilon_and_no_view_more(relation, mode, monkeypatch):
    made = pan_private_counts(Budget(1), buckets=60, relation=relation, mode=mode)
    for intrusions in (1, 2, 3):
        assert costs(made, intrusions, monkeypatch) == [1.0] * (intrusions + 1)


def test_less_noise_on_the_output_or_after_an_intrusion_than_the_memory_has_is_caught(monkeypatch):
    """The known bugs: fresh noise of half the scale, or none."""
    made = pan_private_counts(Budget(1), buckets=60)
    assert costs(dataclasses.replace(made, protect="either"), 1, monkeypatch) == [1.0, math.inf]
    first: list[int] = []

    def half(n: int, scale: Fraction) -> np.ndarray:
        first.append(n)
        return laplace(n, scale if len(first) == 1 else scale / 2)

    monkeypatch.setattr(pan_private, "laplace", half)
    assert costs(made, 1, monkeypatch) == [1.0, 2.0]
    first.clear()
    assert costs(made, 2, monkeypatch) == [1.0, 2.0, 2.0]
    monkeypatch.setattr(PanPrivateState, "announce_intrusion", lambda self: None)
    first.clear()
    assert costs(made, 2, monkeypatch) == [1.0, math.inf, 2.0]


def test_two_views_of_one_noise_differ_by_exact_counts_and_an_announced_intrusion_by_noise():
    counts = pan_private_counts(Budget(1), buckets=5000)
    for announced in (False, True):
        state = counts.start()
        state.count(np.zeros(10, dtype=np.int64))
        seen = state.counters.copy()
        if announced:
            state.announce_intrusion()
        state.count(np.arange(3))
        difference = state.counters - seen
        exact = np.bincount(np.arange(3), minlength=5000)
        assert np.array_equal(difference, exact) is not announced
        if announced:
            noise = difference - exact
            p = math.exp(-1)
            kept = stats.binomtest(int((noise == 0).sum()), 5000, (1 - p) / (1 + p))
            assert kept.pvalue > 1e-8


def test_the_output_is_not_the_memory_plus_known_numbers():
    """With protect "both", an intruder who saw the memory and the output has fresh noise between them. Counters are far apart,
    so that the rows tell each one's value; with "either" they are the memory's own."""
    for protect, alike in (("either", True), ("both", False)):
        counts = pan_private_counts(Budget(0.1), buckets=30, protect=protect)
        state = counts.start()
        state.count(np.repeat(np.arange(30), 100_000 * (1 + np.arange(30))))
        memory = np.sort(state.counters.copy())
        rows = counts.shape(state)
        found = np.repeat(np.asarray(rows.column("count")), np.asarray(rows.column("items")))
        near = np.abs(found[:, None] - memory).min(axis=1) <= 1
        assert bool(near.mean() > 0.9) is alike


# Bias.


def mean_is_off(state_noises: int, undone: int) -> bool:
    """Whether 500,000 counters of 3 events and as many without are estimated with a bias of more than 5.5 standard errors."""
    counts = pan_private_counts(Budget(1), buckets=10**6)
    state = counts.start()
    for _ in range(state_noises - 1):
        state.announce_intrusion()
    state.count(np.repeat(np.arange(500_000), 3))
    assert state.noises == state_noises
    runs = cumulative_runs(make_tally(state.counters), math.exp(-1), undone)
    at = np.searchsorted(runs.last, np.arange(1, 7))
    truth = np.where(np.arange(1, 7) <= 3, 500_000, 0)
    return bool((np.abs(runs.estimate[at] - truth) > 5.5 * np.sqrt(runs.variance[at]) + 1e-6).any())


def test_each_noise_is_undone_and_one_for_two_is_caught():
    assert not mean_is_off(1, 1)
    assert not mean_is_off(2, 2)
    assert mean_is_off(2, 1)
    assert mean_is_off(1, 2)


@pytest.mark.parametrize("intrusions", [0, 1])
@pytest.mark.parametrize("protect", ["both", "either"])
def test_the_shape_is_near_the_truth_whatever_was_seen(protect, intrusions):
    """20,000 counters of which 4000 have 8 events: within 15 % of the items at half that count, 30 standard errors or more."""
    counts = pan_private_counts(Budget(2), buckets=20_000, protect=protect)
    state = counts.start()
    for _ in range(intrusions):
        state.announce_intrusion()
    state.count(np.repeat(np.arange(4000), 8))
    rows = counts.shape(state)
    count, items = np.asarray(rows.column("count")), np.asarray(rows.column("items"))
    assert abs(items[count >= 4].sum() - 4000) < 600
    with pytest.raises(InputError, match="released already"):
        counts.shape(state)
    with pytest.raises(InputError, match="start anew"):
        state.count(np.array([1]))


def test_hashed_events_have_their_collisions_taken_out():
    counts = pan_private_counts(Budget(4), buckets=40_000, protect="either")
    rng = np.random.default_rng(0)
    state = counts.start()
    state.count(rng.integers(0, 40_000, 10_000))  # 10,000 items of one event each
    rows = counts.shape(state, samples=10_000)
    assert abs(int(np.asarray(rows.column("items")).sum()) - 10_000) < 700


def test_the_guarantee_is_for_events_and_wrong_parameters_are_refused():
    promise = pan_private_counts(Budget(0.5), buckets=10).guarantee()
    assert promise.unit == "event" and promise.description().startswith("Event-level (epsilon = 0.5")
    with pytest.raises(ParameterError, match="buckets must be given"):
        pan_private_counts(Budget(1), buckets=None)
    with pytest.raises(ParameterError, match="fit into memory"):
        pan_private_counts(Budget(1), buckets=10**10)
    with pytest.raises(ParameterError, match="got 'all'"):
        pan_private_counts(Budget(1), buckets=10, protect="all")
    with pytest.raises(InputError, match="not between 0 and 9"):
        pan_private_counts(Budget(1), buckets=10).start().count(np.array([10]))
    with pytest.raises(ParameterError, match="made for other counters than 20"):
        pan_private_counts(Budget(1), buckets=20).shape(pan_private_counts(Budget(1), buckets=10).start())
