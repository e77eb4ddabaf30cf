"""The kinds of keys that made-up events may have: items, leaves of a tree, or items with a public value such as a day.

A kind makes the data of a drawn population and the mechanism fit each other, and says what a release of it has come to: for
items in one part, and for a tree level by level. What is released is released by the mechanism itself. `assumed` is what is
taken for granted of such keys, in words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.domain import PartDomain, sorted_distinct
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.columns.keys import joined
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.levels.home import at_home, home_subkey
from headcount.mechanisms.levels.release import Levelled, LevelsMechanism
from headcount.mechanisms.levels.tree import Tree, user_nodes
from headcount.mechanisms.mechanism import Mechanism
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.studies.data import Data, of_shard
from headcount.pipelines.studies.methods import Method
from headcount.pipelines.studies.populations.models import Population
from headcount.pipelines.studies.populations.public_values import on_public_values
from headcount.pipelines.studies.run import run_once
from headcount.pipelines.studies.scores import score

ALL = "all"

Numbers = dict[str, float | None]


@dataclasses.dataclass(frozen=True)
class Items:
    """Keys that are named whole."""

    assumed = None

    def data(self, shard: Shard, population: Population, random: np.random.Generator) -> Data:
        """What a release of this kind reads of a drawn population."""
        return of_shard(shard, int)

    def made(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism for such data."""
        return mechanism

    def most(self, population: Population) -> Mapping[str | None, int]:
        """How many items each part can show."""
        return {None: len(population.items)}

    def numbers(self, mechanism: Mechanism, data: Data, release: Release, method: Method) -> tuple[Told, str | None]:
        """What one release has come to, part by part, and what was decided in it. Numbers that are None cannot be told."""
        rows, decision = run_once(mechanism, data, release, method.label)
        values: Numbers = dataclasses.asdict(score(rows, data, method.question, decision=decision))
        values["users_needed"] = _needed(data.users, rows.num_rows)
        return {None: values}, _words(decision)


