"""Counts without a bound on a user's items as transforms: `PrivateCountRelease` and `TopItems`.

Only the top of each item shard leaves it, and one worker sees the top of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.packing import concat, from_ipc
from headcount.mechanisms.batches.shards import unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.count_release.frames import make_frame, sum_users, top_rows
from headcount.mechanisms.count_release.release import CountRelease, Released, count_release
from headcount.mechanisms.count_release.top_items import TopItemsMechanism, ranked
from headcount.mechanisms.count_release.top_names import NamedTopMechanism, top_items
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.counting.released import by_file, empty_counts
from headcount.mechanisms.partitions.auto import DecidedSelection
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.barrier import beyond_barrier, one_beyond_barrier, sorted_by_item
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.noise import NamedBatches, names_in, sum_by_item
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import KeepGood, RankedIntItem, RankedItem, count_row
from headcount.transforms.core.user_shards import UserShards, item_shards
from headcount.transforms.core.windows import every, window_keys
from headcount.transforms.keyed.domain import given_items
from headcount.transforms.partitions import NamedItems

# Tops that are put together at a time: with very many item shards, one worker would else get all of theirs.
_TOPS_TOGETHER = 32


class _FromFrame(PrivateTransform):
    """Bounding, sums by item, their top, and what one worker releases of it."""

    mechanism: CountRelease | TopItemsMechanism | NamedTopMechanism

    def _bounded(self, rows: beam.PCollection) -> beam.PCollection:
        """Contribution batches in which each (user, item) pair is one row."""
        release, _ = self._drawn(rows)
        return as_contributions(rows) | "Bounded" >> Bounded(self.mechanism.steps, release, self._shards)

    def _released(
        self, rows: beam.PCollection, bounded: beam.PCollection, empty: pa.RecordBatch
    ) -> tuple[beam.PCollection, beam.PCollection]:
        """(file, Arrow streams) beyond a barrier, and (0, decision), which still needs one."""
        (release, label), shards = self._drawn(rows), item_shards(self._shards)
        files = self._output_files or shards
        return bounded | "OneWorker" >> _OneWorker(self.mechanism, release, label, shards, files, empty)


class _OneWorker(beam.PTransform):
    """Bounded batches -> what one worker releases of the top of their items, as `_released` has it."""

    def __init__(
        self,
        plan: CountRelease | TopItemsMechanism | NamedTopMechanism,
        release: Release,
        label: str,
        shards: int,
        files: int,
        empty: pa.RecordBatch,
    ) -> None:
        super().__init__()
        self._plan, self._shards, self._files, self._empty = plan, shards, files, empty
        self._draws = _Release(plan, release, label, files)

    def expand(self, bounded: beam.PCollection) -> tuple[beam.PCollection, beam.PCollection]:
        most, item_type = self._plan.k_bar + 1, self._plan.item_type
        summed = sum_by_item(bounded, self._shards, sum_users)  # of record batches, each (user, item) pair once
        tops = (
            summed.sums  # (item shard, packed users and sums)
            | "GroupByItemShard" >> beam.GroupByKey()
            | "Top" >> beam.Map(_top, most, item_type).with_output_types(tuple[int, bytes])
        )
        if self._shards > _TOPS_TOGETHER:
            tops = (
                tops
                | "GroupSome" >> beam.GroupByKey()
                | "TopOfSome" >> beam.Map(_top, most, item_type).with_output_types(tuple[int, bytes])
            )
        # One element at least: the rounds also run if there is nothing, so that nobody can tell.
        nothing = every(bounded, "Nothing", [(0, b"")])
        done = (
            (tops | "ToOne" >> beam.MapTuple(_to_one).with_output_types(tuple[int, bytes]), nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, tops)
            | "Release"
            >> beam.ParDo(self._draws, beam.pvalue.AsList(summed.origins))
            .with_output_types(tuple[int, bytes])
            .with_outputs("decisions", main="rows")
        )
        typed(done, decisions=tuple[int, Released])
        # Rows have one barrier, decisions one of their own. Nothing else may be taken from `done`.
        return beyond_barrier(done.rows, self._empty, self._files), done.decisions


class PrivateCountRelease(_FromFrame):
    """How many users have each item, for as many of the largest items as the budget buys (the paper, corrected).

    Guarantee: user-level delta-approximate rho-zCDP for a `Zcdp(rho, delta)` under `relation`, or (epsilon, delta)-differential
    privacy for a `Budget(epsilon, delta)`. A user counts for all of its items: there is no bound to choose, and nothing is
    lost to one. Items are found one by one, the largest first, each at its own cost.

    The result is `NoisyCount` rows (`NoisyIntCount` with `item_type=int`), sorted by item in each output file. Rows or
    `Contributions` go in. `with_decision()` gives one `Released` beside: what was spent on what, and the guarantee.

    Parameters:
        budget: what all of it may cost, as a `Zcdp` or a `Budget`; it needs a delta.
        relative_error: most of the counts are within this share of the true ones (default: 0.1). Less buys fewer items.
        k_bar: the items that are looked at, and released, at most (default: 10,000). More take more memory in one worker.
        max_per_item: count events, up to this number of each user, in place of users (default: None, users).
        noise_reduction: spend less on counts that are exact enough, which buys some more of them (default: False).
        strict_target: keep to small relative errors, whatever they cost (default: False).
        start_epsilon: what the first items cost (default: 0.0005, a threshold of some 60,000 users). It should give a threshold
            above the largest count; too low a value costs little.
        max_relative_error, suppress_below, relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: CountRelease

    def __init__(
        self,
        budget: Zcdp | Budget,
        *,
        relative_error: float = 0.1,
        k_bar: int = tuning.ITEMS_LOOKED_AT,
        max_per_item: int | None = None,
        noise_reduction: bool = False,
        strict_target: bool = False,
        start_epsilon: float = tuning.FIRST_EPSILON,
        max_relative_error: float | None = None,
        suppress_below: int | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type)
        made = count_release(
            budget,
            relative_error=relative_error,
            k_bar=k_bar,
            max_per_item=max_per_item,
            noise_reduction=noise_reduction,
            strict_target=strict_target,
            start_epsilon=start_epsilon,
            relation=Relation.parse(relation),
            item_type=items.made,
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, items=items)
        self._quality = Quality(max_relative_error, suppress_below)

    def _given(self) -> str | None:
        return None

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        item_type = self.mechanism.item_type
        empty = empty_counts(arrow_type(item_type))
        files, decisions = self._released(rows, self._bounded(rows), empty)
        good = sorted_by_item(files) | "KeepGood" >> KeepGood(self._quality)
        counts = self._shown(good, count_row(item_type))
        if not self._decides:
            return counts
        return self._result(counts, one_beyond_barrier(decisions, Released, "DecisionBarrier", "Decision"))


