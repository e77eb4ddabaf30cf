"""Learning a distribution: whole runs, the number of samples per user, the guarantee, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.distribution.learn import (
    learn_distribution,
)
from headcount.mechanisms.distribution.plan import plan_distribution
from headcount.mechanisms.distribution.samples_choice import SamplesChoice
from headcount.mechanisms.errors import ParameterError
from tests.mechanisms.distribution.user_counts import BUDGET, names, off, rows_of


def test_the_rules_choose_what_they_say():
    """Half of 20,000 users have 10 samples and half 1000: the median is between, the better rule takes the larger, as
    10,000 sqrt(1000) > 20,000 sqrt(10); with 500 such users it takes 10."""

    def table(choice: SamplesChoice, totals: dict[int, int]) -> list[int]:
        found = [0] * choice.entries
        for size, users in totals.items():
            found[int(np.searchsorted(choice.grid, size, side="right"))] += users
        return found

    for relation in Relation:
        auto = SamplesChoice(Budget(0.1), Budget(0.9, 1e-6), relation)
        median = SamplesChoice(Budget(0.1), Budget(0.9, 1e-6), relation, "median")
        for choice, totals, low, high in (
            (auto, {10: 10_000, 1000: 10_000}, 900, 1000),
            (auto, {10: 20_000, 1000: 500}, 9, 10),
            (median, {10: 9000, 100: 2000, 1000: 8000}, 11, 100),
        ):
            exponents = choice.exponents(table(choice, totals))
            likely = [x for x, e in zip(choice.grid, exponents, strict=True) if e < min(exponents) + 5]
            assert low <= min(likely) and max(likely) <= high


def _uneven(users: int, seed: int = 0) -> tuple[pa.RecordBatch, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = np.array([0.5, 0.3, 0.15, 0.05])
    sizes = np.where(rng.random(users) < 0.5, rng.integers(1, 8, users), rng.integers(100, 300, users))
    return rows_of(np.array([rng.multinomial(size, p) for size in sizes])), p


@pytest.mark.seconds
@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("samples", ["auto", "median", "buckets", 50])
def test_whole_runs_find_the_distribution_and_repeat_themselves(make_release, samples, relation):
    rows, p = _uneven(4000)
    release = learn_distribution(BUDGET, names(4), samples_per_user=samples, relation=relation)
    found = release.run([rows], make_release())
    assert found.column("item").to_pylist() == names(4)
    assert off(found, p) < (0.03 if samples != "buckets" else 0.06)
    shuffled = rows.take(pa.array(np.random.default_rng(1).permutation(rows.num_rows)))
    parts = [shuffled.slice(start, 3000) for start in range(0, rows.num_rows, 3000)]
    assert release.run(parts, make_release()).equals(found)
    assert not release.run([rows], make_release("another")).equals(found)


def test_empty_input_gives_a_distribution_too(make_release):
    nothing = rows_of(np.zeros((1, 3), dtype=np.int64)).slice(0, 0)
    for method in ("dense", "sparse", "gaussian", "laplace"):
        for batches in ([], [nothing]):
            found = learn_distribution(BUDGET, names(3), samples_per_user=5, method=method).run(batches, make_release())
            assert np.asarray(found.column("probability")).sum() == pytest.approx(1)
            assert np.isfinite(np.asarray(found.column("error"))).all()


def test_items_outside_of_the_domain_are_not_counted(make_release):
    counts = np.random.default_rng(2).multinomial(40, [0.2, 0.3, 0.5], 2000)
    release = learn_distribution(BUDGET, names(2), samples_per_user=10, method="laplace")
    found = np.asarray(release.run([rows_of(counts)], make_release()).column("probability"))
    assert found == pytest.approx([0.4, 0.6], abs=0.02)


def test_int_symbols_are_learned_as_well(make_release):
    user = pa.array(np.repeat(np.arange(500), 20))
    item = pa.array(np.random.default_rng(0).choice([3, 70], 10_000, p=[0.25, 0.75]))
    release = learn_distribution(BUDGET, [70, 3], samples_per_user=20, method="dense", item_type=int)
    found = release.run([contribution_batch(user, item)], make_release()).to_pylist()
    assert [row["item"] for row in found] == [3, 70]
    assert found[0]["probability"] == pytest.approx(0.25, abs=0.05)


# --- words and refusals --------------------------------------------------------------------------------------------------


def test_the_guarantee_names_every_part_and_the_shares_add_up():
    dense = learn_distribution(BUDGET, names(50), samples_per_user=20, method="dense").guarantee()
    assert dense.epsilon == 1 and dense.delta == 1e-6
    assert sum(step.epsilon for step in dense.mechanisms) == pytest.approx(1)
    for part in ("20 samples", "number of users: epsilon = 0.05", "symbols that a user can change 20", "by ks"):
        assert part in dense.description()
    sparse = learn_distribution(
        BUDGET, names(50), samples_per_user=20, method="sparse", users=1000, relation=Relation.REPLACE
    ).guarantee()
    for part in (
        "public 1000",
        "discrete Gaussian",
        "larger symbols chosen by ks",
        "symbols that a user can change 40",
    ):
        assert part in sparse.description()
    assert learn_distribution(BUDGET, names(50), samples_per_user=20, method="laplace").guarantee().delta == 0
    auto = learn_distribution(BUDGET, names(50))
    assert "choice of the samples per user: epsilon = 0.05" in auto.guarantee().description()
    many, few = auto.decided(ChosenBound(1000, 0, "")), auto.decided(ChosenBound(5, 0, ""))
    assert many.description() == "chosen: 1,000 samples per user, by the method laplace"
    assert few.report_fields() == {"chosen": {"samples_per_user": 5, "method": "laplace"}}
    for part in (
        "choice of the samples per user: epsilon = 0.05",
        "1000 samples",
        "how much users differ: epsilon = 0.0475",
    ):
        assert part in many.guarantee.description()
    assert sum(step.epsilon for step in many.guarantee.mechanisms) == pytest.approx(1)
    assert "noise: epsilon = 0.9025, delta = 0; noise discrete Laplace" in few.guarantee.description()
    assert (
        "all of the budget"
        in learn_distribution(BUDGET, names(5), samples_per_user="buckets").guarantee().description()
    )


def test_baselines_do_not_pay_for_a_number_of_users_that_they_do_not_need():
    for samples, rest in ((20, Fraction(19, 20)), (1, 1)):  # one sample each asks for nothing else
        assert (
            plan_distribution(BUDGET, 10, samples, Relation.ADD_REMOVE, None, "laplace").noise.scale * rest == samples
        )
        assert (
            plan_distribution(BUDGET, 10, samples, Relation.REPLACE, None, "laplace").noise.scale * rest == 2 * samples
        )
    assert isinstance(plan_distribution(BUDGET, 10, 20, Relation.ADD_REMOVE, None, "dense").users, NoisePlan)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"domain": []}, "the domain is empty"),
        ({"domain": ["a", "a"]}, "more than once"),
        ({"samples_per_user": 0}, "samples_per_user must be an integer from 1 to 10000, got 0"),
        ({"samples_per_user": 20_000}, "samples_per_user must be"),
        ({"samples_per_user": "some"}, "must be an integer or one of .* got 'some'"),
        ({"method": "best"}, "method must be 'auto' or one of .* got 'best'"),
        ({"hypothesis": "tv", "method": "dense"}, "hypothesis must be one of .* got 'tv'"),
        ({"users": 0}, "users must be an integer from 1 to .*, got 0"),
        ({"users": True}, "users must be an integer"),
        ({"users": 10, "samples_per_user": "auto"}, "leave users out"),
        ({"users": 30, "hypothesis": "phs", "method": "dense"}, "users must be at least 133 for .* 'phs' .* got 30"),
        ({"users": 30, "hypothesis": "phs", "method": "sparse"}, "users must be at least 274 for .* 'phs' .* got 30"),
        ({"budget": 1.0}, "must be a Budget"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, words):
    with pytest.raises(ParameterError, match=words):
        learn_distribution(**{"budget": BUDGET, "domain": ["a", "b"], "samples_per_user": 5} | given)
