"""The number of users and of events: the choice of its bound on the worst neighbours, exactly, and the release it leads to."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.losses import Laplace
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import only_domain
from headcount.mechanisms.bound_choice import one_total
from headcount.mechanisms.bound_choice.one_total import TotalChoice
from headcount.mechanisms.bounding.clipping import LEAST_STEPS
from headcount.mechanisms.bounding.steps import LimitItemsStep
from headcount.mechanisms.choice.exponential import em_exponents, probabilities
from headcount.mechanisms.choice.norm_bins import in_bins, tails
from headcount.mechanisms.counting.noisy import bounded_batches
from headcount.mechanisms.counting.users import EVERYBODY, all_as_one
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.histogram.fixed import HistogramMechanism, bounded_histogram
from headcount.mechanisms.histogram.total import TotalPlan, total
from headcount.mechanisms.randomness.keys import Release

EPSILON = 0.18
CHOICE = TotalChoice(Budget(EPSILON), Budget(0.72), Relation.REPLACE)
# Users by their events; with those of others, one of 0, 7, 10^4 or 10^9 and more is added, removed or replaced.
OTHERS = [[], [1], [7] * 40, [1, 2, 3, 50, 1000, 10**6], [10**9] * 3]
EVENTS = [None, 7, 10**4, 10**9]


def _table(events: list[int]) -> list[int]:
    return in_bins(tuning.BOUNDS_OF_TOTAL, np.searchsorted(tuning.BOUNDS_OF_TOTAL, np.array(events, dtype=np.int64)))


def _worst(choice: TotalChoice) -> float:
    """The largest log ratio of any bound's chance between any two of the neighbours."""
    worst = 0.0
    for others in OTHERS:
        near = [_table([*others, *([] if own is None else [own])]) for own in EVENTS]
        logs = [np.log(probabilities(choice.exponents(table))) for table in near]
        worst = max(worst, *(float(np.abs(one - other).max()) for one in logs for other in logs))
    return worst


def _by_rank(self, table):
    """The mutation: the distance to a rank, which rises for some bounds and falls for others, taken for one that only rises."""
    return em_exponents([abs(above - 3) for above in tails(table)], 1, self.budget.epsilon_fraction)


def _weights_of_data(self, table):
    """The mutation: bounds are weighted down only beyond the largest user."""
    found = em_exponents(tails(table), 1, self.budget.epsilon_fraction)
    return [x + (w if above == 0 else 0) for x, w, above in zip(found, one_total.WEIGHTS, tails(table), strict=True)]


@pytest.mark.parametrize("mutant", [None, _by_rank, _weights_of_data])
def test_the_choice_keeps_epsilon_on_the_worst_neighbours_of_both_relations(mutant, monkeypatch):
    """All pairs of neighbours, one user more or less and one replaced: exact, and tight to a thousandth."""
    if mutant is not None:
        monkeypatch.setattr(TotalChoice, "exponents", mutant)
        assert _worst(CHOICE) > 1.5 * EPSILON
    else:
        assert 0.999 * EPSILON < _worst(CHOICE) <= EPSILON + 1e-12


