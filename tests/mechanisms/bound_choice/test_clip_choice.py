"""The choice of the cap and of the bounds of counts and totals: what users keep, its sensitivity and its cost on neighbours,
exactly.

No sampling: chances of all candidates are computed on both neighbours. Mutations: a limit of what a user keeps that is left
out, what is kept divided by what the cap has left, losses that weigh full events against the sensitivity of a half, pairs of
a user and an item that count one each for the cap, and the form for added users where one is replaced.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import MOST_COUNT, Shard, one_shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.bound_choice import clip_choice as kept_module
from headcount.mechanisms.bound_choice.clip_choice import CAP_STEP, PARTS, ClipCandidate, ClipChoice, totals_share
from headcount.mechanisms.bounding.steps import ClipNormStep, LimitPerItemStep, bound_shard
from headcount.mechanisms.choice.exponential import gem_exponents, probabilities
from headcount.mechanisms.choice.run import choose_of

COST = Fraction(5)


def choice_of(
    relation: Relation = Relation.ADD_REMOVE, once: bool = False, noises: tuple[str, ...] = ("gaussian", "laplace")
) -> ClipChoice:
    """All candidates that are looked at, of both kinds of noise."""
    caps = (1,) if once else tuning.CAPS
    candidates = [
        ClipCandidate(r, c, noise, COST * r) for noise in noises for r in tuning.BOUNDS_OF_ESTIMATES for c in caps
    ]
    of_cap = None if once else Budget(0.7)
    parts = Budget(0.5), Budget(1), Budget(10, 1e-6)
    return ClipChoice(*parts, relation, tuple(candidates), tuning.NORMS_OF_TOTALS, caps, of_cap)


def shard_of(users: list[dict[str, int]]) -> Shard | None:
    rows = [(f"u{number}", item, count) for number, user in enumerate(users) for item, count in user.items()]
    if not rows:
        return None
    user, item, count = (list(column) for column in zip(*rows, strict=True))
    return one_shard([contribution_batch(pa.array(user), pa.array(item), pa.array(count, pa.int64()))])


def table_of(choice: ClipChoice, users: list[dict[str, int]], items: int = 3) -> list[int]:
    shard = shard_of(users)
    mine = [0] * choice.entries if shard is None else choice.user_table(shard)
    return [own + public for own, public in zip(mine, choice.items_table(items), strict=True)]


# What a user is worth.


def worth_by_hand(user: dict[str, int], r: int, c: int, noise: str) -> float:
    counts = [min(n, c) for n in user.values()]
    if noise == "laplace":
        return min(sum(counts), r)
    norm = math.isqrt(sum(n * n for n in counts) * 10**12) / 10**6
    return min(sum(counts) * min(1.0, r / max(norm, 1)), tuning.MOST_WORTH * r)


def cap_loss_by_hand(user: dict[str, int], step: int, cap: int) -> int:
    return sum(n > cap for n in user.values()) * PARTS // len(user) + step * CAP_STEP


USERS = [
    {"a": 1},
    {"a": 5, "b": 1},
    {"a": 2, "b": 2, "c": 2},
    {"a": 1000, "b": 1},
    {"a": 10**6},
    {f"i{n}": 1 for n in range(100)},
]


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("user", USERS, ids=range(len(USERS)))
def test_the_table_says_what_a_user_is_worth_to_each_bound(user, once):
    choice = choice_of(once=once)
    table = table_of(choice, [user])
    for each, found in zip(choice.candidates, table, strict=False):
        by_hand = worth_by_hand(user, each.bound, each.max_per_item, each.noise)
        assert by_hand - 1 / PARTS - 1e-5 * by_hand <= found / PARTS <= by_hand * (1 + 1e-5)  # the last digit of a root
    totals = [sum(min(n, cap) for n in user.values()) for cap in choice.caps]
    above = [int(total > norm) for total in totals for norm in tuning.NORMS_OF_TOTALS]
    losses = [cap_loss_by_hand(user, step, cap) for step, cap in enumerate(choice.caps)]
    assert table[len(choice.candidates) :] == [*above, *losses, 3]


def test_it_is_what_the_steps_keep_but_for_rounding():
    """The bounding that follows, on the same users: within a part of an event, where nothing is limited."""
    choice = choice_of(noises=("gaussian",))
    for user in USERS[:4]:
        table, shard = table_of(choice, [user]), shard_of([user])
        for each, found in zip(choice.candidates, table, strict=False):
            steps = (LimitPerItemStep(each.max_per_item), ClipNormStep(each.bound, 2))
            bounded = bound_shard(shard, steps, [bytes(32)] * 2, "L")
            real = int(bounded.count.sum()) / 2**bounded.bound.grid
            assert 0.998 * min(real, each.most) - 1 / PARTS <= found / PARTS <= 1.002 * real


def test_users_add_up_and_nobody_is_not_there():
    choice = choice_of()
    each = [table_of(choice, [user], 0) for user in USERS]
    assert table_of(choice, USERS, 7) == [sum(column) for column in zip(*each, strict=True)][:-1] + [7]
    assert table_of(choice, [], 7) == choice.items_table(7)
    shard = shard_of([{"a": 1}]).without_items(pa.array(["a"]))
    assert choice.user_table(shard) == [0] * choice.entries


@pytest.mark.seconds
@pytest.mark.parametrize("once", [False, True])
def test_users_who_are_alike_are_looked_at_once_and_count_each(once):
    """Caps cut nobody, some and all of these users; many have nothing but single events."""
    rng = np.random.default_rng(7)
    several = (1, 1, 1, 1, 2, 3, 4, 10, 11, 150, 2000)
    users = [{f"i{n}": 1 for n in range(rng.integers(1, 5))} for _ in range(60)]
    users += [{f"i{n}": int(rng.choice(several)) for n in range(rng.integers(1, 5))} for _ in range(120)]
    choice = choice_of(once=once)
    each = [table_of(choice, [user], 0) for user in users]
    assert table_of(choice, users, 7) == [sum(column) for column in zip(*each, strict=True)][:-1] + [7]


# The sensitivity, whatever a user has.

EXTREME = [
    {"a": 10**6},
    {f"i{n}": 1 for n in range(10_000)},
    {f"i{n}": 100 for n in range(10_000)},
    {f"i{n}": MOST_COUNT for n in range(200)},
    {"a": 2**62, "b": 1},
    {f"i{n}": 2**n for n in range(30)},
]


@pytest.mark.seconds
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("user", EXTREME, ids=range(len(EXTREME)))
def test_one_user_adds_no_more_than_the_stated_sensitivity(user, once):
    """Beside others, whose entries do not change by it: exact integers, none below 0."""
    choice = choice_of(once=once)
    for others in ([], USERS):
        before, after = table_of(choice, others), table_of(choice, [*others, user])
        moved = [new - old for new, old in zip(after, before, strict=True)]
        most = [each.most * PARTS for each in choice.candidates] + [1] * len(tuning.NORMS_OF_TOTALS) * len(choice.caps)
        of_caps = moved[len(most) : -1]
        assert all(0 <= step <= limit for step, limit in zip(moved[: len(most)], most, strict=True))
        assert min(of_caps) >= 0 and np.ptp(of_caps) <= PARTS and moved[-1] == 0


def test_no_user_is_worth_more_than_the_items_that_are_counted_let_it():
    """A norm of R on n items is at most R times the root of n of events, and c times n: which few items make the
    sensitivity."""
    choice = choice_of()
    for items in (1, 2, 3, 10, 63, 64, 65):
        table = table_of(choice, [{f"i{n}": 10**6 for n in range(items)}], items)
        worth = zip(choice.candidates, table, strict=False)
        assert all(parts <= choice.most(each, items) * PARTS * (1 + 1e-9) for each, parts in worth)
        gaussian = [each for each in choice.candidates if each.noise == "gaussian"]
        for each in gaussian:
            root = min(8, math.ceil(math.sqrt(items))) * each.bound
            assert choice.most(each, items) == min(root, each.max_per_item * items or root)


def test_a_user_of_very_many_items_reaches_the_stated_sensitivity():
    choice = choice_of()
    table = table_of(choice, [EXTREME[1]])
    low = [(parts, each) for parts, each in zip(table, choice.candidates, strict=False) if each.bound <= 8]
    assert all(parts == each.most * PARTS for parts, each in low)
    assert {each.most for _, each in low if each.noise == "gaussian" and each.bound == 1} == {tuning.MOST_WORTH}


def small_users() -> list[dict[str, int]]:
    """All users of two items with counts up to 4, and the two that are extreme."""
    counts = itertools.product((0, 1, 2, 4), repeat=2)
    made = [{name: n for name, n in zip("ab", pair, strict=True) if n} for pair in counts]
    return [user for user in made if user] + EXTREME[:2]


def few(relation: Relation) -> ClipChoice:
    """Six candidates and four norms of very different sensitivity."""
    choice = choice_of(relation)
    candidates = [ClipCandidate(r, c, noise, COST * r) for r, c, noise in SIX]
    return dataclasses.replace(choice, candidates=tuple(candidates), norms=(1, 3, 30, 1000), caps=(1, 3, 1000))


SIX = [
    (1, 1, "gaussian"),
    (2, 4, "gaussian"),
    (50, 1000, "gaussian"),
    (1, 1, "laplace"),
    (4, 2, "laplace"),
    (50, 9, "laplace"),
]


def logs(choice: ClipChoice, table: list[int]) -> list[np.ndarray]:
    """The logarithms of all chances, of all draws, in units of their epsilon."""
    parts = [(choice.counts_exponents(table), choice.counts_budget)]
    parts += [(choice.totals_exponents(table, place), choice.totals_budget) for place in range(len(choice.caps))]
    parts += [] if choice.cap_budget is None else [(choice.cap_exponents(table), choice.cap_budget)]
    return [np.log(np.maximum(probabilities(each), 1e-300)) / budget.epsilon for each, budget in parts]


def plus(one: list[int], other: list[int]) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]


def worst(choice: ClipChoice) -> float:
    """The largest range of log-ratios, over crowds that make other candidates the best, and all neighbours by one user."""
    each, found = [table_of(choice, [user], 0) for user in small_users()], 0.0
    for items, crowd in itertools.product((100, 10_000), (0, 1, 40)):  # as many as any of them has, or more
        base = plus(choice.items_table(items), [crowd * n for n in each[5]])
        after = [logs(choice, plus(base, user)) for user in each]
        before = [logs(choice, base)] if choice.relation is Relation.ADD_REMOVE else after
        for one, other in itertools.product(before, after):
            found = max(found, *(float(np.ptp(a - b)) for a, b in zip(one, other, strict=True)))
    return found


def sharp(losses, sensitivities, epsilon, one_sided, tau=None):
    """Without tau, which only blunts the worst cases."""
    return gem_exponents(losses, sensitivities, epsilon, one_sided, 0)


@pytest.mark.seconds
@pytest.mark.parametrize("relation", list(Relation))
def test_all_draws_have_the_range_of_their_epsilon_on_all_small_neighbours(relation, monkeypatch):
    """A range of epsilon is what the composition of all stages counts on, and implies epsilon-differential privacy."""
    assert worst(few(relation)) <= 1 + 1e-9
    monkeypatch.setattr(kept_module, "gem_exponents", sharp)
    assert 0.3 < worst(few(relation)) <= 1 + 1e-9


def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    def worth(candidates: list[ClipCandidate], totals: Any, norms: Any, spared: Any, users: Any) -> list[int]:
        by = totals if norms is None else norms
        left = [totals * np.minimum(1, each.bound / np.maximum(by, 1)) * spared for each in candidates]
        return [int((np.floor(kept * PARTS) * (1 if users is None else users)).sum()) for kept in left]

    monkeypatch.setattr(kept_module, "_worth", worth)


def the_cap_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept, times what the cap may have taken: a guess at what there was, which no limit holds for."""
    worth = kept_module._worth

    def more(candidates: list[ClipCandidate], totals: Any, norms: Any, spared: Any, users: Any) -> list[int]:
        return worth(candidates, totals, norms, 10 * spared, users)

    monkeypatch.setattr(kept_module, "_worth", more)


