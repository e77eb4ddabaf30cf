"""`Aggregate`: users, events, sums, means, variances and quantiles by key, each stage beyond the barrier of the last.

As for estimated histograms (`transforms.estimates`), users are brought together once, and every stage reads their shards again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.answers import NoisySums
from headcount.mechanisms.aggregate.metrics import Metric, Metrics
from headcount.mechanisms.aggregate.ranges import ChosenEnds
from headcount.mechanisms.aggregate.release import Aggregated, AggregateMechanism, aggregate, released
from headcount.mechanisms.aggregate.stages import AggregatePlan, AggregateStages
from headcount.mechanisms.aggregate.totals import cells, group_keys, total_rows
from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.domain import Domain, arrow_type
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.batches.shards import Shard, no_users, pack_shard, unpack_shard
from headcount.mechanisms.batches.value_rows import ValueShard, gather_values, pack_values, unpack_values
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.choice.run import encode_table
from headcount.mechanisms.columns.flags import carried_text
from headcount.mechanisms.counting.released import by_file, sorted_counts
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.estimates import Grouped
from headcount.mechanisms.histogram.names import NamesPlan
from headcount.mechanisms.levels.tree import Tree, user_nodes
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.aggregate.rows import ToMetricRows
from headcount.transforms.aggregate.sums import NoisySumsOfNamed
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import barrier, beside, sorted_by_item, with_beside
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import Choose
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import Contributions, is_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.noise import NamedBatches
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import UserShards, item_shards, keeper_of
from headcount.transforms.core.windows import check_windowing, every
from headcount.transforms.estimates import NoisyStage, PartsOfKeys, every_key, named_among
from headcount.transforms.keyed.domain import given_items
from headcount.transforms.levels import every_cell, named_tree
from headcount.transforms.partitions import NamedItems


class Aggregate(PrivateTransform):
    """How many users and events each key has, shares of its users, and the sum, mean, variance and quantiles of values.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, or for a `Zcdp(rho, delta)` delta-approximate
    rho-zCDP. Keys that come from the data are named first,
    and those that few users have stay hidden. Then sums see at most `max_items` named keys of each user, with at most
    `max_per_item` rows on each, and values within their ranges. All metrics share one calibration of noise.

    The result is `beam.Row`s: the key (`item`, or the key columns), and for each metric its value, `..._noise_stddev`,
    `..._low` and `..._high`, which hold 95 % of the noise. Users, events and sums are estimates of the totals, of at most
    `max_per_item` rows of one user on one key, as noisy totals of groups of keys tell how much was left out. Means,
    variances and quantiles are of a uniform sample of each user's rows. The median of price is `p50_price`, with
    `p50_price_rank_stddev` for the noise of its rank, in shares of rows. Sums of a range with negative numbers are not
    calibrated, and are called `bounded_sum_...`; so are all totals with `calibrate="none"`. Rows with fields for the values
    go in, or `Contributions(values=...)` of the same ranges. `with_decision()` gives what was chosen beside.

    Parameters:
        budget: what all of it may cost, as a `Budget` or a `Zcdp`; it needs a delta.
        metrics: what is asked of each key: "users", "events", "sum:price:0:100", "mean:price:0:100", "variance:price:0:100",
            "quantile:0.5,0.9:price:0:100", "share:bought=event=buy", "ratio:ctr=clicks:0:10/views:0:50".
            Values beyond a range count as its ends. It must be public: known without a look at the data. "sum:price:auto"
            chooses a range from 0 on privately, and "sum:price:-auto:auto" one with negative numbers.
            A share is that of the key's users with a row that meets a condition, in a column of its name. Dates and times in it
            are UTC's. A ratio is that of two sums; where the second may be 0, its ends are None.
        domain: the keys, if they are public: then all of them are released, and nothing is spent on names (default: None); or
            ranges and lists of some key columns, as for `Histogram`.
        max_items: the keys of one user that count (default: "auto", chosen privately).
        max_per_item: the rows of one user on one key that count, up to 1000 (default: None, chosen privately).
        calibrate: "totals" (default), or "none" to spend nothing on them.
        levels: whether the key columns are levels, from the widest to the finest, as for `Histogram` (default: False). Users,
            events, and sums of numbers that are not negative, then agree from level to level.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: AggregateMechanism
    _takes_windows = True

    def __init__(
        self,
        budget: Zcdp | Budget,
        metrics: Sequence[Metric | str],
        *,
        domain: Any = None,
        max_items: int | Literal["auto"] = "auto",
        max_per_item: int | None = None,
        calibrate: str = "totals",
        levels: bool = False,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        make = functools.partial(
            aggregate,
            budget,
            metrics,
            max_items=max_items,
            max_per_item=max_per_item,
            calibrate=calibrate,
            levels=2 if levels else 0,  # as many as the keys of the collection have, once these are known
            relation=Relation.parse(relation),
        )
        made = make(domain=items.domain, item_type=items.made)
        super().__init__(
            made, release=release, shards=shards, output_files=output_files, items=items, partly=make, levels=levels
        )

    def _given(self) -> str | None:
        return None if self.mechanism.decides else "all is"

    def _closes_in_streams(self) -> bool:
        return not self.mechanism.levels

    def expand(self, rows: beam.PCollection) -> Any:
        check_windowing(rows)
        values = self.mechanism.metrics.values
        if not is_contributions(rows):
            rows = rows | "Contributions" >> Contributions(values=values)
        if rows.element_type.values != values:
            texts = ", ".join(repr(carried_text(of)) for of in values)
            raise ParameterError(
                f"the metrics are of other values than rows carry: give Contributions(values=[{texts}])"
            )
        return self._of(rows.element_type)._expand(rows)

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, _ = self._drawn(rows)
        m = self.mechanism
        if m.domain is not None:
            rows = rows | "OnlyDomain" >> OnlyDomain(m.domain)
        files = self._output_files or item_shards(self._shards)
        made = aggregated(rows, m, release, self._shards, files)
        to_rows = ToMetricRows(self._keys, m.columns, m.open_columns)  # refuses a column that is there twice
        shown = self._with_key_columns(made.counts)
        return self._result(shown if self._output_files is not None else shown | "ToRows" >> to_rows, made.decision)


def aggregated(
    contributions: beam.PCollection, mechanism: AggregateMechanism, release: Release, shards: int, files: int
) -> CountsAndDecision:
    """(file, released rows) of contributions with values, sorted, for each of the files, and the `Aggregated` decision."""
    stages, item_type, metrics = mechanism.stages, mechanism.item_type, mechanism.metrics
    choice, known, public = stages.choice, None, None
    keep = keeper_of(contributions)
    packed = (
        contributions
        | "UserShards" >> UserShards(shards, release.windows)
        | "PackShards" >> beam.ParDo(_Pack(keep, metrics.only_values)).with_output_types(tuple[int, bytes])
    )
    domain = mechanism.domain
    if not isinstance(domain, Domain):
        partly = domain if isinstance(domain, PartlyPublic) else None
        release = release if partly is None else partly.own_release(release)
        parts = packed if partly is None else packed | "PartsOfKeys" >> PartsOfKeys(partly)
        if mechanism.levels:
            parts = packed | "Nodes" >> beam.ParDo(_Nodes(mechanism.levels, keep)).with_output_types(tuple[int, bytes])
        chosen = parts | "ChooseNames" >> Choose(stages.names_choice, release, shards, ChosenStrategy)
        names = chosen.chosen | "NamesPlan" >> beam.Map(stages.shared.names_plan).with_output_types(NamesPlan)
        known_names = beside(names, "NamesBeside")
        named = parts | "NamedItems" >> NamedItems(
            known_names, release, shards, item_type, most_rounds=tuning.ROUNDS_OF_HISTOGRAM
        )
        all_named = beam.pvalue.AsList(named)  # (0, named keys) of each round, beyond a barrier
        if mechanism.levels:
            tree = names | "Tree" >> beam.Map(named_tree, mechanism.levels, all_named).with_output_types(Tree)
            known_tree = beam.pvalue.AsSingleton(beside(tree, "TreeBeside"))
            rows = packed | "Cells" >> beam.ParDo(_Cells(keep), known_tree).with_output_types(tuple[int, bytes])
            every_node = tree | "EveryNode" >> beam.Map(every_cell).with_output_types(tuple[int, pa.RecordBatch])
            all_named = beam.pvalue.AsList(every_node)
        else:
            only = beam.ParDo(_OnlyNamed(keep, partly), all_named).with_output_types(tuple[int, bytes])
            rows = with_beside(packed, "OnlyNamed", only, shards)
        if partly is not None:
            all_named = every_key(names, partly, all_named)
        known = beam.pvalue.AsSingleton(known_names)
        if choice is not None:
            table_of = beam.Map(_public_table, stages, all_named).with_output_types(bytes)
            public = with_beside(names, "PublicTable", table_of)
    else:
        names = every(packed, "NoNames", [None])
        all_named, rows = domain, packed
        if choice is not None:
            table = choice.items_table(max(1, len(domain)))
            public = every(packed, "PublicTable", [encode_table(table)])
    # Keys get noise also where there are no users: so there is always a shard, if only one of nobody.
    nobody = names | "Nobody" >> beam.Map(_nobody, arrow_type(item_type), len(metrics.values)).with_output_types(
        tuple[int, bytes]
    )
    rows = (rows, nobody) | "WithNobody" >> beam.Flatten()
    if choice is not None:
        bounds = rows | "ChooseBounds" >> Choose(choice, release, shards, ClipBound, public)
        plan = with_beside(bounds.chosen, "Plan", beam.Map(_plan, stages, known).with_output_types(AggregatePlan))
    else:
        plan = names | "Plan" >> beam.Map(stages.plan, None).with_output_types(AggregatePlan)
    if stages.ranges_choice is not None:
        plan = plan_in_range(plan, rows, all_named, stages, release, shards)
    known_plan = beside(plan, "PlanBeside")
    decided = beam.pvalue.AsSingleton(known_plan)
    sums = rows | "Sums" >> NoisySumsOfNamed(known_plan, all_named, release, shards, item_type)
    gathering = beam.Map(_all_sums, beam.pvalue.AsList(sums)).with_output_types(pa.RecordBatch)
    gathered = with_beside(plan, "AllSums", gathering)
    groups: Any = None
    totals: Any = None
    if stages.calibrated:
        grouped = with_beside(gathered, "Group", beam.Map(_grouped, decided, metrics).with_output_types(Grouped))
        groups = beam.pvalue.AsSingleton(beside(grouped, "GroupsBeside"))
        all_cells = grouped | "EveryCell" >> beam.Map(_every_cell, metrics).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        totals = beam.pvalue.AsList(
            rows
            | "Totals"
            >> NoisyStage(
                "totals",
                known_plan,
                beam.pvalue.AsList(all_cells),
                (groups, _TotalRows(metrics)),
                release,
                shards,
                int,
                unpack_values,
            )
        )
    answering = beam.ParDo(
        _Answers(files, mechanism.least, mechanism.levels), decided, groups, totals
    ).with_output_types(tuple[int, bytes])
    made = with_beside(gathered, "Answers", answering.with_outputs("decision", main="rows"))
    typed(made, decision=Aggregated)
    return CountsAndDecision(sorted_by_item(barrier(made.rows)), made.decision)


class _Pack(Ahead):
    """(shard, chunks) -> (shard, packed with values): each shard gathered once, for all that reads it later, without rows that
    do not matter."""

    def __init__(self, keep: Keeper, only_values: bool) -> None:
        self._keep, self._only_values = keep, only_values

    def process(
        self, group: tuple[int, Iterable[bytes]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        number, chunks = group
        yield from self.ahead(window, (number, list(chunks)))  # a runner may fetch them, which only this thread can do

    def compute(self, group: tuple[int, list[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, chunks = group
        shard = gather_values(chunks)
        yield number, self._keep(pack_values(shard.with_some_value() if self._only_values else shard))


class _OnlyNamed(Ahead):
    """Packed shards -> the same with the rows of named keys only."""

    def __init__(self, keep: Keeper, partly: PartlyPublic | None) -> None:
        self._keep, self._partly = keep, partly

    def process(
        self, packed: tuple[int, bytes], named: NamedBatches, window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        return self.ahead(window, packed, named)

    def compute(self, packed: tuple[int, bytes], named: NamedBatches) -> Iterator[tuple[int, bytes]]:
        number, data = packed
        shard = unpack_values(data)
        known = named_among(shard.pairs.items, named, self._partly)
        yield number, self._keep(pack_values(shard.with_items(known).compact()))


class _Nodes(Ahead):
    """Packed shards -> shards of the nodes that users lie in, of which some are named."""

    def __init__(self, depth: int, keep: Keeper) -> None:
        self._depth, self._keep = depth, keep

    def process(
        self, packed: tuple[int, bytes], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        return self.ahead(window, packed)

    def compute(self, packed: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
        number, data = packed
        yield number, self._keep(pack_shard(user_nodes(unpack_shard(data), self._depth)))


class _Cells(Ahead):
    """Packed shards -> the same with each row in every cell of the tree that it lies in."""

    def __init__(self, keep: Keeper) -> None:
        self._keep = keep

    def process(
        self, packed: tuple[int, bytes], tree: Tree, window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        return self.ahead(window, packed, tree)

    def compute(self, packed: tuple[int, bytes], tree: Tree) -> Iterator[tuple[int, bytes]]:
        number, data = packed
        yield number, self._keep(pack_values(tree.value_cells(unpack_values(data))))


class _Answers(beam.DoFn):
    """Noisy sums, and the totals of groups of keys -> released rows by file, and the decision beside."""

    def __init__(self, files: int, least: int, levels: int) -> None:
        self._files, self._least, self._levels = files, least, levels

    def process(
        self, sums: pa.RecordBatch, plan: AggregatePlan, grouped: Grouped | None, totals: NamedBatches | None
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        told = None if totals is None else sorted_counts(to_ipc(batch) for _, batch in totals)
        rows, decision = released(NoisySums.of(sums, plan.measures), grouped, told, plan, self._least, self._levels)
        yield beam.pvalue.TaggedOutput("decision", decision)
        yield from by_file(rows, self._files)


class _TotalRows:
    """`total_rows` for what is asked for."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def __call__(self, shard: ValueShard, grouped: Grouped) -> Shard:
        return total_rows(shard, grouped, self._metrics)


def _nobody(_: NamesPlan | None, item_type: pa.DataType, values: int) -> tuple[int, bytes]:
    nothing = np.zeros(0, dtype=np.int64)
    shard = ValueShard(no_users(item_type), np.zeros(1, dtype=np.int64), nothing, (nothing,) * values)
    return -1, pack_values(shard)


def _public_table(_: NamesPlan, stages: AggregateStages, named: NamedBatches) -> bytes:
    assert stages.choice is not None
    return encode_table(stages.choice.items_table(max(1, sum(batch.num_rows for _, batch in named))))


def _plan(chosen: ClipBound, stages: AggregateStages, names: NamesPlan | None) -> AggregatePlan:
    return stages.plan(names, chosen)


def _all_sums(_: AggregatePlan, sums: NamedBatches) -> pa.RecordBatch:
    (one,) = sums
    return one[1]


def _grouped(sums: pa.RecordBatch, plan: AggregatePlan, metrics: Metrics) -> Grouped:
    assert plan.totals is not None
    return group_keys(NoisySums.of(sums, plan.measures), metrics, plan.kept, plan.totals.stddev)


def _every_cell(grouped: Grouped, metrics: Metrics) -> tuple[int, pa.RecordBatch]:
    return 0, pa.RecordBatch.from_pydict({"item": cells(grouped, metrics)})


def plan_in_range(
    plan: beam.PCollection,
    rows: beam.PCollection,
    named: beam.pvalue.AsList | Domain,
    stages: AggregateStages,
    release: Release,
    shards: int,
) -> beam.PCollection:
    """The one plan, with the ranges that are chosen from packed shards of the rows on named keys."""
    assert stages.ranges_choice is not None
    noise = with_beside(plan, "RangesTable", beam.Map(_ranges_table, stages, named).with_output_types(bytes))
    choose = Choose(stages.ranges_choice, release, shards, ChosenEnds, noise, unpack=unpack_values)
    chosen = (rows | "ChooseRanges" >> choose).chosen
    before = beam.pvalue.AsSingleton(beside(plan, "BoundsBeside"))
    return with_beside(chosen, "PlanInRange", beam.Map(_in_range, before, stages).with_output_types(AggregatePlan))


def _ranges_table(plan: AggregatePlan, stages: AggregateStages, named: NamedBatches | Domain) -> bytes:
    keys = len(named) if isinstance(named, Domain) else sum(batch.num_rows for _, batch in named)
    return encode_table(stages.ranges_table(plan, keys))


def _in_range(ranges: ChosenEnds, plan: AggregatePlan, stages: AggregateStages) -> AggregatePlan:
    return stages.plan(plan.names, plan.kept, ranges)
