"""Numbers at the cells of a tree that agree: by least squares before they are rounded, and as whole numbers at the end.

All of it is post-processing of noisy numbers, and costs nothing.
"""

from __future__ import annotations

import numpy as np

from headcount.mechanisms.histogram.levels.tree import Tree


def least_squares(tree: Tree, noisy: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that add up and are nearest to noisy ones with these variances, and their variances: of all unbiased numbers
    that add up, those with the least noise.

    Upwards, each node is the mean of its own number and the sum of its children, weighted by how sure each is. Downwards, what a
    node differs from the sum of its children goes to these in proportion to their variances.
    """
    mean, unsure = noisy.astype(np.float64), variance.astype(np.float64)
    inner = sorted((node for node, cells in enumerate(tree.children) if len(cells)), key=lambda node: -tree.level[node])
    below = np.zeros(len(noisy))  # the variance of the sum of a node's children
    for node in inner:
        cells = tree.children[node]
        total, below[node] = mean[cells].sum(), unsure[cells].sum()
        own = below[node] / (below[node] + unsure[node])
        mean[node] = own * mean[node] + (1 - own) * total
        unsure[node] *= own
    for node in reversed(inner):
        cells = tree.children[node]
        part = unsure[cells] / below[node]
        mean[cells] += part * (mean[node] - mean[cells].sum())
        unsure[cells] += part**2 * (unsure[node] - below[node])
    return mean, unsure


def whole_numbers(tree: Tree, estimates: np.ndarray, unsure: np.ndarray) -> np.ndarray:
    """Whole numbers that add up exactly at every node, close to estimates: none is negative, and every named leaf is 1 or more.

    From the root down, what the number of a node differs from the sum of its children's goes to these, more to those that are
    more `unsure` (standard deviations); what is left of rounding goes to the largest remainders.
    """
    least = np.where(tree.other, 0, 1)
    inner = sorted((node for node, cells in enumerate(tree.children) if len(cells)), key=lambda node: -tree.level[node])
    for node in inner:
        least[node] = max(1, int(least[tree.children[node]].sum()))
    found = np.maximum(np.rint(estimates).astype(np.int64), least)  # of these, the root's stays
    for node in reversed(inner):
        cells = tree.children[node]
        found[cells] = _parts(int(found[node]), estimates[cells], unsure[cells], least[cells])
    return found


def _parts(total: int, estimates: np.ndarray, unsure: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Whole numbers close to estimates that add up to a total, none below its least; these add up to no more than it."""
    parts = np.maximum(estimates, least).astype(np.float64)
    # Nobody moves by more than it is unsure, or than it is: so small ones stay above 0 as long as may be.
    give = np.maximum(np.minimum(unsure, parts), 1e-9) ** 2
    for _ in range(64):
        off = total - parts.sum()
        free = (parts > least) | (off > 0)
        if abs(off) < 1e-6 or not free.any():
            break
        parts[free] += off * give[free] / give[free].sum()
        parts = np.maximum(parts, least)
    whole = np.maximum(np.floor(parts + 1e-9).astype(np.int64), least)
    left = total - int(whole.sum())
    order = np.argsort(whole - parts, kind="stable")  # the largest remainders first
    while left > 0:
        take = order[:left]
        whole[take] += 1
        left -= len(take)
    while left < 0:
        above = order[::-1][(whole > least)[order[::-1]]][:-left]
        whole[above] -= 1
        left += len(above)
    return whole


def no_child_above(tree: Tree, numbers: np.ndarray) -> np.ndarray:
    """Numbers of which none is above that of the node above it."""
    found = numbers.copy()
    for level in range(1, tree.depth + 1):
        cells = np.flatnonzero(tree.level == level)
        found[cells] = np.minimum(found[cells], found[tree.parent[cells]])
    return found
