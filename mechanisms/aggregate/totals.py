"""Totals of groups of keys, which say how much the bounds have left out of users, events and sums.

As for the histogram (`histogram.estimates`, `histogram.groups`): keys are cut into groups by their noisy sums, which are
public by then. Each user's keys and rows on all groups, of at most c of its rows on each named key, are one vector. It
is scaled down to a norm, summed, and gets noise. Where both are asked for, each has a bound that was chosen: few users have
many keys, and it is their events that make the norm. Keys count several times in the vector, as often as the bound of events
is a multiple of theirs, and users have less noise by that factor. Estimates of users and events follow as for the histogram.
A sum is the mean times the events with a value, which have totals of their own where rows may lack one; its interval is that
of the key's own noisy sum, scaled up as these events are.

What it assumes: what the bounds have left out spreads over keys of similar size like what they have kept, and its values are
like those kept.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa

from headcount.mechanisms.aggregate.answers import Answer, NoisySums, mean_ratio, total_answer
from headcount.mechanisms.aggregate.metrics import COUNTS, Metric, Metrics
from headcount.mechanisms.batches.shards import MOST_COUNT, Shard
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.mechanisms.histogram.estimates import Grouped, group_rows
from headcount.mechanisms.histogram.groups import Calibrated, calibrate, cut_groups


def totals_norm(kept: ClipBound, kinds: int) -> int:
    """The norm of a user's vector, l1 for Laplace noise and else l2: of this number of totals, all at their bounds."""
    return kept.totals_bound * kinds if kept.noise == "laplace" else math.ceil(kept.totals_bound * math.sqrt(kinds))


def _times(kept: ClipBound, kinds: int) -> tuple[int, ...]:
    """How often each total counts in a user's vector: users, which come first, as often as their bound leaves room for."""
    ones = (1,) * kinds
    return (kept.totals_bound // kept.users_bound, *ones[1:]) if kept.users_bound else ones


def group_keys(noisy: NoisySums, metrics: Metrics, kept: ClipBound, total_stddev: float) -> Grouped:
    """The keys with the groups that they fall into, by their noisy events, or users if no rows are counted."""
    counts, noise = noisy.counts("events" if metrics.counts_rows else "users")
    group = np.zeros(len(counts), dtype=np.int64)
    if len(counts):
        # Samples have their chance besides the noise: groups that were cut by it would be drawn to each other.
        chance = math.sqrt(noise**2 + float(np.maximum(counts, 0.0).mean()))
        group = cut_groups(counts, chance, total_stddev)
    return Grouped(noisy.items, counts, noise, group, kinds=_times(kept, len(metrics.totals)), cap=kept.cap)


def cells(grouped: Grouped, metrics: Metrics) -> pa.Array:
    """What gets noise: each total on each group, by group * totals + place of the total."""
    return pa.array(np.arange(grouped.number * len(metrics.totals)))


def total_rows(shard: ValueShard, grouped: Grouped, metrics: Metrics) -> Shard:
    """The totals of each user by cell, of its rows of grouped keys."""
    parts = []
    for kind in metrics.totals:
        of = dataclasses.replace(grouped, cap=1) if kind == "users" else grouped
        pairs = shard.pairs if kind in COUNTS else shard.valued_pairs(int(kind.removeprefix("valued")))
        parts.append(group_rows(pairs, of))
    first, size = parts[0], len(parts)
    item = np.stack([part.item * size + place for place, part in enumerate(parts)], axis=1).ravel()
    counts = [np.minimum(part.count * times, MOST_COUNT) for part, times in zip(parts, grouped.kinds, strict=True)]
    count = np.stack(counts, axis=1).ravel()
    return Shard(first.users, cells(grouped, metrics), first.offsets * size, item, count)


def calibrated(
    noisy: NoisySums, grouped: Grouped, totals: np.ndarray, total_stddev: float, metrics: Metrics, least: int
) -> tuple[dict[Metric, Answer], float | None]:
    """Estimates of the metrics that are totals, by the noisy totals of all cells; and the share of events, or else of users,
    that the bounds have left out. No number of users or events is below `least`."""
    made = {}
    by_kind = totals.reshape(grouped.number, len(metrics.totals)).T
    for kind, told, times in zip(metrics.totals, by_kind, grouped.kinds, strict=True):
        counts, noise = noisy.counts(kind)
        noises = noise, total_stddev / times
        least_of = least if kind in COUNTS else 0
        found_of = calibrate(counts, grouped.group, told / times, *noises, sampled=True, least=least_of)
        made[kind] = found_of if noisy.deviations == DEVIATIONS else _wider(found_of, noisy.deviations / DEVIATIONS)
    found = {}
    for metric in metrics.each:
        if not metric.is_total:
            continue
        if metric.of is None:
            own = made[metric.kind]
            high = own.high + own.scale * noisy.may_be_missing(metric.kind)
            found[metric] = total_answer(metric, own.estimate, own.noise_stddev, (own.low, high))
        else:
            kind = metrics.rows_of(metric.of)
            found[metric] = _scaled_sum(noisy, metric, metrics, kind, made[kind])
    return found, made["events" if "events" in made else metrics.totals[-1]].left_out


def _wider(told: Calibrated, by: float) -> Calibrated:
    """The same with intervals that are wider by this factor, for noise of a longer tail."""
    low, high = told.estimate - by * (told.estimate - told.low), told.estimate + by * (told.high - told.estimate)
    return dataclasses.replace(told, low=low, high=high, below=by * told.below, above=by * told.above)


def _scaled_sum(noisy: NoisySums, metric: Metric, metrics: Metrics, kind: str, events: Calibrated) -> Answer:
    """The mean of a key times its events with a value, within the interval of its own noisy sum, scaled up as these are; the
    noise of that scale is what the events have beyond their own."""
    value, noise = noisy.total(metric, metrics.values)
    _, own = noisy.counts(kind)
    scale, size = events.scale, np.maximum(events.estimate, own)
    estimate = scale * value
    of_scale = np.sqrt(np.maximum(events.noise_stddev**2 - (scale * own) ** 2, 0.0)) / size
    below, above = (
        np.hypot(noisy.deviations * scale * noise, end / size * estimate) for end in (events.below, events.above)
    )
    stddev = np.hypot(scale * noise, of_scale * estimate)
    answer = total_answer(metric, np.maximum(estimate, 0.0), stddev, (estimate - below, estimate + above))
    assert metric.of is not None
    number = metrics.values.index(metric.of)
    ratio, _, _ = mean_ratio(noisy, number)
    told = events.estimate * (metric.of.midpoint + metric.of.half * ratio)
    return dataclasses.replace(answer, value=np.clip(told, answer.low, answer.high))