def _batch(events: list[int]) -> pa.RecordBatch:
    """Users with so many events, in part on an item of their own."""
    user = np.repeat(np.arange(len(events)), 2)
    count = np.array([[n - n // 3, n // 3] for n in events], dtype=np.int64).ravel()
    item = np.where(np.arange(len(user)) % 2 == 0, "tea", "water")
    return contribution_batch(pa.array(user), pa.array(item), pa.array(count))


@pytest.mark.parametrize("relation", list(Relation))
def test_parts_are_within_the_whole_and_under_its_relation(relation):
    made = total(Budget(1, 1e-6), relation=relation)
    promise = made.guarantee()
    assert (promise.epsilon, promise.delta, promise.relation) == (1, 0, relation)
    assert sum(step.epsilon for step in promise.mechanisms) == pytest.approx(1) and len(promise.mechanisms) == 4
    with pytest.raises(ParameterError):
        dataclasses.replace(made, budget=Budget(0.99))
    with pytest.raises(ParameterError, match="relation"):
        TotalPlan(Budget(1), next(r for r in Relation if r is not relation), None, str, made.users, None)


def _loss(made: HistogramMechanism, one: pa.RecordBatch, other: pa.RecordBatch, release: Release) -> Fraction:
    """The largest loss of the noise between what the mechanism's own bounding leaves of two users; one may not be there."""
    sums = []
    for batch in (one, other):
        held = only_domain(batch, made.domain)
        bounded = bounded_batches([held], made.steps, release, "l") if held.num_rows else []
        found = dict.fromkeys(made.domain.names.to_pylist(), 0)
        for rows in bounded:
            found |= dict(zip(rows.column("item").to_pylist(), rows.column("count").to_pylist(), strict=True))
        sums.append(found)
    assert made.plan.kind == "laplace" and made.plan.grid == made.plan.bound.grid
    return sum(abs(sums[0][name] - sums[1][name]) for name in sums[0]) / made.plan.scale


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("bound", [None, 1, 7, 1000])
def test_the_noise_is_for_what_one_user_can_do(relation, bound, make_release):
    """Users of 1 to 10^9 events, or none, added and replaced: exact, and tight. Of two that are exchanged one leaves with its
    part and one comes with its own, which moves the sum by no more than the larger of them. So one noise is for both relations:
    scale 1 / epsilon for the users, and the bound / epsilon for the events."""
    made = total(Budget(1), relation=relation)
    part = made.users
    if bound is not None:
        auto = made.events.auto
        chosen = auto.choice.chosen(bound)
        part = HistogramMechanism("t", auto.steps(chosen), auto.decided(chosen).plan, EVERYBODY, str)
    plan = part.plan
    people = [all_as_one(_batch([] if own is None else [own])) for own in (None, 1, 3, 7, 1000, 10**9)]
    losses = [_loss(part, one, other, make_release()) for one in people for other in people]
    assert max(losses) == Budget(plan.epsilon).epsilon_fraction
    assert float(plan.scale / 2**plan.grid) == pytest.approx((bound or 1) / plan.epsilon)
    ((laplace, number),) = plan.losses().parts
    assert (laplace.steps, number) == ((bound or 1) << plan.grid, 1) and laplace.epsilon >= max(losses)
    assert laplace.epsilon == pytest.approx(plan.epsilon)


def test_what_is_promised_before_the_bound_is_chosen_covers_every_bound():
    """Steps of the grid only raise the curve that stands for all of them, and a bound has no fewer than it was made for."""
    auto = total(Budget(1), relation=Relation.REPLACE).events.auto
    _, (promised, number) = auto.guarantee().losses.parts
    assert number == 1 and promised == Laplace.in_more_steps(auto.release_budget.epsilon, LEAST_STEPS)
    for bound in tuning.BOUNDS_OF_TOTAL:
        plan = auto.decided(auto.choice.chosen(bound)).plan
        assert plan.losses().parts[0][0].steps >= LEAST_STEPS


def test_two_items_need_twice_the_noise_where_users_are_replaced(make_release):
    """One who has all on the one item, replaced by one who has all on the other: the noise of one item would cost twice."""
    tea, water = (contribution_batch(pa.array(["u"]), pa.array([item]), pa.array([99])) for item in ("tea", "water"))
    for domain, worst in ((["tea"], 1), (["tea", "water"], 2)):
        made = bounded_histogram(Budget(0.5), domain, bound=7, relation=Relation.REPLACE)
        assert _loss(made, tea, water, make_release()) == Fraction(1, 2)
        one = bounded_histogram(Budget(0.5), ["tea"], bound=7, relation=Relation.REPLACE)
        assert _loss(dataclasses.replace(made, plan=one.plan), tea, water, make_release()) == Fraction(worst, 2)
        gaussian = bounded_histogram(Budget(0.5, 1e-6), domain, bound=7, relation=Relation.REPLACE, noise="gaussian")
        plain = bounded_histogram(Budget(0.5, 1e-6), ["tea"], bound=7, noise="gaussian").plan
        assert float(gaussian.plan.scale / 2**gaussian.plan.grid) == pytest.approx(
            math.sqrt(worst) * float(plain.scale / 2**plain.grid), rel=1e-3
        )
        assert gaussian.plan.losses().mu == pytest.approx(plain.losses().mu, rel=1e-3)


def test_a_user_with_all_events_is_no_more_than_the_bound_and_one_user(make_release):
    """One user of 10^9 events beside 500 of one: at a bound of 3 the number of events moves by 3. Noise of scale 0.03 is 0 but
    with a chance of 1e-14. What lets a user's events through is refused before noise is drawn."""
    for events, wanted in (([1] * 500, (500, 500)), ([1] * 500 + [10**9], (501, 503))):
        rows = total(Budget(1000), bound=3).run([_batch(events)], make_release()).to_pylist()
        assert [(row["of"], row["bound"]) for row in rows] == [("users", 1), ("events", 3)]
        assert tuple(row["bounded_count"] for row in rows) == wanted
    made = total(Budget(1), of="users")
    broken = dataclasses.replace(made, users=dataclasses.replace(made.users, steps=(LimitItemsStep(1),)))
    with pytest.raises(InputError, match="bound"):
        broken.run([_batch([5, 7])], make_release())


def test_given_items_count_alone(make_release):
    """Users without an event on them, and events on others, count for nothing."""
    made = total(Budget(1000), domain=["water"], bound=100)
    users, events = made.run([_batch([1, 2, 3, 9])], make_release()).to_pylist()
    assert (users["bounded_count"], events["bounded_count"]) == (2, 4)


def _laws(users: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    return {
        "seven each": np.full(users, 7),
        "geometric": random.geometric(0.1, users),
        "lognormal": np.ceil(random.lognormal(1.5, 1.2, users)).astype(int),
        "Pareto": np.ceil(random.pareto(1.5, users) * 3 + 1).astype(int),
    }


@pytest.mark.parametrize(("law", "users"), [(law, n) for law in _laws(1) for n in (1000, 50_000)])
def test_a_chosen_bound_is_near_the_best_in_hindsight(law, users):
    """Exact over all bounds: the root mean squared error, of what is cut off and of the noise, at epsilon 1 for events alone,
    is at most four times that of the best bound in hindsight, for which all epsilon were left. (By the choices for a histogram,
    quantile-gem and quantile-rank, it is ten to thousands of times as much.)"""
    events = _laws(users)[law]
    choice = total(Budget(1), of="events").events.auto.choice
    chance = probabilities(choice.exponents(_table(events.tolist())))
    cut = np.array([np.maximum(events - bound, 0).sum() for bound in tuning.BOUNDS_OF_TOTAL], dtype=float)
    squared = cut**2 + 2 * (np.array(tuning.BOUNDS_OF_TOTAL, dtype=float) / 0.8) ** 2
    best = min(c**2 + 2 * float(bound) ** 2 for c, bound in zip(cut, tuning.BOUNDS_OF_TOTAL, strict=True))
    assert math.sqrt(float(chance @ squared)) < 4 * math.sqrt(best)


def test_intervals_hold_the_truth(make_release):
    """100 releases of 300 users: the number of users is in 95 % of its intervals or more, whose ends are rounded, and that of
    events is no less than `low` in 97.5 % or more. Fewer than 81 and 86 of 100 have a chance below 2e-7 each; intervals of half
    the width would hold some 78."""
    events = _laws(300)["lognormal"]
    made, batch = total(Budget(1)), _batch(events.tolist())
    inside = above = 0
    for number in range(100):
        users, found = made.run([batch], make_release(f"r{number}")).to_pylist()
        inside += users["low"] <= 300 <= users["high"]
        above += found["low"] <= events.sum()
        assert found["high"] >= found["bounded_count"] >= found["low"] or found["bounded_count"] < 0
    assert inside >= 81 and above >= 86


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"of": "rows"}, "of must be"),
        ({"of": []}, "of must name users, events or both"),
        ({"of": ["users", "users"]}, "each once"),
        ({"of": "users", "bound": 3}, "a bound is for the events"),
        ({"bound": 0}, "bound must be"),
    ],
)
def test_wrong_parameters_are_named(given, said):
    with pytest.raises(ParameterError, match=said):
        total(Budget(1), **given)
