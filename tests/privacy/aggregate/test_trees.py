"""Audits of trees: every node of every key has its own noise, drawn from words that no other node reads.

levels, keys or nodes that share lanes         a word is read twice
values that are not cut                        a leaf that is one of another key is refused
a node drawn anew for another question         it would have two noisy values: it has one
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.aggregate import bounding, trees
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.aggregate.trees import BRANCHING, LEAVES, LEVELS, NoisyTrees, Trees
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.value_ranges import ValueRange, value_columns
from tests.privacy.independence import Words

ASKED = ["events", "quantile:0.5,0.9,0.99:price:0:100", "quantile:0.5:weight:0:1"]
KEYS = ["a", "b", "c"]
SIGMA = 1000


def noisy_trees(keys: int, digest: bytes = bytes(16), own: bytes = bytes(32)) -> NoisyTrees:
    """Trees of keys that nobody has: what comes out of them is the noise itself."""
    empty = Trees.of(keys, [])
    return NoisyTrees(empty, empty.lanes(own, pa.array(range(keys))), own, digest, 0, SIGMA)


def released(make_release: Any, prices: list[float], keys: list[str] = KEYS) -> pa.RecordBatch:
    made = aggregate(Budget(1, 1e-6), ASKED, domain=keys, max_items=2, max_per_item=2, calibrate="none")
    values = {"price": pa.array(prices), "weight": pa.array([0.5] * len(prices))}
    users = pa.array([f"u{n}" for n in range(len(prices))])
    batch = contribution_batch(
        users, pa.array([keys[0]] * len(prices)), values=value_columns(Metrics.of(ASKED).values, values)
    )
    return made.run([batch], make_release())


@pytest.mark.parametrize("level", range(1, LEVELS + 1))
def test_every_node_has_its_noise(level):
    """32,000 nodes of a level. Kolmogorov and Smirnov's test at a false-alarm rate of 1e-8; noise that is a tenth less has
    p-values below 1e-12. Siblings, and equal nodes of two keys, have correlations within six standard deviations (2e-9)."""
    found = noisy_trees(4000)
    keys = np.arange(4000)
    drawn = found.children(level, keys, np.full(4000, BRANCHING ** (level - 1) - 1))
    assert stats.kstest(drawn.ravel(), stats.norm(0, SIGMA).cdf).pvalue > 1e-8
    assert stats.kstest(drawn.ravel(), stats.norm(0, 0.9 * SIGMA).cdf).pvalue < 1e-12
    pairs = itertools.chain(itertools.combinations(drawn.T, 2), zip(drawn[1:].T, drawn[:-1].T, strict=True))
    for one, other in pairs:
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / 63


def test_a_node_has_one_noise_whoever_asks_and_another_for_other_data():
    keys, node = np.array([2, 0, 1]), np.array([5, 0, 7])
    found = noisy_trees(3)
    drawn = found.children(2, keys, node)
    for place in range(3):
        assert np.array_equal(found.children(2, keys[place : place + 1], node[place : place + 1])[0], drawn[place])
    assert not (noisy_trees(3, digest=b"\1" + bytes(15)).children(2, keys, node) == drawn).any()
    assert not (noisy_trees(3, own=b"\1" * 32).children(2, keys, node) == drawn).any()
    one = Trees.of(3, [(np.array([2]), np.array([9]), np.array([1]))])
    moved = NoisyTrees(one, one.lanes(bytes(32), pa.array(range(3))), bytes(32), bytes(16), 0, SIGMA)
    assert not (moved.children(2, keys, node)[0] == drawn[0]).any(), "the lane of a key is known by all of its leaves"


def test_no_two_nodes_share_a_word(make_release, monkeypatch):
    words = Words(monkeypatch)
    released(make_release, list(range(0, 100, 3)), [f"k{n}" for n in range(40)])
    assert words.all > 40 * 10 * BRANCHING and words.twice == 0


@pytest.mark.parametrize("shared", ["levels", "keys", "nodes", "runs of nodes"])
def test_lanes_that_are_shared_are_caught(shared, make_release, monkeypatch):
    """Keys that nobody has have equal trees, and so do equal lanes."""
    if shared == "levels":
        real = trees.block_key
        monkeypatch.setattr(trees, "block_key", lambda own, digest: real(own, digest[:16]))
    elif shared == "keys":
        lanes = Trees.lanes
        monkeypatch.setattr(Trees, "lanes", lambda self, own, named: lanes(self, own, pa.array([0] * len(named))))
    else:
        monkeypatch.setattr(trees, "NODE", 0 if shared == "nodes" else 1)
    words = Words(monkeypatch)
    released(make_release, [50.0])
    assert words.twice > 0


def test_values_that_are_not_cut_are_refused(make_release, monkeypatch):
    """Once where rows are bounded, and once more where leaves meet: there they would be those of another key."""

    def uncut(self: ValueRange, column: pa.Array, place: Any) -> pa.Array:
        return pa.array(np.rint((np.asarray(column) - self.midpoint) / self.half * 2**20).astype(np.int64))

    monkeypatch.setattr(ValueRange, "fixed_point", uncut)
    for price in (150.0, -1.0):
        with pytest.raises(RuntimeError, match="did not keep"):
            released(make_release, [price])
    monkeypatch.setattr(bounding, "check_kept", lambda *_: None)
    for price in (150.0, -1.0):
        with pytest.raises(RuntimeError, match="beyond its tree"):
            released(make_release, [price])


def test_the_rows_of_a_node_are_those_of_its_leaves():
    rng = np.random.default_rng(1)
    key, leaf, rows = rng.integers(0, 5, 500), rng.integers(0, LEAVES, 500), rng.integers(1, 4, 500)
    leaf[:9] = [0, LEAVES - 1, 0, LEAVES - 1, 0, LEAVES - 1, 511, 512, 513]
    made = Trees.of(5, [(key[:200], leaf[:200], rows[:200]), (key[200:], leaf[200:], rows[200:])])
    dense = np.zeros((5, LEAVES), dtype=np.int64)
    np.add.at(dense, (key, leaf), rows)
    for level in range(1, LEVELS + 1):
        every = np.repeat(np.arange(5), BRANCHING ** (level - 1)), np.tile(np.arange(BRANCHING ** (level - 1)), 5)
        assert np.array_equal(
            made.children(level, *every).ravel(), dense.reshape(5, BRANCHING**level, -1).sum(2).ravel()
        )
    assert Trees.listed(*made.lists()).children(1, np.arange(5), np.zeros(5, int)).sum() == rows.sum()
