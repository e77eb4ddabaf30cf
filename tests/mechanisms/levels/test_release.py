"""Counts in levels: rows that agree in every release, and the truth where there is hardly any noise."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.keys import JOINT
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.levels.factory import histogram_or_levels as histogram
from headcount.mechanisms.levels.release import LevelsMechanism, in_levels
from headcount.mechanisms.levels.tree import Tree

KINDS = {"users": {}, "events": {"of": "events"}, "home": {"home": True}}
Rows = list[tuple[int, tuple[str, ...], int]]


def batch_of(rows: Rows) -> list[pa.RecordBatch]:
    if not rows:
        return []
    user, key, count = zip(*rows, strict=True)
    item = pa.array([JOINT.join(each) for each in key])
    return [contribution_batch(pa.array([f"u{each}" for each in user]), item, pa.array(count))]


def adds_up(tree: Tree, count: np.ndarray) -> bool:
    return all(count[node] == count[cells].sum() for node, cells in enumerate(tree.children) if len(cells))


def released(mechanism: LevelsMechanism, rows: Rows, release) -> tuple[Tree, dict[str, np.ndarray]]:
    found = mechanism.run(batch_of(rows), release)
    columns = {name: np.asarray(found.column(name)) for name in ("count", "low", "high", "noise_stddev")}
    return Tree(mechanism.depth, found.column("item")), columns


MADE = {name: in_levels(Budget(5, 1e-3), depth=2, **given) for name, given in KINDS.items()}
KEYS = st.tuples(st.sampled_from(["a", "b", "c", ""]), st.sampled_from([f"t{n}" for n in range(9)]))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 80), KEYS, st.integers(1, 30)), max_size=400), st.integers(0, 10**6))
@pytest.mark.parametrize("kind", KINDS)
def test_rows_agree_in_every_release(kind, make_release, rows, number):
    tree, found = released(MADE[kind], rows, make_release(f"agree-{number}"))
    count, low, high = found["count"], found["low"], found["high"]
    assert (count == np.rint(count)).all() and (count >= np.where(tree.other, 0, 1)).all()
    assert (low >= 0).all() and (low <= count).all() and (count <= high).all()
    if kind == "users":
        inner = tree.parent >= 0
        assert (count[inner] <= count[tree.parent[inner]]).all()
    else:
        assert adds_up(tree, count)


def true_numbers(tree: Tree, rows: Rows, of: str) -> np.ndarray:
    names, users, events = set(tree.cells.to_pylist()), defaultdict(set), Counter()
    for user, key, count in rows:
        path = ["0:"]
        for depth in range(1, len(key) + 1):
            node = f"{depth}:{JOINT.join(key[:depth])}"
            path.append(node if node in names else path[-1].replace(":", "+:", 1))
            if node not in names:
                break
        for cell in path:
            users[cell].add(user)
            events[cell] += count
    return np.array([len(users[name]) if of == "users" else events[name] for name in tree.cells.to_pylist()])


def a_log(users: int = 3000) -> Rows:
    random = np.random.default_rng(5)
    rows = []
    for user in range(users):
        country = f"c{min(random.geometric(0.4), 4)}"
        for _ in range(random.integers(1, 4)):
            region, town = f"r{random.integers(3)}", f"t{min(random.geometric(0.2), 25)}"
            rows.append((user, (country, region, town), int(random.integers(1, 4))))
    return rows


@pytest.mark.parametrize("of", ["users", "events"])
def test_with_hardly_any_noise_the_numbers_are_the_true_ones(of, make_release):
    rows = a_log()
    mechanism = in_levels(Budget(2000, 1e-6), depth=3, of=of, max_per_item=None if of == "users" else 1000)
    tree, found = released(mechanism, rows, make_release("exact"))
    true = true_numbers(tree, rows, of)
    assert len(true) > 100 and np.abs(found["count"] - true).max() <= max(3, 0.01 * true.max())


def test_at_home_users_add_up_to_all_of_them(make_release):
    rows = a_log()
    tree, found = released(in_levels(Budget(2000, 1e-6), depth=3, home=True), rows, make_release("home"))
    homes = {}
    for user, key, count in rows:
        homes.setdefault(user, Counter())[key] += count
    root = tree.cells.to_pylist().index("0:")
    assert abs(found["count"][root] - len(homes)) <= 2 and adds_up(tree, found["count"])
    sure = [(user, counts.most_common()) for user, counts in homes.items()]
    sure = [(user, places[0][0]) for user, places in sure if len(places) == 1 or places[0][1] > places[1][1]]
    least = Counter(f"3:{JOINT.join(key)}" for _, key in sure)
    names = tree.cells.to_pylist()
    assert all(found["count"][names.index(name)] >= number - 3 for name, number in least.items() if name in names)


def test_without_users_there_is_the_row_of_all(make_release):
    for name, mechanism in MADE.items():
        tree, found = released(mechanism, [], make_release(f"nobody-{name}"))
        assert tree.cells.to_pylist() == ["0+:", "0:"] and found["count"].max() < 200


def test_what_is_not_for_levels_is_refused():
    budget = Budget(1, 1e-6)
    for more, words in (
        ({"noise": "laplace"}, "noise='laplace' is not for counts in levels"),
        ({"method": "one-stage"}, "method='one-stage' is not for counts in levels"),
        ({"bound": 3}, "bound=3 is not for counts in levels"),
        ({"calibrate": "none"}, "calibrate='none' is not for counts in levels"),
        ({"domain": ["a"]}, "a domain is not for counts in levels"),
        ({"of": "events", "home": True}, "home is for users"),
    ):
        with pytest.raises(ParameterError, match=words):
            histogram(budget, levels=2, **more)
    with pytest.raises(ParameterError, match="home=True says where a user counts in levels"):
        histogram(budget, home=True)
    with pytest.raises(ParameterError, match="levels are 2 to 9 columns"):
        histogram(budget, levels=10)
    assert histogram(budget, levels=3, noise="gaussian", calibrate="totals") == histogram(budget, levels=3)
