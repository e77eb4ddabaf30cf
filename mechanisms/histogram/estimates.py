"""Counts close to the truth: items are named, then counted, then the counts are calibrated by a few totals.

A bound throws events away, so that counts of what is left lie below the truth. Here three stages share the work:

1. **Names**: rounds of selection (`partitions`) name the items; with a public domain they are known. Where some key columns
   are public, the private parts of keys are named, and each is counted with all public parts (`domains.partly_public`).
2. **Counts**: each user's counts of named items, cut to c on one item and scaled down to a norm of R, are summed, and every
   named item gets noise. Nothing is hidden any more, so there is no threshold.
3. **Totals**: items are cut into groups by their noisy counts (`groups`). Each user's totals of the groups, scaled down to a
   norm of B, are summed and get noise. They say how much of each group the counts have left out. Where users are counted, the
   largest items are groups of their own, and count several times in a user's vector before it is scaled down.

How items are named, (R, c) and B are chosen privately (`stages`). Where users have an item or two, one step of Laplace noise
may name and count at once: that is one of the ways that can be chosen.

Guarantee: user-level (epsilon, delta)-differential privacy for the relation. The stages are adaptive: each reads the users'
rows and what the stages before it have released, and nothing else. `account` composes all of them, with all choices.
Estimates and their intervals are post-processing. Proof: docs/proofs/histogram.md.

What differs from Algorithms 1 and 3 of the paper, which release a bounded histogram (`fixed`, `auto`): counts are estimates
of the true numbers, under the assumption that `groups` states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.batches.distinct import sorting
from headcount.mechanisms.batches.domain import Domain, PartDomain, only_domain
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.run_sums import begins_run, run_sums
from headcount.mechanisms.batches.shards import MOST_COUNT, Shard, pack_shard, unpack_shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.bounding.steps import Step
from headcount.mechanisms.calibration.expected_error import correlated, users_needed
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.run import choose_of
from headcount.mechanisms.counting.noisy import bounded_users, noisy_counts
from headcount.mechanisms.counting.released import estimates_batch
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.alone import NEARLY_ALL, stand_alone
from headcount.mechanisms.histogram.fixed import NAME
from headcount.mechanisms.histogram.groups import calibrate, cut_groups, join_alike, largest_apart
from headcount.mechanisms.histogram.series import towards_series
from headcount.mechanisms.histogram.stages import StagePlan, Stages
from headcount.mechanisms.partitions.select import counts_in_rounds
from headcount.mechanisms.randomness.keys import Release

#: What a reader of estimates must know of them.
ASSUMPTION = (
    "count assumes that what the bound left out spreads over items of similar size like what it kept; low to high has the "
    "noise, and how far that assumption may be off"
)

#: The same where the noise of the totals is larger than what they could tell.
NOT_KNOWN = (
    "how much the bound left out is not known, as the noise of the totals is too large: the true numbers may be above"
)

#: The same where rows were shrunk towards their series.
OF_SERIES = (
    "each row is drawn towards its series, a level for each part times a shape that all of them share, as far as noise hides "
    "how it differs"
)


@dataclasses.dataclass(frozen=True)
class Estimated:
    """What was chosen, and what the totals have told: the share of events that the bound left out of the counts.

    `groups` are those beside the items that stand apart. `of_series` says whether rows were shrunk towards their series.
    """

    plan: StagePlan
    groups: int
    left_out: float | None
    of_series: bool = False
    alone: bool = False  # whether the counts stand alone, without totals

    @property
    def guarantee(self) -> Guarantee:
        """The whole promise, in the numbers of what was chosen."""
        return self.plan.guarantee

    def description(self) -> str:
        """What was chosen, in one line."""
        return self.plan.description()

    def report_fields(self) -> Mapping[str, Any]:
        """The same as parts of a report."""
        groups = {"groups": self.groups} if self.groups else {}
        return {**self.plan.report_fields(), **groups, **({"drawn_to_series": True} if self.of_series else {})}

    def summary(self) -> Mapping[str, Any]:
        """What a reader asks first: the users that an item needs, and what the bound left out."""
        names = self.plan.names
        told: dict[str, Any] = {} if names is None else dict(users_needed(each.plan for each in names.rounds))
        if self.left_out is not None:
            told["share_left_out"] = round(self.left_out, 3)
        if self.plan.totals is not None:
            assumed = (ASSUMPTION, "" if self.left_out is not None else NOT_KNOWN, OF_SERIES if self.of_series else "")
            told["assumption"] = "; ".join(filter(None, assumed))
        elif self.alone:
            told["assumption"] = NEARLY_ALL
        return told | ({} if self.plan.counts is None else correlated(self.plan.counts))


@dataclasses.dataclass(frozen=True)
class Grouped:
    """Named items, sorted, with their noisy counts, their groups, and the ends of the counts' intervals; public.

    The first groups are of one item each that stands `apart`, and their totals count `times` times in a user's vector.
    Where there are totals of several kinds, `kinds` has how often each of these counts in it. `cap` is what a user counts on
    one item at most; 0 stands for no limit.
    """

    items: Names
    counts: np.ndarray
    noise: float
    group: np.ndarray
    ends: tuple[np.ndarray, np.ndarray] | None = None
    apart: int = 0
    times: int = 1
    kinds: tuple[int, ...] = (1,)
    cap: int = 0

    @property
    def number(self) -> int:
        """How many groups there are: one without items, too."""
        return int(self.group.max(initial=0)) + 1

    @property
    def weights(self) -> np.ndarray:
        """How often the total of each group counts in a user's vector."""
        return np.where(np.arange(self.number) < self.apart, self.times, 1)


