"""Groups of items by their noisy counts, and the estimates that totals of groups lead to: post-processing, tested as such."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.histogram.groups import _monotone, calibrate, cut_groups, join_alike, largest_apart


def zipf(items: int, top: float) -> np.ndarray:
    return top / np.arange(1, items + 1)


LAWS = {
    "falling": (zipf(500, 5000), 10.0, 50.0),
    "flat": (np.full(300, 100.0), 10.0, 50.0),
    "noise alone": (np.random.default_rng(1).normal(0, 10, 200), 10.0, 50.0),
    "with negative ones": (zipf(400, 3000) + np.random.default_rng(2).normal(0, 30, 400), 30.0, 100.0),
    "one": (np.array([1000.0]), 10.0, 50.0),
    "one, negative": (np.array([-5.0]), 10.0, 50.0),
    "many": (zipf(5000, 1e6), 1.0, 1.0),
    "none": (np.zeros(0), 1.0, 1.0),
}


@pytest.mark.parametrize("law", LAWS)
def test_groups_are_runs_of_similar_counts_that_stand_out_of_the_noise(law):
    counts, noise, total_noise = LAWS[law]
    group = cut_groups(counts, noise, total_noise)
    number = int(group.max(initial=0)) + 1
    assert len(group) == len(counts) and number <= tuning.MOST_GROUPS + 1
    assert set(group) == set(range(number)) or len(counts) == 0
    order = np.argsort(-counts, kind="stable")
    assert (np.diff(group[order]) >= 0).all()
    if number > 1:
        sums, sizes = np.bincount(group, counts), np.bincount(group)
        enough = np.maximum(16 * total_noise, 8 * noise * np.sqrt(sizes))
        assert (sums[:-1] >= enough[:-1]).all()
        assert sums[-1] > 0.3 * enough[-1]  # what is left over may be below 0
    assert (number == 1) == (law in ("noise alone", "one", "one, negative", "none"))


def test_equal_counts_are_cut_in_the_order_of_the_items():
    group = cut_groups(np.full(100, 10.0), 0.1, 10.0)
    assert (np.diff(group) >= 0).all() and group.max() == 5


@pytest.mark.parametrize("cap", [1, 3])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("law", LAWS)
def test_the_largest_items_stand_apart_as_groups_of_one_that_leave_half_of_the_bound_to_others(law, order, cap):
    counts, noise, total_noise = LAWS[law]
    apart, times = largest_apart(counts, noise, total_noise, 50, order, cap)
    assert apart * (cap * times) ** order <= 50**order / 2 and (apart == 0 or times > 1)
    assert (apart > 0) == (law in ("falling", "flat", "with negative ones", "one", "many"))
    group = cut_groups(counts, noise, total_noise, apart=apart)
    largest = np.argsort(-counts, kind="stable")[:apart]
    assert group[largest].tolist() == list(range(apart)) and (np.bincount(group)[:apart] == 1).all()
    assert (counts[largest] >= max(total_noise / times / tuning.SPREAD_OF_LEFT_OUT, 8 * noise)).all()
    others = np.delete(group, largest)
    assert (others - apart == cut_groups(np.delete(counts, largest), noise, total_noise)).all()


def test_no_item_stands_apart_where_its_total_would_count_once():
    assert largest_apart(np.full(5, 1e6), 1.0, 1.0, 2, 2, 1) == (0, 1)
    assert largest_apart(np.full(5, 1e6), 1.0, 1.0, 3, 2, 1) == (1, 2)
    assert largest_apart(np.full(5, 1e6), 1.0, 1.0, 3, 2, 2) == (0, 1)


def test_an_item_apart_has_two_looks_of_which_the_surer_counts_more():
    """Nine items have a tenth left out by sure totals, but for the last two, 30 up and down: their totals are surer than their
    counts, and estimates follow them. No other item's does."""
    counts = np.concatenate([np.linspace(3000, 1000, 9), np.linspace(900, 100, 40)])
    group, noise = np.append(np.arange(9), np.full(40, 9)), np.append(np.full(9, 1.0), 10.0)
    totals = np.append(counts[:9] / 0.9, counts[9:].sum() / 0.5)
    plain = calibrate(counts, group, totals, 5.0, noise, apart=9)
    assert plain.estimate[:9] == pytest.approx(totals[:9], abs=1)
    assert (plain.noise_stddev[:9] < 1.01).all() and (plain.high[:9] - plain.low[:9] < 2 * 1.96 * 1.01 + 1).all()
    moved = calibrate(counts, group, totals + np.append(np.zeros(7), [30, -30, 0]), 5.0, noise, apart=9)
    assert moved.estimate[7:9] - plain.estimate[7:9] == pytest.approx([30, -30], abs=1)
    assert moved.estimate[9:] == pytest.approx(plain.estimate[9:], abs=1)
    unsure = calibrate(counts, group, totals, 5.0, np.append(np.full(9, 5000.0), 10.0), apart=9)
    assert (unsure.noise_stddev[:9] > 4.99).all()


