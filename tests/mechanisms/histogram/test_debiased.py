"""The debiased count: the Poisson law behind it, its limits, its error bars, and what it gains over the capped total."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.gaussian import gaussian_sigma
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import only_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.released import counts_batch
from headcount.mechanisms.counting.users import one_row_per_user
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.papers.debiased import (
    CountPlan,
    capped_mean,
    capped_slope,
    debiased_count,
    uncapped_mean,
)


@pytest.mark.parametrize("cap", [1, 2, 3, 10, 200])
def test_the_capped_mean_and_its_slope_are_those_of_the_poisson_law(cap):
    mean = cap * np.array([1e-6, 0.1, 0.5, 1.0, 1.5, 2.0])
    value = np.arange(20 * cap + 60)
    law = stats.poisson.pmf(value[:, None], mean)
    assert capped_mean(mean, cap) == pytest.approx((np.minimum(value, cap)[:, None] * law).sum(axis=0), rel=1e-12)
    assert capped_slope(mean, cap) == pytest.approx(law[:cap].sum(axis=0), rel=1e-12)


@pytest.mark.parametrize("cap", [1, 2, 7, 1000, 10**9])
def test_the_inverse_is_one_where_there_is_one_and_finite_everywhere(cap):
    largest = 2.0 * cap
    mean = cap * np.array([1e-9, 1e-3, 0.2, 0.5, 0.8])
    assert uncapped_mean(capped_mean(mean, cap), cap, largest) == pytest.approx(mean, rel=1e-9)
    odd = np.array([-1e18, -1.0, 0.0, float(cap), 1.01 * cap, 1e18])
    assert uncapped_mean(odd, cap, largest).tolist() == [0, 0, 0, largest, largest, largest]
    inside = uncapped_mean(np.linspace(0, cap, 50), cap, largest)
    assert (np.diff(inside) >= 0).all() and (inside >= np.linspace(0, cap, 50)).all()


def _debiased(plan: CountPlan, totals: list[float], users: int) -> tuple[list[float], list[float]]:
    batch = counts_batch(pa.array([f"i{k}" for k in range(len(totals))]), np.array(totals), plan.noise)
    rows = plan.debiased(batch, users)
    return rows.column("count").to_pylist(), rows.column("noise_stddev").to_pylist()


@pytest.mark.parametrize(("cap", "largest"), [(1, None), (2, 1.0), (1000, None), (3, 2e9)])
def test_every_noisy_total_and_number_of_users_gives_a_finite_result_within_its_limits(cap, largest):
    """Totals at or below 0 and at or above the cap times the users, where the paper's estimate is not defined."""
    plan = debiased_count(Budget(1), "x", max_per_item=cap, largest_mean=largest)
    for users in (-50, 0, 1, 10_000):
        totals = [-1e6, -1.0, 0.0, 1.0, cap * users - 1.0, cap * users, cap * users + 1.0, 1e15]
        count, stddev = _debiased(plan, totals, users)
        top = plan.largest_mean * max(users, 1)
        assert all(0 <= value <= top for value in count) and all(0 <= value <= top / 2 for value in stddev)
        assert count[:3] == [0, 0, 0] and count[-1] == top


@pytest.mark.slow("accuracy")
def test_the_stddev_is_that_of_the_estimate():
    """Against 100,000 draws of both noises (floats do here), for three means: within 3 %, five standard errors. Without the
    noise of the number of users it is a quarter of the true one at a mean of 1, and without the slope a fifth of it."""
    draws, users, generator = 100_000, 5_000, np.random.default_rng(2)
    plan = debiased_count(Budget(1), "x", max_per_item=2, users_share=0.02)
    for mean in (0.2, 1.0, 2.5):
        total = users * capped_mean(np.array([mean]), 2)[0]
        (count,), (stddev,) = _debiased(plan, [total], users)
        assert count == pytest.approx(users * mean)
        noisy = total + generator.laplace(0, float(plan.noise.scale), draws)
        noisy_users = users + np.rint(generator.laplace(0, float(plan.users.scale), draws))
        found = noisy_users * uncapped_mean(noisy / noisy_users, 2, plan.largest_mean)
        assert stddev == pytest.approx(found.std(), rel=0.03)


