"""The losses of strategies and items per user on their worst neighbours: exact scores, and what they catch.

No sampling: each test computes the losses of all candidates on both neighbours. The neighbours put every item at the ramp of
the loss, where it is steepest. What is drawn by them is audited in `test_limited`.
"""

import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions import candidates, expected_weights, scored
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.candidates import StrategyCandidate
from headcount.mechanisms.partitions.scored import PartitionChoice


@functools.cache
def choice_of(relation):
    return auto_partitions(Budget(2, 1e-8), relation=relation).choice.scored  # by a 20th of epsilon


def choice_among(candidates, relation=Relation.ADD_REMOVE):
    """The losses of an automatic selection for these candidates, (strategy, items, threshold[, worth])."""
    choice = choice_of(relation)
    made = [
        StrategyCandidate(strategy, items, threshold << 10, *rest) for strategy, items, threshold, *rest in candidates
    ]
    return dataclasses.replace(choice, candidates=tuple(made))


def table(choice, *kinds):
    """The table of data in which each kind, some users by their items, occurs a number of times.

    Entries add up, so a thousand equal users are one user's entries a thousandfold.
    """
    chunks = []
    for times, *users in kinds:
        pairs = [(f"u{u}", item) for u, items in enumerate(users) for item in items]
        rows = {"user": [user for user, _ in pairs], "item": [item for _, item in pairs]}
        shard = gather(chunk for _, chunk in split_by_user(pa.RecordBatch.from_pydict(rows), 1))
        for _, chunk in choice.item_chunks(shard, 1):
            columns = unpack(chunk)[0]
            chunks.append(pack(columns | {"users": pa.array(np.asarray(columns["users"]) * times)}))
    return choice.item_table(chunks)


def moves(choice, before, after):
    """By how many sensitivities each loss moves."""
    return [
        Fraction(a - b) * choice.unit(c) / choice.sensitivity(c)
        for b, a, c in zip(before, after, choice.candidates, strict=True)
    ]


def names(prefix, number):
    return [f"{prefix}{n}" for n in range(number)]


def alone(prefix, number):
    """As many users, each with one of these items."""
    return [[name] for name in names(prefix, number)]


def add_remove():
    """One more user of 1024 items, each of which a thousand users of one item have: in the middle of both thresholds."""
    choice = choice_among(
        [("gaussian", 2, 10**6), ("truncated-geometric", 1, 1000), ("sips", 1024, 1000, Fraction(4, 5))]
    )
    data = [(1000, *alone("x", 1024)), (13_995, names("y", 1024))]
    return choice, table(choice, *data), table(choice, *data, (1, names("x", 1024)))


def replace():
    """A user of 1024 items that count where one item does is replaced by one whose items count where all do."""
    choice = choice_among(
        [("gaussian", 2, 10**6), ("truncated-geometric", 1, 1000), ("sips", 1024, 1000, Fraction(4, 5))],
        Relation.REPLACE,
    )
    data = [(1000, *alone("x", 1024)), (13_995, names("y", 1024))]
    return choice, table(choice, *data, (1, names("x", 1024))), table(choice, *data, (1, names("y", 1024)))


def test_one_user_moves_no_loss_by_more_than_its_sensitivity():
    choice, before, after = add_remove()
    moved = moves(choice, before, after)
    assert max(moved) == 1 and min(moved) >= 0  # scores rise only: what the one-sided form needs
    choice, before, after = replace()
    assert max(map(abs, moves(choice, before, after))) == 1


@pytest.mark.parametrize("items", [1, 2, 3, 5, 7, 31, 100, 1000])
@pytest.mark.parametrize("strategy", ["gaussian", "sips", "law"])
@pytest.mark.parametrize("more", [0, 1, 4, 1000])
def test_a_user_of_any_size_moves_no_loss_by_more_than_its_sensitivity(items, strategy, more):
    """Every item of the user is in the middle of the ramp before it comes."""
    choice = choice_among([(strategy, items, 50)])
    own = names("x", items + more)
    data = [(50, *alone("x", len(own)))]
    (moved, *_) = moves(choice, table(choice, *data), table(choice, *data, (1, own)))
    assert 0.999 < moved <= 1


def test_rounding_shares_to_nearest_is_caught(monkeypatch):
    """2**30 / 5 is rounded up by that: a user of five items, three of which count, would add more than three."""
    choice = choice_among([("gaussian", 3, 50)])
    own = names("x", 5)

    def nearest(items, by_curve):
        users, _, *weights = exact(items, by_curve)
        return users, round(2**30 / items), *weights

    exact = expected_weights._of_user
    monkeypatch.setattr(expected_weights, "_of_user", nearest)
    data = [(50, *alone("x", len(own)))]
    (moved, *_) = moves(choice, table(choice, *data), table(choice, *data, (1, own)))
    assert moved > 1


