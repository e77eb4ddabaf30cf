"""The lower bound of epsilon is below the true one as often as it says, and close to it where the event is the right one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headcount.pipelines.audits.evidence import Event, found, least

EPSILON, DELTA = 2.0, 0.05


def coins(random: np.random.Generator, chance: float, runs: int) -> np.ndarray:
    return (random.random(runs) < chance).astype(float)


def worst(epsilon: float, delta: float) -> tuple[float, float]:
    """The chances of an event under both neighbours of a mechanism that is (epsilon, delta)-private and no better."""
    less = (1 - delta) / (1 + math.exp(epsilon))
    return math.exp(epsilon) * less + delta, less


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_a_tight_mechanism_is_found_and_never_exceeded(delta):
    """200 audits of fixed seeds, at a confidence of 0.9999: the chance that one of them exceeds is below 0.02, and the seeds
    are those for which none does."""
    more, less = worst(EPSILON, delta)
    shown = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        audited = found(coins(random, less, 2000), coins(random, more, 2000), delta, 0.9999)
        assert audited.epsilon <= EPSILON
        shown.append(audited.epsilon)
    assert np.median(shown) > 0.8 * EPSILON


def test_the_bound_holds_as_often_as_it_says():
    """1,000 audits at a confidence of 0.9: about 100 may exceed, and 150 would have a chance below 1e-6."""
    more, less = worst(EPSILON, 0.0)
    event, exceeded = Event(1.0, False, True), 0
    for seed in range(1000):
        random = np.random.default_rng(seed)
        audited = least(event, coins(random, less, 400), coins(random, more, 400), 0.0, 0.9)
        exceeded += audited.epsilon > EPSILON
    assert exceeded < 150


def test_the_event_is_counted_on_other_outcomes_than_it_was_chosen_on():
    """Outcomes of one law for both: an event that is chosen and counted on the same ones would show something."""
    shown = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        shown.append(found(random.normal(size=400), random.normal(size=400), 0.0, 0.99).epsilon)
    assert max(shown) == 0


def test_what_is_below_delta_shows_nothing():
    alone = np.concatenate([np.ones(40), np.zeros(960)])
    random = np.random.default_rng(1)
    assert found(np.zeros(1000), random.permutation(alone), DELTA, 0.99).epsilon == 0
    assert found(np.zeros(1000), random.permutation(alone), 0.0, 0.99).epsilon > 1


def test_events_of_both_kinds_and_both_sides_are_found():
    random = np.random.default_rng(2)
    low, high = random.normal(size=2000), random.normal(size=2000) + 3
    assert found(low, high, 0.0, 0.99).epsilon > 2
    assert found(high, low, 0.0, 0.99).epsilon > 2
