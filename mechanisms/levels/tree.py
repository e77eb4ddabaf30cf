"""The tree of a key in levels: its nodes, what each user counts on them, and how much each level weighs.

A key of k columns, such as country, region and city, has nodes at the depths 0 (all rows) to k (the whole key). A node is a
prefix of the key. Its name is `depth:prefix`, and `depth+:prefix` names what is *other* under a node: the rows whose next
column has no name. So every row lies in one cell at each depth, down to its leaf or to what is other.

A user's rows become one vector: at each cell what the user counts there, times the weight of the cell's depth. The squared
weights add up to at most UNIT^2, so a user with one row of one leaf has a norm of at most UNIT.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms import tuning
from headcount.mechanisms.batches.distinct import distinct, sorting
from headcount.mechanisms.batches.domain import Held
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.run_sums import begins_run, run_sums
from headcount.mechanisms.batches.shards import MOST_COUNT, Rows, Shard
from headcount.mechanisms.batches.value_rows import ValueShard, value_shard
from headcount.mechanisms.columns.keys import JOINT, first_columns

#: The norm of a user with one row, in parts of which all weights are whole numbers.
UNIT = 1000

_ROOT = "0:"


def weights_of(depth: int) -> tuple[int, ...]:
    """The weight of each depth, from the root on: the leaves have a share of the precision, and the others the rest alike."""
    upper = math.isqrt(math.floor(UNIT**2 * (1 - tuning.LEAVES_SHARE) / depth))
    return (*[upper] * depth, math.isqrt(math.floor(UNIT**2 * tuning.LEAVES_SHARE)))


def node_names(keys: Names, depth: int, of: int) -> Names:
    """The names of the nodes at a depth that keys of so many columns lie in."""
    return pc.binary_join_element_wise(str(depth), first_columns(keys, depth, of), ":")


def user_nodes(shard: Shard, depth: int) -> Shard:
    """The distinct nodes of each user below the root, each once: what names are chosen from."""
    columns = [node_names(shard.items, each, depth) for each in range(1, depth + 1)]
    nodes, place = distinct(pa.concat_arrays(columns))
    cells = place.astype(np.int64).reshape(depth, len(shard.items))
    return _summed(shard, cells, nodes, once=True, weights=np.ones(len(nodes), dtype=np.int64))


@dataclasses.dataclass(frozen=True)
class Tree:
    """The named nodes of a key of `depth` columns with all that is above them, the root, and what is other under each node.

    `cells` are sorted by name. All of it follows from what was named: it is public by then.
    """

    depth: int
    cells: Names

    @classmethod
    def of_named(cls, named: Iterable[str], depth: int) -> Tree:
        """The tree of named nodes. What is above a named node is named, too: whoever knows the one knows the other."""
        nodes = {_ROOT}
        for name in named:
            prefix = name.partition(":")[2]
            nodes.update(_node(number, prefix) for number in range(1, 1 + int(name.partition(":")[0])))
        inner = [each for each in nodes if int(each.partition(":")[0]) < depth]
        return cls(depth, pa.array(sorted([*nodes, *(each.replace(":", "+:", 1) for each in inner)]), pa.string()))

    @cached_property
    def _split(self) -> list[tuple[int, bool, str]]:
        """Depth, whether it is what is other there, and prefix (that of the node above, for what is other) of each cell."""
        found = []
        for name in self.cells.to_pylist():
            head, _, prefix = name.partition(":")
            other = head.endswith("+")
            found.append((int(head.rstrip("+")) + other, other, prefix))
        return found

    @cached_property
    def level(self) -> np.ndarray:
        """The depth of each cell: what is other under a node is as deep as the node's children."""
        return np.array([depth for depth, _, _ in self._split], dtype=np.int64)

    @cached_property
    def other(self) -> np.ndarray:
        """Which cells are what is other."""
        return np.array([other for _, other, _ in self._split], dtype=bool)

    @cached_property
    def ends(self) -> np.ndarray:
        """Which cells have none below them, though they are above the leaves: what is other there."""
        return self.other & (self.level < self.depth)

    @cached_property
    def parent(self) -> np.ndarray:
        """The place of the node above each cell; -1 for the root."""
        place = {name: number for number, name in enumerate(self.cells.to_pylist())}
        found = np.full(len(self.cells), -1, dtype=np.int64)
        for number, (depth, other, prefix) in enumerate(self._split):
            if depth > 0:
                above = f"{depth - 1}:{prefix}" if other else _node(depth - 1, prefix)
                found[number] = place[above]
        return found

    @cached_property
    def children(self) -> list[np.ndarray]:
        """The places of the cells under each cell."""
        order = np.argsort(self.parent, kind="stable")
        cuts = np.searchsorted(self.parent[order], np.arange(len(self.cells) + 1))
        return [order[first:last] for first, last in zip(cuts[:-1], cuts[1:], strict=True)]

    @cached_property
    def weight(self) -> np.ndarray:
        """The weight of each cell."""
        return np.array(weights_of(self.depth), dtype=np.int64)[self.level]

    def user_cells(self, shard: Shard, once: bool) -> Shard:
        """What each user counts on each cell, times its weight: its rows, or where users are counted `once` a cell, one.

        One vector for all depths: whoever bounds its norm scales all depths by one factor, so that they still add up.
        """
        return _summed(shard, self._cells_of(shard.items), self.cells, once, self.weight).compact()

    def value_cells(self, shard: ValueShard) -> ValueShard:
        """The same users with each of their rows in every cell that it lies in."""
        pairs, each = shard.pairs, shard.rows_per_pair()
        user = np.repeat(np.repeat(np.arange(len(pairs.users)), pairs.rows_per_user()), each)
        cells = self._cells_of(pairs.items)[:, np.repeat(pairs.item, each)]
        depth, row = np.nonzero(cells >= 0)
        values = tuple(column[row] for column in shard.values)
        rows = Rows(pairs.users, user[row], self.cells, cells[depth, row], shard.count[row], {}, values)
        return value_shard(rows).compact()

    def _cells_of(self, items: Names) -> np.ndarray:
        """The cell of each item at each depth; -1 where it has none."""
        held, rows = self._held, len(items)
        cells = np.full((self.depth + 1, rows), -1, dtype=np.int64)
        cells[0] = held.places(pa.array([_ROOT]))[0]
        inside = np.ones(rows, dtype=bool)  # whether the node above has a name
        others = self._others
        for depth in range(1, self.depth + 1):
            place, known = held.places(node_names(items, depth, self.depth))
            named = inside & np.asarray(known)
            cells[depth] = np.where(named, place, np.where(inside, others[cells[depth - 1]], -1))
            inside = named
        return cells

    @cached_property
    def _held(self) -> Held:
        return Held(self.cells)

    def weights_at(self, norm: int) -> np.ndarray:
        """The weight of each cell in `level_by_level`: the root's is larger, as each user is there once."""
        return np.where(self.level == 0, norm * self.weight, self.weight)

    def level_by_level(self, cells: Shard, norm: int) -> Shard:
        """What each user counts `once` on each cell, of `user_cells`, scaled down to a norm of so many cells at each level by
        itself, times `weights_at`: a vector with a norm of at most `norm` times UNIT, but for rounding."""
        levels = self.depth + 1
        place = self._held.places(cells.items)[0][cells.item]
        of = np.repeat(np.arange(len(cells.users)) * levels, cells.rows_per_user()) + self.level[place]
        number = np.bincount(of, minlength=len(cells.users) * levels)
        scale = np.minimum(1.0, norm / np.sqrt(np.maximum(number, 1)))
        value = np.rint(self.weights_at(norm)[place] * scale[of]).astype(np.int64)
        rows = np.flatnonzero(value)
        return cells.keep(rows, value[rows])

    @cached_property
    def _others(self) -> np.ndarray:
        """The place of what is other under each cell; -1 where there is none."""
        found = np.full(len(self.cells), -1, dtype=np.int64)
        found[self.parent[self.other]] = np.flatnonzero(self.other)
        return found