def test_second_looks_that_differ_from_the_first_widen_all_intervals():
    """A third is left out of all items together. Where it is a third of each, looks agree; where it is nothing of some and half
    of others, intervals of the items without a second look are wider by what the looks tell."""
    counts = np.concatenate([np.linspace(3000, 2000, 12), np.linspace(1500, 500, 40)])
    group, noise = np.append(np.arange(12), np.full(40, 12)), np.append(np.full(12, 10.0), 100.0)
    alike = np.append(counts[:12] * 1.5, counts[12:].sum() * 1.5)
    differing = np.append(counts[:12] * np.tile([1.0, 2.0], 6), counts[12:].sum() * 1.5)
    width = [
        np.median((made.high - made.low)[12:] / made.estimate[12:])
        for made in (calibrate(counts, group, totals, 5.0, noise, apart=12) for totals in (alike, differing))
    ]
    assert width[0] == pytest.approx(2 * 1.96 * 0.15, rel=0.05) and 1.5 * width[0] < width[1] < 4 * width[0]


def test_neighbours_of_like_scales_are_joined_and_others_are_not():
    """Scales of 5, then of 2 four times within their noise, then of 1; the first two items stand apart, though alike."""
    counts = np.array([3000.0, 2900, 2000, 1000, 990, 980, 970, 900])
    totals = counts * [2.0, 2.0, 5.0, 2.05, 1.95, 2.02, 1.98, 1.0]
    noise = np.array([10.0, 10, 50, 50, 50, 50, 50, 50])
    group, told, told_noise = join_alike(counts, np.arange(8), totals, noise, apart=2)
    assert group.tolist() == [0, 1, 2, 3, 3, 3, 3, 4]
    assert told == pytest.approx([*totals[:3], totals[3:7].sum(), totals[7]])
    assert told_noise == pytest.approx([10, 10, 50, 100, 50])
    group, told, told_noise = join_alike(counts, np.zeros(8, int), totals.sum(keepdims=True), noise[:1])
    assert (group == 0).all() and told == pytest.approx(totals.sum(keepdims=True)) and told_noise == pytest.approx([10])


@pytest.mark.parametrize("law", [law for law in LAWS if law != "none"])
def test_groups_to_be_joined_are_half_as_large_and_without_news_one(law):
    counts, noise, total_noise = LAWS[law]
    group = cut_groups(counts, noise, total_noise, to_join=True)
    assert group.max() >= cut_groups(counts, noise, total_noise).max()
    totals = np.bincount(group, counts)
    joined, told, told_noise = join_alike(counts, group, totals, np.full(len(totals), total_noise))
    assert (joined == 0).all() and told == pytest.approx(totals.sum(keepdims=True))
    assert told_noise == pytest.approx([total_noise * np.sqrt(len(totals))])


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("law", LAWS)
def test_estimates_are_whole_and_rise_with_the_counts_and_lie_in_their_intervals(law, least):
    """Whatever the totals say: of two items the one with the larger noisy count has the larger estimate, or an equal one."""
    counts, noise, total_noise = LAWS[law]
    rng = np.random.default_rng(3)
    group = cut_groups(counts, noise, total_noise)
    number, order = int(group.max(initial=0)) + 1, np.argsort(counts, kind="stable")
    for factor in (0.0, 0.5, 1.0, 1.3, 5.0):
        totals = np.bincount(group, counts, minlength=number) * factor * rng.uniform(0.8, 1.2, number)
        made = calibrate(counts, group, totals, noise, total_noise, least=least)
        assert (made.estimate == np.rint(made.estimate)).all() and (made.estimate >= least).all()
        assert (np.diff(made.estimate[order]) >= 0).all() or factor > 1  # a scale may fall with size
        assert (made.low >= least).all() and (made.low <= made.estimate).all() and (made.estimate <= made.high).all()
        assert (
            (made.left_out is None or 0 <= made.left_out < 1)
            and (made.noise_stddev >= noise * (1 - 1e-9)).all()
            and (made.scale >= 1).all()
        )


def test_a_group_without_news_has_its_counts_and_their_noise():
    counts = np.array([5000.0, 4000.0, 3000.0])
    made = calibrate(counts, np.zeros(3, int), np.array([11500.0]), 10.0, 1000.0)
    assert made.estimate == pytest.approx(counts) and made.noise_stddev == pytest.approx([10.0] * 3)
    assert made.left_out == 0 and (made.scale == 1).all()


