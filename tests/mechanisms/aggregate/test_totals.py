"""Totals of users and events: each has a bound of its own, and a few users of very many events do not spoil those of users."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.aggregate.metrics import Metric
from headcount.mechanisms.aggregate.release import OF_A_SAMPLE, aggregate
from headcount.mechanisms.aggregate.totals import _times, totals_norm
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.bound_choice.clip_choice import PARTS, ClipBound


@pytest.mark.parametrize(
    ("events", "users", "times", "norm"),
    [(100, 0, (1,), 100), (100, 7, (14, 1), 142), (10, 10, (1, 1), 15), (100, 7, (14, 1, 1), 174)],
)
def test_keys_count_as_often_as_all_bounds_allow(events, users, times, norm):
    kept = ClipBound(1, 1, "gaussian", events, users_bound=users)
    assert (_times(kept, len(times)), totals_norm(kept, len(times))) == (times, norm)
    # A user at all bounds is within the norm: nothing of it is scaled down.
    vector = [times[0] * (users or events), *(events for _ in times[1:])]
    assert np.linalg.norm(vector) <= norm


@pytest.mark.seconds
def test_users_of_very_many_events_do_not_spoil_the_numbers_of_users(make_release):
    """4,000 users of 3 keys each, 400 of whom have 2,000 events on each: users have a noise of their own.

    Noise of all users' totals, and the chance of the sample, have a standard deviation of 4 % of a key's users at most; the
    worst of 30 numbers is off by five of these with a chance below 1e-6. With the noise of events it would be 200 %.
    """
    random = np.random.default_rng(1)
    user = np.repeat(np.arange(4000), 3)
    key = np.concatenate([random.choice(10, 3, replace=False) for _ in range(4000)])
    count = np.where(user < 400, 2000, random.integers(1, 4, len(user)))
    batch = contribution_batch(pa.array(user), pa.array([f"k{each}" for each in key]), pa.array(count))
    made = aggregate(Budget(1, 1e-8), [Metric("users"), Metric("events")], max_per_item=1000)
    true = np.bincount(key, minlength=10)
    for number in range(3):
        rows, told = made.run_decided([batch], make_release(f"heavy-{number}"))
        assert rows.num_rows == 10 and 3 <= told.plan.kept.users_bound <= 20
        assert told.plan.kept.totals_bound > 100
        error = np.abs(np.asarray(rows.column("users")) / true - 1)
        assert error.max() < 0.2
        assert np.asarray(rows.column("users_noise_stddev")).max() < 0.06 * true.min()


@pytest.mark.parametrize("beside", [[], ["mean:price:0:100"], ["quantile:0.5:price:0:100"]])
def test_totals_of_users_alone_are_bounded_by_keys_whatever_is_asked_beside(beside):
    """A user of two keys with 5,000 rows on each is above a bound of one key, and of no more: where rows were counted, totals
    of users beside a mean had noise for thousands of rows, and an upper end of three times the truth."""
    choice = aggregate(Budget(1, 1e-8), ["users", *beside]).stages.choice
    shard = one_shard([contribution_batch(pa.array(["u", "u"]), pa.array(["a", "b"]), pa.array([5000, 5000]))])
    table = choice.user_table(shard)[len(choice.candidates) :]
    assert dict(zip(choice.norms, table, strict=False))[1] == 1 and sum(table[1 : len(choice.norms)]) == 0
    events = aggregate(Budget(1, 1e-8), ["events", *beside], max_per_item=1000).stages.choice
    assert sum(events.user_table(shard)[len(events.candidates) :][: len(events.norms)]) > 30


def test_no_user_is_worth_more_than_its_limit():
    """A user of 2,000 keys with 3 rows on each, where larger caps than 3 change nothing but what one user may be worth."""
    choice = aggregate(Budget(1, 1e-8), [Metric("events")]).stages.choice
    keys = pa.array([f"k{number}" for number in range(2000)])
    shard = one_shard([contribution_batch(pa.array(np.zeros(2000, dtype=np.int64)), keys, pa.array(np.full(2000, 3)))])
    worth = dict(zip(choice.candidates, choice.user_table(shard), strict=False))
    for each, parts in worth.items():
        left = min(3, each.max_per_item) * min(2000, each.bound)
        spared = min(3, each.max_per_item) / 3
        assert parts == pytest.approx(PARTS * min(left, each.most) * spared, abs=1)
    assert any(parts < PARTS * 3 * each.bound for each, parts in worth.items() if each.max_per_item > 3)


def test_no_more_keys_are_chosen_than_there_are():
    """Of 20 keys the menu ends at 32, and one user more or less has no part in that: the number of keys is public."""
    choice = aggregate(Budget(1, 1e-8), ["events"]).stages.choice
    for items, last in ((1, 1), (20, 32), (10**6, 4096)):
        assert max(each.bound for each in choice.ended(choice.candidates, items)) == last


@pytest.mark.parametrize("calibrate", ["totals", "none"])
def test_what_a_user_leaves_out_costs_as_in_a_histogram(calibrate):
    """A half where totals make up for it, and all of it where none do: of a share alone, too."""
    users, share = (
        aggregate(Budget(1, 1e-8), [metric], calibrate=calibrate).stages.choice
        for metric in ("users", "share:rich=price>50")
    )
    assert users.misplaced == (tuning.LEFT_OUT_PRICE if calibrate == "totals" else 1) and share.misplaced == 1


@pytest.mark.parametrize(
    "asked, warned", [("share:rich=price>0", True), ("mean:price:0:9", True), ("sum:price:0:9", False)]
)
def test_a_release_says_what_is_of_a_sample(asked, warned, make_release):
    rows = pa.array(["u"]), pa.array(["k"])
    values = [pa.array([1], pa.int64())]
    batch = contribution_batch(*rows, values=values)
    _, decided = aggregate(Budget(1, 1e-8), [asked], domain=["k"]).run_decided([batch], make_release())
    assert (OF_A_SAMPLE in decided.summary().get("assumption", "")) == warned
