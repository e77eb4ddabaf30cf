"""Means by all keys together: closer where keys are many, the same where they are few, and never out of their intervals.

Seeds are fixed. Noise is that of 35 rows; keys have 20,000 rows and fewer, down to 370 of 300 keys.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from headcount.mechanisms.aggregate.answers import NoisySums, mean_ratio
from headcount.mechanisms.aggregate.measures import AUXILIARY_MOMENTS, VARIANCE_MOMENT
from headcount.mechanisms.aggregate.pooled import pooled

NOISE = 35.0
Rng = np.random.Generator


def _prices(rng: Rng, key: int, rows: int) -> np.ndarray:
    """Keys with prices of their own."""
    return np.minimum(15 * np.exp(0.5 * rng.normal()) * rng.gamma(2, 0.5, rows), 100) / 50 - 1


def _alike(rng: Rng, key: int, rows: int) -> np.ndarray:
    return 2 * rng.beta(2, 5, rows) - 1


def _two_values(rng: Rng, key: int, rows: int) -> np.ndarray:
    return np.where(rng.random(rows) < rng.random(), -0.9, 0.6)


def _any_beta(rng: Rng, key: int, rows: int) -> np.ndarray:
    return 2 * rng.beta(*(0.3 + 4 * rng.random(2)), rows) - 1


def _narrow(rng: Rng, key: int, rows: int) -> np.ndarray:
    return np.clip(2 * rng.random() - 1 + 0.05 * rng.normal(size=rows), -1, 1)


def _some_unlike(rng: Rng, key: int, rows: int) -> np.ndarray:
    return 2 * rng.beta(*((8, 2) if key % 10 == 0 else (2, 8)), rows) - 1


def _by_size(rng: Rng, key: int, rows: int) -> np.ndarray:
    return np.clip(-0.9 + 0.25 * np.log10(1e5 / rows) + 0.2 * rng.normal(size=rows), -1, 1)


def _ratings(rng: Rng, key: int, rows: int) -> np.ndarray:
    return rng.choice(5, rows, p=rng.dirichlet([0.5, 0.5, 1, 2, 2])) / 2 - 1


def _yes_or_no(rng: Rng, key: int, rows: int) -> np.ndarray:
    return np.where(rng.random(rows) < rng.beta(2, 6), 1.0, -1.0)


# The most that the root of the mean squared error with many keys may be, by that of S / n.
LAWS: dict[Callable[[Rng, int, int], np.ndarray], float] = {
    _prices: 0.65,
    _alike: 0.5,
    _two_values: 0.9,
    _any_beta: 0.9,
    _narrow: 0.9,
    _some_unlike: 0.95,
    _by_size: 0.6,
    _ratings: 0.95,
    _yes_or_no: 1.0,
}


def noisy_keys(law: Callable[[Rng, int, int], np.ndarray], keys: int, seed: int) -> tuple[np.ndarray, list[NoisySums]]:
    """The true means, and noisy sums of several releases, each with the gap and with waves."""
    rng = np.random.default_rng(seed)
    sizes = (20_000 / (1 + np.arange(keys)) ** 0.7).astype(int)
    values = [law(rng, key, rows) for key, rows in enumerate(sizes)]
    sine = [np.sqrt(1 - x * x) for x in values]
    sums = {
        "rows": sizes,
        "missing0": np.zeros(keys),
        "sum0": [x.sum() for x in values],
        "gap0": [(1 - x * x).sum() for x in values],
        "cosine0": [(s * (2 * x * x - 1)).sum() for s, x in zip(sine, values, strict=True)],
        "sine0": [(s * s * 2 * x).sum() for s, x in zip(sine, values, strict=True)],
    }
    found = []
    for _ in range(max(10, 1200 // keys)):
        noisy = {name: np.asarray(each) + NOISE * rng.normal(size=keys) for name, each in sums.items()}
        for beside in (VARIANCE_MOMENT, AUXILIARY_MOMENTS):
            kept = ["rows", "sum0", "missing0", *(f"{kind}0" for kind in beside)]
            found.append(NoisySums(np.arange(keys), {name: noisy[name] for name in kept}, dict.fromkeys(kept, NOISE)))
    return np.array([x.mean() for x in values]), found


@pytest.mark.slow("accuracy")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("keys", [1, 3, 6, 30, 300])
def test_estimates_are_closer_with_many_keys_and_no_further_with_few(law, keys):
    truth, found = noisy_keys(law, keys, keys)
    error, own = [], []
    for noisy in found:
        ratio, low, high = mean_ratio(noisy, 0)
        assert ((low <= ratio) & (ratio <= high)).all()
        error.append(ratio - truth)
        own.append(np.clip(noisy.sums["sum0"] / noisy.sums["rows"], -1, 1) - truth)
    most = LAWS[law] if keys == 300 else 1.01
    sizes = [np.sqrt(np.mean(np.square(each))) for each in (error[1::2], own[1::2])]
    assert sizes[0] <= most * sizes[1], (sizes[0] / sizes[1], "with waves")
    sizes = [np.sqrt(np.mean(np.square(each))) for each in (error[::2], own[::2])]
    assert sizes[0] <= 1.01 * sizes[1], (sizes[0] / sizes[1], "with the gap")


def test_keys_without_rows_have_about_the_mean_of_all():
    truth, (_, noisy, *_) = noisy_keys(_prices, 300, 5)
    sums = {name: each.copy() for name, each in noisy.sums.items()}
    for each in sums.values():
        each[-20:] = NOISE * np.random.default_rng(1).normal(size=20)
    ratio, low, high = mean_ratio(NoisySums(noisy.items, sums, noisy.stddev), 0)
    assert np.abs(ratio[-20:] - truth.mean()).max() < 0.15, "the middle of the range is 0.65 away"
    assert (high - low)[-20:].max() == 2


@pytest.mark.parametrize("rows", [[], [0.0], [-50.0, 20.0], [-1e3] * 5])
def test_with_hardly_any_rows_there_is_still_a_number(rows):
    sums = [np.full(len(rows), 30.0)] * 3
    found = pooled(sums, np.array(rows), NOISE, NOISE)
    assert len(found) == len(rows) and (np.abs(found) <= 1).all()
