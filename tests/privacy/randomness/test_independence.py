"""No random word is used twice: all mechanisms that draw more than once, with the shared lane that each must be caught with.

Exact, without a false alarm: a whole release is run, and each block of the cipher that it reads is recorded under its key. Two
draws are independent if no word of one is a word of the other, as the samplers' laws are tested elsewhere for one lane; so this
speaks for whole releases, `test_lanes_of_jobs` for those of all commands, and `test_joint_*` for the law of what comes out.
What covers what, besides this file:

    mechanism                                       the joint law, and its mutation
    noise of histogram cells                        test_joint_noise: equal cells
    noise of a domain's absent items                test_joint_noise: equal cells, of a sum of zero
    samples of users (RandClip, LimitItems)         test_joint_samples: equal users, and two steps of one user
    sips: rounds of samples and noise               test_joint_samples, test_joint_noise: two equal rounds
    Plume: samples for naming and for counting      test_joint_samples: its two samples
    count release: draws and measurements           test_joint_rounds: places of two draws; Brownian increments
    top items: draws one after another              test_joint_rounds: places of two draws
    quantile search: rounds                         test_joint_rounds: reused bits
    hierarchy: levels; sampled histogram: cells     test_joint_samples: parents and only children, equal cells
    shape: branches of a tally, positions           test_joint_noise: up and down, digits, equal cells
    hashed shape: two noises                        test_joint_noise: buckets and ranks
    pan-private: memory and output                  test_joint_noise: both noises, and those of an intrusion
    shuffled reports: shares of noise               test_joint_noise: three shares, and two users
    gradient descent (dp-gd): steps                 test_joint_rounds: choices from one lane
    distribution: a choice for each symbol          test_joint_rounds: choices from one lane
    estimates: names, counts and totals             privacy/histogram/test_estimates: one key for all stages
    one id on two inputs                            test_joint_noise: noise without the digest
    decisions on two inputs                         privacy/choice/test_lanes: lanes without their table
    one user: C + 1, split shards, bucket borders   test_one_user
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.bounding import clipping, steps
from headcount.mechanisms.choice import run as choice_run
from headcount.mechanisms.count_release import frames, rounds
from headcount.mechanisms.count_release.papers import plume
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.top_items import draws_of_top
from headcount.mechanisms.count_release.top_names import named_top
from headcount.mechanisms.counting import sums as counting_sums
from headcount.mechanisms.distribution import learn, tables
from headcount.mechanisms.histogram import fixed as histograms
from headcount.mechanisms.histogram.auto import auto_bounded_histogram, auto_unbounded_histogram
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.papers.debiased import debiased_count
from headcount.mechanisms.partitions import select as partitions
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.sampled import quantiles
from headcount.mechanisms.sampled.histogram import SampledHistogramMechanism
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.mechanisms.sampled.plan import SamplePlan
from headcount.mechanisms.sampled.quantiles import Hierarchy, QuantileSearch
from headcount.mechanisms.shape import anonymized, hashed, properties, tally_noise
from headcount.mechanisms.shape.estimators import EntropyQuestion
from tests.privacy.independence import Words

BUDGET = Budget(50, 1e-2)  # so much that all is named, and each step has something to do
PLAN = SamplePlan(
    Fraction(1, 3), 2, 1.0, 1e-3, Relation.ADD_REMOVE, 6
)  # of a rate and a threshold that only matter elsewhere
ITEMS = [f"i{k}" for k in range(20)]
USERS, EACH = 400, 6


def rows(item_type: type = str) -> list[pa.RecordBatch]:
    """400 users with six of twenty items each: all items have 120 users, and each user's rows are those of nineteen others."""
    user, place = np.repeat(np.arange(USERS), EACH), np.tile(np.arange(EACH), USERS)
    item = (user + place) % len(ITEMS)
    items = pa.array(item) if item_type is int else pa.array([ITEMS[i] for i in item])
    return [contribution_batch(pa.array([f"u{u}" for u in user]), items)]


RELEASES: dict[str, Callable[[], Any]] = {
    "histogram": lambda: histograms.unbounded_histogram(BUDGET, bound=6, noise="laplace"),
    "histogram, gaussian": lambda: histograms.bounded_histogram(BUDGET, [*ITEMS, "x", "y"], bound=6, noise="gaussian"),
    "histogram, sampled users": lambda: histograms.unbounded_histogram(BUDGET, bound=4),
    "histogram, chosen bound": lambda: auto_unbounded_histogram(BUDGET),
    "histogram, bound by dp-gd": lambda: auto_bounded_histogram(BUDGET, ITEMS, method="dp-gd", noise="gaussian"),
    "estimates": lambda: estimates(BUDGET, of="events"),
    "estimates, gaussian": lambda: estimates(BUDGET, of="events", noise="gaussian"),
    "estimates, laplace": lambda: estimates(BUDGET, of="events", noise="laplace"),
    "estimates, domain": lambda: estimates(BUDGET, of="events", domain=[*ITEMS, "x", "y"]),
    "truncated geometric": lambda: partitions.select_partitions(BUDGET, strategy="truncated-geometric", max_items=6),
    "sips": lambda: partitions.select_partitions(Budget(1, 1e-6), strategy="sips", max_items=2),
    "partitions": lambda: auto_partitions(BUDGET),
    "plume": lambda: plume.plume(Zcdp(50, 1e-2), max_items=2),
    "plume, chosen bound": lambda: plume.plume(Zcdp(50, 1e-2)),
    "counts": lambda: count_release(Zcdp(50, 1e-2), noise_reduction=True),
    "top": lambda: draws_of_top(Budget(50, 1e-2), 10, k_bar=10_000),
    "top, named first": lambda: named_top(Budget(50, 1e-2), 10),
    "debiased": lambda: debiased_count(Budget(1), ITEMS[:5], max_per_item=2),
    "sampled": lambda: SampledHistogramMechanism("S", PLAN, 6, PLAN.threshold, str),
    "search": lambda: QuantileSearch(PLAN, Leaves(0, 32, 32), Fraction(3, 10)),
    "hierarchy": lambda: Hierarchy(PLAN, Leaves(0, 32, 32), 2, 5),
    "shape": lambda: anonymized.anonymized_histogram(Budget(1), domain_size=100),
    "shape, central": lambda: anonymized.anonymized_histogram(Budget(1), domain_size=100, mode="central"),
    "shape, hashed": lambda: hashed.hashed_histogram(Budget(1), users=100, buckets=10_000, mode="l2"),
    "entropy": lambda: properties.central_property(Budget(1), EntropyQuestion()),
    "distribution": lambda: learn.learn_distribution(Budget(10, 1e-6), ITEMS, samples_per_user=6, method="dense"),
    "distribution, sparse": lambda: learn.learn_distribution(
        Budget(10, 1e-6), ITEMS, samples_per_user=6, method="sparse"
    ),
    "distribution, laplace": lambda: learn.learn_distribution(
        Budget(10), ITEMS, samples_per_user="auto", method="laplace"
    ),
    "distribution, buckets": lambda: learn.learn_distribution(
        Budget(10), ITEMS, samples_per_user="buckets", method="dense"
    ),
}


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Words:
    """What is released already needs no words; what only tells its error is left out."""
    for module in (anonymized, hashed):
        monkeypatch.setattr(module, "rehearsed_errors", lambda shape, *_, **__: np.zeros(len(shape.values)))
    return Words(monkeypatch)


