"""Stated errors of quantiles and range counts, where many users share a value.

Keys and data are fixed. The stated errors are standard deviations away from failing by chance.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.sampled.quantiles import Hierarchy, QuantileSearch, quantile_hierarchy
from headcount.mechanisms.sampled.tree import SampledTree

BUDGET = Budget(1, 1e-8)
TENTHS = [Fraction(k, 10) for k in range(1, 10)]


def _clumped(n: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {
        "spread": 120 * random.beta(2, 5, n),
        "whole years": np.clip(random.normal(40, 18, n), 0, 119).astype(int).astype(float),
        "half at one end": np.where(random.random(n) < 0.5, 0.0, random.lognormal(3, 1, n)),
        "a clump": np.where(random.random(n) < 0.4, 50.0, 120 * random.beta(2, 5, n)),
        "ends of parts": random.choice([1.0, 7.0, 30.0, 90.0], n, p=[0.4, 0.3, 0.2, 0.1]) + 0.117,
    }


def _tree(made: Hierarchy, count: np.ndarray, random: np.random.Generator) -> SampledTree:
    """A tree that is sampled as the mechanism samples it."""
    sampled = []
    for _ in range(made.levels):
        drawn = random.binomial(count, float(made.plan.rate))
        sampled.insert(0, np.where(drawn < made.plan.threshold, 0, drawn))
        count = count.reshape(-1, made.branching).sum(axis=1)
    return SampledTree(made.plan, made.leaves, made.branching, tuple(sampled))


def _tree_rows(made: Hierarchy, count: np.ndarray, random: np.random.Generator) -> list[dict[str, float]]:
    return _tree(made, count, random).quantiles(TENTHS).to_pylist()


@pytest.mark.seconds
@pytest.mark.parametrize(("law", "users"), [(law, n) for law in _clumped(1) for n in (10_000, 200_000)])
def test_the_stated_error_of_a_range_has_the_users_that_are_hidden(law, users):
    """20 releases of 20 ranges of a twentieth: the mean squared error is at most twice the stated one for each range. (Without
    what is hidden it was infinitely more: 0 users +- 0 where there are 100.)"""
    made = quantile_hierarchy(BUDGET, 0, 120, levels=10)
    x, random = np.sort(_clumped(users)[law]), np.random.default_rng(1)
    ends = np.arange(21) * 6.0
    count = np.bincount(made.leaves.index(x), minlength=made.leaves.count)
    true = np.diff(np.append(0, np.cumsum(count))[[made.leaves.nearest_edge(end) for end in ends]])
    found = [_tree(made, count, random).range_counts(list(zip(ends, ends[1:], strict=False))) for _ in range(20)]
    error = np.array([np.asarray(rows.column("count")) for rows in found]) - true
    stated = np.array([np.asarray(rows.column("noise_stddev")) for rows in found])
    assert ((error**2).mean(axis=0) <= 2 * (stated**2).mean(axis=0)).all()


def _search_rows(made: Hierarchy, count: np.ndarray, random: np.random.Generator) -> list[dict[str, float]]:
    chunk = pack({"item": pa.array(np.flatnonzero(count)), "sum": pa.array(count[count > 0])})
    found = (QuantileSearch(made.plan, made.leaves, q).search([chunk], [], random.bytes(32)) for q in TENTHS)
    return [row for rows in found for row in rows.to_pylist()]


@pytest.mark.slow("accuracy")
@pytest.mark.parametrize("how", [_tree_rows, _search_rows])
@pytest.mark.parametrize(("law", "users"), [(law, n) for law in _clumped(1) for n in (10_000, 200_000)])
def test_the_stated_error_of_a_rank_holds_whatever_users_share(law, users, how):
    """20 releases of 9 quantiles at (1, 1e-8). The mean squared error of ranks is at most 1.2 times the stated one for each
    quantile (by the sampling alone it was up to 9,000 times the stated one), and 0.9 of all intervals hold the true quantile:
    both are several standard deviations of 20 releases away. The error is the distance to the ranks that a value has."""
    made = quantile_hierarchy(BUDGET, 0, 120, levels=10)
    x, random = np.sort(_clumped(users)[law]), np.random.default_rng(1)
    count = np.bincount(made.leaves.index(x), minlength=made.leaves.count)
    releases = [how(made, count, random) for _ in range(20)]
    value, low, high, stated = (
        np.array([[row[name] for row in rows] for rows in releases]) for name in ("value", "low", "high", "rank_stddev")
    )
    q = np.array(TENTHS, dtype=float)
    below, above = (np.searchsorted(x, value, side=side) / users for side in ("left", "right"))
    error = np.maximum(0, np.maximum(below - q, q - above))
    assert ((error**2).mean(axis=0) <= 1.2 * (stated**2).mean(axis=0)).all()
    true = x[(q * users).astype(int)]
    assert ((low <= true) & (true <= high)).mean() > 0.9 and ((low <= value) & (value <= high)).all()
