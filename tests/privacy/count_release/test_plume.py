"""Plume: what all parts cost together, the noise for sqrt(m'), and named items that nobody's sample has."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.count_release.papers.plume import PlumePlan, plume
from headcount.mechanisms.counting.noisy import noisy_counts
from headcount.mechanisms.errors import ParameterError

WAYS = [
    {"max_items": 7, "max_counted_items": 30},
    {"max_items": 7, "selection": "weighted-gaussian", "alpha": 0.2},
    {"max_items": 50, "max_counted_items": 20, "selection": "sips"},
    {"selection": "sips"},
    {},
]


def spent(plan: PlumePlan, relation: Relation, counted: int) -> Fraction:
    """The rho of all rounds and of the counts, from the integers that the samplers get and the distances of neighbours."""
    rho = Fraction(0)
    for each in plan.rounds:
        distance = each.max_items if each.weights == "count" else 1
        rho += relation.users * distance * Fraction(4) ** each.plan.grid / (2 * each.plan.scale**2)
    return rho + relation.users * counted * Fraction(4) ** plan.plan.grid / (2 * plan.plan.scale**2)


def fits(rho: Fraction, zcdp: Zcdp) -> bool:
    return rho <= Fraction(repr(zcdp.rho))


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("given", WAYS)
@pytest.mark.parametrize("rho", [0.01, 0.1, 1, 7.3])
def test_all_parts_together_cost_rho_and_no_more(given, relation, rho):
    zcdp = Zcdp(rho, 1e-6)
    release = plume(zcdp, **given, relation=relation)
    counted = given.get("max_counted_items", given.get("max_items", 20))
    choice = Fraction(0)
    if release.choice is None:
        plan = release.plan()
    else:
        plan = release.plan(ChosenBound(20, 1, "gaussian"))
        choice = Fraction(repr(release.choice.budget.epsilon)) ** 2 / 8
        assert release.choice.max_per_item == 1 and release.choice.budget.delta == 0
    total = choice + spent(plan, relation, counted)
    assert fits(total, zcdp) and float(total) > 0.99 * rho
    assert plan.guarantee.epsilon == zcdp.to_budget(1e-6).epsilon


def test_the_audit_finds_missing_factors():
    """The noise of added users for replaced ones; a share of naming that counting does not leave; half of m' for m'."""
    zcdp = Zcdp(0.5, 1e-6)
    for given in WAYS[:3]:
        counted = given.get("max_counted_items", given["max_items"])
        plan = plume(zcdp, **given).plan()
        whole = plume(zcdp, **given | {"alpha": 0.001}).plan()
        assert fits(spent(plan, Relation.ADD_REMOVE, counted), zcdp)
        assert not fits(spent(plan, Relation.REPLACE, counted), zcdp)
        assert not fits(spent(dataclasses.replace(plan, plan=whole.plan), Relation.ADD_REMOVE, counted), zcdp)
        assert not fits(spent(plan, Relation.ADD_REMOVE, 2 * counted), zcdp)


def test_the_noise_is_for_the_root_of_the_counted_items():
    """44.7 and not 632 at m' = 200 and rho = 0.1, as Rogers (2024) has it."""
    release = plume(Zcdp(0.1, 1e-6), max_items=200, alpha=0.5)
    noise = release.plan().plan
    assert noise.stddev == pytest.approx(math.sqrt(200 / (2 * 0.5 * 0.1)), rel=1e-3)


def test_named_items_that_nobody_counts_for_get_the_noise_of_all(make_release):
    """T17: 20,000 named items, and users with none of them: all are released, with the stddev that is stated.

    The sample's variance is normal around 1 with a stddev of sqrt(2 / 20,000): beyond 5 of them in 6e-7 of all cases. Noise
    for m' in place of sqrt(m') has three times the stddev, which is 800 of them away.
    """
    plan = plume(Zcdp(1, 1e-6), max_items=9).plan()
    named = pa.array([f"named {k}" for k in range(20_000)])
    rows = noisy_counts(Parts.of(), plan.plan, make_release(), "Mine", named=named)
    assert rows.column("item").to_pylist() == sorted(named.to_pylist())
    counts = np.asarray(rows.column("bounded_count")) / math.sqrt(9 / (2 * 0.5))
    assert abs(counts.var() - 1) < 5 * math.sqrt(2 / 20_000) and abs((3 * counts).var() - 1) > 5
    assert noisy_counts(Parts.of(), plan.plan, make_release(), "Mine").num_rows == 0  # what leaving them out would give


def test_named_items_stay_also_if_no_sample_has_them(make_release):
    """60 users with the same 400 items, all named; each counts for one of them, so that 340 are in no sample."""
    users, items = np.repeat(np.arange(60), 400), np.tile(np.arange(400), 60)
    batch = contribution_batch(pa.array(users), pa.array(items))
    rows = plume(Zcdp(50, 1e-6), max_items=400, max_counted_items=1, item_type=int).run([batch], make_release())
    assert rows.column("item").to_pylist() == list(range(400))


def test_a_user_counts_for_other_items_than_it_named_with(make_release):
    """All of 20,000 users have the same five items. They name with one of them each; the counts of all come back."""
    users = np.repeat(np.arange(20_000), 5)
    items = np.tile(np.arange(5), 20_000)
    batch = contribution_batch(pa.array([f"u{u}" for u in users]), pa.array([f"i{i}" for i in items]))
    one, all_of_them = (
        plume(Zcdp(1, 1e-6), max_items=1, max_counted_items=counted).run([batch], make_release()) for counted in (1, 5)
    )
    assert one.num_rows == all_of_them.num_rows == 5
    # Stddevs of 1 and sqrt(5), and of 57 for the sample of one: beyond ten of them in 1e-22 of all cases.
    assert np.abs(np.asarray(all_of_them.column("bounded_count")) - 20_000).max() < 30
    assert np.abs(np.asarray(one.column("bounded_count")) - 4_000).max() < 600


def test_rows_repeated_by_one_user_count_once(make_release):
    """T13 here: one user's item, 100,000 times, is not named, since no other user has it."""
    repeated = contribution_batch(pa.array(["u"]), pa.array(["secret"]), pa.array([100_000]))
    for given in WAYS:
        assert plume(Zcdp(1, 1e-6), **given).run([repeated], make_release()).num_rows == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_items": 0}, "max_items must be an integer from 1"),
        ({"max_items": 5, "max_counted_items": "auto"}, "are chosen together, got 5 and 'auto'"),
        ({"max_items": 5, "alpha": 1}, "alpha must be a number above 0 and below 1, got 1"),
        ({"max_items": 5, "selection": "laplace"}, "selection must be one of gaussian, weighted-gaussian, sips"),
        ({"budget": Zcdp(1), "max_items": 5}, "delta above 0"),
        ({"budget": Zcdp(1)}, "delta above 0"),
        ({"budget": 1, "max_items": 5}, r"must be a Zcdp\(rho, delta\) or a Budget\(epsilon, delta\), got 1"),
        ({"budget": Zcdp(1e-25, 1e-6), "max_items": 5}, "raise rho"),
    ],
)
def test_what_is_refused(given, words):
    with pytest.raises(ParameterError, match=words):
        plume(**{"budget": Zcdp(1, 1e-6)} | given)
