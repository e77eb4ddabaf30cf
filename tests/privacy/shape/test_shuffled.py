"""The shuffle model's views are as private as stated, and without the flood of pairs they are not.

The noise is the operating system's, so that these tests draw anew each time: each bound has a false-alarm rate below 1e-8, the
file below 1e-6.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.system import SystemLanes, geometric, laplace, poisson
from headcount.mechanisms.shape.papers.shuffled import Shuffled, flooded_delta, shuffled

ALARM = 1e-8
BUDGET = Budget(1, 1e-2)


def view(p: float, r: float, q: float, size: int) -> np.ndarray:
    """P[number of +1 is x, number of -1 is y] of the noise of one bucket, by brute force."""
    laplace_part = np.outer(*[(1 - p) * p ** np.arange(size)] * 2)
    law = np.zeros((size, size))
    for pairs, mass in enumerate(stats.nbinom.pmf(np.arange(size), r, 1 - q) if r else [1.0]):
        law[pairs:, pairs:] += mass * laplace_part[: size - pairs, : size - pairs]
    return law


def divergence(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize(("p", "r", "q"), [(0.6, 3.0, 0.8), (0.64, 5.5, 0.7), (0.3, 0.7, 0.9), (0.5, 0, 0.5)])
def test_the_profile_is_that_of_the_views_by_brute_force(p, r, q):
    """T9: a bucket with one user more or less, both directions, at several epsilons."""
    size = 400
    law = view(p, r, q, size)
    fewer, more = np.zeros((size + 1, size)), np.zeros((size + 1, size))
    fewer[:-1], more[1:] = law, law
    for epsilon in (0.0, 0.3, 0.55, 1.0, 2.0):
        assert flooded_delta(epsilon, p, r, q) == pytest.approx(divergence(fewer, more, epsilon), rel=1e-6, abs=1e-12)
    assert divergence(more, fewer, math.log(1 / p) + 1e-9) < 1e-12
    assert divergence(more, fewer, math.log(1 / p) - 0.1) > 1e-3


def test_without_the_flood_there_is_no_privacy_at_any_epsilon():
    """The bug of the paper's text: delta is 1 - p = 0.39 however large epsilon is."""
    p = math.exp(-0.5)
    for epsilon in (0.1, 1, 10, 50):
        assert flooded_delta(epsilon, p, 0, 0.5) == pytest.approx(1 - p)


@pytest.mark.parametrize(
    ("epsilon", "delta", "messages"), [(1, 1e-8, 947), (1, 1e-6, 592), (2, 1e-8, 497), (0.5, 1e-8, 1809), (1, 1e-2, 80)]
)
def test_calibration_keeps_delta_is_tight_and_needs_few_messages(epsilon, delta, messages):
    made = shuffled(Budget(epsilon, delta), users=1000, buckets=4000)
    p, r, q = float(made.p), float(made.flood_shape), float(made.flood)
    rest = epsilon - math.log(1 / p)
    assert 0.44 * epsilon < math.log(1 / p) <= 0.45 * epsilon
    assert flooded_delta(rest, p, r, q) <= delta < flooded_delta(rest, p, r - 1 / 64, q)
    assert made.messages_per_bucket <= messages


def totals(made: Shuffled, own: np.ndarray, calls: int = 1) -> tuple[np.ndarray, np.ndarray]:
    plus, minus = np.zeros(made.buckets, dtype=np.int64), np.zeros(made.buckets, dtype=np.int64)
    for part in np.array_split(own, calls):
        bucket, sign = made.report(part)
        assert set(np.unique(sign)) <= {-1, 1}
        plus += np.bincount(bucket[sign > 0], minlength=made.buckets)
        minus += np.bincount(bucket[sign < 0], minlength=made.buckets)
    return plus, minus


def p_value(seen: np.ndarray, law: np.ndarray) -> float:
    expected = law * len(seen)
    found = np.bincount(np.clip(seen, 0, len(law) - 1), minlength=len(law))
    kept = expected >= 20
    found, expected = np.append(found[kept], found[~kept].sum()), np.append(expected[kept], expected[~kept].sum())
    return float(stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue)


SMALL = Shuffled(1.0, 1e-2, 40, 20_000, Fraction(5, 8), Fraction(5, 2), Fraction(3, 4))


@pytest.mark.parametrize("calls", [1, 8])
def test_the_shares_of_all_users_add_up_to_the_stated_noise(calls):
    """40 users, 20,000 buckets: numbers of -1 and differences against their exact laws, whether users report together or
    apart. Power: a parameter off by 5 % is seen, as the mutation below shows."""
    plus, minus = totals(SMALL, np.zeros(40, dtype=np.int64), calls)
    law = view(5 / 8, 2.5, 3 / 4, 300).sum(axis=0)
    assert p_value(minus[1:], law) > ALARM
    p = 5 / 8
    difference = (1 - p) / (1 + p) * p ** np.abs(np.arange(-60, 61))
    assert p_value((plus - minus)[1:] + 60, difference) > ALARM
    assert np.array_equal(SMALL.sums(np.array([3, 3, 5]), np.array([1, -1, 1]))[:6], [0, 0, 0, 0, 0, 1])
    if calls == 1:
        wrong = dataclasses.replace(SMALL, flood=Fraction(72, 100))
        assert p_value(totals(wrong, np.zeros(40, dtype=np.int64))[1][1:], law) < ALARM


