"""Numbers at the cells of a tree that agree: by least squares before they are rounded, and as whole numbers at the end.

All of it is post-processing of noisy numbers, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headcount.mechanisms.levels.tree import Tree


def least_squares(
    children: Sequence[np.ndarray], noisy: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers that add up and are nearest to noisy ones with these variances, and their variances: of all unbiased numbers
    that add up, those with the least noise. `children` are the places of the cells under each.

    Upwards, each node is the mean of its own number and the sum of its children, weighted by how sure each is. Downwards,
    what a node differs from the sum of its children goes to these in proportion to their variances.
    """
    mean, unsure = noisy.astype(np.float64), variance.astype(np.float64)
    below = np.zeros(len(noisy))  # the variance of the sum of a node's children
    inner = _inner(children)
    for node in reversed(inner):
        cells = children[node]
        total, below[node] = mean[cells].sum(), unsure[cells].sum()
        own = below[node] / (below[node] + unsure[node])
        mean[node] = own * mean[node] + (1 - own) * total
        unsure[node] *= own
    for node in inner:
        cells = children[node]
        part = unsure[cells] / below[node]
        mean[cells] += part * (mean[node] - mean[cells].sum())
        unsure[cells] += part**2 * (unsure[node] - below[node])
    return mean, unsure


def _inner(children: Sequence[np.ndarray]) -> list[int]:
    """The nodes with children, each before those below it."""
    below = {int(cell) for cells in children for cell in cells}
    found = [node for node in range(len(children)) if node not in below]
    for node in found:  # which grows meanwhile
        found.extend(int(cell) for cell in children[node])
    return [node for node in found if len(children[node])]


def same_total(
    level: np.ndarray, ends: np.ndarray, totals: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Noisy totals of groups of cells that agree from level to level, and their noise: least squares again.

    `level` is that of a group, and `ends` says that its cells have none below them, though there are deeper levels. So all
    other groups of a level come to the sum of all groups of the next. `noise` is the same for all groups of a level.
    """
    parts = [
        np.flatnonzero((level == each) & (ends == end)) for each in range(level.max() + 1) for end in (False, True)
    ]
    children = []
    for place in range(len(parts)):
        below = [each for each in (place + 2, place + 3) if place % 2 == 0 and each < len(parts) and len(parts[each])]
        children.append(np.array(below if len(parts[place]) else [], dtype=np.int64))
    number = np.array([len(part) for part in parts])
    sums = np.array([totals[part].sum() for part in parts])
    variance = np.array([(noise[part] ** 2).sum() for part in parts])
    made, known = least_squares(children, sums, np.where(number > 0, variance, 1.0))
    found, unsure = totals.astype(np.float64), noise**2
    for place, part in enumerate(parts):
        found[part] += (made[place] - sums[place]) / max(number[place], 1)
        unsure[part] -= (variance[place] - known[place]) / max(number[place], 1) ** 2
    return found, np.sqrt(unsure)


def whole_numbers(tree: Tree, estimates: np.ndarray, unsure: np.ndarray) -> np.ndarray:
    """Whole numbers that add up exactly at every node, close to estimates: none is negative, and every named leaf is 1 or more.

    From the root down, what the number of a node differs from the sum of its children's goes to these, more to those that are
    more `unsure` (standard deviations); what is left of rounding goes to the largest remainders.
    """
    least = np.where(tree.other, 0, 1)
    for node in reversed(_inner(tree.children)):
        least[node] = max(1, int(least[tree.children[node]].sum()))
    found = np.maximum(np.rint(estimates), least)  # of these, the root's stays
    return _from_the_root(tree, found, estimates, unsure, least, _rounded).astype(np.int64)


def added_up(tree: Tree, estimates: np.ndarray, unsure: np.ndarray) -> np.ndarray:
    """The same for numbers that need not be whole: none is negative, and they add up but for the rounding of floats."""
    return _from_the_root(
        tree, np.maximum(estimates, 0.0), estimates, unsure, np.zeros(len(estimates)), lambda *near: near[1]
    )


def _from_the_root(
    tree: Tree,
    found: np.ndarray,
    estimates: np.ndarray,
    unsure: np.ndarray,
    least: np.ndarray,
    made: Callable[..., Any],
) -> np.ndarray:
    for node in _inner(tree.children):
        cells, total = tree.children[node], found[node]
        near = _near(total, estimates[cells], unsure[cells], least[cells])
        found[cells] = made(total, near, least[cells])
    return found


def _near(total: float, estimates: np.ndarray, unsure: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Numbers close to estimates that add up to a total, none below its least; these add up to no more than it."""
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
    return parts


def _rounded(total: float, parts: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Parts as whole numbers that add up to the total, by largest remainders."""
    whole = np.maximum(np.floor(parts + 1e-9).astype(np.int64), least)
    left = int(total) - int(whole.sum())
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
