"""`Aggregate` as a transform: the rows of the pure function, and what is refused where the pipeline is built."""

from __future__ import annotations

import datetime
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.typehints.schemas import typing_to_runner_api

from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.value_ranges import value_columns
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.transforms import Aggregate, Budget, Contributions, Zcdp
from headcount.transforms.aggregate.rows import ToMetricRows

BUDGET = Budget(5, 1e-4)
ASKED = ["users", "events", *(f"{kind}:price:0:100" for kind in ("sum", "mean", "variance", "quantile:0.9,0.5"))]
DOMAIN = [f"i{n}" for n in range(8)]
SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {},
    "given": {"max_items": 3, "max_per_item": 2},
    "not calibrated": {"calibrate": "none"},
    "domain": {"domain": DOMAIN},
    "domain, given": {"domain": DOMAIN, "max_items": 3, "max_per_item": 2, "calibrate": "none"},
}


def log(rows: int = 4000, seed: int = 2) -> pa.Table:
    rng = np.random.default_rng(seed)
    item = (rng.pareto(1, rows) * 3).astype(int) % 40
    user = [f"u{u}" for u in rng.integers(0, 500, rows)]
    return pa.table({"user": user, "item": [f"i{i}" for i in item], "price": rng.gamma(2, 10, rows)})


def pure(table: pa.Table, asked: list[str] = ASKED) -> list[pa.RecordBatch]:
    values = value_columns(Metrics.of(asked).values, {"price": table["price"].combine_chunks()})
    return [contribution_batch(*(table[name].combine_chunks() for name in ("user", "item")), values=values)]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_transform_gives_the_rows_of_the_pure_function(name, make_release, collect):
    table, release = log(), make_release()
    transform = Aggregate(BUDGET, ASKED, **SETTINGS[name], release=release, shards=5, output_files=1)
    pieces = [table[start : start + 700] for start in range(0, table.num_rows, 700)]
    found = collect(lambda p: p | beam.Create(pieces, reshuffle=False) | "Aggregate" >> transform)
    ((number, rows),) = found
    assert number == 0 and rows.num_rows > 3
    assert rows.equals(transform.mechanism.run(pure(table), release, "Aggregate"))


@pytest.mark.parametrize("budget", [BUDGET, Zcdp(2, 1e-4)])
def test_ranges_are_chosen_as_by_the_pure_function(budget, make_release, collect):
    table, release = log(), make_release()
    asked = ["users", "sum:price:auto", "mean:price:-auto:auto"]
    transform = Aggregate(budget, asked, release=release, shards=5).with_decision()
    (found,) = collect(lambda p: (p | beam.Create([table], reshuffle=False) | "Aggregate" >> transform).decision)
    assert found == transform.mechanism.run_decided(pure(table, asked), release, "Aggregate")[1]
    assert [of.low < 0 for of in found.plan.ranges] == [False, True]


def test_the_decision_is_that_of_the_pure_function(make_release, collect):
    table, release = log(), make_release()
    transform = Aggregate(BUDGET, ASKED, release=release, shards=3).with_decision()
    (found,) = collect(lambda p: (p | beam.Create([table], reshuffle=False) | "Aggregate" >> transform).decision)
    assert found == transform.mechanism.run_decided(pure(table), release, "Aggregate")[1]
    with pytest.raises(ParameterError, match="nothing is decided"):
        Aggregate(BUDGET, ASKED, domain=["a"], max_items=1, max_per_item=1, calibrate="none").with_decision()


def test_without_rows_a_domain_is_released(make_release, collect):
    transform = Aggregate(BUDGET, ASKED, domain=DOMAIN, release=make_release(), shards=2, output_files=1)
    empty = log()[:0]
    ((_, rows),) = collect(lambda p: p | beam.Create([empty], reshuffle=False) | "Aggregate" >> transform)
    assert rows.equals(transform.mechanism.run([], make_release(), "Aggregate")) and rows.num_rows == 8


def test_rows_have_the_key_columns_and_all_metrics(make_release, collect):
    """Dicts in, Beam's rows out, of a key of two columns with a day."""
    table = log(600)
    start = datetime.datetime(2030, 1, 1, 12)
    rows = [
        {"who": row["user"], "shop": row["item"], "at": start + datetime.timedelta(hours=k % 3), "cost": row["price"]}
        for k, row in enumerate(table.to_pylist())
    ]
    asked = ["users", "mean:cost:0:100", "quantile:0.5:cost:0:100"]
    contributions = Contributions("who", ["shop", "at:day"], values=["cost:0:100"])
    transform = Aggregate(Budget(2000, 1e-3), asked, max_items=5, max_per_item=9, release=make_release(), shards=2)
    found = collect(lambda p: p | beam.Create(rows) | contributions | transform)
    assert found and {row.at_day for row in found} == {datetime.date(2030, 1, 1)}
    assert {
        "shop",
        "at_day",
        "users",
        "users_low",
        "mean_cost",
        "mean_cost_noise_stddev",
        "p50_cost_rank_stddev",
    } <= set(found[0]._fields)
    means = {row.shop: row.mean_cost for row in found}
    truth = np.mean([row["cost"] for row in rows if row["shop"] == "i0"])
    assert means["i0"] == pytest.approx(truth, rel=0.1)


def test_ends_that_may_not_be_there_are_numbers_to_beam():
    rows = ToMetricRows(Keys.plain(str), ["r", "r_low"], frozenset({"r_low"}))
    kinds = {name: typing_to_runner_api(kind) for name, kind in rows._fields}
    assert kinds["r_low"].atomic_type == kinds["r"].atomic_type and kinds["r_low"].nullable and not kinds["r"].nullable


def test_values_for_a_choice_are_no_others():
    with beam.Pipeline(runner="FnApiRunner") as pipeline, pytest.raises(ParameterError, match="'price:auto'"):
        table = pipeline | beam.Create([log(10)], reshuffle=False)
        _ = table | Contributions(values=["price:0:1"]) | Aggregate(BUDGET, ["mean:price:auto"])


def test_other_values_than_the_metrics_are_refused():
    for values in ([], ["price:0:50"]):
        with beam.Pipeline(runner="FnApiRunner") as pipeline, pytest.raises(ParameterError, match="'price:0:100'"):
            table = pipeline | beam.Create([log(10)], reshuffle=False)
            _ = table | Contributions(values=values) | Aggregate(BUDGET, ["mean:price:0:100"])
    with (
        beam.Pipeline(runner="FnApiRunner") as pipeline,
        pytest.raises(InputError, match="tuples of user and item have no"),
    ):
        _ = pipeline | beam.Create([("u", "i")]) | Aggregate(BUDGET, ["mean:price:0:100"])
    with beam.Pipeline(runner="FnApiRunner") as pipeline, pytest.raises(InputError, match="values must be numbers"):
        dated = log(10).append_column("day", pa.array([datetime.date(2030, 1, 1)] * 10))
        _ = pipeline | beam.Create([dated], reshuffle=False) | Aggregate(BUDGET, ["mean:day:0:100"])