def refuted(made: Shuffled, epsilon: float, delta: float) -> bool:
    """Whether views of 20,000 buckets with one user, or with none, refute (epsilon, delta) for Q||P at a rate of 1e-8.

    The event is that of the exact divergence; every bucket is a trial, as all have independent noise.
    """
    p, r, q = float(made.p), float(made.flood_shape), float(made.flood)
    size = 300
    law = view(p, r, q, size)
    fewer, more = np.zeros((size + 1, size)), np.zeros((size + 1, size))
    fewer[:-1], more[1:] = law, law
    event = fewer > math.exp(epsilon) * more
    rates = []
    for own in (np.zeros(0, dtype=np.int64), np.arange(made.buckets)):
        # As many users as the shares are made for, in any case; of these `own` alone are looked at.
        plus, minus = totals(made, np.zeros(made.users, dtype=np.int64))
        plus[0] -= made.users
        plus += np.bincount(own, minlength=made.buckets)
        rates.append(event[np.minimum(plus, size), np.minimum(minus, size - 1)].mean())
    error = 5.7 * math.sqrt(rates[0] / made.buckets + math.exp(2 * epsilon) * max(rates[1], 1e-4) / made.buckets)
    return bool(rates[0] - math.exp(epsilon) * rates[1] > delta + error)


def test_real_views_keep_delta_and_without_the_flood_they_do_not():
    """At delta = 0.01. A quarter of the flood has 0.06 and none 0.36, which 20,000 buckets show with certainty."""
    made = shuffled(BUDGET, users=40, buckets=20_000)
    rest = 1 - math.log(1 / float(made.p))
    assert not refuted(made, rest, 1e-2)
    assert refuted(dataclasses.replace(made, flood_shape=made.flood_shape / 4), rest, 1e-2)
    assert refuted(dataclasses.replace(made, flood_shape=Fraction(0)), rest, 1e-2)


# Two reports of each user (mode "l2").


def losses(one: np.ndarray, other: np.ndarray, step: float, up: bool) -> tuple[dict[int, float], float]:
    """The privacy losses of a view in steps, rounded up or down, with their masses; and the mass that is infinite."""
    masses: dict[int, float] = {}
    both = (one > 0) & (other > 0)
    found = np.log(one[both] / other[both]) / step
    rounded = (np.ceil(found) if up else np.floor(found)).astype(int)
    for value in np.unique(rounded).tolist():
        masses[value] = float(one[both][rounded == value].sum())
    return masses, float(one[~(other > 0)].sum())


def replaced_delta(made: Shuffled, reports: int, epsilon: float, up: bool) -> float:
    """delta(epsilon) of a user who moves from one bucket to another in each of so many reports: the product of these views."""
    step, size = 1e-2, 400
    law = view(float(made.p), float(made.flood_shape), float(made.flood), size)
    fewer, more = np.zeros((size + 1, size)), np.zeros((size + 1, size))
    fewer[:-1], more[1:] = law, law
    total, finite = np.ones(1), 1.0
    offset = 0
    for one, other in [(fewer, more), (more, fewer)] * reports:
        masses, infinite = losses(one, other, step, up)
        finite *= 1 - infinite
        low, high = min(masses), max(masses)
        part = np.zeros(high - low + 1)
        for value, mass in masses.items():
            part[value - low] = mass
        total, offset = np.convolve(total, part), offset + low
    loss = step * (offset + np.arange(len(total)))
    return float((np.maximum(0, -np.expm1(epsilon - loss)) * total).sum()) + (1 - finite if up else 0.0)


def test_two_reports_keep_epsilon_and_delta_and_two_whole_ones_do_not():
    """The exact views of all four buckets that a replaced user moves, losses rounded against us; reports that were each made
    for the whole budget exceed delta by far, losses rounded in their favour."""
    both = shuffled(BUDGET, users=40, buckets=160, mode="l2")
    assert both.reports_each == 2
    assert replaced_delta(both, 2, 1.0, up=True) <= BUDGET.delta
    whole = dataclasses.replace(shuffled(BUDGET, users=40, buckets=160), ranks=both.ranks)
    assert replaced_delta(whole, 2, 1.0, up=False) > 3 * BUDGET.delta
    assert replaced_delta(whole, 1, 1.0, up=True) <= BUDGET.delta


