"""Counts at every level of a key: users or events of each country, region and city, in one release whose rows agree.

1. **Names**: the nodes of a user are the prefixes of its keys. One selection (`partitions`) over all of them names nodes, and
   what is above a named node is named with it.
2. **Counts**: each user's vector over all cells of the tree (`tree`), scaled down to a norm of R by one factor for all levels,
   is summed, and every cell gets noise.
3. **Totals** say how much R has left out, as in `histogram.estimates`: of groups of cells of one level and of similar size.

Then, at no cost: where rows of a node are those of its children together, least squares over the tree (`adding_up`), and whole
numbers that add up exactly. Where users are counted at every level, one user may be in two cities, and no child is above its
parent. With `home` each user counts in one leaf alone, the one where it has the most rows; then users add up, one factor and
totals are not needed, and nothing is left out.

Guarantee: user-level (epsilon, delta)-differential privacy for the relation, of all rows together. Each stage reads the users'
rows and what the stages before it released, and nothing else, and `histogram.account` composes them. A user adds a vector of
norm R at most to the counts of all levels together: the norm is that of all levels, not of the leaves, of which a user with d
in one country has a norm of the root of d, and of d at the country. Proof: docs/proofs/levels.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget, check_budget, check_delta_or_domain
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard, pack_shard, unpack_shard
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.bounding.steps import check_bound
from headcount.mechanisms.calibration.expected_error import users_needed
from headcount.mechanisms.calibration.intervals import DEVIATIONS, from_least
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.choice.run import choose_of
from headcount.mechanisms.counting.noisy import bounded_users, noisy_counts
from headcount.mechanisms.counting.released import estimates_batch
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.account import make_account
from headcount.mechanisms.histogram.deconvolution import posterior_means
from headcount.mechanisms.histogram.estimates import ASSUMPTION, NOT_KNOWN, Grouped, group_rows
from headcount.mechanisms.histogram.factory import OF, check_names_by
from headcount.mechanisms.histogram.fixed import NAME
from headcount.mechanisms.histogram.groups import Calibrated, calibrate, cut_groups, join_alike
from headcount.mechanisms.histogram.stages import StagePlan
from headcount.mechanisms.levels.adding_up import least_squares, no_child_above, same_total, whole_numbers
from headcount.mechanisms.levels.home import at_home, home_subkey
from headcount.mechanisms.levels.stages import LevelStages
from headcount.mechanisms.levels.tree import UNIT, Tree, user_nodes
from headcount.mechanisms.partitions.select import named_in_rounds
from headcount.mechanisms.randomness.keys import Release

MOST_LEVELS = 9


@dataclasses.dataclass(frozen=True)
class Levelled:
    """What was chosen, and the share of what is counted that the bound left out; None where it is not known."""

    plan: StagePlan
    cap: int
    left_out: float | None

    @property
    def guarantee(self) -> Guarantee:
        """The whole promise, in the numbers of what was chosen."""
        return self.plan.guarantee

    @property
    def _bounds(self) -> Mapping[str, int]:
        """The norms that were chosen, of users with this many rows of one leaf."""
        kept = self.plan.kept
        found = {"bound": kept.bound // UNIT, "max_per_item": self.cap, "totals_bound": kept.totals_bound // UNIT}
        return {name: value for name, value in found.items() if value}

    def description(self) -> str:
        """What was chosen, in one line."""
        assert self.plan.names is not None
        parts = [self.plan.names.description()]
        if self.plan.totals is not None:
            cap = f", at most {self.cap:,} of one user on one leaf" if self.cap else ""
            parts.append(f"a norm of {self._bounds['bound']:,} over all levels{cap}, with gaussian noise")
            parts.append(f"totals of at most {self._bounds['totals_bound']:,} for each user")
        return "chosen: " + "; ".join(parts)

    def report_fields(self) -> Mapping[str, Any]:
        """The same as parts of a report."""
        assert self.plan.names is not None
        return {"chosen": {**self.plan.names.named.report_fields()["chosen"], **self._bounds}}

    def summary(self) -> Mapping[str, Any]:
        """What a reader asks first: the users that an item needs, and what the bound left out."""
        assert self.plan.names is not None
        told: dict[str, Any] = dict(users_needed(each.plan for each in self.plan.names.rounds))
        if self.left_out is not None:
            told["share_left_out"] = round(self.left_out, 3)
        if self.plan.totals is not None:
            told["assumption"] = ASSUMPTION if self.left_out is not None else f"{ASSUMPTION}; {NOT_KNOWN}"
        return told


@dataclasses.dataclass(frozen=True)
class CellCounts:
    """The cells of a tree with numbers that follow from their noisy counts: by least squares where these add up.

    `group` is that of each cell for the totals, and `grouped` has those cells of which a bound may have left out something.
    All of it is public.
    """

    tree: Tree
    counts: np.ndarray
    noise: np.ndarray
    measured: np.ndarray  # the noisy counts themselves
    group: np.ndarray
    grouped: Grouped


@dataclasses.dataclass(frozen=True)
class LevelsMechanism:
    """A release of counts in levels as a value; `run` is the mechanism without Beam."""

    stages: LevelStages
    of: str
    home: bool
    item_type: type = str
    name = NAME

    def of_depth(self, depth: int) -> LevelsMechanism:
        """The same for a key of so many columns: the promise does not depend on their number."""
        check_depth(depth)
        return dataclasses.replace(self, stages=dataclasses.replace(self.stages, depth=depth))

    @property
    def depth(self) -> int:
        """The number of key columns."""
        return self.stages.depth

    @property
    def domain(self) -> None:
        """There is none: nodes are named."""
        return None

    @property
    def adds_up(self) -> bool:
        """Whether the number of a node is the sum of those of its children."""
        return self.of == "events" or self.home

    @property
    def once(self) -> bool:
        """Whether a user counts once on each cell."""
        return self.of == "users"

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.stages.guarantee()

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows, sorted by the name of their cell, of contribution batches."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, Levelled]:
        """The same, and what was chosen and told."""
        label, stages = self.name if label is None else label, self.stages
        users = users_of(batches)
        if self.home:
            key = home_subkey(release, f"{label}/Home")
            users = users.map(lambda shard: at_home(shard, key)).held(pack_shard, unpack_shard)
        nodes = users.map(lambda shard: user_nodes(shard, self.depth)).held(pack_shard, unpack_shard)
        way = stages.named_by or choose_of(nodes, stages.names_choice, release, f"{label}/ChooseNames")
        names = stages.names_plan(way)
        named = named_in_rounds(nodes, names.rounds, release, f"{label}/NamedItems", str)
        tree = Tree.of_named(named.to_pylist(), self.depth)
        cap = stages.max_per_item or 0
        if stages.cap_choice is not None:
            cap = choose_of(users, stages.cap_choice, release, f"{label}/ChooseCap").max_per_item
        cells = users.map(lambda shard: self.cells(shard, tree, cap)).held(pack_shard, unpack_shard)
        chosen, choice = None, stages.clip_choice
        if choice is not None:
            public = choice.items_table(len(tree.cells))
            chosen = choose_of(cells, choice, release, f"{label}/ChooseBounds", public)
        plan = stages.plan(names, chosen)
        assert plan.counts is not None
        of_counts = cells.map(lambda shard: self.of_counts(shard, tree, plan))
        bounded = bounded_users(of_counts, plan.counts_steps, release, f"{label}/Counts/Bounded")
        where = f"{label}/Counts/NoisyCounts"
        counted = self.counted(noisy_counts(bounded, plan.counts, release, where, named=tree.cells), tree, plan)
        if plan.totals is None:
            return self.estimates(counted, None, plan, cap)
        groups = pa.array(np.arange(counted.grouped.number))
        summed = cells.map(lambda shard: group_rows(shard, counted.grouped))
        bounded = bounded_users(summed, plan.totals_steps, release, f"{label}/Totals/Bounded")
        where = f"{label}/Totals/NoisyCounts"
        totals = noisy_counts(bounded, plan.totals, release, where, item_type=int, named=groups)
        return self.estimates(counted, totals, plan, cap)

    def cells(self, shard: Shard, tree: Tree, cap: int) -> Shard:
        """What users count on the cells of a tree, of at most `cap` rows on one leaf; 0 stands for no limit."""
        return tree.user_cells(limit_per_item(shard, cap) if cap else shard, self.once)

    def of_counts(self, cells: Shard, tree: Tree, plan: StagePlan) -> Shard:
        """What users add to the counts, before it is bounded: where numbers add up, one factor is for all levels; where they do
        not, each level is scaled down by itself, and the root, where each user is once, has no need of it."""
        return cells if self.adds_up else tree.level_by_level(cells, plan.kept.bound // UNIT)

    def _weights(self, tree: Tree, plan: StagePlan) -> np.ndarray:
        return tree.weight if self.adds_up else tree.weights_at(plan.kept.bound // UNIT)

    def counted(self, noisy: pa.RecordBatch, tree: Tree, plan: StagePlan) -> CellCounts:
        """The noisy counts of cells, sorted by name, in counts of one user each, and the groups that they fall into."""
        assert plan.counts is not None
        weight = self._weights(tree, plan)
        measured = np.asarray(noisy.column("bounded_count")) / weight
        counts, variance = measured, (plan.counts.stddev / weight) ** 2
        if self.adds_up:
            counts, variance = least_squares(tree.children, measured, variance)
        noise = np.sqrt(variance)
        group, number = np.zeros(len(counts), dtype=np.int64), 0
        of_totals = 0.0 if plan.totals is None else plan.totals.stddev
        for at in self._alike(tree) if plan.totals is not None else ():
            typical, total_noise = float(np.sqrt(np.mean(variance[at]))), of_totals / tree.weight[at[0]]
            group[at] = number + cut_groups(counts[at], typical, total_noise, to_join=True)
            number = int(group[at].max()) + 1
        held = np.flatnonzero(tree.level >= self._first_left_out)
        grouped = Grouped(tree.cells.take(pa.array(held)), counts[held], 0.0, group[held])
        return CellCounts(tree, counts, noise, measured, group, grouped)

    def _alike(self, tree: Tree) -> Iterator[np.ndarray]:
        """The cells of which groups are made, level by level: where numbers add up, those that end above the leaves apart from
        the others."""
        ends = tree.ends if self.adds_up else np.zeros(len(tree.cells), dtype=bool)
        for level in range(self._first_left_out, self.depth + 1):
            for end in (False, True):
                at = np.flatnonzero((tree.level == level) & (ends == end))
                if len(at):
                    yield at

    @property
    def _first_left_out(self) -> int:
        """The first level of which a bound may leave out something: where users are counted, not the root."""
        return 0 if self.adds_up else 1

    def estimates(
        self, counted: CellCounts, totals: pa.RecordBatch | None, plan: StagePlan, cap: int
    ) -> tuple[pa.RecordBatch, Levelled]:
        """The released rows of cells and the noisy totals of their groups, if there are any."""
        tree, levels, left_out = counted.tree, [], None
        known = None if totals is None else self._totals(counted, totals, plan)
        for level in range(int(tree.level.max()) + 1):
            at = np.flatnonzero(tree.level == level)
            told = known if level >= self._first_left_out else None
            levels.append((at, self._calibrated(counted, at, told)))
        shares = [made.left_out for _, made in levels]
        if totals is not None and None not in shares:
            left_out = max(share for share in shares if share is not None)
        estimate, noise, low, high = (np.zeros(len(tree.cells)) for _ in range(4))
        for at, made in levels:
            estimate[at], noise[at], low[at], high[at] = made.estimate, made.noise_stddev, made.low, made.high
        if self.adds_up:
            whole = whole_numbers(tree, estimate, (high - low) / (2 * DEVIATIONS)).astype(np.float64)
        else:
            whole, low, high = (no_child_above(tree, each) for each in (estimate, low, high))
        ends = np.minimum(low, whole), np.maximum(high, whole)
        rows = estimates_batch(tree.cells, whole, noise, counted.measured, ends=ends)
        return rows, Levelled(plan, cap, left_out)

    def _totals(self, counted: CellCounts, totals: pa.RecordBatch, plan: StagePlan) -> tuple[np.ndarray, np.ndarray]:
        """The totals of groups and their noise, in counts of one user each; those of every level come to the same sum, where
        numbers add up."""
        assert plan.totals is not None
        tree, first = counted.tree, np.unique(counted.group, return_index=True)[1]
        if not self.adds_up:  # of the root there is no total
            held = np.flatnonzero(tree.level > 0)
            first = held[np.unique(counted.group[held], return_index=True)[1]]
        told = np.asarray(totals.column("bounded_count")) / tree.weight[first]
        noise = plan.totals.stddev / tree.weight[first]
        return same_total(tree.level[first], tree.ends[first], told, noise) if self.adds_up else (told, noise)

    def _calibrated(
        self, counted: CellCounts, at: np.ndarray, totals: tuple[np.ndarray, np.ndarray] | None
    ) -> Calibrated:
        """The estimates of the cells of one level."""
        tree, counts, noise = counted.tree, counted.counts[at], counted.noise[at]
        least = np.where(tree.other[at], 0, 1)
        if totals is None:
            nothing, one = np.zeros(len(at)), np.ones(len(at))
            estimate = np.maximum(np.rint(posterior_means(counts, noise)), least)
            low, high = counts - DEVIATIONS * noise, counts + DEVIATIONS * noise
            low, high = from_least(low, high, least)
            low, high = np.minimum(low, estimate), np.maximum(high, estimate)
            return Calibrated(estimate, noise, low, high, 0.0, one, nothing, nothing)
        group = counted.group[at]
        first, last = int(group.min()), int(group.max()) + 1
        told, unsure = (each[first:last] for each in totals)
        group, told, unsure = join_alike(counts, group - first, told, unsure)
        return calibrate(counts, group, told, noise, unsure, least=least)


def check_depth(depth: int) -> None:
    """Refuses a key of too few or too many levels."""
    if not 2 <= depth <= MOST_LEVELS:
        raise ParameterError(
            f"levels are 2 to {MOST_LEVELS} columns, from the widest to the finest, got {depth}", "levels"
        )


def in_levels(
    budget: Budget,
    *,
    depth: int,
    of: str = "users",
    home: bool = False,
    max_per_item: int | None = None,
    max_items: int | None = None,
    relation: Relation = Relation.ADD_REMOVE,
) -> LevelsMechanism:
    """Counts of users or events at every level of a key of `depth` columns. `max_items` is how many nodes of a user name."""
    check_budget(budget)
    check_delta_or_domain(budget.delta)
    check_depth(depth)
    check_one_of("of", of, OF)
    if of == "users" and max_per_item not in (None, 1):
        raise ParameterError(
            f"max_per_item={max_per_item!r} is for events, and users are counted, each once on a node: add of='events'",
            "max_per_item",
        )
    if home and of == "events":
        raise ParameterError(
            "home is for users, each of whom then counts in one place: leave out home or of='events'", "home"
        )
    cap = None if max_per_item is None or of == "users" else check_bound("max_per_item", max_per_item)
    items_given = check_names_by(max_items, True)
    account = make_account(
        budget,
        named=True,
        chosen=not home,
        calibrated=not home,
        pure=False,
        capped=of == "events" and cap is None,
        way_given=items_given is not None,
    )
    norm = UNIT if home else None
    stages = LevelStages(account, relation, norm, cap, of == "users", max_items=items_given, depth=depth)
    made = LevelsMechanism(stages, of, home)
    for named, kept in stages.ends():
        stages.plan(named, kept)
    return made
