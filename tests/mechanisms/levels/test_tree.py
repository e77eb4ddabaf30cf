"""The tree of a key in levels, beside a plain reading of what it says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.columns.keys import JOINT
from headcount.mechanisms.levels.tree import UNIT, Tree, user_nodes, weights_of

TEXT = st.sampled_from(["", "a", "b", ":", "0:", "1+:a", "ä"])
ROWS = st.lists(st.tuples(st.integers(0, 3), st.tuples(TEXT, TEXT, TEXT), st.integers(1, 5)), min_size=1, max_size=30)


def shard_of(rows: list[tuple[int, tuple[str, ...], int]]) -> Shard:
    user, key, count = zip(*rows, strict=True)
    names = [JOINT.join(each) for each in key]
    found = one_shard([contribution_batch(pa.array([f"u{u}" for u in user]), pa.array(names), pa.array(count))])
    assert found is not None
    return found


def as_dict(shard: Shard) -> dict[tuple[str, str], int]:
    users = np.repeat(np.arange(len(shard.users)), shard.rows_per_user())
    columns = shard.users.take(pa.array(users)).to_pylist(), shard.items.take(pa.array(shard.item)).to_pylist()
    return dict(zip(zip(*columns, strict=True), shard.count.tolist(), strict=True))


@pytest.mark.parametrize("depth", [2, 3, 9])
def test_the_weights_of_one_row_have_a_norm_of_at_most_one(depth):
    weights = weights_of(depth)
    assert len(weights) == depth + 1
    assert 0.99 * UNIT**2 < sum(each**2 for each in weights) <= UNIT**2


@given(ROWS)
def test_a_user_has_each_of_its_nodes_once(rows):
    want = {(f"u{u}", f"{d}:{JOINT.join(key[:d])}"): 1 for u, key, _ in rows for d in (1, 2, 3)}
    assert as_dict(user_nodes(shard_of(rows), 3)) == want


@settings(deadline=None)
@given(ROWS, st.sets(st.integers(0, 50), max_size=12), st.booleans())
def test_every_row_is_in_one_cell_of_each_level_down_to_its_leaf_or_what_is_other(rows, picked, once):
    shard = shard_of(rows)
    nodes = user_nodes(shard, 3).items.to_pylist()
    tree = Tree.of_named([nodes[each] for each in picked if each < len(nodes)], 3)
    names, want = set(tree.cells.to_pylist()), Counter()
    level = dict(zip(tree.cells.to_pylist(), tree.level.tolist(), strict=True))
    for u, key, count in rows:
        path = ["0:"]
        for depth in (1, 2, 3):
            node = f"{depth}:{JOINT.join(key[:depth])}"
            path.append(node if node in names else path[-1].replace(":", "+:", 1))
            if node not in names:
                break
        for cell in path:
            want[f"u{u}", cell] += count
    weights = weights_of(3)
    assert as_dict(tree.user_cells(shard, once)) == {
        pair: (1 if once else count) * weights[level[pair[1]]] for pair, count in want.items()
    }


@settings(deadline=None)
@given(ROWS, st.sets(st.integers(0, 50), max_size=12))
def test_what_is_above_a_named_node_is_named_and_every_node_has_its_other(rows, picked):
    nodes = user_nodes(shard_of(rows), 3).items.to_pylist()
    tree = Tree.of_named([nodes[each] for each in picked if each < len(nodes)], 3)
    names = tree.cells.to_pylist()
    assert names == sorted(set(names)) and "0:" in names
    for number, name in enumerate(names):
        cells = tree.children[number]
        assert set(tree.parent[cells].tolist()) <= {number}
        if tree.other[number] or tree.level[number] == 3:
            assert len(cells) == 0
        else:
            assert sum(tree.other[cells]) == 1 and set(tree.level[cells].tolist()) == {tree.level[number] + 1}
        assert (tree.parent[number] == -1) == (name == "0:")


def test_levels_by_themselves_have_the_norm_of_each():
    rows = [(0, ("a", f"r{n % 5}", f"t{n}"), 1) for n in range(50)] + [(1, ("a", "r0", "t0"), 1)]
    shard = shard_of(rows)
    tree = Tree.of_named([f"3:{JOINT.join(key)}" for _, key, _ in rows], 3)
    made = tree.level_by_level(tree.user_cells(shard, True), 2)
    weights, found = tree.weights_at(2), as_dict(made)
    place = {name: number for number, name in enumerate(tree.cells.to_pylist())}
    norms = {(u, level): 0.0 for u in ("u0", "u1") for level in range(4)}
    for (user, cell), value in found.items():
        norms[user, int(tree.level[place[cell]])] += (value / weights[place[cell]]) ** 2
    assert norms["u0", 0] == norms["u1", 0] == 1 and norms["u1", 3] == 1
    assert norms["u0", 2] == pytest.approx(4, rel=0.01) and norms["u0", 3] == pytest.approx(4, rel=0.01)
    assert sum(value**2 for (user, _), value in found.items() if user == "u0") <= (2 * UNIT) ** 2
