"""Cohorts drawn in advance: the law of independent coins, and the cost of a size that is known.

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
from headcount.mechanisms.sampled import cohorts
from headcount.mechanisms.sampled.cohorts import KnownCohort, draw_cohort, known_cohort, known_size_delta
from headcount.mechanisms.sampled.plan import least_threshold

ALARM = 1e-8
BUDGET = Budget(1, 1e-6)
RATE = Fraction(1, 3)


def members(users, rate, release, **given):
    return draw_cohort(BUDGET, users, rate, release, **given).members


def subset_p_value(draw, users=4, draws=4000):
    """Chi-square of all 2^users subsets against independent coins: each user's chance and their independence at once."""
    found = np.zeros(2**users)
    for number in range(draws):
        found[sum(1 << int(user) for user in draw(number))] += 1
    sizes = np.array([bin(subset).count("1") for subset in range(2**users)])
    p = float(RATE)
    return stats.chisquare(found, draws * p**sizes * (1 - p) ** (users - sizes)).pvalue


def test_a_cohort_has_the_law_of_independent_coins(make_release):
    """Power: a fixed size, or a user whose chance is off by 0.05, is caught with probability above 0.999."""
    assert subset_p_value(lambda number: members(4, RATE, make_release(f"r{number}"))) > ALARM


def test_a_cohort_of_fixed_size_is_caught(make_release, monkeypatch):
    """The mutation: the size is rounded in place of drawn."""
    monkeypatch.setattr(cohorts, "binomial", lambda lanes, counts, rate: [round(counts[0] * rate)])
    assert subset_p_value(lambda number: members(4, RATE, make_release(f"r{number}"))) < ALARM


def test_sizes_vary_as_binomials_do_and_every_user_is_drawn_alike(make_release):
    """300 cohorts of 500 users."""
    drawn = [members(500, RATE, make_release(f"c{number}")) for number in range(300)]
    sizes = np.array([len(cohort) for cohort in drawn])
    assert abs(sizes.mean() - 500 / 3) < 6 * np.sqrt(500 * 2 / 9 / 300)
    assert 0.6 < sizes.var() / (500 * 2 / 9) < 1.6
    times = np.bincount(np.concatenate(drawn), minlength=500)
    assert (
        stats.chisquare(np.append(times, 300 * 500 - times.sum()), np.append(np.full(500, 100), 100_000)).pvalue > ALARM
    )
    for cohort in drawn[:10]:
        assert (np.diff(cohort) > 0).all() and 0 <= cohort[0] and cohort[-1] < 500


def test_a_release_repeats_its_cohort(make_release):
    first = members(1000, RATE, make_release())
    assert members(1000, RATE, make_release()).tolist() == first.tolist()
    for other in (members(1000, RATE, make_release("other")), members(1000, RATE, make_release(), label="Label")):
        assert other.tolist() != first.tolist()


def test_users_with_the_same_word_are_told_apart(monkeypatch):
    """A first word of two bits: the order comes from later words."""
    real, calls = Lanes.words, []

    def few(self, index):
        calls.append(1)
        return real(self, index) >> np.uint64(62 if len(calls) == 1 else 0)

    monkeypatch.setattr(Lanes, "words", few)
    ids = np.random.default_rng(0).integers(0, 2**64, (50, 2), dtype=np.uint64)
    assert sorted(cohorts._shuffled(Lanes(bytes(32), ids)).tolist()) == list(range(50)) and len(calls) == 2


@pytest.mark.parametrize(("slack", "delta"), [(0, 0.2), (1, 2.756e-4), (3, 1.195e-6), (10, 2.136e-11), (30, 2.974e-16)])
def test_what_a_known_size_costs(slack, delta):
    """n = 2000, m = 400, epsilon 0.1: both directions (from c = 10 on the other one is worse); independent coins have 6e-27."""
    assert known_size_delta(2000, 400, 400 + 20 * slack, 0.1) == pytest.approx(delta, rel=1e-3)


def test_the_delta_is_that_of_drawing_users_one_by_one():
    """Against the law of what is seen, by its definition: s of n users without replacement, each taking part or not."""
    users, sample, size, epsilon = 60, 12, 30, 0.2
    seen = np.arange(size + 1)
    chance = stats.hypergeom(users, 1, size).pmf(1)  # that the user is asked
    q = sample / size
    others = stats.binom.pmf(seen, size - 1, q)  # who take part of the others, if the user is asked
    with_user = chance * others + (1 - chance) * stats.binom.pmf(seen, size, q)
    without = stats.binom.pmf(seen, size, q)
    both = [(with_user, without), (without, with_user)]
    exact = max(np.maximum(p - np.exp(epsilon) * r, 0).sum() for p, r in both)
    assert known_size_delta(users, sample, size, epsilon) == pytest.approx(exact, rel=1e-6)