def _rows(counts: np.ndarray) -> pa.RecordBatch:
    """Users with so many events of "x"; each also has one of another item, so that all of them are there."""
    held = np.flatnonzero(counts)
    user = [f"u{k}" for k in held] + [f"u{k}" for k in range(len(counts))]
    item = ["x"] * len(held) + ["other"] * len(counts)
    count = np.concatenate([counts[held], np.ones(len(counts), dtype=np.int64)])
    return contribution_batch(pa.array(user), pa.array(item), pa.array(count))


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("alpha", "capped_error", "error"), [(0.5, 0.348, 0.309), (1, 0.251, 0.191), (5, 0.139, 0.048), (50, 0.107, 0.004)]
)
def test_it_is_closer_than_the_capped_total_also_where_users_differ(make_release, alpha, capped_error, error):
    """Poisson counts of mean 1, the means of users Dirichlet(alpha): Figure 4 of the paper, at 20,000 users, where sampling
    and noise move the relative errors by less than 0.02."""
    generator, users = np.random.default_rng(1), 20_000
    weight = generator.gamma(alpha, size=users)
    counts = generator.poisson(weight / weight.mean())
    (found,) = debiased_count(Budget(1), "x", max_per_item=2).run([_rows(counts)], make_release()).to_pylist()
    total, capped = counts.sum(), np.minimum(counts, 2).sum()
    off, capped_off = abs(found["count"] / total - 1), abs(capped / total - 1)
    assert off < capped_off
    assert capped_off == pytest.approx(capped_error, abs=0.02) and off == pytest.approx(error, abs=0.02)


def test_users_without_the_item_count_and_leaving_them_out_is_caught(make_release):
    """With a cap of 1 the users who have the item make S / n = 1, and the result is the upper limit whatever the data."""
    generator, release = np.random.default_rng(4), make_release()
    counts = generator.poisson(0.4, 10_000)
    plan, rows = debiased_count(Budget(1), "x", max_per_item=1), _rows(counts)
    (found,) = plan.run([rows], release).to_pylist()
    assert found["count"] == pytest.approx(counts.sum(), rel=0.05)
    (mutated,) = plan.run([only_domain(rows, plan.items)], release).to_pylist()
    holders = np.count_nonzero(counts)
    assert mutated["count"] > 1.5 * holders > 1.2 * counts.sum()
    given = debiased_count(Budget(1), "x", max_per_item=1, users=holders)
    assert _debiased(given, [holders], holders)[0] == [2 * holders], "the limit"


def test_one_row_for_each_user_however_the_batch_is_encoded():
    rows = contribution_batch(pa.array(["a", "b", "a"]), pa.array([1, 2, 3]), pa.array([7, 1, 2]))
    encoded = rows.set_column(0, "user", rows.column("user").dictionary_encode())
    for batch in (rows, encoded):
        assert one_row_per_user(batch).to_pylist() == [
            {"user": "a", "item": "everybody"},
            {"user": "b", "item": "everybody"},
        ]


