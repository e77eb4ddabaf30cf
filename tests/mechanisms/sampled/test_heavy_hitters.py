"""Heavy hitters whose users are counted: what is reported, what it costs, and that all shares read one number."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.heavy_hitters import CountedHitters
from headcount.mechanisms.sampled.plan import SamplePlan, calibrate_sample

BUDGET = Budget(1, 1e-6)


def crowd(sizes):
    items = [f"i{k}" for k, size in enumerate(sizes) for _ in range(size)]
    return contribution_batch(pa.array(np.arange(len(items))), pa.array(items))


def found(rows):
    return dict(zip(rows.column("item").to_pylist(), rows.column("sampled").to_pylist(), strict=True))


def test_items_above_the_share_of_the_noisy_number_are_reported(make_release):
    """5000 users with a noise of 14: an item of 20 % is above 15 % and one of 10 % below it, by 7 standard deviations."""
    hitters = heavy_hitters(BUDGET, 0.15, max_items=1)
    rows = hitters.run([crowd([3000, 1000, 500, 400, 100])], make_release())
    assert set(found(rows)) == {"i0", "i1"}
    assert rows.schema.names == ["item", "count", "noise_stddev", "low", "high", "sampled"]
    assert hitters.run([], make_release()).num_rows == 0
    assert hitters.reported(rows, -5).num_rows == 2  # a noisy number below 0 hides nothing that may be shown
    assert hitters.reported(rows, 10**6).num_rows == 0


def test_all_shares_read_one_number_and_one_sample(make_release):
    """The noisy number of users is told by which shares an item just reaches: it must be the same for all of them."""
    batch, numbers = crowd([3000, 1000, 500]), []
    whole = heavy_hitters(BUDGET, 0.001, max_items=1).run([batch], make_release())
    sampled = found(whole)
    original = CountedHitters.reported
    seen = lambda self, rows, users: numbers.append(users) or original(self, rows, users)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CountedHitters, "reported", seen)
        for phi in (0.05, 0.2, 0.5):
            assert (
                found(heavy_hitters(BUDGET, phi, max_items=1).run([batch], make_release())).items() <= sampled.items()
            )
        heavy_hitters(BUDGET, 0.2, max_items=1).run([batch], make_release("other"))
        heavy_hitters(BUDGET, 0.2, max_items=1).run([batch], make_release(), "other")
    same, others = numbers[:3], numbers[3:]
    assert len(set(same)) == 1 and abs(same[0] - 4500) < 20 / 0.1
    assert len({same[0], *others}) > 1
    rest = sampled_histogram(Budget(0.9, 1e-6), max_items=1)
    assert found(rest.run([batch], make_release())) == sampled  # the sample is that of the rest of the budget


def _joint_delta(sample: SamplePlan, users: NoisePlan, epsilon: float) -> float:
    """The divergence at epsilon of what is shown of an item and the noisy number of users, if one user is added to both:
    exact, the worst of all counts nearby. (Removed, the sample loses nothing at these rates.)"""
    p, spread = float(sample.rate), float(users.scale)
    noise = np.arange(-math.ceil(40 * spread), math.ceil(40 * spread) + 1)
    law = np.tanh(1 / (2 * spread)) * np.exp(-np.abs(noise) / spread)
    shifted = np.tanh(1 / (2 * spread)) * np.exp(-np.abs(noise - 1) / spread)
    worst = 0.0
    for count in range(sample.threshold - 1, math.ceil(2 * sample.threshold / sample.rate)):
        shown = np.arange(sample.threshold, count + 2)
        one, other = (
            np.append(stats.binom.cdf(sample.threshold - 1, n, p), stats.binom.pmf(shown, n, p))
            for n in (count + 1, count)
        )
        both = np.outer(one, shifted) - math.exp(epsilon) * np.outer(other, law)
        worst = max(worst, float(np.maximum(both, 0).sum()))
    return worst


def test_the_sample_and_the_number_together_keep_delta_and_a_sample_of_the_whole_budget_does_not():
    """Exact joint law at (1, 1e-3) with half of epsilon for the users; the mutation samples as if the number were free."""
    budget = Budget(1, 1e-3)
    hitters = heavy_hitters(budget, 0.1, users_share=0.5, max_items=1)
    assert isinstance(hitters, CountedHitters)
    assert _joint_delta(hitters.plan, hitters.users, 1.0) <= 1e-3
    assert _joint_delta(calibrate_sample(budget), hitters.users, 1.0) > 2e-3


def test_the_guarantee_has_every_part_and_adds_up():
    hitters = heavy_hitters(BUDGET, 0.01, users_share=0.2, max_items=1)
    guarantee = hitters.guarantee()
    assert (guarantee.epsilon, guarantee.delta) == (1, 1e-6)
    assert [step.epsilon for step in guarantee.mechanisms] == [0, 0.8, 0.2, 0]
    assert [step.delta for step in guarantee.mechanisms] == [0, 1e-6, 0, 0]
    assert "share of the noisy number of users, at least 0.01" in guarantee.description()
    with pytest.raises(ParameterError):
        dataclasses.replace(hitters, least=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"relation": Relation.REPLACE}, "it must be public: give users"),
        ({"users": 10, "users_share": 0.1}, "users_share is of no use where users is given, got 0.1"),
        ({"users_share": 1.0}, "users_share must be a share between 0 and 1, got 1.0"),
        ({"users_share": True}, "users_share must be a share between 0 and 1, got True"),
    ],
)
def test_wrong_parameters_are_named(given, said):
    with pytest.raises(ParameterError, match=said):
        heavy_hitters(BUDGET, 0.1, **given, max_items=1)
