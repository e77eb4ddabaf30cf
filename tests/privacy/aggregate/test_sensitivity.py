"""Audits of the sums of an aggregate: how far apart neighbours are, by brute force over small users. Exact, no false alarms.

Users of up to c + 1 rows on each of up to m + 1 keys, with values at both ends of the range, between, far beyond, or none:
what each of them adds is computed by the mechanism's own steps, from a column of prices on. Every user alone (add-remove) and
every two of them (replace) are compared, in units of the noise. The largest squared distance must be within mu^2, and is
within a hundredth of it. Each of the known bugs breaks it:

    a measure whose noise is left out of the joint distance      sums are further apart
    shares that are not squared weights                          the same
    values that are not cut, or counted from the wrong middle    a user adds more than c half ranges
    waves beside a gap, or longer than what x leaves             the same
    more than c rows, or more than m keys                        a user adds more
    replace as twice add-remove                                  sums of opposite signs are further apart
    flags left out, of rows in place of users, or of replaced    the same, and of users with other numbers of rows
    a level of a tree, or trees of replaced users, left out      parts are further apart
    rows without a value that count as missing and as a value    such a row is longer than others
    what is missing with less noise than what it stands for      the same
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate import bounding, measures
from headcount.mechanisms.aggregate.measures import AUXILIARY_MOMENTS, VARIANCE_MOMENT, MeasuresPlan, make_plan
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metric, parse_metrics
from headcount.mechanisms.aggregate.trees import BRANCHING, LEVELS
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.run_sums import run_sums
from headcount.mechanisms.batches.shards import MISSING
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.bounding.steps import step_subkeys
from headcount.mechanisms.columns.value_ranges import ValueRange, value_columns

MU = 0.3
KEYS = ("a", "b", "c", "d")
PRICES = (None, -1e6, 0.0, 20.0, 50.0, 80.0, 100.0, 1e6)


def of(kind: str, text: str = "price:0:100") -> Metric:
    return parse_metric(kind, text)


QUANTILES = parse_metrics("quantile", "0.5,0.9:price:0:100")
SHARE = parse_metrics("share", "rich=price>60")
ASKED = {
    "users": [Metric("users")],
    "counts": [Metric("users"), Metric("events")],
    "sum": [of("sum")],
    "sum around 0": [of("sum", "price:-100:100")],
    "mean": [of("mean")],
    "all": [Metric("users"), Metric("events"), of("sum"), of("mean"), of("variance")],
    "two ranges": [of("mean"), of("variance", "price:-100:100")],
    "quantiles": QUANTILES,
    "sum around 0, quantiles": [of("sum", "price:-100:100"), *QUANTILES],
    "share": SHARE,
    "ratio": parse_metrics("ratio", "r=price:0:100/price:-100:100"),
    "ratio around 0": parse_metrics("ratio", "r=price:-100:100/price:-50:50"),
    "users, share": [Metric("users"), *SHARE],
    "share, events": [*SHARE, Metric("events")],
    "two shares, events": [*SHARE, *parse_metrics("share", "very_rich=price>90"), Metric("events")],
    "two shares, all": [*SHARE, *parse_metrics("share", "poor=price<30"), Metric("events"), of("mean"), *QUANTILES],
    "all, quantiles": [Metric("users"), Metric("events"), of("mean"), of("variance", "price:-100:100"), *QUANTILES],
}
Rows = dict[str, tuple[float | None, ...]]  # prices by key


def users_of(m: int, c: int) -> list[Rows]:
    """Users whose keys are all alike, or differ in the last: those at the ends of what can be are among them."""
    prices = [row for n in (1, c, c + 1) for row in ((price,) * n for price in PRICES)]
    prices += [(0.0, 100.0), (50.0, 100.0), (None, 0.0), (None, 50.0)]
    found: list[Rows] = []
    for first in (0, m):  # the same keys, or others
        keys = [KEYS[(first + k) % len(KEYS)] for k in range(m)]
        found += [dict.fromkeys(keys, row) for row in prices]
    found += [dict.fromkeys(KEYS[: m + 1], (100.0,) * c), dict.fromkeys(KEYS[: m + 1], (0.0,) * c)]
    return found


def shard_of(users: list[Rows], metrics: Metrics) -> ValueShard:
    rows = [(f"u{k:03}", key, price) for k, user in enumerate(users) for key, each in user.items() for price in each]
    user, key, price = (list(column) for column in zip(*rows, strict=True))
    values = value_columns(metrics.values, {"price": pa.array(price, pa.float64())})
    shard = value_users_of([contribution_batch(pa.array(user), pa.array(key), values=values)])[0]
    assert shard is not None
    return shard


def vectors(users: list[Rows], metrics: Metrics, plan: MeasuresPlan) -> np.ndarray:
    """What each user adds to every measure of every key, in standard deviations of its noise."""
    shard = shard_of(users, metrics)
    batch = bounding.bounded_batch(shard, plan, step_subkeys(bytes(32), "id", "label", plan.steps), "label")
    who, where = (np.array(batch.column(name).to_pylist()) for name in ("user", "item"))
    cells: dict[tuple[Any, ...], np.ndarray] = defaultdict(lambda: np.zeros(len(users)))
    for measure in plan.measures:
        for user, key, each in zip(who, where, batch.column(measure.name).to_pylist(), strict=True):
            if measure.kind != "tree":
                cells[key, measure.name][int(user[1:])] = each * 2.0**-measure.bits / measure.stddev
                continue
            for leaf, level in itertools.product(each, range(LEVELS)):
                cells[key, measure.name, level, leaf // BRANCHING**level][int(user[1:])] += 1 / measure.stddev
    return np.stack(list(cells.values()), axis=1)


def audit(asked: str, m: int, c: int, relation: Relation) -> float:
    """The largest squared distance of neighbours as a share of mu^2: private up to 1."""
    metrics = Metrics.of(ASKED[asked])
    plan = make_plan(metrics, m, c, MU, relation)
    found = vectors(users_of(m, c), metrics, plan)
    if relation is Relation.ADD_REMOVE:
        return float(np.square(found).sum(axis=1).max()) / MU**2
    apart = found[:, None, :] - found[None, :, :]
    return float(np.square(apart).sum(axis=2).max()) / MU**2


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("m, c", [(1, 1), (1, 3), (2, 1), (2, 2)])
@pytest.mark.parametrize("relation", Relation)
def test_neighbours_are_as_far_apart_as_the_noise_is_made_for(asked, m, c, relation):
    share = audit(asked, m, 1 if Metrics.of(ASKED[asked]).only_users else c, relation)
    assert 0.99 < share <= 1, share


@pytest.mark.parametrize("asked", ASKED)
def test_the_loss_is_exact_and_close_to_mu(asked):
    for m, c, relation in itertools.product((1, 7, 4096), (1, 10, 1000), Relation):
        metrics = Metrics.of(ASKED[asked])
        plan = make_plan(metrics, m, 1 if metrics.only_users else c, MU, relation)
        assert 0.995 * MU**2 < plan.loss() <= Fraction(MU) ** 2


@pytest.mark.parametrize("asked", ["all", "mean"])
def test_random_users_are_within(asked):
    """Any numbers of rows, any values: 400 users and all pairs of them."""
    rng = np.random.default_rng(3)
    users = [
        {
            key: tuple(rng.choice(np.array(PRICES + (33.3, 66.6), object), rng.integers(1, 6)))
            for key in rng.choice(KEYS, rng.integers(1, 5), False)
        }
        for _ in range(400)
    ]
    metrics = Metrics.of(ASKED[asked])
    for relation in Relation:
        found = vectors(users, metrics, make_plan(metrics, 3, 2, MU, relation))
        assert np.square(found).sum(axis=1).max() <= MU**2
        if relation is Relation.REPLACE:
            squares = np.square(found).sum(axis=1)
            assert (squares[:, None] + squares[None, :] - 2 * found @ found.T).max() <= MU**2


def test_no_row_is_longer_than_one_half_range():
    """Whole numbers, all of 2^12 + 1 values and those next to the ends: what stands beside x leaves it within the circle."""
    x = np.unique(
        np.concatenate([np.arange(-(2**20), 2**20 + 1, 2**9), *(np.arange(10) + end for end in (-(2**20), 2**20 - 9))])
    )
    squares = {kind: make(x).astype(object) ** 2 for kind, make in bounding._OF_ROW.items()}
    for beside in (VARIANCE_MOMENT, AUXILIARY_MOMENTS):
        assert max(squares["sum"] + sum(squares[kind] for kind in beside)) <= 2**40
    assert min(squares["sum"] + squares["cosine"] + squares["sine"]) > 2**40 - 2**22, "they leave nothing unused"


def test_what_stands_beside_a_sum_has_no_less_noise_and_is_of_one_kind():
    plan = make_plan(Metrics.of(ASKED["mean"]), 2, 2, MU, Relation.ADD_REMOVE)
    sums = {measure.kind: measure for measure in plan.measures}
    louder = dataclasses.replace(sums["sine"], sigma=sums["sine"].sigma - 1)
    for wrong, words in ((louder, "less noise"), (dataclasses.replace(sums["sine"], kind="gap"), "beside waves")):
        broken = dataclasses.replace(plan, measures=(*plan.measures[:-1], wrong))
        with pytest.raises(RuntimeError, match=words):
            broken.loss()


# Mutations: each of them alone, and the audit must see it. What the mechanism's own checks refuse is let through first.


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setattr(bounding, "check_kept", lambda *_: None)
    monkeypatch.setattr(MeasuresPlan, "loss", lambda self: Fraction(0))
    yield monkeypatch


def changed_shares(change: Any) -> Any:
    real = measures.shares
    return lambda metrics, c: change(real(metrics, c))


@pytest.mark.parametrize("name", ["users", "rows", "sum0"])
def test_a_measure_that_is_left_out_of_the_distance_is_caught(name, unchecked):
    unchecked.setattr(measures, "shares", changed_shares(lambda parts: parts | {name: 1.0}))
    assert audit("all", 2, 2, Relation.ADD_REMOVE) > 1.4


def test_weights_that_are_not_squared_are_caught(unchecked):
    root = lambda parts: {name: math.sqrt(share) for name, share in parts.items()}  # noqa: E731
    unchecked.setattr(measures, "shares", changed_shares(root))
    assert audit("all", 2, 2, Relation.ADD_REMOVE) > 1.5


@pytest.mark.filterwarnings("ignore:invalid value")
def test_values_that_are_not_cut_are_caught(unchecked):
    def uncut(self: ValueRange, column: pa.Array, place: Any) -> pa.Array:
        return pa.array(np.rint((np.asarray(column) - self.midpoint) / self.half * 2**20).astype(np.int64))

    unchecked.setattr(ValueRange, "fixed_point", uncut)
    assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 100


def test_values_from_the_wrong_middle_are_caught(unchecked):
    real = ValueRange.fixed_point

    def from_the_low_end(self: ValueRange, column: pa.Array, place: Any) -> pa.Array:
        return pc.add(real(self, column), 2**20)

    unchecked.setattr(ValueRange, "fixed_point", from_the_low_end)
    assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 1.5


def test_waves_beside_a_gap_are_caught(unchecked):
    unchecked.setattr(measures, "VARIANCE_MOMENT", VARIANCE_MOMENT + AUXILIARY_MOMENTS)
    assert audit("all", 1, 1, Relation.ADD_REMOVE) > 1.1


@pytest.mark.parametrize("kind", AUXILIARY_MOMENTS)
def test_waves_that_x_leaves_no_room_for_are_caught(kind, unchecked):
    real = bounding._OF_ROW[kind]
    unchecked.setitem(bounding._OF_ROW, kind, lambda x: 3 * real(x) // 2)
    assert audit("mean", 1, 1, Relation.ADD_REMOVE) > 1.05


def test_rows_beyond_the_bound_are_caught(unchecked):
    unchecked.setattr(bounding, "limit_rows", lambda shard, rows, subkey: shard)
    assert audit("counts", 1, 1, Relation.ADD_REMOVE) > 3


def test_keys_beyond_the_bound_are_caught(unchecked):
    unchecked.setattr(bounding, "sampled_items", lambda shard, items, subkey: np.arange(len(shard.item)))
    assert audit("counts", 1, 1, Relation.ADD_REMOVE) > 1.9


def test_replace_as_twice_add_remove_is_caught(unchecked):
    """Two users with the same keys and values at opposite ends: of a sum alone that is twice what the rule for counts says."""
    unchecked.setattr(measures, "_distance", lambda relation, own, *_: relation.users * own)
    assert audit("sum around 0", 1, 1, Relation.REPLACE) > 1.9
    assert audit("all", 1, 1, Relation.REPLACE) > 1.02, "rows have less than half of the distance, and cancel"


def test_flags_that_are_left_out_of_the_distance_are_caught(unchecked):
    """Of one user; and of two with the same keys, one of whom meets the condition: their flags are 2 apart."""
    real = measures._distance
    with unchecked.context() as context:
        context.setattr(measures, "shares", changed_shares(lambda parts: parts | {"flag0": 1.0}))
        assert audit("share", 2, 1, Relation.ADD_REMOVE) > 1.3
    unchecked.setattr(
        measures, "_distance", lambda relation, own, parts, rows: real(relation, own, parts._replace(flags=0), rows)
    )
    assert audit("share", 2, 1, Relation.REPLACE) > 1.2


def test_rows_that_differ_where_flags_do_are_in_the_distance(unchecked):
    """Two users of one key, of whom one has a single row and the other as many as count: rows and flags are both apart."""
    assert 0.99 < audit("two shares, events", 1, 3, Relation.REPLACE) <= 1
    real = measures._distance
    unchecked.setattr(measures, "_distance", lambda relation, own, parts, rows: real(relation, own, parts, 1))
    assert audit("two shares, events", 1, 3, Relation.REPLACE) > 1.02


def test_flags_of_rows_in_place_of_users_are_caught(unchecked):
    """A user adds one flag on a key, however many of its rows meet the condition."""
    real = bounding.measured

    def of_rows(sample: bounding.Sample, measures: Any) -> Any:
        shard = sample.rows
        flags = {each.name: np.sign(shard.values[each.value]) for each in measures if each.kind == "flag"}
        return real(sample, measures) | {
            name: run_sums(own * shard.count, shard.starts[:-1]) for name, own in flags.items()
        }

    unchecked.setattr(bounding, "measured", of_rows)
    assert audit("share, events", 1, 3, Relation.ADD_REMOVE) > 3


@pytest.mark.parametrize("asked", ["quantiles", "all, quantiles"])
def test_a_level_that_is_left_out_of_the_distance_is_caught(asked, unchecked):
    unchecked.setattr(measures, "LEVELS", LEVELS - 1)
    assert audit(asked, 1, 2, Relation.ADD_REMOVE) > 1.05


def test_trees_that_are_left_out_of_the_distance_of_replaced_users_are_caught(unchecked):
    """Two users with the same keys and values at opposite ends are apart by sums and by parts."""
    real = measures._distance
    unchecked.setattr(
        measures, "_distance", lambda relation, own, parts, rows: real(relation, own, parts._replace(trees=0), rows)
    )
    assert audit("sum around 0, quantiles", 1, 1, Relation.REPLACE) > 1.1


@pytest.mark.parametrize("asked, beyond", [("all", 1.2), ("two ranges", 1.1)])
def test_rows_without_a_value_that_count_as_one_too_are_caught(asked, beyond, unchecked):
    """As the middle of the range, which the gap of a variance is the largest for."""
    take_all_for_valued(unchecked)
    assert audit(asked, 1, 1, Relation.ADD_REMOVE) > beyond


def test_rows_without_a_value_that_are_in_a_leaf_too_are_caught(unchecked):
    take_all_for_valued(unchecked)
    assert audit("quantiles", 1, 1, Relation.ADD_REMOVE) > 1.4


@pytest.mark.parametrize("asked", ["mean", "all", "quantiles", "two ranges"])
def test_room_that_rows_without_a_value_take_beside_those_with_one_is_caught(asked, unchecked):
    """A user of a row with a value and one without, of whom one row counts."""
    unchecked.setattr(bounding.Sample, "missing", lambda self, value: self.rows.pairs.count)
    assert audit(asked, 1, 1, Relation.ADD_REMOVE) > 1.1


@pytest.mark.parametrize("asked", ["mean", "quantiles", "all, quantiles"])
def test_less_noise_on_what_is_missing_is_caught_and_refused(asked, monkeypatch):
    metrics = Metrics.of(ASKED[asked])
    plan = make_plan(metrics, 1, 2, MU, Relation.ADD_REMOVE)
    quieter = tuple(
        dataclasses.replace(each, sigma=each.sigma // 2) if each.kind == "missing" else each for each in plan.measures
    )
    broken = dataclasses.replace(plan, measures=quieter)
    with pytest.raises(RuntimeError, match="missing has less noise"):
        broken.loss()
    assert np.square(vectors(users_of(1, 2), metrics, broken)).sum(axis=1).max() > 1.05 * MU**2


def take_all_for_valued(patch: pytest.MonkeyPatch) -> None:
    """The known bug: rows without a value are missing, and have the middle of the range beside."""
    real = bounding.bounded_rows

    def filled(*given: Any) -> bounding.Sample:
        sample = real(*given)
        missing = {value: sample.missing(value) for value in sample.of_values}
        patch.setattr(bounding.Sample, "missing", lambda self, value: missing[value])
        rows = dataclasses.replace(sample.rows, values=tuple(map(middle, sample.rows.values)))
        return dataclasses.replace(sample, of_values=dict.fromkeys(sample.of_values, rows))

    patch.setattr(bounding, "bounded_rows", filled)


def middle(own: np.ndarray) -> np.ndarray:
    """Values, with the middle of the range for those that are missing."""
    return np.where(own == MISSING, 0, own)


def test_the_steps_refuse_what_they_did_not_bound(monkeypatch):
    for name, broken in (
        ("limit_rows", lambda shard, rows, subkey: shard),
        ("sampled_items", lambda shard, items, subkey: np.arange(len(shard.item))),
    ):
        with monkeypatch.context() as context:
            context.setattr(bounding, name, broken)
            with pytest.raises(RuntimeError, match="did not keep"):
                audit("counts", 1, 1, Relation.ADD_REMOVE)
    monkeypatch.setattr(measures, "shares", changed_shares(lambda parts: parts | {"rows": 1.0}))
    with pytest.raises(RuntimeError, match="not what the budget"):
        make_plan(Metrics.of(ASKED["all"]), 2, 2, MU, Relation.ADD_REMOVE)
