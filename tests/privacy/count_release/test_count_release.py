"""Audits of Private Count Release: on neighbours, exactly where probabilities can be computed.

Each audit is then run on the mechanism with a known mistake, and must see it. What is sampled has fixed keys; over the
choice of the key, each such test fails with probability below 1e-7 (the limits are stated where they are), and the
mutations are caught with a probability above 0.999.
"""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scipy.special import logsumexp

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.filters import ZcdpFilter
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.bounding.steps import LimitPerItemStep
from headcount.mechanisms.count_release import rounds as count_rounds
from headcount.mechanisms.count_release.frames import (
    Frame,
    draw_cost,
    frame_of,
    threshold,
)
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.rounds import Level, Rounds, Target
from headcount.mechanisms.count_release.top_names import top_items
from headcount.mechanisms.counting.noisy import bounded_batches
from tests.privacy.count_release.frames import BOT, HUNDREDTH, NAMES, ONE, frame, law, neighbours

# --- one draw ---------------------------------------------------------------------------------------------------


def test_a_user_with_many_items_of_its_own_is_hidden():
    """T11: nobody, and one user with k_bar = 1000 items. Exact; the mistakes are seen at once."""
    alone = frame({name: 1 for name in (f"x{k}" for k in range(1000))}, 1000)
    far = threshold(ONE, 1000, HUNDREDTH, Relation.ADD_REMOVE)

    def named(far):
        return 1 - math.exp(law(alone, ONE, far)[BOT])

    assert 0.0098 < named(far) <= 0.01
    assert named(far - 1) == pytest.approx(0.0262, abs=0.0005)  # without the 1
    assert named(threshold(ONE, 1, HUNDREDTH, Relation.ADD_REMOVE)) == pytest.approx(0.909, abs=0.001)  # one for k_bar
    assert named(far - Fraction(2, 100)) > 0.01  # 2 % of a user less


def test_all_rounds_together_hide_that_user():
    """Without it nothing is ever found, so that the chance that anything is found must be at most delta. Exact."""
    plan = count_release(Zcdp(20, 1e-2), k_bar=100)
    alone = frame({f"x{k}": 1 for k in range(100)}, 100)
    levels = plan.release(frame({}, 100), bytes(32)).released.levels  # those of a run that finds nothing
    level, nothing = plan.level(plan.start_epsilon), 0.0
    for _ in levels:
        nothing += law(alone, level.epsilon, level.threshold)[BOT]
        level = plan.next_level(level)
    assert len(levels) > 10
    assert 0 < -math.expm1(nothing) <= len(levels) * float(plan.round_delta) < 1e-2


def draw_loss(before, after, k_bar, epsilon, far):
    """Of one draw, both ways: the mass of items that the other frame lacks, and the largest Renyi divergence of an order a
    on the rest, divided by a."""
    one, two = law(frame(before, k_bar), epsilon, far), law(frame(after, k_bar), epsilon, far)
    common = sorted(one.keys() & two.keys())
    bad = max(sum(math.exp(p) for item, p in law.items() if item not in common) for law in (one, two))
    p, q = (np.array([law[item] for item in common]) for law in (one, two))
    p, q = p - logsumexp(p), q - logsumexp(q)
    renyi = max(
        float(logsumexp(a * x + (1 - a) * y) / (a - 1) / a) for a in (1.01, 2, 8, 64) for x, y in ((p, q), (q, p))
    )
    return bad, renyi


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)], ids=str)
def test_one_draw_keeps_its_delta_and_its_rho(relation, epsilon):
    k_bar = 4
    far, rho = threshold(epsilon, k_bar, HUNDREDTH, relation), float(draw_cost(epsilon, relation))
    found = [draw_loss(*pair, k_bar, epsilon, far) for pair in neighbours(relation, k_bar)]
    assert max(bad for bad, _ in found) <= 0.01
    assert max(renyi for _, renyi in found) <= rho * (1 + 1e-9)
    assert max(bad for bad, _ in found) > 0 and max(renyi for _, renyi in found) > 0.1 * rho


