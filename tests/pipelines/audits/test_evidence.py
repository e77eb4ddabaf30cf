"""The lower bounds are below what is true as often as they say, and close to it where the event is the right one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from headcount.mechanisms.accounting.gaussian import gaussian_epsilon
from headcount.mechanisms.accounting.losses import Curve, Draw, Laplace, Losses
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.audits import joint
from headcount.pipelines.audits.claims import OfDelta, OfEpsilon, OfLosses, scaled
from headcount.pipelines.audits.evidence import Seen, found
from headcount.pipelines.audits.joint import Joint

EPSILON, DELTA = 2.0, 0.05
PURE = OfEpsilon(EPSILON, 0.0)


def coins(random: np.random.Generator, chance: float, runs: int) -> np.ndarray:
    return (random.random(runs) < chance).astype(float)


def worst(epsilon: float, delta: float) -> tuple[float, float]:
    """The chances of an event under both neighbours of a mechanism that is (epsilon, delta)-private and no better."""
    less = (1 - delta) / (1 + math.exp(epsilon))
    return math.exp(epsilon) * less + delta, less


@pytest.mark.parametrize(
    "claim",
    [
        OfEpsilon(EPSILON, 0.0),
        OfEpsilon(EPSILON, DELTA),
        OfLosses(Losses.of_promise(EPSILON, 0.0), 0.0),
        OfLosses(Losses.of_promise(EPSILON, DELTA), DELTA),
    ],
)
def test_a_tight_mechanism_is_found_and_never_exceeded(claim):
    """10 audits of fixed seeds, at a confidence of 0.9999: the chance that one of them exceeds is below 0.001, and the seeds
    are those for which none does."""
    more, less = worst(EPSILON, claim.delta)
    shown = []
    for seed in range(10):
        random = np.random.default_rng(seed)
        shown.append(found(coins(random, less, 2000), coins(random, more, 2000), claim, 0.9999).shown)
    assert max(shown) <= claim.most
    assert np.median(shown) > 0.8 * EPSILON


@pytest.mark.parametrize(
    ("losses", "delta", "epsilon"),
    [
        (Losses(mu=1.2), DELTA, gaussian_epsilon(1.2, DELTA)),
        (Losses.of(Laplace(EPSILON, 1024)), 0.0, EPSILON),
        (Losses.of(Draw(EPSILON)), 0.0, EPSILON),
    ],
)
def test_guesses_find_the_scale_of_gaussian_noise_laplace_noise_and_draws(losses, delta, epsilon):
    """Outcomes of the very law: the means of two Gaussians or Laplace laws one apart, the odds of two candidates."""
    shown = []
    for seed in range(10):
        random = np.random.default_rng(seed)
        if losses.mu:
            without, with_one = (random.normal(size=5000) / losses.mu + mean for mean in (0, 1))
        elif isinstance(losses.parts[0][0], Laplace):
            without, with_one = (random.laplace(scale=1 / EPSILON, size=5000) + mean for mean in (0, 1))
        else:
            without, with_one = (coins(random, 1 / (1 + math.exp(odds)), 5000) for odds in (EPSILON / 2, -EPSILON / 2))
        shown.append(found(without, with_one, OfLosses(losses, delta), 0.9997).shown)
    assert OfLosses(losses, delta).most == pytest.approx(epsilon, rel=1e-3)
    assert max(shown) <= OfLosses(losses, delta).most
    assert np.median(shown) > 0.8 * epsilon


def test_a_delta_is_found_where_nothing_is_seen_on_the_other_side():
    random, claim = np.random.default_rng(1), OfDelta(1.0, 0.2)
    audited = found(np.zeros(4000), coins(random, 0.2, 4000), claim, 0.9997)
    assert 0.8 * claim.delta < audited.shown <= claim.most


@pytest.mark.parametrize(("epsilon", "delta"), [(EPSILON, 0.0), (EPSILON, DELTA), (0.5, 0.2)])
def test_a_test_of_both_probabilities_refutes_what_is_true_as_seldom_as_it_says(epsilon, delta):
    """Exactly, for 24 outcomes on each side: the chance to refute, for pairs of probabilities that just keep the promise.
    It is at most the level, and for some of them above a third of it."""
    runs, level = 24, 0.05
    refuted = np.array(
        [
            [Joint(Seen(more, less, runs), level).refutes(math.exp(epsilon), delta) for less in range(runs + 1)]
            for more in range(runs + 1)
        ]
    )
    counts, chances = np.arange(runs + 1), []
    for less in np.linspace(0, (1 - delta) / math.exp(epsilon), 200):
        more = min(math.exp(epsilon) * less + delta, 1.0)
        chances.append(stats.binom.pmf(counts, runs, more) @ refuted @ stats.binom.pmf(counts, runs, less))
    assert level / 3 < max(chances) <= level


def test_the_bound_holds_as_often_as_it_says():
    """1,000 audits at a level of 0.1: about 100 may exceed, and 150 would have a chance below 1e-6."""
    more, less = worst(EPSILON, 0.0)
    random, claim = np.random.default_rng(0), OfLosses(Losses.of_promise(EPSILON, 0.0), 0.0)
    drawn = zip(random.binomial(400, more, 1000), random.binomial(400, less, 1000), strict=True)
    divergence = math.tanh(EPSILON / 2)
    assert sum(claim.merit(Seen(first, second, 400), 0.1) > divergence for first, second in drawn) < 150


def test_a_lower_bound_stops_at_the_first_number_that_is_not_refuted():
    assert joint._climbed(lambda number: number < 0.35 or number > 0.5, 0.1) == pytest.approx(0.3)
    assert joint._climbed(lambda number: number > 0, 0.1) == 0


@pytest.mark.parametrize(
    ("more", "less", "delta"), [(900, 110, DELTA), (300, 30, 0.0), (1500, 1590, DELTA), (40, 40, 0.0)]
)
def test_both_probabilities_together_show_more_than_one_by_one(more, less, delta):
    claim, seen = OfEpsilon(EPSILON, delta), Seen(more, less, 1600)
    assert claim.shown(seen, 3e-4) >= max(claim.merit(seen, 3e-4), 0.0)
    seen = Seen(more, 0, 1600)
    assert OfDelta(1.0, 0.2).shown(seen, 3e-4) >= OfDelta(1.0, 0.2).merit(seen, 3e-4)


@pytest.mark.parametrize(("more", "less"), [(0.9, 0.2), (0.6, 0.5), (0.99, 0.7), (0.3, 0.01)])
def test_guesses_of_two_probabilities_are_no_likelier_to_be_many_than_of_their_mean(more, less):
    """Exactly, for 40 guesses on each side: the chance that the bound of the divergence exceeds it is at most the level."""
    runs, level, claim = 40, 0.01, OfLosses(Losses.of_promise(EPSILON, 0.0), 0.0)
    right = np.convolve(
        stats.binom.pmf(np.arange(runs + 1), runs, more), stats.binom.pmf(np.arange(runs + 1), runs, 1 - less)
    )
    exceeding = [claim.merit(Seen(k - runs, 0, runs), level) > more - less for k in range(2 * runs + 1)]
    assert right[exceeding].sum() <= level


def test_the_event_is_counted_on_other_outcomes_than_it_was_chosen_on():
    """Outcomes of one law for both: an event that is chosen and counted on the same ones would show something."""
    shown = []
    for seed in range(10):
        random = np.random.default_rng(seed)
        without, with_one = random.normal(size=400), random.normal(size=400)
        shown += [found(without, with_one, claim, 0.99).shown for claim in (PURE, OfLosses(Losses(mu=1.0), DELTA))]
    assert max(shown) == 0


def test_what_is_below_delta_shows_nothing():
    alone = np.concatenate([np.ones(40), np.zeros(960)])
    random = np.random.default_rng(1)
    assert found(np.zeros(1000), random.permutation(alone), OfEpsilon(EPSILON, DELTA), 0.99).shown == 0
    assert found(np.zeros(1000), random.permutation(alone), PURE, 0.99).shown > 1


def test_events_of_both_kinds_and_both_sides_are_found():
    random = np.random.default_rng(2)
    low, high = random.normal(size=2000), random.normal(size=2000) + 3
    assert found(low, high, PURE, 0.99).shown > 2
    assert found(high, low, PURE, 0.99).shown > 2


def test_an_account_is_scaled_in_all_of_its_parts():
    account = Losses.one_of(Losses.of(Laplace(1.0, 8), mu=0.5), Losses.of(Draw(0.4), rho=0.3, hiding=0.1))
    (part, _), *_ = scaled(account, 0.5).parts
    assert part.ways == (Losses.of(Laplace(0.5, 8), mu=0.25), Losses.of(Draw(0.2), rho=0.075, hiding=0.1))
    with pytest.raises(ParameterError, match="no scale"):
        scaled(Losses.of(Curve((0.0, 1.0), (0.1, 0.05), (0.1, 0.05))), 0.5)
