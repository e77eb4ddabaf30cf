"""The interval of the noise: exact for every law that is drawn from, and no wider than it must be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration import intervals
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.intervals import as_noise_tells, gaussian_half_width, half_width, outward
from headcount.mechanisms.calibration.noise import make_plan


def plan(kind, scale, threshold=None, grid=0):
    bound = Bound(l0=1, l1=1, linf=1)
    return make_plan(kind, grid, Fraction(scale), threshold, Budget(1.0, 1e-6), Relation.ADD_REMOVE, bound)


def law(noise):
    """The sizes of the noise and their probabilities, by summing the weights."""
    scale = float(noise.scale)
    most = int(60 * scale) + 60 if noise.kind != "truncated-geometric" else noise.threshold - 1
    size = np.arange(most + 1)
    weight = np.exp(-size / scale) if noise.kind != "gaussian" else np.exp(-0.5 * (size / scale) ** 2)
    weight[1:] *= 2
    return np.cumsum(weight) / weight.sum()


@pytest.mark.parametrize("scale", [Fraction(1, 100), Fraction(1, 3), 1, Fraction(7, 2), 10, 123, 4000])
@pytest.mark.parametrize("kind", ["laplace", "gaussian", "truncated-geometric"])
def test_the_width_is_the_least_that_holds_95_percent(kind, scale):
    noise = plan(kind, scale, threshold=max(2, int(5 * scale)) if kind == "truncated-geometric" else None)
    inside, half = law(noise), half_width(noise)
    assert inside[half] >= 0.95 - 1e-9
    assert half == 0 or inside[half - 1] < 0.95 + 1e-9


def test_truncated_noise_never_leaves_its_support():
    assert half_width(plan("truncated-geometric", 1000, threshold=3)) == 2


def test_where_sums_end_the_normal_quantile_rounded_up_goes_on(monkeypatch):
    summed = gaussian_half_width(Fraction(4096))
    monkeypatch.setattr(intervals, "_SUMMED", 0)
    gaussian_half_width.cache_clear()
    assert summed <= gaussian_half_width(Fraction(4096)) <= summed + 1
    gaussian_half_width.cache_clear()


def test_ends_are_rounded_outward_and_not_below_0():
    low, high = outward([-7.5, 3.2, 4.0, -9.0], [-2.5, 5.1, 6.0, 8.01])
    assert low.tolist() == [0, 3, 4, 0] and high.tolist() == [3, 6, 6, 9], "none is of width zero"


def test_numbers_have_the_digits_that_their_noise_tells():
    noise = np.array([249.947, 10.0, np.nextafter(10, 0), 0.159038, 1e-3, 4e6, 1e-30, 0.0, np.nan])
    told, own = as_noise_tells(noise, np.full(len(noise), 922.6251741604617), noise)
    exact = 922.6251741604617
    assert told.tolist() == [922.6, 922.63, 922.625, 922.6252, 922.625174, 923.0, exact, exact, exact]
    assert own[:6].tolist() == [249.9, 10.0, 10.0, 0.159, 0.001, 4e6]
    # A number that was worked out with other last digits is the same, and whole ones and zeros stay.
    assert as_noise_tells(noise, np.full(len(noise), exact * (1 + 4e-16)))[0][:6].tolist() == told[:6].tolist()
    (zero,) = as_noise_tells(np.array([3.0]), np.array([-1e-9]))
    assert str(zero[0]) == "0.0"


def test_rounding_moves_nothing_by_more_than_half_a_thousandth_of_its_noise():
    noise, value = np.geomspace(1e-12, 1e6, 4001), np.linspace(-1e6, 1e6, 4001)
    (told,) = as_noise_tells(noise, value)
    fine = noise > 1e-7  # below, a float has no digits left to round
    assert (np.abs(told - value) <= np.minimum(noise / 2000 * (1 + 1e-6) + 1e-9, 0.5))[fine].all()
    assert (np.diff(as_noise_tells(np.full(4001, 7.0), value)[0]) >= 0).all()
