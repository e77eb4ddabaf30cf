"""Rows by ever finer parts of a range, with noise on every part: a tree for each named key, of which few nodes are drawn.

A range of values is cut into BRANCHING equal parts, each of these again, and so on for LEVELS levels: BRANCHING ** LEVELS
leaves, whose width is the resolution of quantiles. A row is in one node on each level. In the release every node of every named
key has its own noise, as `measures` calibrates it. Most of them are never looked at, so their noise is not drawn: it is a
function of key, data and node, and whoever looks finds the same.

Lanes. A key's lane is known by the key and by all of its leaves with their rows. The lane of node v of a level begins NODE * v
words behind it, under a block key of the level's own: so no two nodes of a key, on one level or two, share a word, as none
draws NODE of them. Runs of two keys meet with a probability below nodes * words / 2**128, as for all lanes. Block keys depend
on the digest of all sums of all measures, too.

Branching and levels were chosen on synthetic distributions. At as many leaves or more, nodes of 2, 4 and 8 parts give ranks of
about the same error, and those of 16 and more parts larger ones. With 8 there are the fewest levels, on all of which intervals
must hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.columns.value_ranges import VALUE_BITS
from headcount.mechanisms.randomness.lane_ids import user_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian
from headcount.mechanisms.randomness.subkeys import block_key, lane_key

BRANCHING, LEVELS = tuning.TREE_BRANCHING, tuning.TREE_LEVELS
LEAVES = BRANCHING**LEVELS

#: The number of words of a key's lane that belong to each node of a level.
NODE = 2**40

#: Beyond this, sums are cut: it takes more users than there are people.
LARGEST_BITS = 61

_LEAF_BITS = VALUE_BITS + 1 - (LEAVES.bit_length() - 1)  # of a value, below those that tell its leaf


def leaf_of(x: np.ndarray) -> np.ndarray:
    """The leaf of values as whole numbers, from -2**VALUE_BITS to 2**VALUE_BITS; the upper end belongs to the last leaf."""
    return np.where(x == 2**VALUE_BITS, LEAVES - 1, (x + 2**VALUE_BITS) >> _LEAF_BITS)


@dataclasses.dataclass(frozen=True)
class Trees:
    """The rows of some keys by leaf: key k has the leaves starts[k] .. starts[k + 1] - 1, ascending, none of them empty."""

    starts: np.ndarray  # int64, one more than keys
    leaf: np.ndarray  # int64
    rows: np.ndarray  # int64

    @classmethod
    def of(cls, keys: int, parts: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Trees:
        """The sums of parts: numbers of keys, with leaves, and rows in these."""
        nothing = (np.zeros(0, dtype=np.int64),) * 3
        key, leaf, rows = (np.concatenate(column) for column in zip(nothing, *parts, strict=True))
        if len(leaf) and not 0 <= int(leaf.min()) <= int(leaf.max()) < LEAVES:
            raise RuntimeError("a leaf is beyond its tree")  # a bug, and never to be released: it is one of another key
        present, code = np.unique(key * LEAVES + leaf, return_inverse=True)
        starts = np.searchsorted(present, np.arange(keys + 1) * LEAVES)
        return cls(starts, present % LEAVES, sum_by_code(code, rows, len(present)))

    @classmethod
    def listed(cls, leaves: pa.LargeListArray, rows: pa.LargeListArray) -> Trees:
        """Those of `lists`."""
        return cls(np.asarray(leaves.offsets), np.asarray(leaves.values), np.asarray(rows.values))

    def lists(self) -> tuple[pa.Array, pa.Array]:
        """The leaves and the rows in them, as a list for each key."""
        starts, columns = pa.array(self.starts), (pa.array(self.leaf), pa.array(self.rows))
        leaves, rows = (pa.LargeListArray.from_arrays(starts, column) for column in columns)
        return leaves, rows

    @cached_property
    def keys(self) -> np.ndarray:
        """The key of each leaf."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @cached_property
    def _places(self) -> np.ndarray:
        return self.keys * LEAVES + self.leaf

    @cached_property
    def _before(self) -> np.ndarray:
        return np.append(0, np.cumsum(self.rows))

    def lanes(self, own: bytes, named: Names) -> np.ndarray:
        """The lane of each key, for the subkey of its measure."""
        return user_lane_ids(lane_key(own), named, self.starts, pa.array(self.leaf), self.rows)

    def children(self, level: int, key: np.ndarray, node: np.ndarray) -> np.ndarray:
        """The rows in the children, which are on `level`, of nodes of the level above: BRANCHING columns."""
        width = BRANCHING ** (LEVELS - level)
        first = key * LEAVES + node * (width * BRANCHING)
        edges = first[:, None] + np.arange(BRANCHING + 1) * width
        return np.diff(self._before[np.searchsorted(self._places, edges)], axis=1)


@dataclasses.dataclass(frozen=True)
class NoisyTrees:
    """Trees with noise, drawn where it is asked for. A node must be asked for once only, as nothing is kept."""

    trees: Trees
    ids: np.ndarray
    own: bytes
    digest: bytes
    grid: int
    sigma: int

    def children(self, level: int, key: np.ndarray, node: np.ndarray) -> np.ndarray:
        """The noisy rows in the children, which are on `level`, of distinct nodes of the level above."""
        most = 2**LARGEST_BITS >> self.grid
        exact = np.minimum(self.trees.children(level, key, node), most)
        child = node[:, None] * BRANCHING + np.arange(BRANCHING)
        ids = np.repeat(self.ids[key], BRANCHING, axis=0)
        ids[:, 1] += (child.ravel() * NODE).astype(np.uint64)
        lanes = Lanes(block_key(self.own, self.digest + bytes([level])), ids)
        noisy = (exact.ravel() << self.grid) + discrete_gaussian(lanes, self.sigma)
        return (noisy * 2.0**-self.grid).reshape(exact.shape)
