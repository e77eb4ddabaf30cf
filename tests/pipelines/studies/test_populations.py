"""Made-up users: what is drawn is what the model says, and models are found again from what a release of them tells.

Fits are of fixed seeds and releases of a fixed key: they are the same in every run. The tolerances are those that a forecast
needs, and two to three standard deviations of the fit at these sizes.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

import headcount
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.pipelines.studies import from_release
from headcount.pipelines.studies.forecast import similar_budget
from headcount.pipelines.studies.populations import assumed, user_model
from headcount.pipelines.studies.populations.item_model import NoisyCounts, fit_items
from headcount.pipelines.studies.populations.models import Population, UserModel
from headcount.pipelines.studies.populations.normal import normal_quantiles
from tests.fixed_key import write_fixed_key


def zipf(items: int, exponent: float, events: float) -> np.ndarray:
    frequency = np.arange(1.0, items + 1) ** -exponent
    return frequency / frequency.sum() * events


def test_users_are_drawn_by_their_law():
    model = UserModel(1.0, 0.8, 0.0)
    population = Population(zipf(500, 1.0, 300_000), model)
    shard = population.drawn(np.random.default_rng(3), 1e9)
    assert len(shard.users) == round(population.size)
    assert shard.totals().sum() == pytest.approx(300_000, rel=0.02)
    assert np.median(shard.totals()) == pytest.approx(np.e, abs=0.8)
    first = np.bincount(shard.item, shard.count)[0]
    assert first == pytest.approx(population.items[0], rel=0.02)


def test_a_drawn_shard_has_the_rows_of_its_users():
    population = Population(zipf(50, 1.0, 4_000), UserModel(1.0, 1.0, 0.5))
    shard = population.drawn(np.random.default_rng(3), 1e9)
    again = one_shard([shard.to_batch()])
    assert again is not None
    assert rows_of(again) == rows_of(shard)


def rows_of(shard: Shard) -> list[tuple[int, int, int]]:
    user = np.repeat(np.asarray(shard.users), shard.rows_per_user())
    return sorted(zip(user.tolist(), np.asarray(shard.items)[shard.item].tolist(), shard.count.tolist(), strict=True))


def test_a_part_of_the_users_has_a_part_of_the_events():
    population = Population(zipf(500, 1.0, 300_000), UserModel(1.0, 0.8, 0.2))
    shard = population.drawn(np.random.default_rng(3), 30_000)
    assert len(shard.users) == round(population.size / 10)
    assert shard.totals().sum() == pytest.approx(30_000, rel=0.03)


def test_habits_bring_users_back():
    items = zipf(1_000_000, 0.0, 1e6)
    distinct = {}
    for habit in (0.0, 0.55, 1.5):
        shard = Population(items, UserModel(np.log(1000.5), 0.001, habit)).drawn(np.random.default_rng(3), 1e6)
        distinct[habit] = shard.rows_per_user().mean()
    assert distinct[0.0] > 990
    # The expected number is the sum over j of 1 - (1 - p(j))^n.
    chance = -np.diff(np.arange(1.0, 1e6) ** -0.55)
    assert distinct[0.55] == pytest.approx((1 - (1 - chance) ** 1000).sum(), rel=0.05)
    assert distinct[1.5] < distinct[0.55] / 2


def test_items_apart_are_those_of_other_users_and_as_frequent():
    model = UserModel(2.0, 1.0, 0.3)
    found = {}
    for apart in (0.0, 0.4):
        shard = Population(zipf(50, 0.3, 500_000), model, apart).drawn(np.random.default_rng(3), 1e9)
        events, own = np.bincount(shard.item, shard.count), np.repeat(1 / shard.totals(), shard.rows_per_user())
        found[apart] = np.std(np.log(events / np.bincount(shard.item, shard.count * own)))
        assert events.sum() == pytest.approx(500_000, rel=0.02)
        assert np.corrcoef(events, zipf(50, 0.3, 1.0))[0, 1] > 0.9
    assert found[0.4] > 0.25 and found[0.0] < 0.1


def test_heavy_users_follow_a_power_law():
    sizes = UserModel(0.0, 1.0, 0.0, heavy=True).sizes((np.arange(100_000) + 0.5) / 100_000)
    assert [(sizes >= limit).mean() for limit in (10, 100, 1000)] == pytest.approx([0.1, 0.01, 0.001], rel=0.02)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.6])
def test_the_law_of_items_is_found_below_the_threshold(exponent, apart):
    """About 400 items, named apart from counts whose noise is a third of the least, or by counts with a sixth of it: how many
    items have half of the least count or more is found within 15 %."""
    random = np.random.default_rng(8)
    true = random.poisson(60 * (np.arange(1.0, 20_000) / 400) ** -exponent)
    stddev = 20.0 if apart else 10.0
    noisy = true + random.normal(0, stddev, len(true))
    shown = true + random.normal(0, 9, len(true)) >= 60 if apart else noisy >= 60
    fitted = fit_items(NoisyCounts(noisy[shown], stddev, 1.0, None if apart else 60.0), random, 2)
    counts = fitted.best.counts()
    assert (counts > 30).sum() == pytest.approx((true > 30).sum(), rel=0.15)
    assert fitted.best.least == pytest.approx(60, rel=0.1)
    assert len(fitted.others) == 2


def test_where_all_items_are_alike_there_is_none_below():
    random = np.random.default_rng(8)
    fitted = fit_items(NoisyCounts(random.normal(5000, 300, 365), 280.0, 1.0, None), random, 0)
    counts = fitted.best.counts()
    assert len(counts) == pytest.approx(365, abs=5)
    assert counts.min() > 3500


def told_by(population: Population, release: Release) -> tuple[user_model.UserEvidence, NoisyCounts]:
    made = histogram(Budget(1, 1e-8), item_type=int)
    shard = population.drawn(np.random.default_rng(5), 1e9)
    rows, decided = made.run_decided([shard.to_batch()], release)
    bounded, counts = (np.asarray(rows.column(name)) for name in ("bounded_count", "count"))
    told = user_model.UserEvidence(
        made.stages, decided.plan, len(counts), decided.groups, decided.left_out, float(counts.sum())
    )
    kept = float(bounded.sum() / counts.sum())
    return told, NoisyCounts(bounded, decided.plan.counts.stddev, min(1.0, kept), None)


@pytest.mark.slow("jobs")
@pytest.mark.parametrize(
    ("model", "users", "factor"),
    [(UserModel(0.9, 0.7, 0.0), 60_000, 2), (UserModel(0.2, 1.0, 0.4, heavy=True), 40_000, 5)],
)
def test_the_number_of_users_is_found_from_what_was_chosen(model, users, factor, tmp_path):
    """Within a factor of two, or of five where a few users do much; a prior alone knows it to a factor of a hundred. Over six
    releases of each model it was within 1.5, and within 1.2 to 3.8 for the heavy ones."""
    population = Population(zipf(100_000, 1.0, users * model.mean), model)
    write_fixed_key(tmp_path / "key")
    told, noisy = told_by(population, Release(KeyFile(str(tmp_path / "key")), "told"))
    items = fit_items(noisy, np.random.default_rng(1), 0).best
    found = user_model.fit_users(told, items, 1)
    sizes = [Population(items.counts(), each).size for each, _ in found]
    assert sum(belief for _, belief in found) == pytest.approx(1.0)
    assert users / factor <= sizes[0] <= users * factor


@pytest.mark.parametrize("smaller", [2.0, 8.0, 16.0])
def test_a_smaller_population_has_noise_and_threshold_in_proportion(smaller):
    plans = []
    for budget in (Budget(1, 1e-8), Budget(*similar_budget(1, 1e-8, smaller))):
        stages = histogram(budget).stages
        plans.append(stages.plan(stages.names_plan(ChosenStrategy("law", 30, 2)), ClipBound(3, 3, "gaussian", 100)))
    whole, small = plans
    assert small.counts.stddev * smaller == pytest.approx(whole.counts.stddev, rel=0.05)
    needed = [float(plan.names.rounds[-1].plan.threshold_in_counts) for plan in plans]
    assert needed[1] * smaller == pytest.approx(needed[0], rel=0.15)
    assert similar_budget(1, 1e-8, 1.0) == (1, 1e-8)
    assert similar_budget(1, 0.0, 4.0) == (4, 0.0)


def test_assumed_users_have_the_mean_that_is_assumed():
    believed = assumed.from_numbers(10_000, 12, 500, 1.1)
    assert sum(belief for _, belief in believed) == pytest.approx(1.0)
    for population, _ in believed:
        assert population.size == pytest.approx(10_000, rel=0.02)
        assert population.items[0] / population.items[9] == pytest.approx(10**1.1)


def test_a_shape_gives_its_counts():
    rows = [{"count": 100, "items": 3, "error": 1.0}, {"count": 5, "items": 40, "error": 1.0}]
    report = {"details": {"parameters": {"max_items": 1}}}
    for population, _ in assumed.from_shape(report, rows, 4):
        assert len(population.items) == 43
        assert population.size == pytest.approx(500, rel=0.05)
        assert population.items[0] / population.items[-1] == pytest.approx(20)
    with pytest.raises(InputError, match="release of headcount shape"):
        assumed.from_shape(report, [{"item": "a"}], 4)


PARAMETERS = {"relation": "add-remove", "of": "events", "method": "estimates", "bound": "auto"}


@pytest.mark.parametrize(
    ("command", "parameters", "rows", "words"),
    [
        ("top", {}, 20, "got one of top"),
        ("partitions", {}, 20, "got one of partitions"),
        ("histogram", {"public_domain": True}, 20, "public list"),
        ("histogram", {"suppress_below": 9}, 20, "--suppress-below"),
        ("histogram", {}, 9, "at least 10 items"),
    ],
)
def test_what_does_not_tell_enough_is_refused(command, parameters, rows, words):
    details = {"parameters": PARAMETERS | parameters, "guarantee": {"epsilon": 1.0, "delta": 1e-8}}
    with pytest.raises(InputError, match=words):
        from_release.read_release(
            {"command": command, "details": details}, [{"bounded_count": 1.0, "noise_stddev": 1.0}] * rows
        )


def test_a_release_whose_items_that_name_were_given_is_one_to_be_like():
    """It is made again with them, and what was chosen tells of users without the draws that were not made."""
    random = np.random.default_rng(3)
    rows = {"u": np.repeat(np.arange(3_000), 4), "i": random.zipf(1.4, 12_000) % 500}
    made = headcount.histogram(rows, user="u", item="i", max_items=7, epsilon=5, delta=1e-6)
    release = from_release.read_release(made.report, made.table.to_pylist())
    assert release.method.name == "histogram --max-items 7"
    believed, _ = release.populations()
    assert sum(belief for _, belief in believed) == pytest.approx(1.0)


def test_normal_quantiles_are_those_of_the_normal_distribution_far_into_its_tails():
    tails = 10.0 ** -np.arange(1, 15)
    chances = np.concatenate([np.linspace(0.001, 0.999, 999), tails, 1 - tails[:12]])
    expected = [NormalDist().inv_cdf(chance) for chance in chances.tolist()]
    assert normal_quantiles(chances) == pytest.approx(expected, rel=1e-14, abs=1e-15)