def test_a_known_cohort_is_checked():
    budget = Budget(1, 1e-8)
    cohort = known_cohort(budget, 100_000, 2500)
    assert (cohort.size, cohort.rate, cohort.sampled) == (3000, Fraction(2500, 3000), Fraction(1, 40))
    assert cohort.rest.epsilon == 1 and 0.89e-8 < cohort.rest.delta <= 0.9e-8
    assert cohort.threshold == least_threshold(cohort.rest, cohort.sampled, "replace") == 6
    for arguments, said in (
        ((budget, 100_000, 2500, 10, "add-remove"), "give relation = 'replace', got 'add-remove'"),
        ((budget, 100_000, 2500, 9.9), "slack of a cohort of known size must be at least 10, got 9.9"),
        ((budget, 2900, 2500), "needs a cohort of 3000, more than the 2900 users"),
        ((Budget(0.1, 1e-11), 2000, 400), "has a delta of 2.1e-11 at epsilon = 0.1, more than a tenth of 1e-11"),
        ((Budget(0.1, 1e-10), 2000, 400), "has a delta of 2.1e-11 at epsilon = 0.1, more than a tenth of 1e-10"),
        ((budget, 0, 2500), "users must be an integer from 1 to 1000000000, got 0"),
        ((budget, 10, 2.5), "sample must be an integer"),
    ):
        with pytest.raises(ParameterError, match=said):
            known_cohort(*arguments)
    with pytest.raises(ParameterError, match="has a delta of 0.2 at epsilon = 0.1"):
        KnownCohort(2000, 400, Fraction(1), Budget(0.1, 1e-6))  # also by hand


def test_of_a_known_cohort_some_take_part(make_release):
    """3000 asked of 10,000, of whom 2500 take part on average (six standard deviations: 2e-9)."""
    cohort = known_cohort(BUDGET, 10_000, 2500)
    drawn = cohort.draw(make_release())
    assert len(drawn.asked) == len(set(drawn.asked.tolist())) == 3000 and set(drawn.members) <= set(drawn.asked)
    assert abs(len(drawn.members) - 2500) < 6 * np.sqrt(2500 / 6)
    assert drawn.threshold == cohort.threshold and drawn.plan.relation is Relation.REPLACE
    again = cohort.draw(make_release())
    assert again.members.tolist() == drawn.members.tolist() and again.asked.tolist() == drawn.asked.tolist()
    assert cohort.draw(make_release("other")).asked.tolist() != drawn.asked.tolist()
    words = drawn.guarantee().words()
    assert "(epsilon = 1, delta = 1e-06)" in words and "known size" in words and "users asked 3000" in words


def answers(cohort, items):
    """Each member with all of these items, twice over."""
    users = np.repeat(cohort.members, 2 * len(items))
    return contribution_batch(pa.array(users), pa.array(items * (2 * len(cohort.members))))


def test_answers_are_counted_with_one_item_of_each_member_and_scaled(make_release):
    """2000 of 20,000 are members: each of two items is chosen by half of them, up to six standard deviations."""
    tenth = Fraction(1, 10)
    for item_type, items in ((str, ["a", "b"]), (int, [7, 9])):
        cohort = draw_cohort(BUDGET, 20_000, tenth, make_release(), relation="replace")
        assert cohort.threshold == least_threshold(BUDGET, tenth, "replace")
        rows = cohort.count([answers(cohort, items)], item_type)
        assert rows.column("item").to_pylist() == items and sum(rows.column("sampled").to_pylist()) == len(
            cohort.members
        )
        assert all(abs(row["sampled"] - 1000) < 6 * np.sqrt(1000) for row in rows.to_pylist())
        assert rows.column("count").to_pylist() == [10.0 * sampled for sampled in rows.column("sampled").to_pylist()]
    assert cohort.guarantee().relation is Relation.REPLACE and cohort.guarantee().epsilon == 1


def test_items_of_fewer_members_than_the_threshold_stay_hidden(make_release):
    cohort = draw_cohort(BUDGET, 3000, RATE, make_release())
    few, enough = cohort.threshold - 1, cohort.threshold
    items = ["few"] * few + ["enough"] * enough
    batch = contribution_batch(pa.array(cohort.members[: few + enough]), pa.array(items))
    assert cohort.count([batch]).column("item").to_pylist() == ["enough"]
    empty = draw_cohort(BUDGET, 3000, RATE, make_release()).count([], int)
    assert empty.num_rows == 0 and empty.schema.names == ["item", "count", "noise_stddev", "sampled"]


def test_a_cohort_answers_once_and_nobody_else_does(make_release):
    cohort = draw_cohort(BUDGET, 3000, RATE, make_release())
    stranger = int(np.setdiff1d(np.arange(3000), cohort.members)[0])
    for user in (stranger, "u"):
        with pytest.raises(InputError, match="an answer is not of a member of the cohort"):
            cohort.count([contribution_batch(pa.array([user]), pa.array(["a"]))])
    cohort.count([answers(cohort, ["a"])])
    with pytest.raises(ParameterError, match="a second question needs a cohort of its own"):
        cohort.count([answers(cohort, ["b"])])


@pytest.mark.parametrize("arguments", [(0, RATE), (10, 0.3), (10, Fraction(1)), (True, RATE)])
def test_wrong_parameters_are_refused(make_release, arguments):
    with pytest.raises(ParameterError):
        draw_cohort(BUDGET, *arguments, make_release())