def test_a_user_is_once_in_each_report_and_its_noise_is_in_all_buckets():
    """Without noise messages are the user's own two; with it, both parts get the stated number of -1 for each bucket, to 5.7
    standard errors (each bucket's variance is below 12 times its mean here)."""
    plan = dataclasses.replace(SMALL, buckets=5000, ranks=15_000, mode="l2")
    bucket, sign = plan.report(np.tile([[7, 5_009]], (40, 1)))
    minus = np.bincount(bucket[sign < 0], minlength=plan.cells)
    mean = plan.messages_per_bucket / 2
    for part in (minus[:5000], minus[5000:]):
        assert abs(part.mean() - mean) < 5.7 * math.sqrt(12 * mean / len(part))
    sums = plan.sums(bucket, sign)
    assert abs(sums[7] - 40) < 45 and abs(sums[5_009] - 40) < 45
    with pytest.raises(InputError, match="a user reports 2 buckets, got 1"):
        plan.report(np.array([7]))
    with pytest.raises(InputError, match="a bucket is not between 5000 and 19999"):
        plan.report(np.array([[7, 8]]))
    promise = shuffled(BUDGET, users=40, buckets=160, mode="l2").guarantee()
    assert sum(step.epsilon for step in promise.mechanisms) <= 1 + 1e-12 and promise.delta == 1e-2


def test_without_the_flood_no_bucket_ever_has_fewer_messages_than_users():
    """What the analyst must never be able to say; with the flood it is the same for any number of users."""
    bare = dataclasses.replace(SMALL, flood_shape=Fraction(0), buckets=50)
    own = np.repeat(np.arange(10), 4)
    plus, minus = totals(bare, own)
    assert (plus[:10] >= 4).all() and plus[10:].min() == 0
    flooded = dataclasses.replace(SMALL, buckets=50, flood_shape=Fraction(400))
    assert totals(flooded, own)[0].min() > 4


def test_users_who_do_not_follow_the_protocol_take_their_share_of_the_noise_with_them():
    """If half of the users send no noise, delta is exceeded: `users` is the number of those who are sure to."""
    made = shuffled(BUDGET, users=1000, buckets=4000)
    p, r, q = float(made.p), float(made.flood_shape), float(made.flood)
    assert flooded_delta(1 - math.log(1 / p), p, r / 2, q) > 2 * BUDGET.delta
    half, all_ = (totals(SMALL, np.zeros(n, dtype=np.int64))[1].sum() for n in (20, 40))
    assert 0.45 < half / all_ < 0.55


def test_the_shape_follows_from_the_sums():
    """1000 buckets of 50 users each among 4000, 50 % more or less: the noise of a bucket is below 25 with certainty 1e-8."""
    made = shuffled(Budget(2, 1e-2), users=50_000, buckets=4000)
    bucket, sign = made.report(np.repeat(np.arange(1000), 50))
    rows = made.shape(made.sums(bucket, sign), hashed=False)
    counts, items = np.asarray(rows.column("count")), np.asarray(rows.column("items"))
    assert abs(items[counts > 25].sum() - 1000) < 100
    collided = made.shape(made.sums(bucket, sign))
    assert np.asarray(collided.column("items")).sum() > items.sum() * 0.9


# Samplers of the operating system's words.


@pytest.mark.parametrize("mean", [Fraction(1, 10), Fraction(1, 2), Fraction(7, 3), Fraction(12)])
def test_poisson_variables_are_exact(mean):
    seen = np.array([poisson(mean) for _ in range(3000)])
    assert p_value(seen, stats.poisson.pmf(np.arange(60), float(mean))) > ALARM
    assert p_value(seen, stats.poisson.pmf(np.arange(60), 2 * float(mean))) < ALARM
    assert poisson(Fraction(0)) == 0


def test_geometric_and_laplace_variables_are_exact():
    assert p_value(geometric(SystemLanes(30_000), Fraction(2, 3)), stats.geom.pmf(np.arange(1, 200), 1 / 3)) > ALARM
    p = math.exp(-0.5)
    law = (1 - p) / (1 + p) * p ** np.abs(np.arange(-60, 61))
    assert p_value(laplace(30_000, Fraction(2)) + 60, law) > ALARM


def test_system_lanes_never_repeat():
    lanes = SystemLanes(3)
    drawn = [tuple(lanes.words([0, 1, 2])) for _ in range(3)] + [
        tuple(SystemLanes(3).words_each([0, 2], np.array([2, 1])))
    ]
    assert len(set(sum(drawn, ()))) == 12


def test_what_the_shuffle_model_cannot_do_is_refused():
    with pytest.raises(ParameterError, match="replacing a user only, got 'add-remove'"):
        shuffled(BUDGET, users=10, buckets=40, relation=Relation.ADD_REMOVE)
    with pytest.raises(ParameterError, match="delta above 0"):
        shuffled(Budget(1), users=10, buckets=40)
    with pytest.raises(ParameterError, match="users must be given"):
        shuffled(BUDGET, users=None, buckets=40)
    with pytest.raises(InputError, match="a bucket is not between 0 and 39"):
        shuffled(BUDGET, users=10, buckets=40).report(np.array([40]))
    with pytest.raises(ParameterError, match="every one of the 40 buckets has a sum, got 3"):
        shuffled(BUDGET, users=10, buckets=40).shape(np.zeros(3, dtype=np.int64))
    promise = shuffled(BUDGET, users=10, buckets=40).guarantee()
    assert promise.relation is Relation.REPLACE and (promise.epsilon, promise.delta) == (1, 1e-2)
    assert sum(step.epsilon for step in promise.mechanisms) <= 1 + 1e-12
