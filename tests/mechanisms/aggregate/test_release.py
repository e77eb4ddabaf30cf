"""Aggregates without Beam: what comes out, how close it is to the truth, and that a repeated run repeats it.

Keys are fixed. Where a test is statistical, it states what a fresh key would do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metric
from headcount.mechanisms.aggregate.release import AggregateMechanism, aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.value_ranges import value_columns
from headcount.mechanisms.errors import ParameterError

ALL = [Metric("users"), Metric("events"), *(parse_metric(kind, "price:0:100") for kind in ("sum", "mean", "variance"))]
KEYS = [f"k{n}" for n in range(6)]
LARGE, RICH = Budget(1e5, 1e-3), Budget(20, 1e-4)
PARTS = ["", "_noise_stddev", "_low", "_high"]
Row = tuple[str, str, float]


def log(users: int = 300, seed: int = 1, rows: int = 4) -> list[Row]:
    """Users with some rows each, on keys of which the first are more common, at prices that rise with the key."""
    rng = np.random.default_rng(seed)
    law = np.arange(12, 0, -2) / sum(range(12, 0, -2))
    return [
        (f"u{u}", KEYS[k], min(100.0, float(np.round(rng.gamma(2, 5 + k), 2))))
        for u in range(users)
        for k in rng.choice(6, rng.integers(1, 2 * rows), p=law).tolist()
    ]


def batches_of(rows: list[Row], metrics: list[Metric] = ALL, parts: int = 1) -> list[pa.RecordBatch]:
    asked, found = Metrics.of(metrics), []
    for part in range(parts):
        user, key, price = (list(column) for column in zip(*rows[part::parts], strict=True))
        values = value_columns(asked.values, {"price": pa.array(price)})
        found.append(contribution_batch(pa.array(user), pa.array(key), values=values))
    return found


def truth_of(rows: list[Row]) -> dict[str, np.ndarray]:
    prices = [np.array([price for _, key, price in rows if key == name]) for name in KEYS]
    return {
        "users": np.array([len({user for user, key, _ in rows if key == name}) for name in KEYS], float),
        "events": np.array([len(each) for each in prices], float),
        "sum_price": np.array([each.sum() for each in prices]),
        "mean_price": np.array([each.mean() for each in prices]),
        "variance_price": np.array([each.var() for each in prices]),
    }


def column(made: pa.RecordBatch, name: str) -> np.ndarray:
    return np.asarray(made.column(name))


@pytest.mark.seconds
@pytest.mark.parametrize("domain", [None, KEYS])
def test_with_a_large_epsilon_all_metrics_are_close(domain, make_release):
    """Within five standard deviations of their noise, all sixty of them: for a fresh key but for 1e-5."""
    rows = log()
    made = aggregate(LARGE, ALL, domain=domain, max_items=6, max_per_item=10).run(batches_of(rows), make_release())
    assert made.schema.names == ["item", *(name + part for name in truth_of(rows) for part in PARTS)]
    assert made.column("item").to_pylist() == KEYS
    for name, truth in truth_of(rows).items():
        noise = column(made, f"{name}_noise_stddev")
        assert (np.abs(column(made, name) - truth) <= 5 * noise + 0.5).all(), name
        assert (column(made, f"{name}_low") <= column(made, name) + 1e-9).all()
        assert (column(made, name) <= column(made, f"{name}_high") + 1e-9).all()
        assert (noise <= 0.1 * truth).all(), name


def test_with_a_huge_epsilon_all_metrics_are_exact(make_release):
    rows, budget = log(), Budget(1e9, 1e-3)
    made = aggregate(budget, ALL, domain=KEYS, max_items=6, max_per_item=10, calibrate="none")
    found = made.run(batches_of(rows), make_release())
    for name, truth in truth_of(rows).items():
        total = "" if name.startswith(("mean", "variance")) else "bounded_"
        assert column(found, total + name) == pytest.approx(truth, rel=1e-3), name


def test_bounds_are_chosen_and_nothing_that_is_chosen_is_beyond_the_truth(make_release):
    rows = log(2000)
    made, decision = aggregate(RICH, ALL).run_decided(batches_of(rows), make_release())
    kept = decision.plan.kept
    assert 1 <= kept.bound <= 4096 and 1 <= kept.max_per_item <= kept.cap <= 1000 and kept.totals_bound >= 3
    assert decision.description().startswith("chosen: names by ")
    assert {"chosen", "groups"} <= decision.report_fields().keys() and "share_left_out" in decision.summary()
    for name, truth in truth_of(rows).items():
        if name != "variance_price":
            assert column(made, name) == pytest.approx(truth, rel=0.15), name


def test_totals_that_are_not_calibrated_say_so(make_release):
    rows, around = log(), [*ALL[:2], parse_metric("sum", "price:-100:100")]
    made = aggregate(RICH, ALL, calibrate="none", max_items=2, max_per_item=1).run(batches_of(rows), make_release())
    assert made.schema.names[1::4] == [
        "bounded_users", "bounded_events", "bounded_sum_price", "mean_price", "variance_price",
    ]  # fmt: skip
    assert column(made, "bounded_events").sum() < 0.8 * len(rows)
    made = aggregate(RICH, around).run(batches_of(rows, around), make_release())
    assert made.schema.names[1::4] == ["users", "events", "bounded_sum_price"], (
        "of both signs: totals tell nothing of it"
    )


@pytest.mark.slow("accuracy")
def test_calibrated_totals_are_unbiased_where_what_is_left_out_is_like_what_is_kept(make_release):
    """Sums see one of three keys of each user, and the cap of two rows is chosen: over 50 releases the mean of users, events
    and sums is within 2 % of the truth (six standard deviations of a mean), and 88 % or more of the 300 intervals hold it."""
    rng = np.random.default_rng(4)
    rows = [
        (f"u{u}", KEYS[k], 10.0 + 5 * k)
        for u in range(3000)
        for k in rng.choice(6, 3, replace=False).tolist()
        for _ in range(2)
    ]
    asked = ALL[:3]
    made = aggregate(RICH, asked, domain=KEYS, max_items=1)
    found = [made.run(batches_of(rows, asked), make_release(str(number))) for number in range(50)]
    for name, truth in truth_of(rows).items():
        if name in ("users", "events", "sum_price"):
            assert np.mean([column(each, name) for each in found], axis=0) == pytest.approx(truth, rel=0.02), name
            inside = [
                (column(each, f"{name}_low") <= truth) & (truth <= column(each, f"{name}_high")) for each in found
            ]
            assert np.mean(inside) > 0.88, (name, np.mean(inside))


@pytest.mark.slow("accuracy")
def test_means_are_unbiased_and_their_intervals_hold(make_release):
    """Rows all count: over 100 releases the mean of the means is within a tenth of their noise, and more than 92 % of 600
    intervals hold the truth, which with 95 % happens but for 1e-3, and here they allow for more: for who is in a sample."""
    rows = log(400, rows=1)
    asked = [parse_metric("mean", "price:0:100")]
    made = aggregate(Budget(5, 1e-4), asked, domain=KEYS, max_items=6, max_per_item=6)
    truth = truth_of(rows)["mean_price"]
    found = [made.run(batches_of(rows, asked), make_release(str(number))) for number in range(100)]
    inside = [(column(each, "mean_price_low") <= truth) & (truth <= column(each, "mean_price_high")) for each in found]
    assert np.mean(inside) > 0.92
    noise = column(found[0], "mean_price_noise_stddev")
    assert np.abs(np.mean([column(each, "mean_price") for each in found], axis=0) - truth).max() < 0.6 * noise.max()


@pytest.mark.seconds
@pytest.mark.parametrize("options", [{}, {"domain": KEYS}, {"max_items": 2, "max_per_item": 1, "calibrate": "none"}])
def test_a_repeated_run_gives_the_same_rows_however_they_are_cut(options, make_release):
    rows = log()
    made: AggregateMechanism = aggregate(RICH, ALL, **options)
    first = made.run(batches_of(rows), make_release())
    shuffled = [rows[k] for k in np.random.default_rng(1).permutation(len(rows))]
    assert made.run(batches_of(shuffled, parts=7), make_release()).equals(first)
    assert not made.run(batches_of(rows), make_release("other")).equals(first)
    changed = [(*row[:2], row[2] + (row[0] == "u7")) for row in rows]
    other = made.run(batches_of(changed), make_release())
    if other.num_rows == first.num_rows:
        for name in first.schema.names[9::4]:  # but for users and events, which are whole
            same = column(other, name) == column(first, name)
            assert same.mean() <= 0.5, (name, "the prices of one user change all noise, but for numbers cut or rounded")


@pytest.mark.seconds
@pytest.mark.parametrize("asked", [[Metric("users")], [Metric("events")], [ALL[2]], [ALL[3]], [ALL[4]], ALL])
@pytest.mark.parametrize("domain", [None, KEYS])
def test_without_rows_the_columns_are_the_same(asked, domain, make_release):
    made = aggregate(RICH, asked, domain=domain)
    empty, full = made.run([], make_release()), made.run(batches_of(log(), asked), make_release())
    assert empty.schema.equals(full.schema) and empty.num_rows == (6 if domain else 0)
    assert not any(column.null_count for column in full.columns)


@pytest.mark.seconds
def test_integer_keys_and_both_relations(make_release):
    rows = log()
    keys = pa.array([int(key[1:]) for _, key, _ in rows])
    values = value_columns(Metrics.of(ALL).values, {"price": pa.array([price for *_, price in rows])})
    batch = contribution_batch(pa.array([user for user, *_ in rows]), keys, values=values)
    for relation in Relation:
        made = aggregate(LARGE, ALL, item_type=int, relation=relation, max_items=6, max_per_item=10)
        found = made.run([batch], make_release())
        assert column(found, "item").tolist() == list(range(6))
        assert column(found, "mean_price") == pytest.approx(truth_of(rows)["mean_price"], rel=2e-2)
        assert made.guarantee().relation is relation


def test_replace_takes_more_noise():
    plans = [
        aggregate(RICH, ALL, domain=KEYS, max_items=2, max_per_item=1, calibrate="none", relation=each).stages.plan(
            None, None
        )
        for each in Relation
    ]
    one, other = ([measure.stddev for measure in plan.measures.measures] for plan in plans)
    ratio = np.array(other) / one
    assert (ratio >= 2**0.5 * 0.999).all() and (ratio <= 2**0.5 * 1.05).all(), (
        "more where values have most of the distance"
    )


@pytest.mark.parametrize(
    "options, words",
    [
        ({"budget": Budget(1)}, "delta"),
        ({"budget": Budget(1), "domain": KEYS}, "Gaussian noise, which needs a delta"),
        ({"metrics": []}, "nothing to compute"),
        ({"max_items": 0}, "max_items must be an integer from 1"),
        ({"max_per_item": 1001}, "max_per_item must be an integer from 1 to 1000"),
        ({"metrics": [Metric("users")], "max_per_item": 2}, "says nothing of users"),
        ({"calibrate": "all"}, "calibrate must be"),
        ({"domain": []}, "the domain is empty"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(options, words):
    given: dict[str, Any] = {"budget": RICH, "metrics": ALL, **options}
    with pytest.raises(ParameterError, match=words):
        aggregate(given.pop("budget"), given.pop("metrics"), **given)


@pytest.mark.parametrize("calibrate", ["none", "totals"])
def test_users_and_events_hold_the_truth_where_noise_hides_that_values_are_missing(calibrate, make_release):
    """With halves, rows are told by those with a value. Seven of 400 rows without one are too few to be seen: before they were
    allowed for, 28 % of the intervals held. Of 80 releases with intervals that hold 95 %, fewer than 66 do in 1 of 10^6."""
    metrics = [Metric("users"), Metric("events"), parse_metric("mean", "price:0:100")]
    rows = [(f"u{key}-{n}", key, None if key == "k0" and n < 7 else 40.0 + n % 20) for key in KEYS for n in range(400)]
    made = aggregate(Budget(1, 1e-8), metrics, domain=KEYS, max_items=1, max_per_item=1, calibrate=calibrate)
    batches, held, prefix = (
        batches_of(rows, metrics),
        {"users": 0, "events": 0},
        "bounded_" if calibrate == "none" else "",
    )
    for number in range(80):
        (row,) = made.run(batches, make_release(f"release-{number}")).slice(0, 1).to_pylist()
        for name in held:
            held[name] += row[f"{prefix}{name}_low"] <= 400 <= row[f"{prefix}{name}_high"]
    assert min(held.values()) >= 66
