"""Audits of the debiased count (Liu et al., ICML 2023, Algorithm 5): what one user moves, and what both noises make of it.

The estimate is post-processing of the noisy totals and the noisy number of users, so these are what is audited.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import only_domain
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.noisy import add_noise, bounded_batches
from headcount.mechanisms.counting.sums import merge_sums
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.papers.debiased import EVERYBODY_STEPS, CountPlan, debiased_count, one_row_per_user

ITEMS = [f"i{k}" for k in range(6)]
OTHERS = {"v": {"i0": 5, "i1": 1}, "w": {"elsewhere": 9}, "x": {"i5": 2}}
# One user's whole data: nothing of the items, one event, far too many, on one or many items, and much besides.
SOMEBODY = [
    {"elsewhere": 50, "nowhere": 1},
    {"i0": 1},
    {"i0": 10**6, "elsewhere": 3},
    {item: 10**6 for item in ITEMS},
    {item: 1 + k for k, item in enumerate(ITEMS[3:])},
    {item: 1 for item in ITEMS[:3]} | {f"own {k}": 1 for k in range(500)},
    *(dict.fromkeys(ITEMS[:size], 10**6) for size in range(1, 6)),
    *(dict.fromkeys(ITEMS[-size:], 10**6) for size in range(1, 6)),
]


def _batches(data: dict[str, dict[str, int]]) -> list[pa.RecordBatch]:
    """Two batches, with the rows of each user in both, so that a user must be told again in the second."""
    rows = [(user, item, count) for user, items in data.items() for item, count in items.items()]
    halves = [[(user, item, count) for user, item, count in rows], [(user, "again", 1) for user in data]]
    return [contribution_batch(*(pa.array(column) for column in zip(*half, strict=True))) for half in halves if half]


def _exact(plan: CountPlan, data: dict[str, dict[str, int]], release) -> tuple[np.ndarray, int]:
    """The capped totals and the number of users, by the steps of the mechanism, without the noise."""
    batches = _batches(data)
    totals = dict.fromkeys(plan.items, 0)
    for bounded in bounded_batches([only_domain(batch, plan.items) for batch in batches], plan.steps, release, "A"):
        for row in bounded.to_pylist():
            totals[row["item"]] += row["count"]
    (users,) = bounded_batches([one_row_per_user(batch) for batch in batches], EVERYBODY_STEPS, release, "B")
    return np.array(list(totals.values())), sum(users.column("count").to_pylist())


@pytest.mark.parametrize("cap", [1, 4])
@pytest.mark.parametrize("most", [1, 2, 4, 6])
def test_one_user_moves_the_totals_and_the_number_of_users_as_calibrated(make_release, cap, most):
    """The largest distance of these neighbours is the one that the noise is for: no more, and no less would do."""
    release = make_release()
    plan = debiased_count(Budget(1), ITEMS, max_per_item=cap, max_items=most)
    without, users = _exact(plan, OTHERS, release)
    found = [_exact(plan, OTHERS | {"u": somebody}, release) for somebody in SOMEBODY]
    assert all(more == users + 1 for _, more in found)
    added = [totals - without for totals, _ in found]
    assert all((0 <= moved).all() and moved.max() <= cap for moved in added)
    replaced = [a - b for a in added for b in added]
    for relation, distances in ((Relation.ADD_REMOVE, added), (Relation.REPLACE, replaced)):
        bound = debiased_count(
            Budget(1), ITEMS, max_per_item=cap, users=9, max_items=most, relation=relation
        ).noise.bound
        squared = max(int((moved**2).sum()) for moved in distances)
        most_l1 = max(int(np.abs(moved).sum()) for moved in distances)
        assert (most_l1, squared) == (bound.l0 * cap, bound.l0 * cap**2)


def test_a_missing_cap_and_a_user_who_counts_once_per_batch_are_caught(make_release):
    release, plan, newcomer = make_release(), debiased_count(Budget(1), ITEMS, max_per_item=4), {"u": SOMEBODY[2]}
    uncapped = dataclasses.replace(plan, max_per_item=10**6)
    moved = _exact(uncapped, OTHERS | newcomer, release)[0] - _exact(uncapped, OTHERS, release)[0]
    assert np.abs(moved).sum() > plan.noise.bound.l0 * 4

    def once_per_batch(data: dict[str, dict[str, int]]) -> int:
        everybody = [one_row_per_user(batch) for batch in _batches(data)]
        (users,) = bounded_batches(everybody, EVERYBODY_STEPS[:1], release, "B")
        return sum(users.column("count").to_pylist())

    assert once_per_batch(OTHERS | newcomer) - once_per_batch(OTHERS) == 2


# The two noises together: exactly epsilon, from the probabilities.


def _largest_log_ratio(noise: NoisePlan, moved: int) -> float:
    """max ln P[x + Z = s] / P[x' + Z = s] over all s, for discrete Laplace noise Z and |x - x'| = moved."""
    assert noise.kind == "laplace" and noise.grid == 0
    values = np.arange(-200, 201)
    log_law = -np.abs(values) / float(noise.scale)  # up to a constant, which cancels
    shifted = -np.abs(values - moved) / float(noise.scale)
    return float(np.abs(log_law - shifted).max())


def _total_loss(plan: CountPlan, moved: int) -> float:
    """The loss of adding a user who moves the total by `moved`, and the number of users by one."""
    users = _largest_log_ratio(plan.users, 1) if isinstance(plan.users, NoisePlan) else 0.0
    return _largest_log_ratio(plan.noise, moved) + users


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.7])
@pytest.mark.parametrize("cap", [1, 2, 9])
@pytest.mark.parametrize("share", [None, 0.5, 0.07])
def test_total_and_number_of_users_cost_epsilon_together_and_an_unsplit_budget_is_caught(epsilon, cap, share):
    budget = Budget(epsilon)
    plan = debiased_count(budget, "x", max_per_item=cap, users_share=share)
    assert all(_total_loss(plan, moved) <= epsilon * (1 + 1e-12) for moved in range(cap + 1))
    assert _total_loss(plan, cap) == pytest.approx(epsilon, rel=1e-9)
    whole = calibrate_public_domain(budget, Bound(l0=1, linf=cap), Relation.ADD_REMOVE)
    with pytest.raises(ParameterError, match="cost more than the whole"):
        dataclasses.replace(plan, noise=whole)
    unsplit = copy.copy(plan)
    object.__setattr__(unsplit, "noise", whole)  # past that check
    assert _total_loss(unsplit, cap) > 1.05 * epsilon
    assert _total_loss(plan, cap + 1) > epsilon, "a cap that is too large by one"
    public = debiased_count(budget, "x", max_per_item=cap, users=9, relation=Relation.REPLACE)
    assert max(_total_loss(public, abs(a - b)) for a in range(cap + 1) for b in range(cap + 1)) == pytest.approx(
        epsilon
    )
    halved = dataclasses.replace(public.noise, scale=public.noise.scale / 2)
    assert _total_loss(dataclasses.replace(public, noise=halved), cap) > 1.9 * epsilon


def _gaussian_delta(epsilon: float, distance: float, sigma: float) -> float:
    a, b = distance / (2 * sigma), epsilon * sigma / distance
    return float(stats.norm.cdf(a - b) - math.exp(epsilon) * stats.norm.cdf(-a - b))


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("most", [1, 3, 4, 6])
def test_gaussian_noise_of_several_items_keeps_delta_and_without_the_factor_for_replacement_does_not(relation, most):
    cap, budget = 3, Budget(1, 1e-6)
    plan = debiased_count(
        budget, ITEMS, max_per_item=cap, users=9, max_items=most, noise="gaussian", relation=relation
    ).noise
    one, other = np.zeros(6), np.zeros(6)
    one[:most] = cap
    if relation is Relation.REPLACE:
        other[6 - most :] = cap  # on other items, as far as there are any; what both have cancels
        shared = one * other > 0
        one[shared] = np.where(np.arange(int(shared.sum())) % 2, cap, 0)
        other[shared] = cap - one[shared]
    distance = float(np.linalg.norm(one - other))
    own, worst = math.sqrt(plan.stddev**2 - plan.shared_stddev**2), distance
    if plan.shared is not None:  # which makes fewer items than all of them the worst: k^2 of k are taken away again
        ratio = (own / plan.shared_stddev) ** 2
        worst = cap * math.sqrt(max(k - k**2 / (6 + ratio) for k in range(1, most + 1)))
        assert _gaussian_delta(1.0, distance, plan.stddev) > 2e-6, "the same noise without a shared draw"
    true = _gaussian_delta(1.0, worst, own)
    assert (0.98e-6 if plan.shared is None else 0.5e-6) < true <= 1e-6
    if relation is Relation.REPLACE and most < 6:
        alone = debiased_count(budget, ITEMS, max_per_item=cap, users=9, max_items=most, noise="gaussian").noise
        assert _gaussian_delta(1.0, distance, alone.stddev) > 3e-6


# The same, by drawing the noise.


def _draws(plan: NoisePlan, total: int, worlds: int, subkey: bytes) -> np.ndarray:
    """The noisy total in so many worlds of its own."""
    names = pa.array([f"{world}" for world in range(worlds)])
    histogram, digest = merge_sums([pack({"item": names, "sum": pa.array(np.full(worlds, total))})], subkey, str)
    return np.asarray(add_noise(histogram, plan, subkey, Evidence.of([digest], [])).column("bounded_count"))


def _log_ratio(plan: CountPlan, worlds: int) -> float:
    """ln P[E] / P'[E] of {total high, number of users high} with and without a user who has `cap` events."""
    assert isinstance(plan.users, NoisePlan)

    def probability(total: int, users: int) -> float:
        high = _draws(plan.noise, total, worlds, bytes(range(32))) >= 500 + plan.max_per_item
        many = _draws(plan.users, users, worlds, bytes(range(1, 33))) >= 1001
        return float(np.mean(high & many))

    return math.log(probability(500 + plan.max_per_item, 1001) / probability(500, 1000))


def test_an_audit_of_both_noises_and_of_a_budget_that_is_not_split():
    """eps = 1, 200,000 worlds: the log-ratio's standard error is below 0.007, so 1.05 refutes eps = 1 at a false-alarm rate
    below 1e-6. With the whole epsilon for each of the two it is 2, which is seen with power above 1 - 1e-9."""
    worlds, cap = 200_000, 3
    plan = debiased_count(Budget(1), "x", max_per_item=cap, users_share=0.5)
    assert 0.95 < _log_ratio(plan, worlds) < 1.05
    twice = dataclasses.replace(
        plan,
        noise=dataclasses.replace(plan.noise, scale=Fraction(cap)),
        users=dataclasses.replace(plan.users, scale=Fraction(1)),
    )
    assert _log_ratio(twice, worlds) > 1.8


def test_the_two_noises_share_no_bits(make_release):
    """One user with one event, a cap of 1 and half of epsilon each: total, number of users and noise plan are alike, and only
    label and item tell the lanes apart. Noise of scale 4 agrees in a release with probability 0.07, so more than half of 60
    agree with probability below 1e-18; shared bits would make all of them agree."""
    plan = debiased_count(Budget(0.5), "x", max_per_item=1, users_share=0.5, largest_mean=1e9)
    assert plan.noise.scale == plan.users.scale
    batch = contribution_batch(pa.array(["u"] * 1), pa.array(["x"]))
    agreeing = 0
    for number in range(60):
        (totals, users) = _noisy(plan, batch, make_release(f"r{number}"))
        agreeing += totals == users
    assert agreeing < 30


def _noisy(plan: CountPlan, batch: pa.RecordBatch, release) -> tuple[float, int]:
    """The two released numbers, as `run` passes them on to the estimate."""
    seen = {}

    class Seen(CountPlan):
        def debiased(self, counts: pa.RecordBatch, users: int) -> pa.RecordBatch:
            seen["numbers"] = counts.column("bounded_count")[0].as_py(), users
            return super().debiased(counts, users)

    Seen(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}).run([batch], release)
    return seen["numbers"]
