"""What is read off one sample is one release: the joint law of several outputs, exactly and by what the code draws.

Keys are fixed; the stated false-alarm rates are those of a fresh key.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.sums import merge_sums
from headcount.mechanisms.randomness.subkeys import subkey
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.divergence import sampled_delta
from headcount.mechanisms.sampled.histogram import SampledHistogramMechanism, sample_sums
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.mechanisms.sampled.plan import SamplePlan
from headcount.mechanisms.sampled.quantiles import Hierarchy
from headcount.mechanisms.sampled.tree import SampledTree

BUDGET = Budget(1, 1e-8)
KEY = bytes(range(32))
MADE = (
    sampled_histogram(BUDGET, max_items=1),
    heavy_hitters(BUDGET, 0.001, users=4000, max_items=1),
    heavy_hitters(BUDGET, 0.042, users=4000, max_items=1),
)


def _with_label(monkeypatch) -> None:
    """The mutation: the subkeys hold what they are for, and numbers as they are spelled."""

    def of_items(self, key, release_id, sample):
        return subkey(key, release_id, f"{self.name}/{sample}", {"plan": self.plan.to_json(), "least": self.least})

    def of_tree(self, key, release_id, sample):
        ends = [repr(self.leaves.lo), repr(self.leaves.hi)]
        return subkey(key, release_id, sample, {"plan": self.plan.to_json(), "leaves": ends})

    monkeypatch.setattr(SampledHistogramMechanism, "subkey", of_items)
    monkeypatch.setattr(Hierarchy, "subkey", of_tree)


def _law(users: int, plan: SamplePlan, least: int, most: int) -> np.ndarray:
    """What is shown of an item with so many users: nothing, least, least + 1, ..., most."""
    p, shown = float(plan.rate), np.arange(least, most + 1)
    return np.append(stats.binom.cdf(least - 1, users, p), stats.binom.pmf(shown, users, p))


def _joint(users: int, plan: SamplePlan, leasts: tuple[int, int], one: bool, most: int) -> np.ndarray:
    """The law of both outputs together, cell by cell: from one sample, or from two."""
    if not one:
        return np.outer(*(_law(users, plan, least, most) for least in leasts))
    cells = np.zeros([max(1, most - least + 2) for least in leasts])
    sampled = np.arange(users + 1)
    first, second = (np.maximum(0, sampled - least + 1) for least in leasts)
    np.add.at(cells, (first, second), stats.binom.pmf(sampled, users, float(plan.rate)))
    return cells


def _joint_delta(plan: SamplePlan, leasts: tuple[int, int], one: bool) -> float:
    """The divergence at the plan's epsilon of both outputs together, in both directions: the worst of all counts nearby."""
    worst = 0.0
    for users in range(plan.threshold - 1, math.ceil(2 * plan.threshold / plan.rate)):
        p, q = (_joint(n, plan, leasts, one, users + 1) for n in (users + 1, users))
        worst = max(worst, *(float(np.maximum(a - math.exp(plan.epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p))))
    return worst


def _shown(rows: pa.RecordBatch) -> dict[str, int]:
    return dict(zip(rows.column("item").to_pylist(), rows.column("sampled").to_pylist(), strict=True))


def _agree(make_release) -> bool:
    """Whether three jobs with the same key and id show the same numbers of the items that they have in common: a sample, and
    heavy hitters at two shares."""
    batch = contribution_batch(pa.array(np.arange(4000)), pa.array([f"i{k % 20}" for k in range(4000)]))
    first, *others = (_shown(made.run([batch], make_release())) for made in MADE)
    assert len(first) == 20 and all(len(other) > 10 for other in others)
    return all(other.items() <= first.items() for other in others)


def test_two_outputs_are_one_release_and_with_a_label_in_the_subkey_they_are_two(make_release, monkeypatch):
    """Exact joint laws at (1, 1e-8). Of one sample, any two outputs have the delta of one. Of two samples, that the same
    threshold shows twice, they have twice as much, and four times as much (3.7) has to be accounted for."""
    plan = sampled_histogram(BUDGET, max_items=1).plan
    assert [made.least for made in MADE] == [23, 23, 49]
    for leasts in ((23, 23), (23, 24), (23, 49)):
        assert 0.999e-8 < _joint_delta(plan, leasts, _agree(make_release)) <= 1e-8
    _with_label(monkeypatch)
    assert not _agree(make_release)  # 20 items of 200 users: all agree with probability below 1e-20
    assert _joint_delta(plan, (23, 23), _agree(make_release)) == pytest.approx(2e-8, rel=1e-4)
    assert sampled_delta(1, plan.rate, plan.threshold, compositions=2, precise=1e-8) == pytest.approx(3.72e-8, rel=1e-2)


WORLDS = 300_000
LOOSE = SamplePlan(
    Fraction(3707, 10_000), 5, 1.0, 0.01, Relation.ADD_REMOVE
)  # delta(1) = 0.009998, at 6 users against 5


def _drawn(users: int, histogram: SampledHistogramMechanism) -> np.ndarray:
    """What is shown of an item with so many users in 300,000 worlds, each an item: 0 for nothing, else from `least` on."""
    chunk = pack({"item": pa.array(np.arange(WORLDS)), "sum": pa.array(np.full(WORLDS, users))})
    own = histogram.subkey(KEY, "r", "sample")
    sums, digest = merge_sums([chunk], own, int)
    rows = sample_sums(sums, histogram.plan, histogram.least, own, Evidence.of([digest], []))
    shown = np.zeros(WORLDS, dtype=np.int64)
    shown[np.asarray(rows.column("item"))] = np.asarray(rows.column("sampled")) - histogram.least + 1
    return shown


def _audited_divergence() -> tuple[float, float]:
    """P - e Q of the two outputs of 6 and of 5 users together, at the cells where two samples would tell most, and its
    standard error."""
    histogram = SampledHistogramMechanism("SampledHistogram", LOOSE, 1, LOOSE.threshold, int)
    both = (histogram, dataclasses.replace(histogram, name="HeavyHitters"))
    laws = [_joint(users, LOOSE, (5, 5), False, 6) for users in (6, 5)]
    telling = laws[0] > math.e * laws[1]
    p, q = (float(np.mean(telling[_drawn(users, both[0]), _drawn(users, both[1])])) for users in (6, 5))
    return p - math.e * q, math.sqrt((p + math.e**2 * q) / WORLDS)


def test_the_joint_law_of_what_is_drawn_keeps_delta_and_a_label_in_the_subkey_does_not(monkeypatch):
    """300,000 worlds: the standard error is 6e-4 at most, so that delta + 5.5 errors is passed with probability 1e-7 at
    most; two samples have 0.0193, which is 10 errors above."""
    found, error = _audited_divergence()
    assert error < 7e-4 and found < 0.01 + 5.5 * error
    _with_label(monkeypatch)
    found, error = _audited_divergence()
    assert found > 0.01 + 5.5 * error and abs(found - 0.01929) < 5.5 * error


FOUR = SamplePlan(Fraction(1, 4), 8, 1.0, 0.01, Relation.ADD_REMOVE, 4)


def _tree(ends: tuple, levels: int = 4, branching: int = 2) -> Hierarchy:
    return Hierarchy(FOUR, Leaves(*ends, branching**levels), branching, levels)


def _trees(make_release, every) -> list[SampledTree]:
    values = np.random.default_rng(0).normal(5, 3, 4000)
    trees = []
    for tree in map(_tree, every):
        batch = contribution_batch(pa.array(np.arange(4000) // 2), pa.array(tree.leaves.index(values)))
        trees.append(tree.tree(tree.run([batch], make_release())))
    return trees


def test_quantiles_and_ranges_of_one_tree_are_one_release_however_its_ends_are_spelled(make_release, monkeypatch):
    """Users choose one of two values: also that choice is the same. Other ends, levels or branchings have samples of their
    own: 16 nodes of some 60 sampled users agree all with probability below 1e-9."""
    ends = [(0, 8), (0.0, 8.0), (-0.0, 8), (Fraction(0), 8)]
    first, *others = _trees(make_release, ends)
    shown = [level.tolist() for level in first.sampled]
    assert sum(map(sum, shown)) > 1000
    asked = [check_share("q", q) for q in (0.5, 0.9)]
    for other in others:
        assert [level.tolist() for level in other.sampled] == shown
        assert other.quantiles(asked[:1]) == first.quantiles(asked).slice(0, 1)
        assert other.range_counts([(2, 4)]) == first.range_counts([(0, 8), (2, 4)]).slice(1, 1)
    keys = {
        tree.subkey(KEY, "r", name)
        for name in ("a", "b")
        for other in ((0, 8), (0, 16), (-1, 8))
        for tree in (_tree(other), _tree(other, 2, 4))
    }
    assert len(keys) == 12
    _with_label(monkeypatch)
    first, second, *_ = _trees(make_release, ends)
    assert [level.tolist() for level in first.sampled] != [level.tolist() for level in second.sampled]