def test_replaced_users_need_their_factors():
    """Neighbours at which both are tight; with the numbers for users that are added, both are exceeded.

    In D two users have a hundred items, in D' one of them has another hundred instead: all counts are 1 then, and the frame
    holds the new ones (which come first in the order of equals). And two far items that change places.
    """
    new, old = NAMES[:100], NAMES[-100:]
    before, after = dict.fromkeys(old, 2) | dict.fromkeys(new, 0), dict.fromkeys(old, 1) | dict.fromkeys(new, 1)
    swap = {"a": 1001, "b": 1000}, {"a": 1000, "b": 1001}
    for epsilon in (Fraction(1, 4), Fraction(1)):
        right, wrong = (
            threshold(epsilon, 100, HUNDREDTH, relation) for relation in (Relation.REPLACE, Relation.ADD_REMOVE)
        )
        assert 0.98 * 0.01 < draw_loss(before, after, 100, epsilon, right)[0] <= 0.01
        assert draw_loss(before, after, 100, epsilon, wrong)[0] > 0.0125
        cost, too_little = (float(draw_cost(epsilon, relation)) for relation in (Relation.REPLACE, Relation.ADD_REMOVE))
        assert 0.8 * cost < draw_loss(*swap, 2, epsilon, right)[1] <= cost
        assert draw_loss(*swap, 2, epsilon, right)[1] > 3 * too_little


def test_the_draws_of_the_rounds_have_that_law():
    """T15: chi-square of 1,500 rounds, each with a key of its own, bot among the candidates. It fails with probability 1e-9;
    an epsilon that is wrong by a half is caught."""
    data = frame(dict(zip("abcdef", (20, 19, 19, 16, 12, 9), strict=True)), 5)
    level = Level(Fraction(1, 4), Fraction(11), ONE, (ONE,), Fraction(0), Fraction(0))
    seen = dict.fromkeys([*"abcde", BOT], 0)
    for key in range(1500):
        rounds = Rounds(data, key.to_bytes(32, "little"), ZcdpFilter(Zcdp(1)), Target(ONE, ONE, 1))
        drawn = rounds._draw(level)
        seen[BOT if drawn is None else data.items[drawn.row].as_py()] += 1

    def p_value(epsilon):
        expected = law(data, epsilon, level.threshold)
        return stats.chisquare([*seen.values()], [1500 * math.exp(expected[item]) for item in seen]).pvalue

    assert data.base == 9 and min(seen.values()) > 5
    assert p_value(level.epsilon) > 1e-9
    assert p_value(Fraction(3, 8)) < 1e-9 and p_value(Fraction(1, 8)) < 1e-9


# --- the base stays ---------------------------------------------------------------------------------------------

B, C, D = NAMES[10], NAMES[20], NAMES[30]  # in the order of equals
WITHOUT = {"a": 1000, B: 500, C: 500, D: 500}
WITH = WITHOUT | {D: 501}


def released_in_two_rounds(data, item, base_after):
    """The probability that an item is drawn in two rounds with epsilon 1; the second has the base that is given."""
    far = threshold(ONE, 3, Fraction(1, 10**6), Relation.ADD_REMOVE)
    first, total = law(data, ONE, far), 0.0
    for drawn, p in first.items():
        if drawn == item:
            total += math.exp(p)
        elif drawn != BOT:
            left = {name for name in first if name not in (drawn, BOT)}
            second = law(data._replace(base=base_after), ONE, far, left)
            total += math.exp(p + second.get(item, -math.inf))
    return total