@dataclasses.dataclass(frozen=True)
class EstimatesMechanism:
    """A whole estimated histogram as a value; `run` is the mechanism without Beam."""

    stages: Stages
    domain: Domain | PartDomain | None
    item_type: type
    name = NAME

    def __post_init__(self) -> None:
        self.stages.account.check_named(not isinstance(self.domain, Domain))
        if isinstance(self.domain, PartDomain) and self.stages.account.pure:
            raise ParameterError(
                "one step of Laplace noise cannot name parts of keys and count whole ones: give pure=False"
            )

    @property
    def least(self) -> int:
        """The least that an estimate may be: nobody may have a key that is public, or becomes so with others."""
        return 1 if self.domain is None else 0

    @property
    def calibrated(self) -> bool:
        """Whether rows are estimates; else they are noisy counts of what the bound has left."""
        return self.stages.account.totals_choice is not None

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.stages.guarantee()

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows, sorted by item, of contribution batches."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, Estimated]:
        """The same, and what was chosen and told."""
        label, stages = self.name if label is None else label, self.stages
        if self.domain is not None:
            batches = (only_domain(batch, self.domain) for batch in batches)
        users = users_of(batches)
        names, counts, items = None, None, self.domain.names if isinstance(self.domain, Domain) else None
        if items is None:
            partly = partly_of(self.domain)
            parts = users if partly is None else users.map(partly.projected).held(pack_shard, unpack_shard)
            release = release if partly is None else partly.own_release(release)
            way = stages.named_by or choose_of(parts, stages.names_choice, release, f"{label}/ChooseNames")
            names = stages.names_plan(way)
            counts = counts_in_rounds(parts, names.rounds, release, f"{label}/NamedItems", self.item_type)
            items = counts.column("item") if partly is None else partly.complete(counts.column("item"))
        users = users.map(lambda shard: shard.with_items(items)).held(pack_shard, unpack_shard)
        chosen, choice = None, stages.clip_choice
        if choice is not None:
            public = stages.public_table(names, len(items))
            chosen = choose_of(users, choice, release, f"{label}/ChooseBounds", public)
        plan = stages.plan(names, chosen)
        if plan.counts is not None:
            counts = _noisy(users, plan.counts_steps, plan.counts, items, release, f"{label}/Counts", self.item_type)
        assert counts is not None
        if not self.calibrated:
            return counts, Estimated(plan, 0, None)
        grouped = group_items(counts, plan)
        totals: pa.RecordBatch | None = None
        if plan.totals is not None:
            groups = pa.array(np.arange(grouped.number))
            summed = users.map(lambda shard: group_rows(shard, grouped))
            totals = _noisy(summed, plan.totals_steps, plan.totals, groups, release, f"{label}/Totals", int)
        return estimate(grouped, totals, plan, self.least, partly_of(self.domain))