def run(name: str, release: Any) -> None:
    made = RELEASES[name]()
    made.run(rows(int if name in ("search", "hierarchy") else str), release)


@pytest.mark.parametrize("name", RELEASES)
def test_no_word_is_read_twice(name, words, make_release):
    run(name, make_release())
    assert words.all > 0 and words.twice == words.shared == 0


# Mutations: each leaves out what tells two lanes apart.


def of_nobody(ids: Callable[..., Any]) -> Callable[..., Any]:
    """Lane ids without the item, user or symbol."""

    def mutated(key: bytes, names: pa.Array, *data: Any) -> Any:
        return ids(key, pa.array([""] * len(names), pa.string()), *data)

    return mutated


def of_one_draw(ids: Callable[..., Any]) -> Callable[..., Any]:
    """Lane ids without the number of the draw."""

    def mutated(key: bytes, table: bytes, draws: int) -> Any:
        return np.repeat(ids(key, table, 1), draws, axis=0)

    return mutated


def of_every_step(subkey: Callable[..., Any]) -> Callable[..., Any]:
    """Subkeys without the label of the step."""

    def mutated(key: bytes, release_id: str, label: str, *parameters: Any, **chosen: Any) -> Any:
        return subkey(key, release_id, "", *parameters, **chosen)

    return mutated


class Twins(Lanes):
    """Lanes whose children come in pairs that share their id: every branch draws what its neighbour does."""

    def words_each(self, index: Any, each: Any) -> Any:
        drawn = super().words_each(index, each)
        if len(drawn) and len(drawn) % 4 == 0:
            pairs = drawn.reshape(-1, 2, 2)
            pairs[:, 1] = pairs[:, 0]
        return drawn


def rewound(select: Callable[..., Any]) -> Callable[..., Any]:
    """Draws that each begin with the lane's first word."""

    def mutated(excess: Any, denominator: int, lanes: Lanes) -> Any:
        lanes._drawn[:] = 0
        return select(excess, denominator, lanes)

    return mutated


MUTATIONS = {
    "histogram": (counting_sums, "item_lane_ids", of_nobody),
    "histogram, gaussian": (counting_sums, "item_lane_ids", of_nobody),
    **dict.fromkeys(
        ("estimates", "estimates, gaussian", "estimates, laplace", "estimates, domain"),
        (counting_sums, "item_lane_ids", of_nobody),
    ),
    "truncated geometric": (counting_sums, "item_lane_ids", of_nobody),
    "histogram, sampled users": (clipping, "user_lane_ids", of_nobody),
    "histogram, bound by dp-gd": (choice_run, "decision_lane_ids", of_one_draw),
    "sips": (steps, "derive_subkey", of_every_step),
    "plume": (steps, "derive_subkey", of_every_step),
    "counts": (rounds, "decision_lane_ids", of_one_draw),
    **dict.fromkeys(("top", "top, named first"), (frames, "select_by_excess", rewound)),
    "debiased": (counting_sums, "item_lane_ids", of_nobody),
    "sampled": (counting_sums, "item_lane_ids", of_nobody),
    "search": (quantiles, "decision_lane_ids", of_one_draw),
    "hierarchy": (counting_sums, "item_lane_ids", of_nobody),
    "shape": (tally_noise, "Lanes", lambda _: Twins),
    "shape, central": (tally_noise, "Lanes", lambda _: Twins),
    "shape, hashed": (hashed, "subkey", of_every_step),
    "distribution": (tables, "user_lane_ids", of_nobody),
    "distribution, sparse": (learn, "item_lane_ids", of_nobody),
    "distribution, laplace": (learn, "item_lane_ids", of_nobody),
    "distribution, buckets": (tables, "user_lane_ids", of_nobody),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_shared_lane_is_caught(name, words, make_release, monkeypatch):
    module, attribute, mutation = MUTATIONS[name]
    monkeypatch.setattr(module, attribute, mutation(getattr(module, attribute)))
    run(name, make_release())
    assert words.twice > 0