@dataclasses.dataclass(frozen=True)
class InLevels:
    """Keys in levels of these names."""

    levels: tuple[str, ...]
    assumed = None

    def data(self, shard: Shard, population: Population, random: np.random.Generator) -> Data:
        """What a release of this kind reads of a drawn population."""
        assert population.tree is not None
        return of_shard(dataclasses.replace(shard, items=population.tree.keys(np.asarray(shard.items))), str)

    def made(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism for such data."""
        return mechanism

    def most(self, population: Population) -> Mapping[str | None, int]:
        """How many nodes each level can show."""
        assert population.tree is not None
        return dict(zip((ALL, *self.levels), (1, *population.tree.sizes()), strict=True))

    def numbers(self, mechanism: Mechanism, data: Data, release: Release, method: Method) -> tuple[Told, str | None]:
        """What one release has come to, level by level, and what was decided in it."""
        assert isinstance(mechanism, LevelsMechanism)
        told, decision = self.released(mechanism, data, release, method.label)
        return told, decision.description()

    def released(self, mechanism: LevelsMechanism, data: Data, release: Release, label: str) -> tuple[Told, Levelled]:
        """The same, by the label of what is drawn, with the decision itself."""
        rows, decision = mechanism.run_decided(data.batches, release, label)
        shard = one_shard(data.batches)
        assert shard is not None
        if mechanism.home:
            shard = at_home(shard, home_subkey(release, f"{label}/Home"))
        return self.scored(mechanism, shard, rows, decision.cap), decision

    def scored(self, mechanism: LevelsMechanism, shard: Shard, rows: pa.RecordBatch, cap: int) -> Told:
        """Released rows against what is true of these users, of whom at most `cap` events on one leaf count (0: all)."""
        tree = Tree(mechanism.depth, rows.column("item").cast(pa.string()))
        cells = mechanism.cells(shard, tree, cap)
        place = np.asarray(pc.index_in(cells.items, value_set=tree.cells))
        true = sum_by_code(place[cells.item], cells.count, len(tree.cells)) / tree.weight
        nodes = user_nodes(shard, mechanism.depth)
        users = np.bincount(nodes.item, minlength=len(nodes.items))
        depth = np.array([int(name.partition(":")[0]) for name in nodes.items.to_pylist()])
        count, low, high = (np.asarray(rows.column(name), dtype=float) for name in ("count", "low", "high"))
        found: dict[str | None, Numbers] = {}
        for level, name in enumerate((ALL, *self.levels)):
            at = np.flatnonzero((tree.level == level) & ~tree.other)
            other = true[tree.other & (tree.level <= level)].sum()
            found[name] = {
                "items": float(len(at)),
                **_errors(count[at], true[at]),
                "held": _mean((low[at] <= true[at]) & (true[at] <= high[at])),
                "half_width": _quantile((high[at] - low[at]) / 2, 0.5),
                "other": float(other / max(other + true[at].sum(), 1)),
                "users_needed": _told_by_both(users[depth == level], len(at)) if level else None,
            }
        return found


@dataclasses.dataclass(frozen=True)
class PartlyPublicItems:
    """Items that are named, each with all values of a public list of this size, which is of these columns."""

    size: int
    columns: tuple[str, ...]
    assumed = "keys partly public: each event is by chance on one of the public values, whatever its item and user"

    def data(self, shard: Shard, population: Population, random: np.random.Generator) -> Data:
        """What a release of this kind reads of a drawn population: each event is by chance on one of the public values."""
        weights = population.public
        if weights is None or len(weights) != self.size:
            weights = np.ones(self.size)
        made = on_public_values(shard, weights, random)
        place, value = np.divmod(np.asarray(made.items), self.size)
        return of_shard(dataclasses.replace(made, items=joined([shard.items.take(place), pa.array(value)])), str)

    def made(self, mechanism: Any) -> Mechanism:
        """The mechanism for such data."""
        parts = PartlyPublic(sorted_distinct(pa.array(map(str, range(self.size))))[0], 2, [1], self.columns)
        made: Mechanism = dataclasses.replace(mechanism, domain=parts, item_type=str)
        return made

    def most(self, population: Population) -> Mapping[str | None, int]:
        """How many items can be shown."""
        return {None: len(population.items)}

    def numbers(self, mechanism: Any, data: Data, release: Release, method: Method) -> tuple[Told, str | None]:
        """What one release has come to, and what was decided in it. Items are those named, and errors those of their rows."""
        rows, decision = run_once(mechanism, data, release, method.label)
        values: Numbers = dataclasses.asdict(score(rows, data, method.question, decision=decision))
        named = rows.num_rows // self.size
        shard = one_shard(data.batches)
        assert shard is not None
        parts = mechanism.domain.projected(shard)
        low, high = (np.asarray(rows.column(name), dtype=float) for name in ("low", "high"))
        values |= {
            "items": float(named),
            "half_width": _quantile((high - low) / 2, 0.5),
            "users_needed": _needed(np.bincount(parts.item, minlength=len(parts.items)), named),
        }
        return {None: values}, _words(decision)


#: A kind, and the numbers of a release by its parts: one part without a name, or levels.
Kind = Items | InLevels | PartlyPublicItems
Told = Mapping[str | None, Numbers]


def kind_of(method: Method, mechanism: Mechanism) -> Kind:
    """The kind of keys that a method counts."""
    if isinstance(mechanism, LevelsMechanism):
        return InLevels(method.levels())
    domain = getattr(mechanism, "domain", None)
    return PartlyPublicItems(domain.size, domain.public) if isinstance(domain, PartDomain) else Items()


def _needed(users: np.ndarray, shown: int) -> float | None:
    """The users of the least item, if so many are shown. Where all are, the least of them says nothing of what is needed."""
    return float(np.sort(users)[::-1][shown - 1]) if 0 < shown < len(users) else None


def _told_by_both(users: np.ndarray, shown: int) -> float | None:
    """The same, where the least node that is shown and the largest that is not are about as large: else neither says what is
    needed."""
    ranked = np.sort(users)[::-1]
    return _needed(users, shown) if 0 < shown < len(ranked) and ranked[shown - 1] <= 2 * ranked[shown] else None


def _errors(counts: np.ndarray, true: np.ndarray) -> Numbers:
    relative = np.abs(counts - true) / np.maximum(true, 1)
    return {"median_error": _quantile(relative, 0.5), "error_90": _quantile(relative, 0.9)}


def _quantile(values: np.ndarray, share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None


def _mean(values: np.ndarray) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _words(decision: Any) -> str | None:
    return None if decision is None else str(decision.description())