def group_items(counts: pa.RecordBatch, plan: StagePlan) -> Grouped:
    """Noisy counts, sorted by item, with the groups that they fall into; one group where counts stand alone."""
    noisy, stddev = (np.asarray(counts.column(name)) for name in ("bounded_count", "noise_stddev"))
    noise, apart, times = float(stddev[0]) if len(stddev) else 0.0, 0, 1
    low, high = (np.asarray(counts.column(name)) for name in ("low", "high"))
    if plan.totals is None:
        return Grouped(counts.column("item"), noisy, noise, np.zeros(len(noisy), dtype=np.int64), (low, high))
    total_noise = plan.totals.stddev
    kept = plan.kept
    if kept.max_per_item:
        order = 2 if plan.totals.kind == "gaussian" else 1
        apart, times = largest_apart(noisy, noise, total_noise, kept.totals_bound, order, kept.max_per_item)
    shared = 0.0 if plan.counts is None else plan.counts.shared_stddev
    group = cut_groups(noisy, noise, total_noise, shared, apart, to_join=True)
    return Grouped(counts.column("item"), noisy, noise, group, (low, high), apart, times, cap=kept.max_per_item)


def group_rows(shard: Shard, grouped: Grouped) -> Shard:
    """The totals of each user by group, of what counts of the rows of grouped items, times their weights.

    A total stops at MOST_COUNT, as a count on one item does: above any bound, so that it makes no difference.
    """
    shard, place = shard.placed(grouped.items)
    if grouped.cap:
        shard = limit_per_item(shard, grouped.cap)
    bits = grouped.number.bit_length()
    key = np.repeat(np.arange(len(shard.users)) << bits, shard.rows_per_user())
    key += np.append(grouped.group, 0)[place][shard.item]  # the last one where nothing is grouped, and no rows are left
    order = sorting(key, len(shard.users) << bits)
    key = key[order]
    starts = np.flatnonzero(begins_run(key))
    key, sums = key[starts], run_sums(shard.count[order], starts)
    user, group = key >> bits, key & ((1 << bits) - 1)
    return Shard(
        shard.users,
        pa.array(np.arange(grouped.number)),
        np.append(0, np.cumsum(np.bincount(user, minlength=len(shard.users)))),
        group,
        np.minimum(sums if grouped.apart == 0 else sums * grouped.weights[group], MOST_COUNT),
    )


def estimate(
    grouped: Grouped,
    totals: pa.RecordBatch | None,
    plan: StagePlan,
    least: int,
    partly: PartlyPublic | None = None,
) -> tuple[pa.RecordBatch, Estimated]:
    """The released rows of grouped items and the noisy totals of their groups, if the plan has any; no estimate is below
    `least`. Items that have public parts are series."""
    if plan.totals is None or totals is None:
        assert plan.counts is not None and grouped.ends is not None
        laplace = plan.counts.kind == "laplace"
        rows = stand_alone(grouped.items, grouped.counts, grouped.noise, grouped.ends, laplace, least)
        return rows, Estimated(plan, 0, None, alone=True)
    shrunk = None if partly is None else towards_series(grouped.counts, grouped.noise, *partly.series(grouped.items))
    told, noise = np.asarray(totals.column("bounded_count")) / grouped.weights, plan.totals.stddev / grouped.weights
    group, told, noise = join_alike(grouped.counts, grouped.group, told, noise, grouped.apart)
    one_step = plan.counts is None
    made = calibrate(
        grouped.counts,
        group,
        told,
        grouped.noise,
        noise,
        own_ends=grouped.ends if one_step else None,
        laplace=plan.totals.kind == "laplace",
        sampled=one_step,
        apart=grouped.apart,
        least=least,
        shrunk=shrunk,
    )
    rows = estimates_batch(grouped.items, made.estimate, made.noise_stddev, grouped.counts, ends=(made.low, made.high))
    return rows, Estimated(plan, max(1, grouped.number - grouped.apart), made.left_out, shrunk is not None)


def partly_of(domain: Domain | PartDomain | None) -> PartlyPublic | None:
    """What is public of the keys, where some of it is."""
    return domain if isinstance(domain, PartlyPublic) else None


def _noisy(
    users: Parts[Shard],
    steps: tuple[Step, ...],
    plan: NoisePlan,
    named: Names,
    release: Release,
    label: str,
    item_type: type,
) -> pa.RecordBatch:
    """Bounding and noise of one stage: every named item gets a noisy count, and no other may be there."""
    bounded = bounded_users(users, steps, release, f"{label}/Bounded")
    return noisy_counts(bounded, plan, release, f"{label}/NoisyCounts", item_type=item_type, named=named)
