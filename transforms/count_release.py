"""Counts without a bound on a user's items (paper 003) as transforms: `PrivateCountRelease`, and `TopItems` without counts.

Only the top of each item shard leaves it, and one worker sees the top of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.count_release.frames import make_frame, sum_users, top_rows
from headcount.mechanisms.count_release.release import FIRST_EPSILON, CountRelease, Released, count_release
from headcount.mechanisms.count_release.top_items import TopItems as TopItemsPlan
from headcount.mechanisms.count_release.top_items import ranked, top_items
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.released import by_file, counts_batch, sorted_counts
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.contributions import as_contributions, check_whole
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import RankedIntItem, RankedItem, ToRows, count_row
from headcount.transforms.core.user_shards import check_shards, item_shards

# Tops that are put together at a time: with very many item shards, one worker would else get all of theirs.
_TOPS_TOGETHER = 32


class _FromFrame(beam.PTransform):
    """Bounding, sums by item, their top, and what one worker releases of it."""

    def __init__(
        self,
        plan: CountRelease | TopItemsPlan,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
    ) -> None:
        super().__init__()
        if output_files is not None and (isinstance(output_files, bool) or not 1 <= output_files <= 10_000):
            raise ParameterError(f"output_files must be an integer from 1 to 10000, got {output_files!r}")
        self.plan = plan
        self._release, self._output_files = release, output_files
        self._shards = check_shards(shards)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.plan.guarantee()

    def _released(self, rows: beam.PCollection, empty: pa.RecordBatch) -> tuple[beam.PCollection, beam.PCollection]:
        """(file, Arrow streams) beyond a barrier, and (0, decision), which still needs one."""
        check_whole(rows)
        plan, shards = self.plan, item_shards(self._shards)
        release, label = release_for(rows.pipeline, self._release), full_label(rows)
        summed = (
            as_contributions(rows)
            | "Bounded" >> Bounded(plan.steps, release, self._shards)  # record batches, each (user, item) pair once
            | "SumByItem"
            >> beam.ParDo(_SumByItem(shards))
            .with_output_types(tuple[int, bytes], origins=Origin)
            .with_outputs("origins", main="sums")
        )
        tops = (
            summed.sums  # (item shard, packed users and sums)
            | "GroupByItemShard" >> beam.GroupByKey()
            | "Top" >> beam.Map(_top, plan.k_bar + 1, plan.item_type).with_output_types(tuple[int, bytes])
        )
        if shards > _TOPS_TOGETHER:
            tops = (
                tops
                | "GroupSome" >> beam.GroupByKey()
                | "TopOfSome" >> beam.Map(_top, plan.k_bar + 1, plan.item_type).with_output_types(tuple[int, bytes])
            )
        # One element at least: the rounds also run if there is nothing, so that nobody can tell.
        nothing = rows.pipeline | "Nothing" >> beam.Create([(0, b"")], reshuffle=False)
        done = (
            (tops | "ToOne" >> beam.MapTuple(_to_one).with_output_types(tuple[int, bytes]), nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, tops)
            | "Release"
            >> beam.ParDo(
                _Release(plan, release, label, self._output_files or shards), beam.pvalue.AsList(summed.origins)
            )
            .with_output_types(tuple[int, bytes], decisions=tuple[int, Released])
            .with_outputs("decisions", main="rows")
        )
        every_file = rows.pipeline | "EveryPartition" >> beam.Create(
            [(file, to_ipc(empty)) for file in range(self._output_files or shards)], reshuffle=False
        )
        # The barrier: all that reads what was released hangs on the far side of this GroupByKey (or, for decisions, of one of
        # their own), so that a repeated step can reach no consumer twice. Nothing else may be taken from `done`.
        output_files = (
            (done.rows, every_file)
            | "WithEveryPartition" >> beam.Flatten()
            | "Barrier" >> beam.GroupByKey()  # (file, Arrow streams)
        )
        return output_files, done.decisions


class PrivateCountRelease(_FromFrame):
    """How many users have each item, for as many of the largest items as the budget buys (paper 003, corrected).

    Guarantee: user-level delta-approximate rho-zCDP for a `Zcdp(rho, delta)` under `relation`, or (epsilon, delta)-differential
    privacy for a `Budget(epsilon, delta)`. A user counts for all of its items: there is no bound to choose, and nothing is
    lost to one. Items are found one by one, the largest first, each at its own cost, and most of the counts are within
    `relative_error` of the true ones; `k_bar` items at most are released. With `max_per_item`, what is released of an item
    is the number of events, up to so many of each user. `noise_reduction` spends less on counts that are exact enough, which
    buys some more of them; `strict_target` keeps to small relative errors, whatever they cost. The result is `NoisyCount` rows
    (`NoisyIntCount` with `item_type=int`), or with `output_files=N` one element (k, record batch) for each k < N, sorted.
    """

    plan: CountRelease

    def __init__(
        self,
        budget: Zcdp | Budget,
        relative_error: float = 0.1,
        k_bar: int = 10_000,
        max_per_item: int | None = None,
        noise_reduction: bool = False,
        strict_target: bool = False,
        start_epsilon: float = FIRST_EPSILON,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        plan = count_release(
            budget,
            relative_error,
            k_bar,
            max_per_item,
            noise_reduction,
            strict_target,
            start_epsilon,
            Relation.parse(relation),
            item_type,
        )
        super().__init__(plan, release, shards, output_files)
        self._with_decision = False

    def with_decision(self) -> PrivateCountRelease:
        """The same transform, but its result has two fields: `counts`, and `decision`, which is one `Released`: what was
        spent on what, and the guarantee."""
        self._with_decision = True
        return self

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        item_type = self.plan.item_type
        empty = counts_batch(pa.array([], arrow_type(item_type)), np.zeros(0), 0.0)
        output_files, decisions = self._released(rows, empty)
        counts = output_files | "SortByItem" >> beam.MapTuple(_sorted_by_item).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        if self._output_files is None:
            counts = counts | "ToRows" >> ToRows(count_row(item_type))
        if not self._with_decision:
            return counts
        decision = (
            decisions
            | "DecisionBarrier" >> beam.GroupByKey()
            | "Decision" >> beam.MapTuple(lambda _, decided: next(iter(decided))).with_output_types(Released)
        )
        return CountsAndDecision(counts, decision)


class TopItems(_FromFrame):
    """The `k` items with the most users, without counts, or fewer: those that too few users have stay hidden (paper 003).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; a user may have any number of items. `k_bar`
    items are looked at. The result is `RankedItem` rows (`RankedIntItem` with `item_type=int`), or with `output_files=N` one
    element (k, record batch of rank and item) for each k < N, sorted by rank.
    """

    plan: TopItemsPlan

    def __init__(
        self,
        budget: Budget,
        k: int,
        k_bar: int = 10_000,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        super().__init__(
            top_items(budget, k, k_bar, Relation.parse(relation), item_type), release, shards, output_files
        )

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        item_type = self.plan.item_type
        output_files, _ = self._released(rows, ranked(pa.array([], arrow_type(item_type))))
        items = output_files | "SortByRank" >> beam.MapTuple(_sorted_by_rank).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        if self._output_files is not None:
            return items
        return items | "ToRows" >> ToRows(RankedIntItem if item_type is int else RankedItem)


class _SumByItem(beam.DoFn):
    def __init__(self, shards: int) -> None:
        self._shards = shards

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        yield beam.pvalue.TaggedOutput("origins", Origin.of(batch))
        yield from sum_users(batch, self._shards)


class _Release(beam.DoFn):
    """(0, tops) -> (file, Arrow stream), and the decision beside; it fetches the key on the worker."""

    def __init__(self, plan: CountRelease | TopItemsPlan, release: Release, label: str, output_files: int) -> None:
        self._plan, self._release, self._label, self._output_files = plan, release, label, output_files

    def setup(self) -> None:
        self._subkey = self._plan.subkey(self._release.key_source.fetch(), self._release.id, self._label)

    def process(
        self, group: tuple[int, Iterable[bytes]], origins: list[Origin]
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        Evidence.of([], origins).check(self._plan.bound)
        frame = make_frame(filter(None, group[1]), self._plan.k_bar, self._plan.item_type)
        released = self._plan.release(frame, self._subkey)
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


def _sorted_by_item(file: int, chunks: Iterable[bytes]) -> tuple[int, pa.RecordBatch]:
    return file, sorted_counts(chunks)


def _sorted_by_rank(file: int, chunks: Iterable[bytes]) -> tuple[int, pa.RecordBatch]:
    return file, pa.concat_batches([from_ipc(chunk) for chunk in chunks]).sort_by("rank")
