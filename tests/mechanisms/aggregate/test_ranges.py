"""Ranges that are chosen: what is read, which range it is, and what depends on it.

Keys are fixed. Where a test is statistical, it states what a fresh key would do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metric
from headcount.mechanisms.aggregate.release import Aggregated, aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.columns.value_ranges import VALUE_BITS, AutoRange, ChosenRange, ValueRange, value_columns
from headcount.mechanisms.errors import ParameterError

KEYS = [f"k{n}" for n in range(4)]
BUDGET = Budget(2, 1e-6)
ASKED = ["users", "sum:price:auto", "mean:price:auto", "variance:price:auto"]


def batches(values: np.ndarray, asked: list[str], users: int = 1500, parts: int = 1) -> list[pa.RecordBatch]:
    user, key = np.arange(len(values)) % users, np.arange(len(values)) % 7 % 4
    columns = value_columns(Metrics.of(asked).values, {"price": pa.array(values)})
    names = pa.array([f"u{u}" for u in user]), pa.array([KEYS[k] for k in key])
    whole = contribution_batch(*names, values=columns)
    return [whole.take(pa.array(np.arange(part, len(values), parts))) for part in range(parts)]


def chosen(
    values: Any, asked: list[str] = ASKED, release: Any = None, parts: int = 1, **more: Any
) -> tuple[pa.RecordBatch, Aggregated]:
    made = aggregate(more.pop("budget", BUDGET), asked, domain=KEYS, **more)
    found, decision = made.run_decided(batches(np.asarray(values, float), asked, parts=parts), release)
    assert decision is not None
    return found, decision


def test_a_range_to_be_chosen_is_written_as_auto():
    assert parse_metric("sum", "order:price:auto") == Metric("sum", AutoRange("order:price"))
    both = parse_metric("mean", "price:-auto:auto")
    assert both.of == AutoRange("price", -1.0) and both.name == "mean_price"
    assert parse_metric("sum", "price:auto").is_total and not parse_metric("sum", "price:-auto:auto").is_total
    assert parse_metric("sum", "price:auto") != parse_metric("sum", "price:0:1")
    assert parse_metric("sum", "2024:auto").of == AutoRange("2024")
    assert Metrics.of(["sum:price:auto", "mean:price:-auto:auto"]).texts() == [
        "sum:price:auto",
        "mean:price:-auto:auto",
    ]


@pytest.mark.parametrize("text", ["price:0:auto", "price:-1.5:auto", "price:auto:9", "auto", ":auto", "price:1e3:auto"])
def test_half_a_range_is_refused(text):
    with pytest.raises(ParameterError, match="price:auto") as caught:
        parse_metric("sum", text)
    assert caught.value.parameter == "sum"


def test_values_come_in_whole_and_in_their_order():
    numbers = [-math.inf, -1e300, -2.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 2.5, 1e300, math.inf]
    of = AutoRange("price")
    whole = np.asarray(of.fixed_point(pa.array(numbers)))
    assert (np.diff(whole) >= 0).all() and len(set(whole.tolist())) == len(numbers) - 1  # both zeros are one
    assert of.numbers(whole).tolist() == numbers
    assert of.fixed_point(pa.array([1.0, None, math.nan, 2.0])).null_count == 2
    made = of.chosen(2.0).from_auto(whole)
    assert np.array_equal(made, np.asarray(ValueRange("price", 0, 2).fixed_point(pa.array(numbers))))
    both = AutoRange("price", -1.0).chosen(5.0)
    assert (both.low, both.high) == (-5.0, 5.0)
    assert both.from_auto(whole).tolist()[:3] == [-(2**VALUE_BITS), -(2**VALUE_BITS), -(2 ** (VALUE_BITS - 1))]


# With 1,500 users at an epsilon of 0.2 for the choice, `test_choices_are_near_the_best` has the chances that a fresh key has.
LAWS = {
    "constant": (np.full(6000, 7.0), 10.0),
    "tiny": (np.full(6000, 3e-6), 5e-6),
    "huge": (np.full(6000, 4e11), 5e11),
    "uniform": (np.random.default_rng(1).uniform(0, 100, 6000), 100.0),
    "outliers": (np.where(np.arange(6000) % 997 == 0, 1e9, 10.0), 10.0),
    "infinite outliers": (np.where(np.arange(6000) % 997 == 0, math.inf, 10.0), 10.0),
    "beyond the grid": (np.full(6000, 1e300), 1e12),
}


@pytest.mark.seconds
@pytest.mark.parametrize("name", LAWS)
def test_the_range_fits_the_values(name, make_release):
    values, end = LAWS[name]
    found, decision = chosen(values, release=make_release())
    assert decision.plan.ranges == (ChosenRange("price", 0.0, end, AutoRange("price")),)
    assert found.schema.names[1::4] == ["users", "sum_price", "mean_price", "variance_price"]
    assert decision.report_fields()["chosen"]["range of price:auto"] == [0.0, end]
    assert f"price from 0 to {end:g}" in decision.description()
    assert "which takes about" in decision.summary()["assumption"]
    for column in found.schema.names[1:]:
        assert np.isfinite(np.asarray(found.column(column))).all(), column


def test_numbers_of_both_signs_have_a_range_of_both(make_release):
    values = np.random.default_rng(2).normal(3, 20, 6000)
    asked = ["sum:price:-auto:auto", "mean:price:-auto:auto"]
    found, decision = chosen(values, asked, make_release())
    (of,) = decision.plan.ranges
    assert (of.low, of.high) in [(-50.0, 50.0), (-100.0, 100.0)]
    assert found.schema.names[1::4] == ["bounded_sum_price", "mean_price"]
    assert np.asarray(found.column("mean_price")) == pytest.approx(np.full(4, 3.0), abs=6)  # noise of 1.5 at most


@pytest.mark.parametrize("values", [[], np.full(6000, -8.0), np.zeros(6000)])
def test_without_users_or_values_it_is_near_the_least_and_says_so(values, make_release):
    """For a fresh key but for a chance of 1e-3."""
    made = aggregate(BUDGET, ASKED, domain=KEYS)
    rows = batches(values, ASKED) if len(values) else []
    found, decision = made.run_decided(rows, make_release())
    assert decision is not None and decision.plan.ranges[0].high <= 1e-8
    assert "too few users, or values above 0, to choose by" in decision.description()
    assert (np.abs(np.asarray(found.column("sum_price"))) < 1e-3).all()


def test_a_repeated_run_repeats_it_however_rows_are_batched(make_release):
    values = np.random.default_rng(3).lognormal(3, 1, 6000)
    one, other = (chosen(values, release=make_release(), parts=parts)[0] for parts in (1, 3))
    assert one.equals(other)
    assert not one.equals(chosen(values, release=make_release("other"))[0])
    assert not one.equals(chosen(1.01 * values, release=make_release())[0])


def test_each_range_is_chosen_once_and_one_that_is_given_stays(make_release):
    """A given range with the same ends as a chosen one is another column of values."""
    asked = ["sum:price:0:10", "mean:price:auto", "variance:price:-auto:auto"]
    made = aggregate(BUDGET, asked, domain=KEYS)
    assert len(made.stages.account.ranges_choices) == 2 and list(made.metrics.autos) == [1, 2]
    found, decision = chosen(np.full(6000, 7.0), asked, make_release())
    assert [(of.low, of.high) for of in decision.plan.metrics.values] == [(0, 10), (0, 10), (-10, 10)]
    assert np.asarray(found.column("mean_price")) == pytest.approx(np.full(4, 7.0), abs=1.0)


def test_noise_depends_on_the_data_by_the_choice_alone(make_release):
    """Bits, grids and sigmas of sums are those of any range; what is drawn depends on the range that was released."""
    small, large = (chosen(np.full(6000, value), release=make_release())[1].plan for value in (7.0, 7e9))
    assert small.measures == large.measures and small.guarantee == large.guarantee
    assert small.metrics.texts() != large.metrics.texts()


def test_choices_are_near_the_best():
    """By the exact law, an end that is not beside the best is chosen with a chance of 4 % at most."""
    made = aggregate(BUDGET, ASKED, domain=KEYS)
    choice = made.stages.ranges_choice
    assert choice is not None
    for name, (values, end) in LAWS.items():
        shard = value_users_of(batches(values, ASKED))[0]
        public = made.stages.ranges_table(made.stages.plan(None, made.stages.ends()[0][1]), len(KEYS))
        table = [one + other for one, other in zip(public, choice.user_table(shard), strict=True)]
        (law,) = map(probabilities, choice.exponents(table))
        near = [end / 2.6 <= float(each) <= end * 2.6 for each in tuning.RANGE_ENDS]
        assert law[near].sum() > 0.96, name


@pytest.mark.parametrize("relation", list(Relation))
def test_names_and_ranges_are_chosen_in_one_release(relation, make_release):
    values = np.random.default_rng(4).uniform(0, 100, 6000)
    made = aggregate(Budget(5, 1e-4), ASKED, relation=relation)
    found, decision = made.run_decided(batches(values, ASKED), make_release())
    assert decision is not None and found.column("item").to_pylist() == KEYS
    assert decision.plan.ranges[0].high in (50.0, 100.0, 200.0)
    names = [step.name for step in decision.guarantee.mechanisms]
    assert "choice of the range of price:auto" in names
    assert decision.guarantee.relation is relation
