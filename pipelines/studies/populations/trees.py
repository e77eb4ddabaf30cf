"""Made-up items as the leaves of a tree: which nodes lie above each, and how far users stay in one part of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.columns.keys import joined


@dataclasses.dataclass(frozen=True, eq=False)
class ItemTree:
    """Trees of k levels have k - 1 rows of `nodes`: the number of the node above each item, from the widest level down.

    Each user has a home, an item drawn by how often items occur. `staying` has, for each row of nodes, the chance that a
    favourite of the user lies in the same node as its home; none is above the one before. Else it lies anywhere.
    """

    nodes: np.ndarray
    staying: tuple[float, ...]

    @property
    def depth(self) -> int:
        """The number of levels, that of the items included."""
        return len(self.nodes) + 1

    def sizes(self) -> list[int]:
        """How many nodes each level has, from the widest to the items."""
        return [*(len(np.unique(level)) for level in self.nodes), self.nodes.shape[1]]

    def keys(self, items: np.ndarray) -> pa.Array:
        """The keys of items: their nodes and their own number, joined."""
        return joined([pa.array(level) for level in (*self.nodes[:, items], items)])

    def at_home(
        self, random: np.random.Generator, weights: np.ndarray, user: np.ndarray, found: np.ndarray
    ) -> np.ndarray:
        """Items of users, of which those that stay at home are drawn anew there; each item is as frequent as before."""
        ends = np.cumsum(weights)
        homes = _drawn(ends, np.zeros(1), ends[-1:], random.random(int(user.max(initial=0)) + 1))[user]
        lot, found = random.random(len(user)), found.copy()
        for nodes, chance in zip(self.nodes, self.staying, strict=True):
            rows = np.flatnonzero(lot < chance)
            order = np.argsort(nodes, kind="stable")
            ends, own = np.append(0.0, np.cumsum(weights[order])), nodes[homes[rows]]
            first, last = (np.searchsorted(nodes[order], own, side) for side in ("left", "right"))
            place = _drawn(ends[1:], ends[first], ends[last], random.random(len(rows)))
            found[rows] = order[np.clip(place, first, last - 1)]
        return found


def _drawn(ends: np.ndarray, low: np.ndarray, high: np.ndarray, lots: np.ndarray) -> np.ndarray:
    place = np.searchsorted(ends, low + (high - low) * lots, side="right")
    return np.minimum(place, len(ends) - 1)


def usual_sizes(items: int, depth: int) -> list[int]:
    """The nodes of the levels above so many items where nobody says: each level has as many times those of the one above."""
    return [max(1, round(items ** (level / depth))) for level in range(1, depth)]


def grown(sizes: Sequence[int], items: int, skew: float, staying: float) -> ItemTree:
    """A tree with so many nodes at each level above so many items, always the same.

    The largest nodes of a level lie one in each node above. Each other one lies in a node above by chance, in the one of rank r
    as r^-skew.
    """
    random, number, above = np.random.default_rng(len(sizes)), items, np.arange(items)
    rows = []
    for size in reversed(sizes):
        ends = np.cumsum(np.arange(1.0, size + 1) ** -skew)
        parent = _drawn(ends, np.zeros(1), ends[-1:], random.random(number))
        parent[:size] = np.arange(min(size, number))
        above, number = parent[above], size
        rows.append(above)
    return ItemTree(np.array(rows[::-1]), (staying,) * len(sizes))
