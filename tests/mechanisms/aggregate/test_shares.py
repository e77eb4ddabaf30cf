"""Shares of users by key: who counts, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate import answers, bounding
from headcount.mechanisms.aggregate.answers import fieller_open
from headcount.mechanisms.aggregate.measures import make_plan
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metrics
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.bounding.steps import step_subkeys
from headcount.mechanisms.calibration.intervals import DEVIATIONS
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
    shard = value_users_of([batch_of(["u"] * 50 + ["v"] * 3, ["a"] * 53, [*["view"] * 49, "buy", *["view"] * 3])])[0]
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


@pytest.mark.slow("accuracy")
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


@pytest.mark.slow("accuracy")
def test_intervals_hold_ratios_of_sums_in_95_of_100_releases(make_release, monkeypatch):
    """500 releases of twenty keys, whose sums have noisy rows in common: 93 to 97 % of 10,000 intervals hold the truth, nine
    standard deviations to each side of 95 %. Without the covariance they are too wide, and hold more."""
    random = np.random.default_rng(2)
    asked = ["ratio:each=paid:0:10/weight:0:4"]
    key = np.repeat(np.arange(20), 30 * (np.arange(20) + 8))
    paid, weight = random.integers(0, 11, len(key)) * (key / 20), random.integers(1, 5, len(key)).astype(float)
    columns = {"paid": pa.array(paid), "weight": pa.array(weight)}
    values = value_columns(Metrics.of(asked).values, columns)
    batch = contribution_batch(pa.array(np.arange(len(key))), pa.array([KEYS[each] for each in key]), values=values)
    truth = np.bincount(key, paid) / np.bincount(key, weight)
    made = aggregate(Budget(1, 1e-6), asked, domain=KEYS, max_items=1, max_per_item=1, calibrate="none")

    def held() -> float:
        found = []
        for number in range(500):
            rows = made.run([batch], make_release(str(number)))
            low, high = (np.asarray(rows.column(f"each_{end}").to_pylist(), float) for end in ("low", "high"))
            found.append((low <= truth) & (truth <= high))
        return float(np.mean(found))

    rate = held()
    assert 0.93 < rate < 0.97
    real = answers.fieller_open
    monkeypatch.setattr(
        answers, "fieller_open", lambda a, b, noise, least: real(a, b, (noise[0], 0.0, noise[2]), least)
    )
    assert held() > rate + 0.008


def test_fieller_open_is_all_ratios_within_the_noise():
    """Against a fine grid of ratios; NaN where the divisor may be 0."""
    above, below, noise = np.array([50.0, 3.0, -20.0]), np.array([100.0, 40.0, 1.0]), (25.0, 12.0, 16.0)
    low, high = fieller_open(above, below, noise, -np.inf)
    ratios = np.linspace(-3, 3, 600_001)
    for place in range(2):
        within = (above[place] - ratios * below[place]) ** 2 <= DEVIATIONS**2 * (
            noise[0] - 2 * ratios * noise[1] + ratios**2 * noise[2]
        )
        assert [low[place], high[place]] == pytest.approx([ratios[within].min(), ratios[within].max()], abs=2e-5)
    assert np.isnan([low[2], high[2]]).all()


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