def test_a_base_that_is_computed_anew_gives_a_user_away():
    """T12: one user on d drives c out of the frame. Exact: without it, c is then named half of the time if the base is that
    of what is left of the frame, which is 0, and next to never if it stays."""
    with_user, without = frame(WITH, 3), frame(WITHOUT, 3)
    assert C in without.items.to_pylist() and C not in with_user.items.to_pylist()
    assert with_user.base == without.base == 500
    assert released_in_two_rounds(without, C, without.base) <= 2e-6
    assert released_in_two_rounds(without, C, 0) == pytest.approx(0.49, abs=0.02)
    assert released_in_two_rounds(with_user, C, 0) == 0


def found(data, keys):
    """In how many runs of two rounds or more, at epsilon 1, c is found."""
    far = threshold(ONE, 3, Fraction(1, 10**6), Relation.ADD_REMOVE)
    level = Level(ONE, far, Fraction(1), (Fraction(1),), Fraction(1, 8), Fraction(0))
    hits = 0
    for key in range(keys):
        budget = ZcdpFilter(Zcdp(1.25))  # for two rounds
        rounds = Rounds(data, key.to_bytes(32, "little"), budget, Target(ONE, ONE, 1))
        rounds.run(level)
        hits += C in rounds.counts()["item"].to_pylist()
    return hits


def test_the_rounds_keep_the_base(monkeypatch):
    """The same of the code: 60 runs find c with probability 1e-4 in all, and 10 times or more (of 30 expected) with the
    mistake, but for a chance of 1e-7."""
    without = frame(WITHOUT, 3)
    assert found(without, 60) == 0
    true = count_rounds.draw_excess

    def recomputed(users, base, epsilon, far):
        return true(users, base if len(users) == 3 else 0, epsilon, far)

    monkeypatch.setattr(count_rounds, "draw_excess", recomputed)
    assert found(without, 60) >= 10 and found(frame(WITH, 3), 60) == 0


# --- a user counts once -----------------------------------------------------------------------------------------


def test_one_user_who_repeats_an_item_is_not_seen(make_release):
    """T13: a million events of one user. And the mistake: a frame in which events count as users names the item."""
    events = contribution_batch(
        pa.array(["u"] * 4 + ["v", "w"]), pa.array(["secret"] * 4 + ["other"] * 2), pa.array([250_000] * 4 + [1, 1])
    )
    release = make_release()
    for cap in (None, 1000):
        assert count_release(Zcdp(1, 1e-6), max_per_item=cap).run([events], release).num_rows == 0
    assert top_items(Budget(1, 1e-6), 3).run([events], release).num_rows == 0
    plan = count_release(Zcdp(1, 1e-6), max_per_item=10**6)
    bounded = bounded_batches([events], (LimitPerItemStep(10**6),), release, "x")
    data = frame_of(bounded, plan.bound, 10, str)
    assert data.users.tolist() == [2, 1] and data.values.tolist() == [2, 10**6]
    by_events = Frame(data.items, data.values, data.values, 0)
    assert "secret" in plan.release(by_events, bytes(32)).counts["item"].to_pylist()


# --- noise of counts --------------------------------------------------------------------------------------------

ITEMS = 1200


def measured(relative_error=Fraction(1, 10**9)):
    """(errors, stddevs, precision of all, rho spent on counts) of one level with reduced noise, on very many equal items."""
    data = Frame(pa.array(np.arange(ITEMS)), np.full(ITEMS, 10**6), np.full(ITEMS, 10**6), 0)
    plan = count_release(Zcdp(4, 1e-4), noise_reduction=True)
    level = plan.level(Fraction(1, 32))
    budget = ZcdpFilter(plan.zcdp)
    rounds = Rounds(data, bytes(range(32)), budget, Target(relative_error, Fraction(3, 2), 1))
    rounds.run(level)
    counts = rounds.counts()
    rho = sum(spend.rho for spend in budget.ledger if spend.what == "count")
    return np.asarray(counts["bounded_count"]) - 10**6, np.asarray(counts["noise_stddev"]), level, rho


def off(error, stddev):
    """By how many of its own standard deviations the mean squared z-score is off 1 (normal noise)."""
    return abs(np.mean((error / stddev) ** 2) - 1) / math.sqrt(2 / len(error))