def test_the_noise_is_for_the_distance_of_neighbours_and_the_shares_add_up():
    one = debiased_count(Budget(1), "x", max_per_item=3)
    assert isinstance(one.users, NoisePlan)
    assert (one.noise.scale, one.users.scale) == (Fraction(3) / Fraction(9, 10), 10)
    assert one.noise.epsilon + one.users.epsilon == one.guarantee().epsilon == 1
    for relation in Relation:  # of one item, a user has 0 .. cap in both: no factor 2
        given = debiased_count(Budget(1), "x", max_per_item=3, users=100, relation=relation)
        assert (given.noise.scale, given.users, given.guarantee().relation) == (3, 100, relation)
    ten = [f"i{k}" for k in range(10)]
    totals = {  # how many totals of ten differ between neighbours
        (2, Relation.ADD_REMOVE): 2,
        (2, Relation.REPLACE): 4,
        (6, Relation.REPLACE): 10,
        (None, Relation.ADD_REMOVE): 10,
        (None, Relation.REPLACE): 10,
        (99, Relation.ADD_REMOVE): 10,
    }
    for (most, relation), differ in totals.items():
        make = lambda noise: debiased_count(  # noqa: E731
            Budget(1, 1e-6),
            ten,
            max_per_item=3,
            users=100,
            max_items=most,  # noqa: B023
            noise=noise,
            relation=relation,  # noqa: B023
        )
        laplace, gaussian = make("laplace").noise, make("gaussian").noise
        assert (laplace.scale, laplace.delta) == (3 * differ, 0)
        unit = gaussian_sigma(1.0, 0.999e-6)
        assert 0.999 / unit < gaussian.losses().mu <= 1 / unit * (1 + 1e-11)
        if relation is Relation.REPLACE:
            assert gaussian.shared is None and gaussian.stddev == pytest.approx(3 * differ**0.5 * unit, rel=1e-3)
        else:  # where users may have all ten, a draw that these share makes the noise a third less
            per_item = differ**0.5 * 0.99 if differ < 10 else (10**0.5 + 1) / 2
            assert gaussian.shared is not None and gaussian.stddev == pytest.approx(3 * per_item * unit, rel=2e-3)
        assert make("auto").noise == min(laplace, gaussian, key=lambda plan: plan.stddev)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_per_item": 0}, "max_per_item must be an integer from 1 to 1000000000, got 0"),
        ({"max_per_item": 1.5}, "max_per_item must be an integer"),
        ({"items": []}, "the domain is empty"),
        ({"items": ["x", "x"]}, "more than once"),
        ({"items": 3}, "must all be of type str"),
        ({"max_items": 0}, "max_items must be"),
        ({"users": 0}, "users must be an integer from 1 to .*, got 0"),
        ({"users": True}, "users must be an integer"),
        ({"users": 10, "users_share": 0.2}, "users_share is of no use .* got 0.2"),
        ({"users_share": 1}, "users_share must be a number between 0 and 1, got 1"),
        ({"users_share": "a"}, "users_share must be"),
        ({"largest_mean": 0}, "largest_mean must be a number above 0 .* got 0"),
        ({"largest_mean": float("nan")}, "largest_mean must be"),
        ({"noise": "loud"}, "noise must be 'auto', 'laplace' or 'gaussian', got 'loud'"),
        ({"noise": "gaussian"}, "needs a delta above 0"),
        ({"relation": Relation.REPLACE}, "must be public: give users"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, words):
    with pytest.raises(ParameterError, match=words):
        debiased_count(**{"budget": Budget(1), "items": "x", "max_per_item": 2} | given)


def test_the_guarantee_names_every_part():
    words = (
        debiased_count(Budget(1, 1e-6), ["x", "y", "z"], max_per_item=4, users_share=0.25, max_items=2)
        .guarantee()
        .description()
    )
    for part in (
        "(epsilon = 1, delta = 0)",
        "4 events on each of 2 items",
        "noise: epsilon = 0.75",
        "number of users: epsilon = 0.25, delta = 0; noise discrete Laplace, scale 4",
        "largest mean per user 8",
    ):
        assert part in words
    public = debiased_count(Budget(1), "x", max_per_item=4, users=1234).guarantee()
    assert "number of users: epsilon = 0, delta = 0; public 1234." in public.description()
    assert "a user adds at most 4 events on one item." in public.description()


def test_parts_that_cost_more_than_the_whole_are_refused():
    made = debiased_count(Budget(1), ["a"], max_per_item=3)
    with pytest.raises(ParameterError, match="cost more than the whole budget"):
        dataclasses.replace(made, users=made.noise)
