"""The most likely shape: the law of the noise against convolution, the maximum against its conditions, the accuracy.

Seeds are fixed, so that all is deterministic.
"""

import math

import numpy as np
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.shape.isotonic import antitonic_l1, cumulative_runs, items_by_count
from headcount.mechanisms.shape.likelihood import blurring, climbed, law_of_noise, likely_shape, unmixed
from headcount.mechanisms.shape.tallies import Tally, make_tally

P = math.exp(-0.5)


def probabilities(p, noises, most=3000):
    """P[sum of so many noises = d] for d from -most to most."""
    single = (1 - p) / (1 + p) * p ** np.abs(np.arange(-most, most + 1.0))
    law = single
    for _ in range(noises - 1):
        law = np.convolve(law, single, mode="same")
    return law


def draw(counts, p, noises, rng):
    """The noisy tally of these counts."""
    noise = sum(rng.geometric(1 - p, len(counts)) - rng.geometric(1 - p, len(counts)) for _ in range(noises))
    return make_tally(counts + noise)


@pytest.mark.parametrize("noises", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [0.1, 0.6, 0.95])
def test_the_law_of_the_noise_is_that_of_the_convolution(p, noises):
    exact = probabilities(p, noises)[3000:3040]
    gaps = range(40)
    weights = law_of_noise(p, noises)
    found = [p**gap * sum(w * math.comb(gap, k) for k, w in enumerate(weights)) for gap in gaps]
    assert found == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("noises", [1, 2, 3])
@pytest.mark.parametrize("p", [0.1, 0.6, 0.95])
def test_blurring_is_the_sum_over_all_pairs_of_points(p, noises):
    rng = np.random.default_rng(1)
    law = probabilities(p, noises)
    for size in (1, 2, 7, 200):
        points = np.unique(np.append(rng.integers(-30, 1500, size), rng.integers(-30, 60, size)))
        x = rng.random(len(points)) * 10.0 ** rng.integers(-3, 6, len(points))
        matrix = law[3000 + points[:, None] - points]
        assert blurring(points, p, noises)(x) == pytest.approx(matrix @ x, rel=1e-9)


@pytest.mark.parametrize("p", [0.3, 0.6])
def test_without_a_stop_it_climbs_to_the_maximum(p, monkeypatch):
    """The conditions of the maximum, at every count up to the largest and not only at those that were seen: the derivative
    of the likelihood is that of the total at counts with cells, and not above it elsewhere."""
    monkeypatch.setattr(tuning, "LIKELY_MOST_STEPS", 20_000)
    rng = np.random.default_rng(2)
    noisy = draw(np.append(rng.poisson(2.0, 300), [40, 45, 90]), p, 1, rng)
    points = np.unique(np.append(noisy.values, 0))
    seen = np.zeros(len(points))
    seen[np.searchsorted(points, noisy.values)] = noisy.cells
    zero = int(np.searchsorted(points, 0))
    cells = climbed(seen, zero, blurring(points, p, 1), 1e-12)
    assert cells.sum() == pytest.approx(303)
    law = probabilities(p, 1)
    mixed = law[3000 + points[:, None] - points[zero:]] @ cells
    derivative = law[3000 + np.arange(points[-1] + 1)[:, None] - points] @ (seen / mixed)
    assert derivative.max() < 1 + 1e-4
    assert derivative[points[zero:]][cells > 0.01] == pytest.approx(1, abs=1e-4)


def test_it_stops_before_the_maximum_and_keeps_the_number_of_cells():
    rng = np.random.default_rng(3)
    for noises in (1, 2):
        noisy = draw(rng.poisson(1.0, 3000), P, noises, rng)
        counts, cells = unmixed(noisy, P, noises)
        assert counts[0] == 0 and (np.diff(counts) > 0).all() and cells.min() >= 0
        assert cells.sum() == pytest.approx(3000)


def test_without_noise_the_shape_is_the_tally():
    truth = make_tally(np.array([0, 0, 0, 1, 1, 5, 7, 7, 10**12]))
    for p in (0.0, 1e-200, 1e-9):
        shape = likely_shape(truth, p, 9)
        assert shape.values.tolist() == [1, 5, 7, 10**12] and shape.cells.tolist() == [2, 1, 2, 1]
    assert likely_shape(truth, 0.0, 4).cells.sum() == 4


def test_values_far_from_all_others_stay_and_those_below_zero_are_zero():
    """2^60 + 1 is not a float: large counts are whole numbers all the way."""
    noisy = make_tally(np.array([-(10**15), -4, 1000, 2**60 + 1]))
    assert likely_shape(noisy, P, 4).values.tolist() == [1000, 2**60 + 1]
    for values in ([], [-3], [0, 0], [-(10**9)] * 5):
        assert len(likely_shape(make_tally(np.array(values, dtype=np.int64)), P, 5).values) == 0


def test_the_most_cells_that_there_can_be_are_no_trouble():
    noise = (1 - P) / (1 + P) * P ** np.abs(np.arange(-5, 6))
    noisy = Tally(np.arange(-5, 6), (noise * 2.0**60).astype(np.int64))
    shape = likely_shape(noisy, P, 2**62 - 1)
    assert shape.cells.sum() < 1e-3 * 2**60 and shape.cells.min() > 0


def test_much_noise_is_looked_at_in_units():
    """At a scale of 1000 counts are multiples of 20, a fiftieth of it, and the fit has few points."""
    rng = np.random.default_rng(4)
    p = math.exp(-1 / 1000)
    noisy = draw(np.append(np.zeros(20_000, dtype=np.int64), [10**6, 10**7]), p, 1, rng)
    counts, cells = unmixed(noisy, p)
    assert len(noisy.values) > 5000 > 10 * len(counts) / 2 and (counts % 20 == 0).all()
    assert cells.sum() == pytest.approx(20_002)
    far = np.repeat(counts, np.rint(cells).astype(np.int64))[-2:]
    assert np.abs(far - noisy.values[-2:]).max() <= 10


def zipf(rng):
    return rng.multinomial(5000, 1 / np.arange(1, 5001) / (1 / np.arange(1, 5001)).sum())


def poisson(rng):
    return rng.poisson(1.0, 5000)


def staircase(rng):
    return np.append(np.arange(1, 100), np.zeros(4900, dtype=np.int64))


def two_values(rng):
    return np.repeat([0, 5], [4000, 1000])


# The ratios of 200 runs are 0.75, 0.80, 0.74, 0.70 for one noise, and 0.2 to 0.4 for two.
@pytest.mark.slow("accuracy")
@pytest.mark.parametrize("data", [zipf, poisson, staircase, two_values])
@pytest.mark.parametrize(("noises", "ratio"), [(1, 0.95), (2, 0.6)])
def test_it_is_nearer_than_the_unbiased_numbers_after_a_regression(data, noises, ratio):
    rng = np.random.default_rng(5)
    likely = unbiased = 0
    for _ in range(30):
        counts = data(rng)
        noisy, most = draw(counts, P, noises, rng), len(counts)
        runs = cumulative_runs(noisy, P, noises)
        fit = items_by_count(runs.last, antitonic_l1(runs.estimate, runs.lengths, most))
        for name, shape in (("likely", likely_shape(noisy, P, most, noises)), ("unbiased", fit)):
            found = np.repeat(shape.values, shape.cells)[::-1]
            error = np.abs(np.pad(found, (0, most - len(found))) - np.sort(counts)[::-1]).sum()
            likely, unbiased = (likely + error, unbiased) if name == "likely" else (likely, unbiased + error)
    assert likely < ratio * unbiased