def test_the_mean_of_measurements_has_the_precision_that_was_paid_for(monkeypatch):
    """T16, with stopping disabled: variance 1 / precision (off by 6 of its deviations with probability below 1e-8), and a
    ledger that holds half of the precision of each. Measurements that share a lane are caught."""
    error, stddev, level, rho = measured()
    whole = sum(1 / sigma**2 for sigma in level.measured)
    assert len(error) == ITEMS and stddev == pytest.approx(float(whole) ** -0.5)
    assert abs(rho - ITEMS * whole / 2) < Fraction(8 * ITEMS, 2**100)
    assert off(error, stddev) < 6

    def shared(self, level):
        return np.repeat(true(self, level)[:1], len(level.measured), axis=0)

    true = count_rounds._RoundLanes.measurements
    monkeypatch.setattr(count_rounds._RoundLanes, "measurements", shared)
    assert off(*measured()[:2]) > 20


def test_measurements_end_when_the_target_is_met_and_only_they_are_paid_for():
    """The target is such that the fourth mean meets it if it is above the count, and the fifth in any case."""
    level = measured()[2]
    sums = np.cumsum([float(1 / sigma**2) for sigma in level.measured])
    relative_error = Fraction(1.5 * sums[3] ** -0.5 / 10**6)
    error, stddev, _, rho = measured(relative_error=relative_error)
    ends = np.abs(stddev[:, None] ** -2 - sums).argmin(axis=1)
    assert 0.3 < np.mean(ends == 3) < 0.7 and np.mean(ends == 3) + np.mean(ends == 4) == 1
    assert float(rho) == pytest.approx((stddev**-2.0).sum() / 2)
    assert (1.5 * stddev <= float(relative_error) * (error + 10**6) * (1 + 1e-12)).all()


@pytest.mark.parametrize("reduced", [False, True])
def test_no_two_draws_share_a_lane(monkeypatch, reduced):
    """Each lane of a run is of its own, and so is each between runs that differ in one user."""
    ids = []
    true = count_rounds._RoundLanes.of

    def recorded(self, drawn):
        ids.extend(map(tuple, drawn.tolist()))
        return true(self, drawn)

    monkeypatch.setattr(count_rounds._RoundLanes, "of", recorded)
    plan = count_release(Zcdp(0.5, 1e-6), noise_reduction=reduced)
    for more in (0, 1):
        users = np.array([10_000 // k + (more if k == 90 else 0) for k in range(1, 100)])
        plan.release(Frame(pa.array(np.arange(99)), users, users, 0), bytes(32))
    assert len(ids) > 200 and len(set(ids)) == len(ids)


def test_the_noise_of_a_count_covers_one_user_under_either_relation():
    """A count moves by at most 1, a sum by at most the cap, also if a user is replaced: exact Renyi divergence of discrete
    Gaussians of the level's sigma, at the cost that is charged. Noise for a cap of 1 on sums of up to 3 is caught."""
    for relation in Relation:
        plan = count_release(Zcdp(1, 1e-6), relation=relation, max_per_item=3)
        level = plan.level(Fraction(1, 2))
        for sigma, ok in ((float(3 * level.sigma), True), (float(level.sigma), False)):
            x = np.arange(-60 * int(sigma + 1), 60 * int(sigma + 1))
            logs = -(x**2) / (2 * sigma**2)
            p, q = (
                logs - logsumexp(logs),
                -((x - 3) ** 2) / (2 * sigma**2) - logsumexp(-((x - 3) ** 2) / (2 * sigma**2)),
            )
            worst = max(float(logsumexp(a * p + (1 - a) * q)) / (a - 1) / a for a in (1.5, 2, 8))
            charged = float(sum(1 / (2 * s**2) for s in level.measured))
            assert (worst <= charged * (1 + 1e-6)) == ok
            assert worst > 0.99 * charged