def test_sensitivities_without_the_root_of_the_items_are_caught(monkeypatch):
    monkeypatch.setattr(
        PartitionChoice,
        "sensitivity",
        lambda self, c: c.worth * (1 << 10) * (1 if c.weighed else c.items) / c.threshold,
    )
    assert max(moves(*add_remove())) > 2


def test_a_ramp_of_half_the_width_is_caught(monkeypatch):
    worth = scored._worth
    monkeypatch.setattr(scored, "_worth", lambda *args: 2 * worth(*args))
    choice, before, after = add_remove()
    assert max(moves(choice, before, after)) > 1


SMALL = [
    StrategyCandidate(*each)
    for each in (
        ("laplace", 1, 512),
        ("weighted-gaussian", 2, 700),
        ("sips", 2, 400),
        ("sips", 3, 512),
        ("sips", 3, 1536),
    )
]


SMALL_CURVES = [
    StrategyCandidate("law", items, threshold, rounds=rounds)
    for items, threshold, rounds in ((1, 512, 1), (2, 700, 1), (2, 400, 3), (3, 512, 3), (3, 1536, 3))
]


def small_moves(candidates=SMALL):
    """The moves of all scores, for every data set of up to three users of up to three items, and one user more.

    Thresholds are 1/2 to 3/2, so that items lie below the ramp, on it and beyond.
    """
    choice = dataclasses.replace(choice_among([("sips", 2, 1)]), candidates=tuple(candidates))
    kinds = [subset for size in (1, 2, 3) for subset in itertools.combinations("abc", size)]

    @functools.cache
    def scores(users):
        return table(choice, *((users.count(kind), kind) for kind in sorted(set(users))))

    for number in range(4):
        for users in itertools.combinations_with_replacement(kinds, number):
            before = scores(users) if users else [0] * len(candidates)
            for user in kinds:
                yield moves(choice, before, scores(tuple(sorted((*users, user), key=kinds.index))))


@pytest.mark.parametrize("curves", [False, True])
def test_every_small_neighbour_moves_each_score_up_by_its_sensitivity_at_most(curves):
    moved = list(zip(*(small_moves(SMALL_CURVES if curves else SMALL)), strict=True))
    assert min(map(min, moved)) == 0 and max(map(max, moved)) <= 1
    assert min(map(max, moved)) > 0.65  # three items do not fill every ramp
    beyond = {move for each in moved[2:] for move in each if 0 < move < 0.5}
    assert beyond  # what comes back in rounds is among the cases


def test_giving_back_more_than_a_user_spends_is_caught(monkeypatch):
    monkeypatch.setattr(candidates, "_NOISE", candidates._NOISE._replace(back=9))
    assert max(max(each) for each in small_moves()) > 1


def test_others_that_are_taken_off_in_place_of_left_out_are_caught(monkeypatch):
    """Less what users of one item add: losses would move both ways, which the one-sided form does not allow."""
    worth = scored._worth

    def less(candidate, sums, step):
        alone = int((sums.roots[:, step] - sums.others[:, step]).sum()) << 10
        return worth(candidate, sums, step) - (3 * alone if candidate.in_rounds else 0)

    monkeypatch.setattr(scored, "_worth", less)
    assert min(min(each) for each in small_moves()) < 0


