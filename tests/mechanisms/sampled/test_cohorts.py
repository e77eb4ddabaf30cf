"""Cohorts drawn in advance: who is asked, who takes part, and how answers are counted.

Keys are fixed; over their choice each statistical test fails with probability below 1e-8.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.sampled.papers import cohorts
from headcount.mechanisms.sampled.papers.cohorts import draw_cohort
from headcount.mechanisms.sampled.plan import calibrate_sample, least_threshold

BUDGET = Budget(1, 1e-6)
RATE = Fraction(1, 3)


@pytest.mark.seconds
def test_every_user_is_asked_alike(make_release):
    """300 cohorts of 100 out of 500 users: chi-square of how often each was asked, below 1e-8 if all are alike."""
    drawn = [draw_cohort(BUDGET, 500, 100, make_release(f"c{number}")).asked for number in range(300)]
    for asked in drawn:
        assert len(asked) == 100 and (np.diff(asked) > 0).all() and 0 <= asked[0] and asked[-1] < 500
    times = np.bincount(np.concatenate(drawn), minlength=500)
    # Draws without replacement vary by 4/5 of what independent ones do.
    assert stats.chi2.sf(((times - 60) ** 2 / 60).sum() / 0.8, 499) > 1e-8


def test_a_release_repeats_its_cohort(make_release):
    first = draw_cohort(BUDGET, 1000, 100, make_release()).asked
    assert draw_cohort(BUDGET, 1000, 100, make_release()).asked.tolist() == first.tolist()
    for other in (
        draw_cohort(BUDGET, 1000, 100, make_release("other")),
        draw_cohort(BUDGET, 1000, 100, make_release(), label="Label"),
        draw_cohort(BUDGET, 1000, 100, make_release(), rate=RATE),
    ):
        assert other.asked.tolist() != first.tolist()


def test_users_with_the_same_word_are_told_apart(monkeypatch):
    """A first word of two bits: the order comes from later words."""
    real, calls = Lanes.words, []

    def few(self, index):
        calls.append(1)
        return real(self, index) >> np.uint64(62 if len(calls) == 1 else 0)

    monkeypatch.setattr(Lanes, "words", few)
    ids = np.random.default_rng(0).integers(0, 2**64, (50, 2), dtype=np.uint64)
    assert sorted(cohorts._shuffled(Lanes(bytes(32), ids)).tolist()) == list(range(50)) and len(calls) == 2


def answers(cohort, items):
    """Everybody who was asked with all of these items, twice over."""
    users = np.repeat(cohort.asked, 2 * len(items))
    return contribution_batch(pa.array(users), pa.array(items * (2 * len(cohort.asked))))


@pytest.mark.seconds
def test_the_rate_is_the_best_one_or_the_given_one(make_release):
    best = calibrate_sample(BUDGET, relation=Relation.REPLACE)
    assert draw_cohort(BUDGET, 500, 100, make_release(), relation="replace").plan == best
    given = draw_cohort(BUDGET, 500, 100, make_release(), rate=RATE, relation="replace")
    assert (given.plan.rate, given.threshold) == (RATE, least_threshold(BUDGET, RATE, Relation.REPLACE))
    promise = given.guarantee()
    assert (promise.epsilon, promise.delta, promise.relation) == (1, 1e-6, Relation.REPLACE)
    assert "users asked, who may be known 100" in promise.description()


def test_answers_are_counted_with_one_item_of_each_who_takes_part_and_scaled(make_release):
    """Of 12,000 asked out of 36,000 a third takes part: each of two items is chosen by half of them, up to six standard
    deviations."""
    for item_type, items in ((str, ["a", "b"]), (int, [7, 9])):
        cohort = draw_cohort(BUDGET, 36_000, 12_000, make_release(), rate=RATE)
        rows = cohort.count([answers(cohort, items)], item_type).to_pylist()
        assert [row["item"] for row in rows] == items
        assert abs(sum(row["sampled"] for row in rows) - 4000) < 6 * np.sqrt(4000 * 2 / 3)
        assert all(abs(row["sampled"] - 2000) < 6 * np.sqrt(2000) for row in rows)
        assert all(abs(row["count"] - 9 * row["sampled"]) <= 2 for row in rows)


def test_items_of_too_few_stay_hidden(make_release):
    cohort = draw_cohort(BUDGET, 3000, 900, make_release(), rate=RATE)
    few, enough = cohort.threshold - 1, cohort.threshold
    items = ["few"] * few + ["enough"] * enough
    batch = contribution_batch(pa.array(cohort._taking_part[: few + enough]), pa.array(items))
    assert cohort.count([batch]).column("item").to_pylist() == ["enough"]
    empty = draw_cohort(BUDGET, 3000, 900, make_release(), rate=RATE).count([], int)
    assert empty.num_rows == 0 and empty.schema.names == ["item", "count", "noise_stddev", "low", "high", "sampled"]


def test_a_cohort_answers_once_and_nobody_else_does(make_release):
    cohort = draw_cohort(BUDGET, 3000, 900, make_release(), rate=RATE)
    stranger = int(np.setdiff1d(np.arange(3000), cohort.asked)[0])
    for user in (stranger, "u"):
        with pytest.raises(InputError, match="an answer is of nobody who was asked"):
            cohort.count([contribution_batch(pa.array([user]), pa.array(["a"]))])
    cohort.count([answers(cohort, ["a"])])
    with pytest.raises(ParameterError, match="a second question needs a cohort of its own"):
        cohort.count([answers(cohort, ["b"])])


@pytest.mark.parametrize(
    ("users", "size", "rate"),
    [(0, 1, RATE), (True, 1, RATE), (10, 0, RATE), (10, 11, RATE), (10, 2.5, RATE), (10, 5, 0.3), (10, 5, Fraction(1))],
)
def test_wrong_parameters_are_refused(make_release, users, size, rate):
    with pytest.raises(ParameterError):
        draw_cohort(BUDGET, users, size, make_release(), rate=rate)
