"""Numbers that agree, beside least squares in full, and whole numbers of any tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.columns.keys import JOINT
from headcount.mechanisms.levels.adding_up import least_squares, no_child_above, same_total, whole_numbers
from headcount.mechanisms.levels.tree import UNIT, Tree

KEYS = st.sets(st.tuples(*[st.sampled_from("abcd")] * 3), max_size=15)


def tree_of(keys, depth=3) -> Tree:
    return Tree.of_named([f"{depth}:{JOINT.join(key[:depth])}" for key in sorted(keys)], depth)


def leaves_of(tree: Tree) -> np.ndarray:
    """A matrix of which each row adds up the cells without children that lie below a cell."""
    ends = [number for number, cells in enumerate(tree.children) if not len(cells)]
    below = np.zeros((len(tree.cells), len(ends)))
    for column, number in enumerate(ends):
        while number >= 0:
            below[number, column] = 1
            number = int(tree.parent[number])
    return below


@settings(deadline=None)
@given(KEYS, st.integers(0, 2**32 - 1))
def test_least_squares_are_those_of_the_whole_matrix(keys, seed):
    tree, random = tree_of(keys), np.random.default_rng(seed)
    noisy, variance = random.normal(0, 100, len(tree.cells)), random.uniform(0.5, 20, len(tree.cells))
    below = leaves_of(tree)
    inverse = np.linalg.inv(below.T @ (below / variance[:, None]))
    want = below @ (inverse @ (below.T @ (noisy / variance)))
    found, unsure = least_squares(tree.children, noisy, variance)
    assert found == pytest.approx(want, abs=1e-6)
    assert unsure == pytest.approx(np.diag(below @ inverse @ below.T), rel=1e-6)


def test_the_noise_of_each_level_is_that_of_the_specification():
    """50 regions of 100 cities: 1.11 times the noise of cities alone, 3.0 for regions and 3.1 for the country."""
    tree = Tree.of_named([f"2:r{r}{JOINT}c{c}" for r in range(50) for c in range(100)], 2)
    _, variance = least_squares(tree.children, np.zeros(len(tree.cells)), (UNIT / tree.weight) ** 2)
    by_level = [np.sqrt(np.mean(variance[(tree.level == level) & ~tree.other])) for level in range(3)]
    assert by_level == pytest.approx([3.1, 3.0, 1.11], rel=0.02)


@settings(deadline=None)
@given(KEYS, st.integers(0, 2**32 - 1), st.sampled_from([0.0, 3.0, 1000.0]))
def test_whole_numbers_add_up_none_is_negative_and_named_leaves_are_at_least_one(keys, seed, size):
    tree, random = tree_of(keys), np.random.default_rng(seed)
    estimates = random.normal(size, 50, len(tree.cells)) * random.choice([0.01, 1.0], len(tree.cells))
    found = whole_numbers(tree, estimates, np.full(len(tree.cells), 7.0))
    assert found.dtype == np.int64 and found.min() >= 0
    for number, cells in enumerate(tree.children):
        if len(cells):
            assert found[number] == found[cells].sum()
        if not tree.other[number]:
            assert found[number] >= 1


def test_whole_numbers_that_add_up_already_stay():
    tree = tree_of([("a", "b", "c"), ("a", "b", "d"), ("b", "b", "c")])
    below = leaves_of(tree)
    exact = below @ np.arange(10, 10 + below.shape[1])
    assert whole_numbers(tree, exact, np.ones(len(exact))).tolist() == exact.astype(int).tolist()


def test_totals_of_levels_agree_with_the_least_noise():
    """Beside least squares in full: what is free are the totals of the last level and those that end above it."""
    level = np.array([0, 1, 1, 1, 2, 2, 3, 3, 3])
    ends = np.array([False, False, False, True, False, True, False, False, False])
    noise = np.array([3.0, 2.0, 2.0, 2.0, 1.5, 1.5, 1.0, 1.0, 1.0])
    drawn = np.array([203.0, 90.0, 65.0, 31.0, 120.0, 44.0, 30.0, 31.0, 37.0])
    found, unsure = same_total(level, ends, drawn, noise)
    of = lambda at, end: found[(level == at) & (ends == end)].sum()  # noqa: E731
    for at in range(3):
        assert of(at, False) == pytest.approx(of(at + 1, False) + of(at + 1, True))
    # Each group of a level is a free number; those of one level are bound to a sum.
    bounds = np.array([[1, -1, -1, -1, 0, 0, 0, 0, 0], [0, 1, 1, 0, -1, -1, 0, 0, 0], [0, 0, 0, 0, 1, 0, -1, -1, -1]])
    cost = np.diag(noise**2)
    gain = cost @ bounds.T @ np.linalg.inv(bounds @ cost @ bounds.T)
    assert found == pytest.approx(drawn - gain @ bounds @ drawn)
    assert unsure**2 == pytest.approx(np.diag(cost - gain @ bounds @ cost))


def test_no_child_is_above_its_parent():
    tree = tree_of([("a", "b", "c"), ("a", "b", "d")])
    numbers = np.arange(len(tree.cells), dtype=float)[::-1] * 10
    found = no_child_above(tree, numbers)
    inner = tree.parent >= 0
    assert (found[inner] <= found[tree.parent[inner]]).all() and (found <= numbers).all()