def test_one_group_is_scaled_as_its_total_says():
    """9000 of 12000 kept, told to 100: shrunk by 3.3 counts. The noise is that of the count, scaled, and a share of the
    total's; the interval has the spread of what was left out besides."""
    counts, noise, total_noise = np.array([6000.0, 3000.0]), 5.0, 100.0
    made = calibrate(counts, np.zeros(2, int), np.array([12000.0]), noise, total_noise)
    goal = 12000 - 10_000 / 3000
    scale, share = goal / 9000, counts / 9000
    assert made.estimate == pytest.approx(counts * scale, abs=0.5) and made.scale == pytest.approx([scale] * 2)
    assert made.noise_stddev == pytest.approx(np.hypot(scale * noise, share * total_noise))
    assert made.left_out == pytest.approx(1 - 9000 / goal)
    spread = tuning.SPREAD_OF_LEFT_OUT * (1 - 9000 / goal) / tuning.LEFT_OUT_OF_FULL_SPREAD * counts * scale
    half = 1.96 * np.hypot(made.noise_stddev, spread)
    assert made.high - counts * scale == pytest.approx(half, rel=0.01)
    assert counts * scale - made.low == pytest.approx(half, rel=0.01)
    sampled = calibrate(counts, np.zeros(2, int), np.array([12000.0]), noise, total_noise, sampled=True)
    assert sampled.noise_stddev**2 - made.noise_stddev**2 == pytest.approx(scale * (scale - 1) * counts)


def test_the_scale_is_one_smooth_function_of_size():
    """Large items lose two thirds, small ones a third: what lies between has a scale between, and items of nearly equal counts
    on both sides of a cut nearly equal scales."""
    counts = np.concatenate([np.linspace(3000, 1000, 20), np.linspace(990, 100, 40)])
    group = np.repeat([0, 1], [20, 40])
    scale = calibrate(counts, group, np.bincount(group, counts) * [3, 1.5], 1.0, 1.0).scale
    assert (np.diff(scale) <= 1e-9).all() and 1 < scale[19] / scale[20] < 1.02
    assert scale.min() == pytest.approx(1.5, rel=1e-3) and scale.max() == pytest.approx(3, rel=1e-3)


def test_a_scale_only_rises_or_only_falls():
    assert _monotone(np.array([1.0, 3.0, 2.0]), np.ones(3)) == pytest.approx([1, 2.5, 2.5])
    assert _monotone(np.array([3.0, 1.0, 2.0, 1.0]), np.ones(4)) == pytest.approx([3, 1.5, 1.5, 1])
    assert _monotone(np.array([1.0, 3.0, 2.0]), np.array([1.0, 1.0, 3.0])) == pytest.approx([1, 2.25, 2.25])
    assert _monotone(np.array([7.0]), np.ones(1)) == pytest.approx([7])


def test_a_large_item_among_many_that_nobody_has_keeps_its_count():
    """Five items of a public domain of 200, in one group as the total is noisy: the others must not lower them."""
    truth = np.append([2000.0, 1000, 600, 300, 200], np.zeros(195))
    counts = truth + np.random.default_rng(1).normal(0, 30, 200)
    group = cut_groups(counts, 30.0, 200.0)
    assert group.max() == 0
    made = calibrate(counts, group, truth.sum(keepdims=True), 30.0, 200.0)
    assert (np.abs(made.estimate - truth)[:5] < 4 * made.noise_stddev[:5]).all()
    assert np.abs(made.estimate - truth).sum() < 0.2 * truth.sum() and made.noise_stddev.min() >= 30


@pytest.mark.slow("accuracy")
@pytest.mark.parametrize("more", [0.0, 0.5, 1.0, 1.5, 2.5, 4.0, 20.0])
def test_intervals_hold_what_a_total_was_made_of_also_where_it_tells_little(more):
    """Ten items whose total is above their counts by so many standard deviations of its noise. 4,000 draws: an interval that
    holds it in 95 % does so in 93.2 % of them or more, but for a chance below 1e-6; more where there is a spread besides."""
    random, truth, total_noise, noise = np.random.default_rng(3), np.full(10, 100.0), 400.0, 1.0
    whole = truth.sum() + more * total_noise
    held, of_noise = [], []
    for z in random.standard_normal((4000, 11)):
        made = calibrate(truth + noise * z[1:], np.zeros(10, int), whole + total_noise * z[:1], noise, total_noise)
        whole_of_one = truth[0] * whole / truth.sum()
        held.append(made.low[0] <= whole_of_one <= made.high[0])
        of_noise.append(abs(whole_of_one - made.estimate[0]) <= 1.96 * made.noise_stddev[0])
    assert 0.932 < np.mean(held)
    # As if the estimate had the noise of a count where a total has no news: what intervals were once.
    assert more not in (0.5, 1.0) or np.mean(of_noise) < 0.7
