"""The whole aggregate as a value: its stages in a row, without Beam, and the factory that makes it.

Guarantee: that of the package. Proof: docs/proofs/aggregate.md, "All stages together".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp, check_budget, check_delta_or_domain
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.answers import (
    Answer,
    NoisySums,
    answers_batch,
    columns_of,
    ratio_answers,
    total_answer,
)
from headcount.mechanisms.aggregate.bounding import bounded_batch
from headcount.mechanisms.aggregate.measures import MOST_PER_ITEM, has_halves
from headcount.mechanisms.aggregate.metrics import COUNTS, Metric, Metrics
from headcount.mechanisms.aggregate.ranges import in_range
from headcount.mechanisms.aggregate.stages import AggregatePlan, AggregateStages
from headcount.mechanisms.aggregate.sums import measure_subkeys, merge_measures, noisy_measures, sum_measures
from headcount.mechanisms.aggregate.totals import calibrated, cells, group_keys, total_rows
from headcount.mechanisms.batches.domain import Domain, PartDomain, arrow_type, only_domain, public_domain
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.shards import Shard, pack_shard, unpack_shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.batches.value_rows import ValueShard, pack_values, unpack_values
from headcount.mechanisms.bounding.steps import check_bound, provenance, step_subkeys
from headcount.mechanisms.calibration.expected_error import users_needed
from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.mechanisms.checks import check_one_of, check_whole
from headcount.mechanisms.choice.run import choose_of
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import bounded_users, noisy_counts
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.account import make_account, zcdp_account
from headcount.mechanisms.histogram.estimates import NOT_KNOWN, Grouped
from headcount.mechanisms.histogram.factory import CALIBRATIONS
from headcount.mechanisms.levels.adding_up import added_up, no_child_above, whole_numbers
from headcount.mechanisms.levels.release import check_depth
from headcount.mechanisms.levels.tree import Tree, user_nodes
from headcount.mechanisms.partitions.select import named_in_rounds
from headcount.mechanisms.randomness.keys import Release

NAME = "Aggregate"

#: What a reader of calibrated totals must know of them.
ASSUMPTION = (
    "users, events and sums assume that what the bounds left out spreads over keys of similar size, with values, like what "
    "they kept; low to high has the noise, and how far that assumption may be off"
)

#: The same of all other metrics, where users may have more keys or rows than are seen.
OF_A_SAMPLE = (
    "shares, means, ratios, variances and quantiles are of a sample of each user's keys and rows, and have the range of the "
    "noise alone: they are off where users of many keys are unlike others"
)

#: The same of values whose range was chosen.
CHOSEN_RANGES = (
    "values were cut to ranges that were chosen privately, which takes about {users:,} users: with far fewer, a range may be "
    "too small, and all that is computed of its values with it"
)


@dataclasses.dataclass(frozen=True)
class Aggregated:
    """What was chosen, and what the totals have told: the share of the first of them that the bounds left out."""

    plan: AggregatePlan
    groups: int
    left_out: float | None

    @property
    def guarantee(self) -> Guarantee:
        """The whole promise, in the numbers of what was chosen."""
        return self.plan.guarantee

    def description(self) -> str:
        """What was chosen, in one line."""
        return self.plan.description()

    def report_fields(self) -> Mapping[str, Any]:
        """The same as parts of a report."""
        return {**self.plan.report_fields(), **({"groups": self.groups} if self.groups else {})}

    def summary(self) -> Mapping[str, Any]:
        """What a reader asks first: the users that a key needs, and what the bounds left out."""
        names = self.plan.names
        told: dict[str, Any] = {} if names is None else dict(users_needed(each.plan for each in names.rounds))
        assumed = []
        if self.left_out is not None:
            told["share_left_out"] = round(self.left_out, 3)
        if self.plan.totals is not None:
            assumed += [ASSUMPTION] if self.left_out is not None else [ASSUMPTION, NOT_KNOWN]
        if any(metric.kind not in (*COUNTS, "sum") for metric in self.plan.metrics.each):
            assumed.append(OF_A_SAMPLE)
        if self.plan.ranges:
            assumed.append(CHOSEN_RANGES.format(users=self.plan.users_for_ranges))
        if assumed:
            told["assumption"] = "; ".join(assumed)
        return told


@dataclasses.dataclass(frozen=True)
class AggregateMechanism:
    """A whole aggregate as a value; `run` is the mechanism without Beam."""

    stages: AggregateStages
    domain: Domain | PartDomain | None
    item_type: type
    levels: int = 0  # the columns of a key of which each level counts; 0 if only the whole key does
    name = NAME

    def __post_init__(self) -> None:
        self.stages.account.check_named(not isinstance(self.domain, Domain))

    @property
    def metrics(self) -> Metrics:
        """What is asked of every key."""
        return self.stages.metrics

    @property
    def decides(self) -> bool:
        """Whether anything is chosen on the way."""
        named = not isinstance(self.domain, Domain)
        return named or self.stages.choice is not None or self.stages.ranges_choice is not None

    @property
    def least(self) -> int:
        """The least that an estimate may be: nobody may have a key that is public, or becomes so with others."""
        return 1 if self.domain is None and not self.levels else 0

    def of_depth(self, depth: int) -> AggregateMechanism:
        """The same for a key in levels of so many columns: the promise does not depend on their number."""
        check_depth(depth)
        return dataclasses.replace(self, levels=depth, item_type=str)

    @property
    def columns(self) -> list[str]:
        """The columns of the released rows beside the key."""
        calibrated = self.stages.calibrated
        return [column for each in self.metrics.each for column in columns_of(each, name_of(each, calibrated))]

    @property
    def open_columns(self) -> frozenset[str]:
        """Those of them that may be null: the ends of ratios."""
        ratios = [each.name for each in self.metrics.each if each.kind == "ratio"]
        return frozenset(f"{name}_{end}" for name in ratios for end in ("low", "high"))

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.stages.guarantee() if self.decides else self.stages.plan(None, None).guarantee

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows, sorted by key, of contribution batches with a value column for each of the metrics' ranges."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, Aggregated | None]:
        """The same, and what was chosen and told; None if nothing was."""
        label, stages = self.name if label is None else label, self.stages
        if self.domain is not None:
            batches = (only_domain(batch, self.domain) for batch in batches)
        users = value_users_of(batches)
        if self.metrics.only_values:
            users = users.map(ValueShard.with_some_value)
        names, items = None, self.domain.sorted_names if isinstance(self.domain, Domain) else None
        if items is None:
            partly, pairs = self.domain if isinstance(self.domain, PartlyPublic) else None, users.map(_pairs)
            pairs = pairs if partly is None else pairs.map(partly.projected)
            pairs = pairs if not self.levels else pairs.map(lambda shard: user_nodes(shard, self.levels))
            pairs = pairs.held(pack_shard, unpack_shard)
            release = release if partly is None else partly.own_release(release)
            names = stages.shared.names_plan(choose_of(pairs, stages.names_choice, release, f"{label}/ChooseNames"))
            items = named_in_rounds(pairs, names.rounds, release, f"{label}/NamedItems", self.item_type)
            items = items if partly is None else partly.complete(items)
        if self.levels:
            tree = Tree.of_named(items.to_pylist(), self.levels)
            items, users = tree.cells, users.map(tree.value_cells)
        users = users.map(lambda shard: shard.with_items(items)).held(pack_values, unpack_values)
        chosen, choice = None, stages.choice
        if choice is not None:
            public = choice.items_table(max(1, len(items)))
            chosen = choose_of(users.map(_pairs), choice, release, f"{label}/ChooseBounds", public)
        plan, ranges = stages.plan(names, chosen), stages.ranges_choice
        if ranges is not None:
            public = stages.ranges_table(plan, len(items))
            plan = stages.plan(names, chosen, choose_of(users, ranges, release, f"{label}/ChooseRanges", public))
        noisy = NoisySums.of(self._sums(users, plan, items, release, f"{label}/Sums"), plan.measures)
        if plan.totals is None:
            rows, decision = released(noisy, None, None, plan, self.least, self.levels)
            return rows, decision if self.decides else None
        grouped = group_keys(noisy, self.metrics, plan.kept, plan.totals.stddev)
        summed = users.map(lambda shard: total_rows(shard, grouped, self.metrics))
        bounded = bounded_users(summed, plan.totals_steps, release, f"{label}/Totals/Bounded")
        totals = noisy_counts(
            bounded,
            plan.totals,
            release,
            f"{label}/Totals/NoisyCounts",
            item_type=int,
            named=cells(grouped, self.metrics),
        )
        return released(noisy, grouped, totals, plan, self.least, self.levels)

    def _sums(
        self, users: Parts[ValueShard], plan: AggregatePlan, items: Names, release: Release, label: str
    ) -> pa.RecordBatch:
        """Bounding, sums and noise of all named keys, sorted."""
        key, measures = release.key_source.fetch(), plan.measures
        where = f"{label}/Bounded"
        subkeys = step_subkeys(key, release.id, where, measures.steps)
        where = provenance(where, release.id, len(users))

        def summed(numbered: tuple[int, ValueShard]) -> tuple[list[bytes], Origin]:
            part, shard = numbered
            batch = bounded_batch(in_range(shard, plan.metrics.values), measures, subkeys, where, part)
            return [chunk for _, chunk in sum_measures(batch, 1)], Origin.of(batch)

        found = users.numbered().each(summed)
        own = measure_subkeys(key, release.id, f"{label}/NoisySums", measures, plan.metrics.texts())
        merged, digest = merge_measures([chunk for chunks, _ in found for chunk in chunks], items, measures, own)
        evidence = Evidence.of([digest], (origin for _, origin in found))
        return noisy_measures(merged, measures, own, evidence, plan.metrics)


def released(
    noisy: NoisySums,
    grouped: Grouped | None,
    totals: pa.RecordBatch | None,
    plan: AggregatePlan,
    least: int,
    levels: int = 0,
) -> tuple[pa.RecordBatch, Aggregated]:
    """The released rows of noisy sums, and of noisy totals if there are any. A total without them is `bounded_...`. No estimate
    is below `least`. Of a key in levels, totals agree from level to level."""
    metrics = plan.metrics
    found = ratio_answers(noisy, metrics)
    estimates: dict[Metric, Answer] = {}
    left_out = None
    if grouped is not None and totals is not None and plan.totals is not None:
        told = np.asarray(totals.column("bounded_count"))
        estimates, left_out = calibrated(noisy, grouped, told, plan.totals.stddev, metrics, least)
    columns = {}
    for metric in metrics.each:
        answer = (found | estimates).get(metric)
        name = name_of(metric, grouped is not None)
        if answer is None:
            answer = _total(noisy, metric, metrics)
        if levels and metric.is_total:
            answer = _agreeing(answer, metric, Tree(levels, noisy.items))
        columns[name] = (metric, answer)
    groups = 0 if grouped is None else grouped.number
    return answers_batch(noisy.items, columns), Aggregated(plan, groups, left_out)


def _total(noisy: NoisySums, metric: Metric, metrics: Metrics) -> Answer:
    """A total of what the bounds leave, by its own noisy sum."""
    value, noise = noisy.total(metric, metrics.values)
    high = value + noisy.deviations * noise
    if metric.of is None:
        high = high + noisy.may_be_missing(metric.kind)
    return total_answer(metric, value, noise, (value - noisy.deviations * noise, high))


def _agreeing(answer: Answer, metric: Metric, tree: Tree) -> Answer:
    """A total of the cells of a tree: users of which no child has more than its parent, events and sums that add up."""
    value, low, high = answer.value, answer.low, answer.high
    if metric.kind == "users":
        value, low, high = (no_child_above(tree, each) for each in (value, low, high))
    else:
        unsure = (high - low) / (2 * DEVIATIONS)
        value = whole_numbers(tree, value, unsure) if metric.kind == "events" else added_up(tree, value, unsure)
    return Answer(value, answer.noise_stddev, np.minimum(low, value), np.maximum(high, value))


def name_of(metric: Metric, calibrated: bool) -> str:
    """The column of a metric: `bounded_...` for a total of what the bounds leave."""
    is_ratio = metric.kind in ("mean", "variance", "quantile", "share", "ratio")
    return metric.name if is_ratio or (calibrated and metric.is_total) else f"bounded_{metric.name}"


def _pairs(shard: ValueShard) -> Shard:
    return shard.pairs


def aggregate(
    budget: Zcdp | Budget,
    metrics: Iterable[Metric | str],
    *,
    domain: Iterable[str] | Iterable[int] | PartDomain | None = None,
    max_items: int | Literal["auto"] = "auto",
    max_per_item: int | None = None,
    calibrate: str = "totals",
    levels: int = 0,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> AggregateMechanism:
    """Metrics by key: keys are named, public, or partly public, and each gets all metrics, of one calibration of noise.

    At most `max_per_item` rows of a user on one key count, and sums see `max_items` of its keys: both are chosen privately
    where they are not given, and with them how many of those rows the sums see. The budget is a `Budget`, or a `Zcdp` of which
    delta is for the names. Ranges of values like "sum:price:auto" are chosen. `calibrate` is "totals", or "none" to spend
    nothing on totals and get what the bounds leave. With `levels`, the number of columns of the key, every node of the key has
    all metrics, and what is other under it: users and events, and sums of numbers that are not negative, agree.
    """
    if not isinstance(budget, Zcdp):
        check_budget(budget)
    check_one_of("calibrate", calibrate, CALIBRATIONS)
    arrow_type(item_type)
    asked = Metrics.of(metrics)
    names = domain if domain is None or isinstance(domain, PartDomain) else public_domain(domain, item_type)
    named = not isinstance(names, Domain)
    if named:
        check_delta_or_domain(budget.delta)
    if budget.delta == 0:
        raise ParameterError("metrics have Gaussian noise, which needs a delta above 0, got 0: give one", "delta")
    items = None if max_items == "auto" else check_bound("max_items", max_items)
    cap = None if max_per_item is None else check_whole("max_per_item", max_per_item, 1, MOST_PER_ITEM)
    if asked.only_users:
        if cap not in (None, 1):
            raise ParameterError(
                f"max_per_item={max_per_item!r} says nothing of users, who count once on a key: leave it out",
                "max_per_item",
            )
        cap = 1
    parts: dict[str, Any] = {
        "named": named,
        "chosen": items is None or cap is None,
        "calibrated": calibrate == "totals" and bool(asked.totals),
        "precision": tuning.AGGREGATE_PRECISION,
        "ranges": len(asked.autos),
        "capped": calibrate == "totals" and asked.counts_rows and cap is None,
        "users_too": calibrate == "totals" and "users" in asked.totals and asked.counts_rows,
    }
    if isinstance(budget, Zcdp):
        account = zcdp_account(budget, **parts)
    else:
        share = tuning.LAPLACE_TOTALS_SHARE_OF_AGGREGATE
        account = make_account(budget, pure=not named and has_halves(asked), pure_share=share, **parts)
    stages = AggregateStages(account, relation, asked, items, cap)
    made = AggregateMechanism(stages, names, item_type)
    if levels:
        if domain is not None:
            raise ParameterError(
                "a domain is not for metrics in levels, which name their nodes: leave it out", "domain"
            )
        made = made.of_depth(levels)
    for way, kept in stages.ends():
        stages.plan(way, kept)
    return made
