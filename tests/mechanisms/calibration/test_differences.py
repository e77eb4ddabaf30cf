"""Changes between two releases: the tails that are taken are never too small, and one rate holds over all tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from headcount.mechanisms.calibration.differences import LAPLACE_DEVIATIONS, Numbers, differences, holm, tail
from headcount.mechanisms.calibration.intervals import DEVIATIONS


def numbers(value, half, stddev=None, **more):
    value = np.atleast_1d(np.asarray(value, float))
    half = np.broadcast_to(np.asarray(half, float), value.shape)
    stddev = np.zeros(value.shape) if stddev is None else np.broadcast_to(np.asarray(stddev, float), value.shape)
    return Numbers(value, value - half, value + half, stddev, **more)


def test_the_tail_of_normal_noise_is_its_own():
    reaches = np.array([1.0, 1.5, 2.0, 3.0])
    assert tail(reaches, True) == pytest.approx(2 * stats.norm.sf(DEVIATIONS * reaches), rel=1e-9)
    assert tail(np.array([1.0]), True)[0] == pytest.approx(0.05)


def beyond(first: float, second: float, normal: float, t: float) -> float:
    """P(|X| > t) for the sum of Laplace noise of these scales and normal noise of this standard deviation, exactly."""

    def of_laplace(x: float) -> float:  # P(L1 + L2 > x)
        one, two = (scale * math.exp(-abs(x) / scale) for scale in (first, second))
        upper = (first * one - second * two) / (2 * (first**2 - second**2)) if x >= 0 else None
        return upper if upper is not None else 1 - of_laplace(-x)

    if normal == 0:
        return 2 * of_laplace(t)
    density = stats.norm(scale=normal).pdf
    value, _ = integrate.quad(
        lambda x: density(x) * of_laplace(t - x), -12 * normal, 12 * normal, limit=400, points=[t]
    )
    return 2 * value


@pytest.mark.parametrize(
    "first, second, normal", [(1, 1e-3, 0), (1, 0.999, 0), (1, 0.4, 0), (1, 0.999, 1), (1, 0.3, 3)]
)
def test_the_bound_holds_for_sums_of_laplace_and_normal_noise(first, second, normal):
    """The reaches of all parts as squares hold 95 % of the sum, and from there on no tail is above what is taken."""
    parts = [math.log(20) * first, math.log(20) * second, DEVIATIONS * normal]
    reach = math.sqrt(sum(part**2 for part in parts))
    for times in (1.0, 1.3, 2.0, 3.0):
        assert beyond(first, second, normal, times * reach) <= tail(np.array([times]), False)[0] * (1 + 1e-6)


def test_a_difference_is_as_sure_as_the_noise_of_both_says():
    found = differences(numbers(1000, DEVIATIONS * 30, 30), numbers(1250, DEVIATIONS * 40, 40), True)
    assert found.p[0] == pytest.approx(2 * stats.norm.sf(5))
    assert (found.low[0], found.high[0]) == pytest.approx((250 - DEVIATIONS * 50, 250 + DEVIATIONS * 50))
    back = differences(numbers(1250, DEVIATIONS * 40, 40), numbers(1000, DEVIATIONS * 30, 30), True)
    assert back.p == pytest.approx(found.p) and back.low == pytest.approx(-found.high)


def test_what_was_left_out_is_added_up_and_not_as_squares():
    one, other = (numbers(at, DEVIATIONS * 50, 30, assumed=True) for at in (1000, 1400))
    found = differences(one, other, True)  # 40 of each interval is not noise
    assert found.p[0] == pytest.approx(2 * stats.norm.sf(400 / math.sqrt(2 * 30**2 + 80**2)))
    as_noise = differences(numbers(1000, DEVIATIONS * 50, 30), numbers(1400, DEVIATIONS * 50, 30), True)
    assert as_noise.p[0] < found.p[0]


def test_intervals_that_touch_are_no_difference_and_a_cut_end_is_no_news():
    assert differences(numbers(10, 5), numbers(19, 5), True).p[0] == 1
    # Noise of 40 on both; the first interval was cut at 0, so that half of it is less than the noise.
    cut = Numbers(np.array([5.0]), np.array([0.0]), np.array([60.0]), np.array([40.0]))
    found = differences(cut, numbers(150, DEVIATIONS * 40, 40), True)
    middle = 60 - DEVIATIONS * 40
    assert found.p[0] == pytest.approx(2 * stats.norm.sf((150 - middle) / (40 * math.sqrt(2))))
    assert differences(numbers(150, DEVIATIONS * 40, 40), cut, True).p[0] == pytest.approx(found.p[0])
    assert differences(cut, cut, True).p[0] == 1


def test_a_ratio_on_shaky_ground_is_never_sure():
    """Where what is below may be 0 at some level, no difference is clearer than that level."""
    flat = differences(numbers(0.2, 0.05), numbers(0.9, 0.05), True).p[0]
    bent = differences(numbers(0.2, 0.05, curved=0.1), numbers(0.9, 0.05, curved=0.01), True).p[0]
    assert flat < 1e-12 and bent >= 2 * stats.norm.sf(DEVIATIONS / math.sqrt(0.1))


def test_holm_is_what_it_says():
    p = np.array([0.01, 0.04, 0.03, 0.005, 1.0])
    assert holm(p) == pytest.approx([0.04, 0.09, 0.09, 0.025, 1.0])
    assert holm(np.array([])).tolist() == []

    def by_steps(rate):
        news, left = set(), len(p)
        for k in np.argsort(p):
            if p[k] > rate / left:
                break
            news.add(int(k))
            left -= 1
        return news

    for rate in (0.01, 0.03, 0.05, 0.1, 0.5):
        assert by_steps(rate) == {*np.flatnonzero(holm(p) <= rate).tolist()}


@pytest.mark.parametrize("normal", [True, False])
def test_the_rate_of_false_alarms_holds_over_all_rows(normal):
    """4,000 times 50 numbers in three releases that did not change, at a rate of 10 %. A test whose rate is right ends above
    the limit with a chance below 1e-6; one that takes every row for itself, as is shown, is far above."""
    times, rows, rate = 4000, 50, 0.1
    half = DEVIATIONS if normal else LAPLACE_DEVIATIONS
    rng = np.random.default_rng(20261118)
    shape = (3, times, rows)
    noise = rng.standard_normal(shape) if normal else rng.laplace(0, 1 / math.sqrt(2), shape)
    sides = [numbers(each.ravel(), half, 1.0) for each in 1000 + noise]
    p = np.concatenate(
        [differences(sides[a], sides[b], normal).p.reshape(times, rows) for a, b in ((0, 1), (1, 2), (0, 2))], axis=1
    )
    limit = stats.binom.isf(1e-6, times, rate)
    alarms = sum((holm(each) <= rate).any() for each in p)
    assert alarms <= limit
    alone = (p <= rate).any(axis=1).sum()
    assert alone > 2 * limit
    if (
        normal
    ):  # the rate is used, and not only kept: what a test of this rate finds at least, with a chance of 1 - 1e-6
        assert alarms > stats.binom.ppf(1e-6, times, 0.7 * rate)