def whole_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def exponents(self: ClipChoice, table: list[int], candidates: Any = None) -> list[Fraction]:
        losses = [
            table[-1] * each.cost - Fraction(parts, PARTS) for each, parts in zip(self.candidates, table, strict=False)
        ]
        sensitivities = [self.misplaced * each.most for each in self.candidates]
        return sharp(losses, sensitivities, self.counts_budget.epsilon_fraction, True)

    monkeypatch.setattr(ClipChoice, "counts_exponents", exponents)


def items_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ClipChoice.user_table
    monkeypatch.setattr(ClipChoice, "user_table", lambda self, shard: [*table(self, shard)[:-1], len(shard.item)])


def events_above(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ClipChoice.user_table

    def by_events(self: ClipChoice, shard: Shard) -> list[int]:
        start, totals = len(self.candidates), shard.totals()
        above = [int(totals[totals > norm].sum()) for norm in self.norms] * len(self.caps)
        return [*table(self, shard)[:start], *above, *table(self, shard)[start + len(above) :]]

    monkeypatch.setattr(ClipChoice, "user_table", by_events)


def pairs_above(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_pairs(self: ClipChoice, whole: Shard, users: Any) -> list[int]:
        stands = np.repeat(1 if users is None else users, whole.rows_per_user())
        return [int(stands[whole.count > cap].sum()) * PARTS for cap in self.caps]

    monkeypatch.setattr(ClipChoice, "_cap_losses", by_pairs)


@pytest.mark.seconds
@pytest.mark.parametrize(
    "mutation", [unlimited, the_cap_undone, whole_events, items_of_users, events_above, pairs_above]
)
def test_what_would_cost_more_is_caught(mutation, monkeypatch):
    """Users of many items without a limit; a cap that is made good; events that count whole, and not a half; items that the
    users themselves have; events above a norm in place of the users who have them, and pairs above a cap."""
    monkeypatch.setattr(kept_module, "gem_exponents", sharp)
    mutation(monkeypatch)
    assert worst(few(Relation.ADD_REMOVE)) > 1.2


class Flattening(ClipChoice):
    """What a cap takes away is to be estimated, too."""

    flattens = True


@pytest.mark.parametrize("relation", list(Relation))
def test_the_form_for_added_users_is_for_them_alone(relation, monkeypatch):
    """Where caps are chosen with the bound, as of an aggregate: a user with few items of many events is replaced by one with
    many of one event, and one of many. It is then worth less to the first bound, and more to the second, by 1.3 times what the
    form for added users allows for."""
    asked = []
    monkeypatch.setattr(kept_module, "gem_exponents", lambda *given: asked.append(given[3]) or gem_exponents(*given))
    choice = few(relation)
    logs(choice, choice.items_table(1))
    assert asked == [relation is Relation.ADD_REMOVE]
    pair = tuple(ClipCandidate(1, cap, "gaussian", COST) for cap in (1000, 1))
    few_items, many = {f"i{n}": 1000 for n in range(64)}, {"a": 64, **{f"i{n}": 1 for n in range(128)}}
    choice = Flattening(*dataclasses.astuple(choice)[:2], choice.release_budget, relation, pair, ())
    first, second = (table_of(choice, [user])[:2] for user in (few_items, many))
    moved = [(a - b) / PARTS for a, b in zip(first, second, strict=True)]
    assert 1.28 * pair[0].most < moved[0] - moved[1] <= 2 * pair[0].most


def test_an_event_left_out_is_half_an_error(monkeypatch):
    """Forty events that the larger bound keeps, and the smaller leaves out, against noise that is larger by twenty in all: both
    losses are the same. At a fifth the smaller one would win, and the ten largest counts of real data miss the truth."""
    pair = tuple(ClipCandidate(r, 1, "laplace", Fraction(r)) for r in (1, 2))
    choice, seen = dataclasses.replace(choice_of(), candidates=pair), []
    monkeypatch.setattr(kept_module, "gem_exponents", lambda losses, *given: seen.append(losses) or losses)
    choice.counts_exponents(table_of(choice, [{"a": 1, "b": 1}] * 40, items=20))
    assert seen[0][0] == seen[0][1]


# What is drawn.


def test_a_few_users_who_do_very_much_do_not_raise_the_cap():
    """Two in a hundred users have ten thousand events on each of ten items, and all others five at most: the cap of the least
    loss is that of the others. By events, of which those few have nearly all, it would be the largest."""
    people = [{f"i{n % 30}": 1 + n % 5, f"i{n % 7}": 1} for n in range(2000)]
    choice = choice_of()
    for bots in (0, 40):
        table = table_of(choice, people + [{f"i{n}": 10_000 for n in range(10)}] * bots, 30)
        losses = choice.cap_exponents(table)
        assert choice.caps[losses.index(min(losses))] == 10


def test_a_clear_best_is_drawn_and_what_is_not_asked_for_is_not(make_release):
    """At epsilon 50 the best candidate has a chance above 1 - 1e-9."""
    users = Parts.of(shard_of([{"a": 3, "b": 3}] * 2000))
    rich = dataclasses.replace(choice_of(), counts_budget=Budget(50), totals_budget=Budget(50), cap_budget=Budget(50))
    chosen = choose_of(users, rich, make_release(), "L", rich.items_table(2))
    assert chosen.bound in (4, 8) and chosen.max_per_item == 3 and chosen.totals_bound >= 6
    totals = choose_of(users, rich, make_release(), "L", rich.items_table(0))
    assert totals[:3] == (0, 3, "") and totals.totals_bound >= 6
    counts = dataclasses.replace(rich, norms=(), totals_budget=None)
    assert choose_of(users, counts, make_release(), "L", counts.items_table(2)).totals_bound == 0
    assert choose_of(Parts.of(), rich, make_release(), "L", rich.items_table(2)).bound == 1


def test_what_it_costs_and_says():
    choice = choice_of()
    assert choice.budget == Budget(2.2)
    assert dataclasses.replace(choice, totals_budget=None, norms=()).budget == Budget(1.2)
    assert choice.details() == {
        "candidates for the counts": len(tuning.BOUNDS_OF_ESTIMATES) * len(tuning.CAPS) * 2,
        "for the totals": len(tuning.NORMS_OF_TOTALS),
    }
    assert [end.totals_bound for end in choice.ends()] == [1, 10**7]
    assert choice.parameters() != dataclasses.replace(choice, caps=(1, 7)).parameters()


def test_totals_get_more_precision_the_larger_their_norm_is_beside_all_counts():
    assert totals_share(1000, 10, 100, 0.2) == 0.2  # never less than they have
    shares = [totals_share(100, 4, norm, 0.2) for norm in (10, 100, 1000, 10_000, 10**7)]
    assert shares == sorted(shares) and shares[-1] == 0.7
    assert totals_share(112, 4, 1585, 0.2) == pytest.approx(0.51, abs=0.02)
    # Where it is not cut it is the least of both errors together.
    items, norm, totals = 112, 4.0, 1585.0

    def error(share: float) -> float:
        return 0.3 * totals / math.sqrt(share) + items * norm / math.sqrt(1 - share)

    best = totals_share(items, norm, totals, 0.0)
    assert error(best) < min(error(best - 0.02), error(best + 0.02))