def _node(depth: int, prefix: str) -> str:
    """The name of the node at this depth above or at a prefix."""
    return f"{depth}:{JOINT.join(prefix.split(JOINT)[:depth])}"


def _summed(shard: Shard, cells: np.ndarray, names: Names, once: bool, weights: np.ndarray) -> Shard:
    """A shard whose rows are in these cells, by item and depth (-1: in none): their counts added up by user and cell, or 1
    where each user counts `once`, times the weights."""
    bits, users = len(names).bit_length(), len(shard.users)
    owner = np.repeat(np.arange(users) << bits, shard.rows_per_user())
    found = []
    for of_depth in cells:
        place = of_depth[shard.item]
        there = slice(None) if len(of_depth) == 0 or of_depth.min() >= 0 else np.flatnonzero(place >= 0)
        key = owner[there] + place[there]
        if once:
            key.sort()
            key = key[begins_run(key)]
            found.append((key, np.ones(len(key), dtype=np.int64)))
        else:
            order = sorting(key, users << bits)
            key = key[order]
            starts = np.flatnonzero(begins_run(key))
            found.append((key[starts], run_sums(shard.count[there][order], starts)))
    # A user's rows are in the order of depths, then of cells.
    number = np.stack([np.bincount(key >> bits, minlength=users) for key, _ in found])
    offsets = np.append(0, np.cumsum(number.sum(axis=0)))
    first = offsets[:-1] + np.cumsum(number, axis=0) - number
    cell, count = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
    for (key, counted), starts, of_user in zip(found, first, number, strict=True):
        to = np.arange(len(key)) + np.repeat(starts - (np.cumsum(of_user) - of_user), of_user)
        cell[to], count[to] = key & ((1 << bits) - 1), counted
    count = np.minimum(count, MOST_COUNT)  # before the weights too, so that no product leaves 64 bits
    return Shard(shard.users, names, offsets, cell, np.minimum(count * weights[cell], MOST_COUNT))