def test_large_thresholds_are_compared_in_wide_integers():
    """Beyond 2**20 the ramp no longer fits 64 bits: the result is the same as in exact fractions."""
    choice = choice_among([("gaussian", 10, 3 << 20)])
    data = [(2 << 20, ["a", "b"]), (3 << 20, ["b"]), (1 << 20, ["c"]), (7, names("d", 30) + ["a"])]
    got = table(choice, *data)[0] * choice.unit(choice.candidates[0])
    sums = {"a": (2 << 20) + Fraction(7 * 10 * ((1 << 30) // 31), 1 << 30), "b": 5 << 20, "c": 1 << 20}
    t = 3 << 20
    assert got == sum(min(Fraction(7, 4), max(0, Fraction(h) / t - Fraction(1, 4))) for h in sums.values())


def test_sums_of_very_many_users_are_exact():
    """Two thousand million users of two items: what comes back in rounds needs more than 64 bits."""
    choice = choice_among([("sips", 4, 16)])
    got = table(choice, (2 << 30, ["a", "b"]))[0] * choice.unit(choice.candidates[0])
    others = Fraction((2 << 30) * math.isqrt((1 << 60) // 8), 1 << 30)
    assert got == 2 * (Fraction(7, 4) + Fraction(1, 4) * (others / 16 - 2))


@pytest.mark.parametrize("threshold", [10_000, 1 << 19, 3 << 20])
def test_sums_over_many_items_do_not_wrap(threshold):
    """2,000 items on the ramp: their sum has more than 64 bits, and one user of all of them moves it by 1."""
    choice = choice_among([("gaussian", 2000, threshold)])
    data = [(threshold, *alone("x", 2000))]
    before, after = table(choice, *data), table(choice, *data, (1, names("x", 2000)))
    assert before[0] > 2**63 and before[0] * choice.unit(choice.candidates[0]) == 1500
    assert moves(choice, before, after)[0] == 1


@pytest.mark.parametrize("curves", [False, True])
def test_the_table_is_what_its_definition_says(curves):
    random = np.random.default_rng(8)
    users = [[f"i{i}" for i in set(random.zipf(1.5, size) % 60)] for size in random.integers(1, 90, 400)]
    ways = [("laplace", 1, 9), ("weighted-gaussian", 5, 4), ("sips", 5, 4), ("sips", 30, 3)]
    if curves:
        ways = [("laplace", 1, 9), ("law", 1, 9), ("law", 5, 4), ("law", 5, 4, Fraction(1), 3)]
        ways.append(("law", 30, 3, Fraction(1), 3))
    choice = choice_among(ways)
    for candidate, score in zip(choice.candidates, table(choice, (1, *users)), strict=True):
        k, t = candidate.items, candidate.threshold / 1024
        # Laplace noise on one item of each user has the shape of curves, beside which it stands.
        first, end, back, part = (1 / 2, 7 / 4, 3 / 8, 1 / 2) if curves or k == 1 else (1 / 4, 2, 1 / 4, 1)
        sums: dict[str, float] = {}
        others: dict[str, float] = {}
        for items in users:
            d = len(items)
            f = min(1, k / d) / (min(d, k) ** (1 / 4 if curves else 1 / 2) if candidate.weighed else 1)
            for item in items:
                sums[item] = sums.get(item, 0) + f
                others[item] = others.get(item, 0) + f * (part * (1 - 1 / d) if d <= k else 1)
        worth = sum(min(end - first, max(0, h / t - first)) for h in sums.values())
        if candidate.in_rounds:
            worth += back * sum(max(other / t - end, 0) for other in others.values())
        assert float(score * choice.unit(candidate)) == pytest.approx(worth, rel=1e-3)


def test_laws_and_noise_which_weigh_differently_are_no_choice():
    """Scored by the weights of curves, a candidate of noise would move by more than its sensitivity."""
    with pytest.raises(ParameterError, match="weigh items differently"):
        choice_among([("laplace", 1, 20), ("law", 3, 50), ("sips", 3, 50)])
    assert choice_among([("laplace", 1, 20), ("law", 3, 50)]).by_curve  # of one item both weigh the same


def test_the_worth_of_a_candidate_scales_its_score_and_its_sensitivity():
    choice = choice_among([("sips", 4, 16)])
    half = dataclasses.replace(choice.candidates[0], worth=Fraction(1, 2))
    assert choice.unit(half) * 2 == choice.unit(choice.candidates[0])
    assert choice.sensitivity(half) * 2 == choice.sensitivity(choice.candidates[0])


@pytest.mark.parametrize("relation", list(Relation))
def test_candidates_are_public_and_have_the_thresholds_of_their_last_rounds(relation):
    made = auto_partitions(Budget(1, 1e-8), relation=relation)
    choice = made.choice
    assert choice.ranges == (0.015, 0.05) and (choice.budget.epsilon, choice.budget.delta) == (0.065, 0)
    assert len(choice.candidates) == 26  # three rounds of 10,000 items would have too many states
    assert choice.limits[0] == 1 and choice.limits[-1] == 10_000
    assert {(c.strategy, c.rounds) for c in choice.candidates} == {("law", 1), ("law", 3)}
    for candidate in choice.candidates[:9]:
        decided = made.decided(candidate.chosen)
        last = decided.rounds[-1].plan
        half = 0.5 / 2**last.grid  # as curves have steps
        assert candidate.threshold / 1024 == pytest.approx(float(last.threshold_in_counts) - half, rel=1e-3)
        assert len(decided.rounds) == candidate.rounds
        assert (decided.guarantee.epsilon, decided.guarantee.delta) == (1, 1e-8)


def test_one_round_leaves_no_rounds_to_choose():
    assert {c.rounds for c in auto_partitions(Budget(1, 1e-8), rounds=1).choice.candidates} == {1}
