"""Counts in levels, wired: the stages of `mechanisms.levels.release`, each beyond the barrier of the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms import tuning
from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.batches.shards import Shard, no_users, pack_shard, unpack_shard
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.choice.run import encode_table
from headcount.mechanisms.counting.released import by_file, sorted_counts
from headcount.mechanisms.histogram.estimates import Grouped, group_rows
from headcount.mechanisms.histogram.names import NamesPlan
from headcount.mechanisms.histogram.stages import StagePlan
from headcount.mechanisms.levels.home import at_home, home_subkey
from headcount.mechanisms.levels.release import CellCounts, Levelled, LevelsMechanism
from headcount.mechanisms.levels.tree import Tree, user_nodes
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import barrier, beside, sorted_by_item
from headcount.transforms.core.choice import Choose
from headcount.transforms.core.coders import typed
from headcount.transforms.core.noise import NamedBatches
from headcount.transforms.core.release import full_label
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import UserShards, keeper_of
from headcount.transforms.core.windows import every, release_in
from headcount.transforms.estimates import NoisyStage, way_of_naming
from headcount.transforms.partitions import NamedItems, PackShards


def levelled(
    contributions: beam.PCollection, mechanism: LevelsMechanism, release: Release, shards: int, files: int
) -> CountsAndDecision:
    """(file, released rows) of contributions, sorted by cell, for each of the files, and the `Levelled` decision."""
    stages = mechanism.stages
    rows = (
        contributions | "UserShards" >> UserShards(shards, release.windows) | "PackShards" >> PackShards()
    )  # (shard, packed)
    keep = keeper_of(contributions)
    if mechanism.home:
        rows = rows | "Home" >> beam.ParDo(_Home(release, f"{full_label(contributions)}/Home", keep)).with_output_types(
            tuple[int, bytes]
        )
    nodes = rows | "Nodes" >> beam.ParDo(_Nodes(mechanism.depth, keep)).with_output_types(tuple[int, bytes])
    way = way_of_naming(nodes, stages, release, shards)
    names = way | "NamesPlan" >> beam.Map(stages.names_plan).with_output_types(NamesPlan)
    known_names = beside(names, "NamesBeside")
    named = nodes | "NamedItems" >> NamedItems(
        known_names, release, shards, str, most_rounds=tuning.ROUNDS_OF_HISTOGRAM
    )  # (0, named nodes) of each round, beyond a barrier
    tree = names | "Tree" >> beam.Map(named_tree, mechanism.depth, beam.pvalue.AsList(named)).with_output_types(Tree)
    known_tree = beam.pvalue.AsSingleton(beside(tree, "TreeBeside"))
    if stages.cap_choice is not None:
        drawn = rows | "ChooseCap" >> Choose(stages.cap_choice, release, shards, ClipBound)
        capped = drawn.chosen
    else:
        capped = every(rows, "Cap", [ClipBound(0, stages.max_per_item or 0, "", 0)])
    cap = beam.pvalue.AsSingleton(beside(capped, "CapBeside"))
    cells = rows | "Cells" >> beam.ParDo(_Cells(mechanism, keep), known_tree, cap).with_output_types(tuple[int, bytes])
    # Cells get noise also where there are no users: so there is always a shard, if only one of nobody.
    nobody = tree | "Nobody" >> beam.Map(_nobody).with_output_types(tuple[int, bytes])
    cells = (cells, nobody) | "WithNobody" >> beam.Flatten()
    if stages.clip_choice is not None:
        public = tree | "PublicTable" >> beam.Map(_public_table, mechanism).with_output_types(bytes)
        bounds = cells | "ChooseBounds" >> Choose(stages.clip_choice, release, shards, ClipBound, public)
        plan = bounds.chosen | "Plan" >> beam.Map(
            _plan, mechanism, beam.pvalue.AsSingleton(known_names)
        ).with_output_types(StagePlan)
    else:
        plan = names | "Plan" >> beam.Map(stages.plan, None).with_output_types(StagePlan)
    known_plan = beside(plan, "PlanBeside")
    decided = beam.pvalue.AsSingleton(known_plan)
    all_cells = tree | "EveryCell" >> beam.Map(every_cell).with_output_types(tuple[int, pa.RecordBatch])
    of_counts = tree | "OfCounts" >> beam.Map(_of_counts, mechanism, decided).with_output_types(_OfCounts)
    counted = cells | "Counts" >> NoisyStage(
        "counts",
        known_plan,
        beam.pvalue.AsList(all_cells),
        (beam.pvalue.AsSingleton(beside(of_counts, "OfCountsBeside")), _added),
        release,
        shards,
        str,
    )
    counts = tree | "AllCounts" >> beam.Map(
        _all_counts, mechanism, decided, beam.pvalue.AsList(counted)
    ).with_output_types(CellCounts)
    if mechanism.home:
        totals: Any = []
    else:
        grouped = counts | "Group" >> beam.Map(_grouped).with_output_types(Grouped)
        groups = beam.pvalue.AsSingleton(beside(grouped, "GroupsBeside"))
        every_group = grouped | "EveryGroup" >> beam.Map(_every_group).with_output_types(tuple[int, pa.RecordBatch])
        noisy = cells | "Totals" >> NoisyStage(
            "totals", known_plan, beam.pvalue.AsList(every_group), (groups, group_rows), release, shards, int
        )
        totals = beam.pvalue.AsList(noisy)
    made = counts | "Estimate" >> beam.ParDo(_Estimate(mechanism, files), decided, cap, totals).with_output_types(
        tuple[int, bytes]
    ).with_outputs("decision", main="rows")
    typed(made, decision=Levelled)
    return CountsAndDecision(sorted_by_item(barrier(made.rows)), made.decision)


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
    """Packed shards -> shards of the cells of the tree that users lie in."""

    def __init__(self, mechanism: LevelsMechanism, keep: Keeper) -> None:
        self._mechanism, self._keep = mechanism, keep

    def process(
        self,
        packed: tuple[int, bytes],
        tree: Tree,
        cap: ClipBound,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, bytes]]:
        return self.ahead(window, packed, tree, cap)

    def compute(self, packed: tuple[int, bytes], tree: Tree, cap: ClipBound) -> Iterator[tuple[int, bytes]]:
        number, data = packed
        yield number, self._keep(pack_shard(self._mechanism.cells(unpack_shard(data), tree, cap.max_per_item)))


class _Home(Ahead):
    """Packed shards -> the same with each user at home. The key is fetched on the worker."""

    def __init__(self, release: Release, label: str, keep: Keeper) -> None:
        self._release, self._label, self._keep = release, label, keep

    def process(
        self, packed: tuple[int, bytes], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        return self.ahead(window, packed, home_subkey(release_in(self._release, window), self._label))

    def compute(self, packed: tuple[int, bytes], subkey: bytes) -> Iterator[tuple[int, bytes]]:
        number, data = packed
        yield number, self._keep(pack_shard(at_home(unpack_shard(data), subkey)))


class _Estimate(beam.DoFn):
    """Counts of cells and the totals of their groups -> released rows by file, and the decision beside."""

    def __init__(self, mechanism: LevelsMechanism, files: int) -> None:
        self._mechanism, self._files = mechanism, files

    def process(
        self, counts: CellCounts, plan: StagePlan, cap: ClipBound, totals: NamedBatches
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        told = sorted_counts(to_ipc(batch) for _, batch in totals) if totals else None
        rows, decision = self._mechanism.estimates(counts, told, plan, cap.max_per_item)
        yield beam.pvalue.TaggedOutput("decision", decision)
        yield from by_file(rows, self._files)


class _OfCounts:
    """What makes the vectors of users that are counted, of their cells."""

    def __init__(self, mechanism: LevelsMechanism, tree: Tree, plan: StagePlan) -> None:
        self.mechanism, self.tree, self.plan = mechanism, tree, plan


def _of_counts(tree: Tree, mechanism: LevelsMechanism, plan: StagePlan) -> _OfCounts:
    return _OfCounts(mechanism, tree, plan)


def _added(cells: Shard, how: _OfCounts) -> Shard:
    return how.mechanism.of_counts(cells, how.tree, how.plan)


def named_tree(_: NamesPlan, depth: int, named: NamedBatches) -> Tree:
    """The tree of what rounds of selection have named."""
    return Tree.of_named((name for _, batch in named for name in batch.column("item").to_pylist()), depth)


def _nobody(tree: Tree) -> tuple[int, bytes]:
    """A shard without users."""
    return -1, pack_shard(no_users(tree.cells.type))


def _public_table(tree: Tree, mechanism: LevelsMechanism) -> bytes:
    assert mechanism.stages.clip_choice is not None
    return encode_table(mechanism.stages.clip_choice.items_table(len(tree.cells)))


def _plan(chosen: ClipBound, mechanism: LevelsMechanism, names: NamesPlan) -> StagePlan:
    return mechanism.stages.plan(names, chosen)


def every_cell(tree: Tree) -> tuple[int, pa.RecordBatch]:
    """The cells of a tree, each of which gets noise."""
    return 0, pa.RecordBatch.from_pydict({"item": tree.cells})


def _every_group(grouped: Grouped) -> tuple[int, pa.RecordBatch]:
    return 0, pa.RecordBatch.from_pydict({"item": pa.array(range(grouped.number), pa.int64())})


def _all_counts(tree: Tree, mechanism: LevelsMechanism, plan: StagePlan, counted: NamedBatches) -> CellCounts:
    return mechanism.counted(sorted_counts(to_ipc(batch) for _, batch in counted), tree, plan)


def _grouped(counts: CellCounts) -> Grouped:
    return counts.grouped
