"""Counts close to the truth, wired: the stages of `mechanisms.histogram.estimates`, each beyond the barrier of the last.

Users are brought together once. Every stage reads their shards again, with what the stages before have released beside it, and
only sums by item are shuffled anew. (These are functions where a composite would only lengthen labels, which name randomness.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms import tuning
from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.domain import Domain, arrow_type
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.batches.shards import Shard, no_users, pack_shard, unpack_shard
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.run import encode_table
from headcount.mechanisms.counting.released import by_file, empty_counts, sorted_counts
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.histogram.estimates import (
    Estimated,
    EstimatesMechanism,
    Grouped,
    estimate,
    group_items,
    group_rows,
    partly_of,
)
from headcount.mechanisms.histogram.names import NamesPlan
from headcount.mechanisms.histogram.stages import StagePlan, Stages
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import barrier, beside, sorted_by_item, with_beside
from headcount.transforms.core.choice import Choose
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import ContributionBatch
from headcount.transforms.core.noise import NamedBatches, Noise, names_in
from headcount.transforms.core.release import full_label
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import UserShards, keeper_of
from headcount.transforms.core.windows import WindowKey, every, window_keys
from headcount.transforms.partitions import NamedItems, PackShards

Stage = Literal["counts", "totals"]
OfStage = Callable[[Any, Any], Shard]  # what users add to a stage, by what was released before it


def estimated(
    contributions: beam.PCollection, mechanism: EstimatesMechanism, release: Release, shards: int, files: int
) -> CountsAndDecision:
    """(file, released rows) of contributions, sorted, for each of the files, and the `Estimated` decision."""
    stages, item_type, domain = mechanism.stages, mechanism.item_type, mechanism.domain
    users = contributions | "UserShards" >> UserShards(shards, release.windows)
    choice = stages.clip_choice
    known, public = None, None
    if not isinstance(domain, Domain):
        partly = partly_of(domain)
        release = release if partly is None else partly.own_release(release)
        if partly is None and stages.named_by is None:
            chosen = users | "ChooseNames" >> Choose(stages.names_choice, release, shards, ChosenStrategy, keep=True)
            gathered, parts, way = chosen.shards, chosen.shards, chosen.chosen
        else:
            gathered = users | "PackShards" >> PackShards()
            parts = gathered if partly is None else gathered | "PartsOfKeys" >> PartsOfKeys(partly)
            way = way_of_naming(parts, stages, release, shards)
        names = way | "NamesPlan" >> beam.Map(stages.names_plan).with_output_types(NamesPlan)
        known_names = beside(names, "NamesBeside")
        named = parts | "NamedItems" >> NamedItems(
            known_names, release, shards, item_type, most_rounds=tuning.ROUNDS_OF_HISTOGRAM, with_sums=True
        )  # (0, items with their noisy sums) of each round, beyond a barrier
        all_named = beam.pvalue.AsList(named)
        only = beam.ParDo(_OnlyNamed(keeper_of(gathered), partly), all_named).with_output_types(tuple[int, bytes])
        rows = with_beside(gathered, "OnlyNamed", only, shards)
        if partly is not None:
            all_named = every_key(names, partly, all_named)
        known = beam.pvalue.AsSingleton(known_names)
        if choice is not None:
            table_of = beam.Map(_public_table, stages, all_named).with_output_types(bytes)
            public = with_beside(names, "PublicTable", table_of)
    else:
        names = every(users, "NoNames", [None])
        all_named = domain  # large ones are read by the workers
        rows = users | "PackShards" >> PackShards()
        if choice is not None:
            table = stages.public_table(None, len(domain))
            public = every(users, "PublicTable", [encode_table(table)])
    # Items get noise also where there are no users: so there is always a shard, if only one of nobody.
    nobody = names | "Nobody" >> beam.Map(_nobody, arrow_type(item_type)).with_output_types(tuple[int, bytes])
    rows = (rows, nobody) | "WithNobody" >> beam.Flatten()
    if choice is not None:
        bounds = rows | "ChooseBounds" >> Choose(choice, release, shards, ClipBound, public)
        plan = with_beside(bounds.chosen, "Plan", beam.Map(_plan, stages, known).with_output_types(StagePlan))
    else:
        plan = names | "Plan" >> beam.Map(stages.plan, None).with_output_types(StagePlan)
    known_plan = beside(plan, "PlanBeside")
    decided = beam.pvalue.AsSingleton(known_plan)
    counted = rows | "Counts" >> NoisyStage("counts", known_plan, all_named, None, release, shards, item_type)
    # One worker sees all counts: of their own stage, or where names and counts come from one step those of the names.
    gathering = beam.Map(
        _all_counts,
        beam.pvalue.AsList(counted),
        [] if isinstance(domain, Domain) else all_named,
        empty_counts(arrow_type(item_type)),
    ).with_output_types(pa.RecordBatch)
    gathered = with_beside(plan, "AllCounts", gathering)
    if not mechanism.calibrated:
        made = gathered | "ByFile" >> beam.FlatMap(by_file, files).with_output_types(tuple[int, bytes])
        decision = plan | "Decision" >> beam.Map(_not_calibrated).with_output_types(Estimated)
        return CountsAndDecision(sorted_by_item(barrier(made)), decision)
    grouped = with_beside(gathered, "Group", beam.Map(group_items, decided).with_output_types(Grouped))
    groups = beam.pvalue.AsSingleton(beside(grouped, "GroupsBeside"))
    every_group = grouped | "EveryGroup" >> beam.Map(_every_group).with_output_types(tuple[int, pa.RecordBatch])
    totals = rows | "Totals" >> NoisyStage(
        "totals", known_plan, beam.pvalue.AsList(every_group), (groups, group_rows), release, shards, int
    )
    estimating = beam.ParDo(_Estimate(files, mechanism), decided, beam.pvalue.AsList(totals)).with_output_types(
        tuple[int, bytes]
    )
    made = with_beside(grouped, "Estimate", estimating.with_outputs("decision", main="rows"))
    typed(made, decision=Estimated)
    return CountsAndDecision(sorted_by_item(barrier(made.rows)), made.decision)


def way_of_naming(parts: beam.PCollection, stages: Stages, release: Release, shards: int) -> beam.PCollection:
    """The one way in which items are named: what is given, or is chosen from packed shards."""
    if stages.named_by is not None:
        return every(parts, "WayGiven", [stages.named_by], ChosenStrategy)
    return (parts | "ChooseNames" >> Choose(stages.names_choice, release, shards, ChosenStrategy)).chosen


class NoisyStage(beam.PTransform):
    """Packed shards of users -> (k, noisy counts of all that was named): of items, or of groups of them, by what makes these of
    shards. A plan that is decided has the steps and the noise of its stage."""

    def __init__(
        self,
        stage: Stage,
        plan: beam.PCollection,
        named: beam.pvalue.AsList | Domain,
        groups: tuple[beam.pvalue.AsSingleton, OfStage] | None,
        release: Release,
        shards: int,
        item_type: type,
        unpack: Callable[[bytes], Any] = unpack_shard,
    ) -> None:
        super().__init__()
        self._stage, self._plan, self._named, self._groups = stage, plan, named, groups
        self._release, self._shards, self._item_type, self._unpack = release, shards, item_type, unpack

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        stage, decided = self._stage, beam.pvalue.AsSingleton(self._plan)
        bound = _Bound(stage, self._release, f"{full_label(rows)}/Bounded", self._shards, self._unpack)
        # Where there is no such stage, nothing is bounded, and nothing gets noise. Groups are so few that one shard has them.
        parts = 1 if stage == "totals" else self._shards
        noisy = Noise(
            self._plan,
            None,
            self._item_type,
            self._release,
            parts,
            1,
            self._named,
            every_file=False,
            plan_of=functools.partial(_noise, stage=stage),
        )
        bounding = beam.ParDo(bound, decided, *(self._groups or (None, None))).with_output_types(ContributionBatch)
        return with_beside(rows, "Bounded", bounding, self._shards) | "NoisyCounts" >> noisy


class _OnlyNamed(Ahead):
    """Packed shards -> the same with the rows of named items only."""

    def __init__(self, keep: Keeper, partly: PartlyPublic | None) -> None:
        self._keep, self._partly = keep, partly

    def process(
        self, packed: tuple[int, bytes], named: NamedBatches, window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        return self.ahead(window, packed, named)

    def compute(self, packed: tuple[int, bytes], named: NamedBatches) -> Iterator[tuple[int, bytes]]:
        number, data = packed
        shard = unpack_shard(data)
        known = named_among(shard.items, named, self._partly)
        yield number, self._keep(pack_shard(shard.with_items(known).compact()))


class PartsOfKeys(beam.PTransform):
    """Packed shards of users -> the same with the private parts of their keys alone, for naming."""

    def __init__(self, partly: PartlyPublic) -> None:
        super().__init__()
        self._partly = partly

    def expand(self, packed: beam.PCollection) -> beam.PCollection:
        made = _Parts(keeper_of(packed), self._partly)
        return packed | "Project" >> beam.ParDo(made).with_output_types(tuple[int, bytes])


class _Parts(Ahead):
    def __init__(self, keep: Keeper, partly: PartlyPublic) -> None:
        self._keep, self._partly = keep, partly

    def process(
        self, packed: tuple[int, bytes], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        return self.ahead(window, packed)

    def compute(self, packed: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
        number, data = packed
        yield number, self._keep(pack_shard(self._partly.projected(unpack_shard(data))))


def every_key(names: beam.PCollection, partly: PartlyPublic, named: beam.pvalue.AsList) -> beam.pvalue.AsList:
    """The list of (0, all keys of the named parts), of the one plan of names."""
    made = beam.Map(_complete, partly, named).with_output_types(tuple[int, pa.RecordBatch])
    return beam.pvalue.AsList(beside(with_beside(names, "EveryKey", made), "EveryKeyBeside"))


def named_among(items: Names, named: NamedBatches, partly: PartlyPublic | None) -> Names:
    """What was named; where parts of keys were, those of the items that have such a part."""
    known = names_in(named, items.type)
    return known if partly is None else partly.of_parts(items, known)


def _complete(_: NamesPlan, partly: PartlyPublic, named: NamedBatches) -> tuple[int, pa.RecordBatch]:
    return 0, _of_items(partly.complete(names_in(named, partly.type)))


class _Bound(Ahead):
    """Packed shards -> what each user adds to one stage. The key is fetched on the worker."""

    def __init__(self, stage: Stage, release: Release, label: str, number: int, unpack: Callable[[bytes], Any]) -> None:
        self._stage, self._release, self._label, self._number = stage, release, label, number
        self._unpack = unpack

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self,
        packed: tuple[int, bytes],
        plan: Any,
        groups: Any,
        by_group: OfStage | None,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[pa.RecordBatch]:
        if _noise_of(plan, self._stage) is not None:
            yield from self.ahead(window, packed, plan, groups, by_group, self._keys(window))

    def compute(
        self, packed: tuple[int, bytes], plan: Any, groups: Any, by_group: OfStage | None, own: WindowKey
    ) -> Iterator[pa.RecordBatch]:
        number, data = packed
        shard = self._unpack(data)
        if groups is not None and by_group is not None:
            shard = by_group(shard, groups)
        steps = plan.counts_steps if self._stage == "counts" else plan.totals_steps
        subkeys = step_subkeys(own.key, own.id, self._label, steps)
        # As with every bound that is decided: shards that were bounded differently never meet in one noise step.
        origin = provenance(f"{self._label} at {tuple(plan.kept)}", own.id, self._number)
        yield bound_shard(shard, steps, subkeys, origin).to_batch(number)


class _Estimate(beam.DoFn):
    """Grouped items and the totals of their groups -> released rows by file, and the decision beside."""

    def __init__(self, files: int, mechanism: EstimatesMechanism) -> None:
        self._files, self._least, self._partly = files, mechanism.least, partly_of(mechanism.domain)

    def process(
        self, grouped: Grouped, plan: StagePlan, totals: NamedBatches
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        summed = None if plan.totals is None else sorted_counts(to_ipc(batch) for _, batch in totals)
        rows, decision = estimate(grouped, summed, plan, self._least, self._partly)
        yield beam.pvalue.TaggedOutput("decision", decision)
        yield from by_file(rows, self._files)


def _not_calibrated(plan: StagePlan) -> Estimated:
    return Estimated(plan, 0, None)


def _of_items(items: Names) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"item": items})


def _nobody(_: NamesPlan | None, item_type: pa.DataType) -> tuple[int, bytes]:
    """A shard without users."""
    return -1, pack_shard(no_users(item_type))


def _public_table(names: NamesPlan, stages: Stages, named: NamedBatches) -> bytes:
    return encode_table(stages.public_table(names, sum(batch.num_rows for _, batch in named)))


def _plan(chosen: ClipBound, stages: Stages, names: NamesPlan | None) -> StagePlan:
    return stages.plan(names, chosen)


def _noise_of(plan: Any, stage: Stage) -> NoisePlan | None:
    found: NoisePlan | None = plan.counts if stage == "counts" else plan.totals
    return found


def _noise(plan: Any, stage: Stage) -> NoisePlan:
    """The noise of a stage; where there is none, nothing gets noise, whatever the plan is."""
    found = _noise_of(plan, stage) or plan.counts or plan.totals
    assert found is not None
    return found


def _all_counts(plan: StagePlan, counted: NamedBatches, named: NamedBatches, empty: pa.RecordBatch) -> pa.RecordBatch:
    found = named if plan.counts is None else counted
    return sorted_counts(map(to_ipc, (empty, *(batch for _, batch in found))))


def _every_group(grouped: Grouped) -> tuple[int, pa.RecordBatch]:
    return 0, _of_items(pa.array(range(grouped.number), pa.int64()))
