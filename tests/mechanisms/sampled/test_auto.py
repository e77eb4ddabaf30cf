"""Samples whose items per user are chosen: what is chosen, one choice for all that read a sample, and what is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.choice.run import choose_bound
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.auto import CHOSEN, heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.histogram import SampleKey
from headcount.mechanisms.sampled.items_choice import about_w50
from headcount.mechanisms.sampled.plan import calibrate_sample

BUDGET = Budget(2, 1e-4)


def crowd(users, items, of):
    """Users with so many distinct items of so many each, and three rows on each."""
    random = np.random.default_rng(5)
    item = np.concatenate([random.choice(of, items, replace=False) for _ in range(users)])
    return contribution_batch(
        pa.array(np.repeat(np.arange(users), items)), pa.array([f"i{i}" for i in item]), pa.array([3] * len(item))
    )


def chosen(made, batch, release):
    return choose_bound([batch], made.choice, SampleKey(made, release, "Sample").choices, CHOSEN).bound


def found(rows):
    return dict(zip(rows.column("item").to_pylist(), rows.column("sampled").to_pylist(), strict=True))


@pytest.mark.seconds
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("items", "of"), [(1, 40), (5, 5), (5, 50)])
def test_as_many_items_are_chosen_as_users_have(make_release, items, of, relation):
    """Also where all items are shown at one item per user. By a fixed key; of another one, it has a chance of 0.99."""
    made = sampled_histogram(BUDGET, relation=relation)
    assert chosen(made, crowd(5000, items, of), make_release("items")) == items


@pytest.mark.seconds
def test_heavy_hitters_are_found_that_one_item_per_user_hides(make_release):
    """Every user has three of four items, so that each has three quarters of all users, and a quarter at one item per user."""
    batch = crowd(4000, 3, 4)
    given, auto = heavy_hitters(BUDGET, 0.5, users=4000, max_items=1), heavy_hitters(BUDGET, 0.5, users=4000)
    assert given.run([batch], make_release()).num_rows == 0
    rows = auto.run([batch], make_release()).to_pylist()
    assert [row["item"] for row in rows] == ["i0", "i1", "i2", "i3"]
    assert all(abs(row["count"] - 3000) < 6 * row["noise_stddev"] < 600 for row in rows)  # 2e-9 each


@pytest.mark.seconds
def test_whatever_reads_a_sample_reads_one_choice_and_one_number_of_users(make_release):
    batch = crowd(5000, 3, 12)
    whole = found(sampled_histogram(BUDGET).run([batch], make_release()))
    assert len(whole) == 12
    for phi in (0.1, 0.25, 0.26):
        made = heavy_hitters(BUDGET, phi, users=5000)
        assert found(made.run([batch], make_release())).items() <= whole.items()
    same = sampled_histogram(Budget(1.8, 1e-4), max_items=3).run([batch], make_release())
    assert found(same) == whole  # the sample is that of the rest of the budget, for the items that were chosen
    keys = {
        made.subkey(bytes(32), release_id, name)
        for made in (sampled_histogram(BUDGET), heavy_hitters(BUDGET, 0.1))
        for release_id in ("a", "b")
        for name in ("x", "y")
    }
    assert len(keys) == 8
    one, other = heavy_hitters(BUDGET, 0.1), heavy_hitters(BUDGET, 0.2)
    assert one.subkey(bytes(32), "a", "x") == other.subkey(bytes(32), "a", "x")
    assert found(other.run([batch], make_release())).items() <= found(one.run([batch], make_release())).items()


def test_nothing_in_gives_nothing_out(make_release):
    for made in (sampled_histogram(BUDGET), heavy_hitters(BUDGET, 0.1)):
        made.choice.__dict__["candidates"] = made.choice.candidates[
            :1
        ]  # any choice will do, and most take long to calibrate
        assert made.run([], make_release()).num_rows == 0


def test_the_decision_says_what_was_chosen():
    made = heavy_hitters(BUDGET, 0.1, users=1000)
    decided = made.decided(made.choice.ends()[0])
    assert decided.description() == "chosen: each user counts for one of its distinct items"
    assert (
        decided.report_fields()["chosen"].items()
        >= {"max_items": 1, "threshold": decided.sample.plan.threshold}.items()
    )
    assert (
        "choice of the items per user: epsilon = 0.2, delta = 0; items per user 1 to 300"
        in made.guarantee().description()
    )
    assert made.choice.ends()[1].bound == 300


@pytest.mark.slow("ranges")
@pytest.mark.parametrize(
    ("relation", "items"), [(Relation.ADD_REMOVE, 3), (Relation.REPLACE, 1), (Relation.REPLACE, 10)]
)
def test_what_an_item_needs_is_about_what_the_exact_plan_says(relation, items):
    budget = Budget(0.9, 1e-6)
    exact = calibrate_sample(budget, "w95", relation, items).w50
    assert about_w50(budget, relation, "w95")[items] == pytest.approx(exact, rel=0.12)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sampled_histogram(Budget(1)), "needs a delta"),
        (lambda: sampled_histogram(BUDGET, objective="w99"), "objective must be"),
        (lambda: sampled_histogram(BUDGET, item_type=float), "item"),
        (lambda: sampled_histogram(BUDGET, max_items="all"), "max_items must be"),
        (lambda: heavy_hitters(BUDGET, 0.1, users_share=0.9), "users_share must leave some of epsilon for the sample"),
        (lambda: heavy_hitters(BUDGET, 0.1, relation=Relation.REPLACE), "it must be public: give users"),
    ],
)
def test_wrong_parameters_are_named(make, said):
    with pytest.raises(ParameterError, match=said):
        make()
