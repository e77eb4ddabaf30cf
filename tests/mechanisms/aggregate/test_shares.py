"""Shares of users by key: who counts, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate import bounding
from headcount.mechanisms.aggregate.measures import make_plan
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metrics
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.value_rows import one_value_shard
from headcount.mechanisms.bounding.steps import step_subkeys
from headcount.mechanisms.columns.flags import Flag, carried_text, parse_carried
from headcount.mechanisms.columns.value_ranges import AutoRange, ValueRange, value_columns
from headcount.mechanisms.errors import ParameterError

KEYS = [f"k{number:02}" for number in range(20)]
ASKED = ["share:bought=event=buy"]


def batch_of(user: list[str], key: list[str], event: list[str], metrics: list[str] = ASKED) -> pa.RecordBatch:
    values = value_columns(Metrics.of(metrics).values, {"event": pa.array(event)})
    return contribution_batch(pa.array(user), pa.array(key), values=values)


def test_a_user_counts_by_any_of_its_rows_also_by_one_that_no_sum_sees():
    """Of fifty rows of a user one is a purchase, and sums see two of them at most: it has bought, and adds one flag."""
    metrics = Metrics.of([*ASKED, "events"])
    shard = one_value_shard([batch_of(["u"] * 50 + ["v"] * 3, ["a"] * 53, [*["view"] * 49, "buy", *["view"] * 3])])
    plan = make_plan(metrics, 1, 2, 1.0, Relation.ADD_REMOVE)
    batch = bounding.bounded_batch(shard, plan, step_subkeys(bytes(32), "id", "label", plan.steps), "label")
    flags = dict(zip(batch.column("user").to_pylist(), batch.column("flag0").to_pylist(), strict=True))
    assert flags == {"u": 1, "v": -1} and batch.column("rows").to_pylist() == [2, 2]
    assert batch.column("users").to_pylist() == [1, 1]


def test_users_and_shares_of_them_need_no_number_of_rows():
    assert Metrics.of([*ASKED, "users"]).only_users and not Metrics.of([*ASKED, "events"]).only_users
    made = aggregate(Budget(1, 1e-6), ASKED, domain=["a"])
    assert made.stages.max_per_item == 1 and not made.stages.calibrated
    assert made.columns == ["bought", "bought_noise_stddev", "bought_low", "bought_high"]
    kinds = [measure.kind for measure in make_plan(made.metrics, 4, 1, 1.0, Relation.ADD_REMOVE).measures]
    assert kinds == ["rows", "flag"], "with one row a key, users are rows"


@pytest.mark.slow
def test_intervals_hold_the_share_in_95_of_100_releases(make_release):
    """500 releases of twenty keys of 40 to 800 users and shares from 0.05 to 0.95: of 10,000 intervals 93 to 97 % hold the
    truth, of which a rate of 95 % is nine standard deviations away. Intervals of 1.6 deviations hold 89 %."""
    random = np.random.default_rng(1)
    user, key, event = [], [], []
    for number, name in enumerate(KEYS):
        for person in range(40 * (number + 1)):
            bought = random.random() < 0.05 + 0.9 * ((7 * number) % 20) / 19
            user += [f"{name}-{person}"] * 2
            key += [name] * 2
            event += ["view", "buy" if bought else "view"]
    batch = batch_of(user, key, event)
    rows = np.array(key)[1::2]
    truth = np.array([np.mean(np.array(event)[1::2][rows == name] == "buy") for name in KEYS])
    made = aggregate(Budget(1, 1e-6), ASKED, domain=KEYS, max_items=1, calibrate="none")
    held, narrow, off = [], [], []
    for number in range(500):
        found = made.run([batch], make_release(str(number)))
        value, low, high = (np.asarray(found.column(f"bought{part}")) for part in ("", "_low", "_high"))
        assert ((low <= value) & (value <= high) & (low >= 0) & (high <= 1)).all()
        held.append((low <= truth) & (truth <= high))
        middle, half = (low + high) / 2, (high - low) / 2 * 1.6 / 1.96
        narrow.append(np.abs(truth - middle) <= half)
        off.append(value - truth)
    assert 0.93 < np.mean(held) < 0.97, np.mean(held)
    assert np.mean(narrow) < 0.92
    assert np.abs(np.mean(off, axis=0))[5:].max() < 0.03, "keys of 240 users and more are hardly drawn to others"


def test_what_rows_carry_is_told_by_a_text_and_back():
    for text in ("price:0:100", "price:auto", "price:-auto:auto", "share:bought=event = buy"):
        assert carried_text(parse_carried("values", text)) == text
    assert isinstance(parse_carried("values", "share:a=b=c"), Flag)
    assert isinstance(parse_carried("values", "share:auto"), AutoRange)
    assert parse_carried("values", "share:0:1") == ValueRange("share", 0, 1)
    berlin, utc = (parse_metrics("share", "new=day>2026-11-01", zone)[0] for zone in ("Europe/Berlin", "UTC"))
    assert berlin != utc and berlin.of.text() != utc.of.text(), "a part of randomness"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bought", "such as bought=event=buy"),
        ("2nd=a=b", "a name of letters"),
        ("a b=c=d", "a name of letters"),
        ("users=a=b", "other metrics have"),
        ("x_low=a=b", "other metrics have"),
        ("p50_x=a=b", "other metrics have"),
    ],
)
def test_names_that_cannot_be_columns_are_refused(name, words):
    with pytest.raises(ParameterError, match=words):
        parse_metrics("share", name)


def test_a_share_has_a_condition_and_nothing_else_has():
    flag, of = parse_metrics("share", "a=b=c")[0].of, ValueRange("b", 0, 1)
    for kind, wrong in (("share", of), ("mean", flag), ("share", None)):
        with pytest.raises(ParameterError):
            Metric(kind, wrong)
