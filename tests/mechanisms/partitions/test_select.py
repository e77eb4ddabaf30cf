"""Weights, thresholds and rounds of a selection as values: exact numbers, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.gaussian import gaussian_sigma
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import truncated_radius
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import gather, one_shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.batches.user_shards import split_by_user, users_of
from headcount.mechanisms.bounding.clipping import limit_items
from headcount.mechanisms.bounding.steps import bound_shard, check_kept, step_subkeys
from headcount.mechanisms.calibration.noise import calibrate_unknown_domain
from headcount.mechanisms.counting.noisy import noisy_counts
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.rounds import STRATEGIES, round_steps, rounds_of, weighted_bound, zcdp_rounds
from headcount.mechanisms.partitions.select import named_in_rounds, select_partitions
from headcount.mechanisms.partitions.weights import GRID, WeighStep, weight_of, weighted_laplace_threshold
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import truncated_laplace

BUDGET = Budget(1, 1e-8)
ONE = Relation.ADD_REMOVE


def rows_batch(rows: list[tuple[str, str]]) -> pa.RecordBatch:
    users, items = zip(*rows, strict=True)
    return contribution_batch(pa.array(users), pa.array(items))


def shard_of_sizes(sizes: list[int]):
    return one_shard([rows_batch([(f"u{u}", f"i{i}") for u, size in enumerate(sizes) for i in range(size)])])


class TestWeights:
    def test_they_are_the_largest_that_keep_the_norm_in_integers(self):
        unit = 1 << GRID
        for d in [*range(1, 2000), 9_999, 10_000, 1 << 20]:
            root, share = weight_of(d, "l2"), weight_of(d, "l1")
            assert d * root**2 <= unit**2 < d * (root + 1) ** 2
            assert d * share <= unit < d * (share + 1)
        assert weight_of(1, "l2") == weight_of(1, "l1") == weight_of(7, "count") == unit

    @pytest.mark.parametrize("weights", ["l2", "l1"])
    def test_the_step_keeps_its_promise_and_rounding_to_nearest_does_not(self, weights):
        shard = shard_of_sizes(list(range(1, 60)))
        bounded = bound_shard(shard, round_steps(50, weights), [bytes(32)] * 3, "")
        assert bounded.bound == dataclasses.replace(weighted_bound(50, weights), label=bounded.bound.label)
        assert (bounded.bound.grid, bounded.bound.l2, bounded.bound.l0) == (GRID, 1, 50)
        check_kept(bounded)
        power = 2 if weights == "l2" else 1
        items = np.repeat(bounded.rows_per_user(), bounded.rows_per_user())
        nearest = np.rint(2.0**GRID / items ** (1 / power)).astype(np.int64)
        with pytest.raises(InputError, match="not bounded by"):
            check_kept(dataclasses.replace(bounded, count=nearest))

    def test_each_user_adds_by_the_number_of_items_that_it_keeps(self):
        shard = shard_of_sizes([1, 2, 5, 9])
        kept = bound_shard(shard, round_steps(4, "l2"), [bytes(32)] * 3, "")
        per_user = kept.rows_per_user()
        assert sorted(per_user) == [1, 2, 4, 4]
        assert kept.count.tolist() == [weight_of(d, "l2") for d in per_user.tolist() for _ in range(d)]

    def test_an_empty_shard_stays_empty(self):
        shard = shard_of_sizes([2])
        none = shard.without_items(shard.items)
        assert len(WeighStep("l2").apply(none, bytes(32)).count) == 0


class TestTruncatedNoise:
    @settings(max_examples=60, deadline=None)
    @given(st.fractions(Fraction(1, 30), 3000, max_denominator=500), st.floats(1e-14, 0.4))
    def test_the_radius_is_the_least_that_keeps_delta(self, scale, delta):
        share = Fraction(repr(delta))
        radius = truncated_radius(scale, share)
        with mpmath.workdps(80):
            q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)

            def end(k):  # P[X = k], from the definition
                return q**k / (1 + 2 * q * (1 - q**k) / (1 - q))

            assert end(radius) <= mpmath.mpf(share.numerator) / share.denominator
            assert radius == 1 or end(radius - 1) > mpmath.mpf(share.numerator) / share.denominator

    def test_noise_stays_within_the_radius_with_the_stated_probabilities(self):
        """300,000 draws of 7 values: chi-square with a false-alarm rate of 1e-7; untruncated noise is seen with power 1."""
        lanes = Lanes(bytes(range(32)), np.arange(600_000, dtype=np.uint64).reshape(-1, 2))
        values = truncated_laplace(lanes, Fraction(3, 2), 3)
        assert np.abs(values).max() == 3
        law = np.exp(-np.abs(np.arange(-3, 4)) / 1.5)
        expected = law / law.sum() * len(values)
        found = np.bincount(values + 3, minlength=7)
        assert ((found - expected) ** 2 / expected).sum() < 43  # 6 degrees of freedom

    @pytest.mark.parametrize(("items", "epsilon"), [(1, 1), (1, 0.01), (3, 2), (40, 1)])
    def test_stddev_is_that_of_the_truncated_law(self, items, epsilon):
        (only,) = rounds_of(Budget(epsilon, 1e-3), "truncated-geometric", items, 3, ONE)
        size = np.arange(-(only.plan.threshold - 1), only.plan.threshold)
        law = np.exp(-np.abs(size) / float(only.plan.scale))
        assert only.plan.stddev == pytest.approx(math.sqrt((size**2 * law).sum() / law.sum()), rel=1e-9)


@pytest.mark.seconds
class TestThresholds:
    @pytest.mark.parametrize(("items", "total"), [(1, 18.7275), (100, 22.3427)])
    def test_weighted_laplace_is_the_printed_formula_on_a_grid(self, items, total):
        tau = weighted_laplace_threshold(items, Fraction(1 << GRID), 1e-8)
        printed = max(1 / t + math.log(1 / (2 * -math.expm1(math.log1p(-1e-8) / t))) for t in range(1, items + 1))
        assert tau / 2**GRID == pytest.approx(printed, abs=1e-5)
        assert tau / 2**GRID == pytest.approx(total, abs=1e-4)

    @pytest.mark.parametrize("relation", list(Relation))
    def test_the_weighted_gaussian_is_near_the_printed_formula(self, relation):
        for items in (1, 10, 1000):
            (only,) = rounds_of(BUDGET, "weighted-gaussian", items, 3, relation)
            sigma = math.sqrt(relation.users) * gaussian_sigma(1, 0.99e-8)
            assert float(only.plan.scale) / 2**GRID == pytest.approx(sigma, rel=1e-6)
            normal = [-mpmath.erfinv(2 * mpmath.mpf(-mpmath.expm1(mpmath.log1p(-0.99e-8) / t)) - 1) for t in (1, items)]
            printed = max(
                1 / math.sqrt(t) + sigma * math.sqrt(2) * float(z) for t, z in zip((1, items), normal, strict=True)
            )
            assert float(only.plan.threshold_in_counts) == pytest.approx(printed, rel=2e-3)

    def test_ten_thousand_items_and_more_are_looked_at_in_blocks_that_cost_little(self):
        (single,) = rounds_of(BUDGET, "weighted-gaussian", 20_000, 3, ONE)
        (blocks,) = rounds_of(BUDGET, "weighted-gaussian", 20_001, 3, ONE)
        gap = blocks.plan.threshold - single.plan.threshold
        assert 0 <= gap < 0.001 * single.plan.threshold

    def test_counting_strategies_are_the_histogram_of_one_count_per_item(self):
        (only,) = rounds_of(BUDGET, "gaussian", 7, 3, ONE)
        assert only.plan == calibrate_unknown_domain(BUDGET, weighted_bound(7, "count"), ONE, "gaussian")
        for items, grid in ((1, 10), (7, 8), (5000, 0)):
            (only,) = rounds_of(BUDGET, "laplace", items, 3, ONE)
            whole = calibrate_unknown_domain(BUDGET, weighted_bound(items, "count"), ONE, "laplace")
            assert (only.plan.grid, only.plan.bound) == (grid, whole.bound)
            assert only.plan.scale == whole.scale * 2**grid
            printed = 1 + items * math.log(1 / (2 * -math.expm1(math.log1p(-1e-8) / items)))  # continuous noise
            assert printed <= only.plan.threshold_in_counts <= min(printed + 1.5 / 2**grid, whole.threshold)


class TestRounds:
    @pytest.mark.parametrize(("number", "shares"), [(1, [1]), (2, [1, 9]), (3, [1, 3, 36]), (4, [1, 3, 9, 117])])
    def test_the_last_round_of_sips_has_nine_tenths(self, number, shares):
        rounds = rounds_of(BUDGET, "sips", 10, number, ONE)
        precision = [float(each.plan.scale) ** -2 for each in rounds]
        assert np.array(precision) / precision[0] == pytest.approx(shares, rel=1e-5)
        total = sum((float(each.plan.scale) / 2**GRID) ** -2 for each in rounds)
        assert total**-0.5 == pytest.approx(gaussian_sigma(1, 0.5e-8), rel=1e-5)
        assert len(rounds_of(BUDGET, "sips", 10, 2, ONE)) == 2

    @pytest.mark.parametrize(("selection", "distance"), [("gaussian", 50), ("weighted-gaussian", 1), ("sips", 1)])
    @pytest.mark.parametrize("relation", list(Relation))
    def test_zcdp_rounds_add_up_to_rho(self, selection, distance, relation):
        rounds = zcdp_rounds(0.3, 1e-6, 50, relation, selection)
        cost = sum(relation.users * distance / 2 / (float(each.plan.scale) / 2**each.plan.grid) ** 2 for each in rounds)
        assert 0.999 * 0.3 < cost <= 0.3
        assert len(rounds) == (3 if selection == "sips" else 1)

    def test_a_round_samples_anew_what_is_left_when_named_items_have_gone(self, make_release):
        """Twenty items of 66 users each, who all have three common items as well; one item of each user counts. Once the common
        ones are named and gone, 66 is far above the last threshold of 31; a sample drawn with them has some 16."""
        rows = [(f"u{u}", item) for u in range(20 * 66) for item in ("a", "b", "c", f"r{u % 20}")]
        rounds, users = rounds_of(Budget(1, 1e-6), "sips", 1, 3, ONE), users_of([rows_batch(rows)])
        assert len(named_in_rounds(users, rounds, make_release(), "L")) == 23
        drawn_once = users.map(lambda shard: limit_items(shard, 1, bytes(32)))
        assert len(named_in_rounds(drawn_once, rounds, make_release(), "L")) < 8

    def test_every_round_draws_from_lanes_of_its_own(self, make_release):
        (each,) = rounds_of(Budget(1, 1e-3), "gaussian", 3, 3, ONE)
        key = make_release().key_source.fetch()
        keys = [step_subkeys(key, "test", f"L/Round{n}/Bounded", each.steps) for n in (1, 2)]
        assert not set(keys[0]) & set(keys[1])
        shard = shard_of_sizes([40] * 30)
        samples = [bound_shard(shard, each.steps, k, "") for k in keys]
        assert samples[0].item.tolist() != samples[1].item.tolist()

    def test_no_rows_give_no_names(self, make_release):
        for strategy in STRATEGIES:
            selection = select_partitions(BUDGET, strategy=strategy, max_items=5, item_type=int)
            assert selection.run([], make_release()).to_pydict() == {"item": []}

    def test_only_names_are_released(self, make_release):
        rows = [(f"u{u}", f"i{u % 3}") for u in range(900)]
        named = select_partitions(BUDGET, strategy="laplace", max_items=1).run([rows_batch(rows)], make_release())
        assert named.schema == pa.schema({"item": pa.string()})
        assert named.column("item").to_pylist() == ["i0", "i1", "i2"]

    def test_repeats_of_one_user_count_once(self, make_release):
        rows = [("u", "mine")] * 5000
        assert (
            select_partitions(BUDGET, strategy="laplace", max_items=1).run([rows_batch(rows)], make_release()).num_rows
            == 0
        )

    def test_noise_refuses_weights_that_another_plan_was_made_for(self, make_release):
        shard = bound_shard(shard_of_sizes([5] * 40), round_steps(5, "l2"), [bytes(32)] * 3, "x")
        (other,) = rounds_of(BUDGET, "weighted-laplace", 5, 3, ONE)
        with pytest.raises(InputError, match="calibrated for"):
            noisy_counts(Parts.of(shard.to_batch()), other.plan, make_release(), "N")


@pytest.mark.seconds
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_guarantee_tells_all_numbers(strategy, relation):
    selection = select_partitions(Budget(0.5, 1e-7), strategy=strategy, max_items=12, relation=relation)
    guarantee = selection.guarantee()
    bounding, noise = guarantee.mechanisms
    assert (guarantee.epsilon, guarantee.delta, guarantee.relation) == (0.5, 1e-7, relation)
    assert (noise.epsilon, noise.delta, noise.details["strategy"]) == (0.5, 1e-7, strategy)
    assert "12 items" in bounding.description()
    for each in selection.rounds:
        assert f"{float(each.plan.threshold_in_counts):.8g}"[:6] in noise.description()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rounds_of(BUDGET, "magic", 5, 3, ONE), "strategy must be one of .* got 'magic'"),
        (lambda: rounds_of(BUDGET, "laplace", 0, 3, ONE), "max_items must be .* got 0"),
        (lambda: rounds_of(BUDGET, "sips", 1 << 21, 3, ONE), "at most 1048576"),
        (lambda: rounds_of(BUDGET, "law", 10_001, 3, ONE), "at most 10000 for the strategy law, got 10001"),
        (lambda: rounds_of(Budget(1e-6, 1e-8), "law", 1, 3, ONE), "too many states: raise epsilon"),
        (lambda: rounds_of(Budget(1), "gaussian", 5, 3, ONE), "needs a delta above 0 and below 1/2, got 0.0"),
        (lambda: rounds_of(Budget(1, 0.5), "sips", 5, 3, ONE), "below 1/2, got 0.5"),
        (lambda: rounds_of(BUDGET, "sips", 5, 9, ONE), "rounds must be an integer from 1 to 8, got 9"),
        (lambda: rounds_of(BUDGET, "gaussian", 5, 2, ONE), "rounds = 2 is for the strategies sips and law"),
        (lambda: zcdp_rounds(1, 1e-6, 5, ONE, "laplace"), "selection must be one of"),
        (lambda: zcdp_rounds(1e-30, 1e-6, 5, ONE, "gaussian"), "more noise than can be sampled"),
        (lambda: auto_partitions(Budget(1)), "needs a delta"),
        (lambda: auto_partitions(BUDGET, rounds=0), "rounds must be"),
        (
            lambda: select_partitions(BUDGET, strategy="sips", max_items=5, item_type=float),
            "item_type must be str or int",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_shards_of_users_can_be_split_off_the_same(make_release):
    """The pure function sees one shard; gathering it from many batches in any order changes nothing."""
    rows = [(f"u{u}", f"i{(u * u + 3 * k) % 17}") for u in range(400) for k in range(u % 7)]
    whole = users_of([rows_batch(rows)])
    pieces = [rows_batch(rows[n::5]) for n in range(5)][::-1]
    chunks = [chunk for piece in pieces for _, chunk in split_by_user(piece, 1)]
    rounds = rounds_of(Budget(3, 1e-4), "sips", 2, 3, ONE)
    assert named_in_rounds(whole, rounds, make_release(), "L").equals(
        named_in_rounds(Parts.of(gather(chunks)), rounds, make_release(), "L")
    )