class TopItems(_FromFrame):
    """The `k` items with the most users, without counts, or fewer: those that too few users have stay hidden (the paper).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; a user may have any number of items.

    The result is `RankedItem` rows (`RankedIntItem` with `item_type=int`), sorted by rank in each output file. Rows or
    `Contributions` go in. `with_decision()` gives the `DecidedSelection` beside, for the method "names".

    Parameters:
        budget: what all of it may cost; it needs a delta.
        k: the items to find, at most. More of them share the budget.
        method: "draws" from all items, or "names": a selection curve names items, and draws among these rank them (default:
            None, draws below k = 10, and else names, which find more).
        k_bar: the items that draws look at (default: None, 10,000). More take more memory in one worker.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: TopItemsMechanism | NamedTopMechanism

    def __init__(
        self,
        budget: Budget,
        k: int,
        *,
        method: str | None = None,
        k_bar: int | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type)
        made = top_items(budget, k, method=method, k_bar=k_bar, relation=Relation.parse(relation), item_type=items.made)
        super().__init__(made, release=release, shards=shards, output_files=output_files, items=items)

    def _given(self) -> str | None:
        return None if isinstance(self.mechanism, NamedTopMechanism) else super()._given()

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        if not isinstance(self.mechanism, NamedTopMechanism):
            return self._ranked(rows, self._bounded(rows))
        release, label = self._drawn(rows)
        top, number = self.mechanism, self._shards
        shards = as_contributions(rows) | "UserShards" >> UserShards(number, release.windows)
        choice = choose(shards, top.choice, release, number, f"{label}/ChooseStrategy", result=ChosenStrategy)
        decided = choice.chosen | "Calibrate" >> beam.Map(top.decided).with_output_types(DecidedSelection)
        named = choice.shards | "NamedItems" >> NamedItems(
            decided, release, number, top.item_type, most_rounds=top.selection.most_rounds
        )
        counted = CountNamed(release, f"{label}/Counted", number)
        bounded = choice.shards | "Counted" >> beam.ParDo(counted, top, beam.pvalue.AsList(named)).with_output_types(
            ContributionBatch
        )
        return self._result(self._ranked(rows, bounded), decided)

    def _ranked(self, rows: beam.PCollection, bounded: beam.PCollection) -> beam.PCollection:
        item_type = self.mechanism.item_type
        files, _ = self._released(rows, bounded, ranked(pa.array([], arrow_type(item_type))))
        items = files | "SortByRank" >> beam.MapTuple(_sorted_by_rank).with_output_types(tuple[int, pa.RecordBatch])
        return self._shown(items, RankedIntItem if item_type is int else RankedItem)


class _Release(beam.DoFn):
    """(0, tops) -> (file, Arrow stream), and the decision beside; it fetches the key on the worker."""

    def __init__(
        self,
        plan: CountRelease | TopItemsMechanism | NamedTopMechanism,
        release: Release,
        label: str,
        output_files: int,
    ) -> None:
        self._plan, self._release, self._label, self._output_files = plan, release, label, output_files

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self, group: tuple[int, Iterable[bytes]], origins: list[Origin], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        Evidence.of([], origins).check(self._plan.bound)
        frame = make_frame(filter(None, group[1]), self._plan.k_bar, self._plan.item_type)
        released = self._plan.release(frame, self._plan.subkey(*self._keys(window), self._label))
        if isinstance(released, pa.RecordBatch):
            yield from by_file(released, self._output_files)
        else:
            yield from by_file(released.counts, self._output_files)
            yield beam.pvalue.TaggedOutput("decisions", (0, released.released))


def _top(group: tuple[int, Iterable[bytes]], most: int, item_type: type) -> tuple[int, bytes]:
    shard, chunks = group
    return shard // _TOPS_TOGETHER, top_rows(chunks, most, item_type)


def _to_one(_: int, top: bytes) -> tuple[int, bytes]:
    return 0, top


def _sorted_by_rank(file: int, chunks: Iterable[bytes]) -> tuple[int, pa.RecordBatch]:
    return file, concat([from_ipc(chunk) for chunk in chunks]).sort_by("rank")


class CountNamed(beam.DoFn):
    """Packed shards -> each user's named items, or its sample of them. The key is fetched on the worker.

    `decided` is a plan that has `steps`, and says with `counted` how many items of a user these keep.
    """

    def __init__(self, release: Release, label: str, number: int) -> None:
        self._release, self._label, self._number = release, label, number

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self,
        packed: tuple[int, bytes],
        decided: Any,
        named: NamedBatches,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[pa.RecordBatch]:
        number, data = packed
        own = self._keys(window)
        subkeys = step_subkeys(own.key, own.id, self._label, decided.steps)
        # As with every bound that is decided: shards that were bounded differently never meet in one noise step.
        origin = provenance(f"{self._label} at {decided.counted}", own.id, self._number)
        shard = unpack_shard(data)
        shard = shard.with_items(names_in(named, shard.items.type))
        yield bound_shard(shard, decided.steps, subkeys, origin).to_batch(number)
