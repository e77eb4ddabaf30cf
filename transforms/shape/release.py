"""Shapes of data as a transform: `AnonymizedHistogram`, and the steps that all questions to users' items share.

Sums by item never leave their item shard: only how many items have which sum goes on to the one worker that draws the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.sums import add_sums, split_sums
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.anonymized import AnonymizedHistogramMechanism, Estimate, FromTallies
from headcount.mechanisms.shape.auto import ShapeMode, shape_histogram
from headcount.mechanisms.shape.buckets import release_salt, sums_by_bucket
from headcount.mechanisms.shape.hashed import HashedHistogram
from headcount.mechanisms.shape.tallies import add_tallies, make_tally, pack_tally
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.barrier import rows_beyond_barrier
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.noise import sum_by_item
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import item_shards
from headcount.transforms.core.windows import every, release_in, window_keys
from headcount.transforms.shape.answers import AnsweringTransform


class FromTalliesTransform(PrivateTransform):
    """Bounding, sums by item, tallies of them, and what one worker releases of these."""

    def _released(self, rows: beam.PCollection, plan: FromTallies) -> beam.PCollection:
        """One record batch with what a mechanism releases of the rows, beyond a barrier."""
        release, label = self._drawn(rows)
        shards = item_shards(self._shards)
        bounded = as_contributions(rows) | "Bounded" >> Bounded(plan.steps, release, self._shards)
        summed = sum_by_item(bounded, shards)  # of record batches, each (user, item) pair once
        tallied = (
            summed.sums  # (item shard, packed sums)
            | "GroupByItemShard" >> beam.GroupByKey()
            | "Tally"
            >> beam.ParDo(_TallyItems(plan.tallied, release, shards))
            .with_output_types(tuple[int, tuple[int, bytes]])
            .with_outputs("buckets", main="tallies")
        )
        typed(tallied, buckets=tuple[int, bytes])
        tallies = [tallied.tallies]
        if any(plan.tallied):
            tallies.append(
                tallied.buckets  # (tally and bucket shard, packed sums)
                | "GroupByBucketShard" >> beam.GroupByKey()
                | "TallyBuckets" >> beam.Map(_tally_buckets, shards).with_output_types(tuple[int, tuple[int, bytes]])
            )
        # One element at least: noise is drawn, too, if there is nothing, so that nobody can tell.
        nothing = every(bounded, "Nothing", [(0, (0, b""))])
        drawn = (
            (*tallies, nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, (number, packed part of a tally) of all)
            | "Release"
            >> beam.ParDo(_ReleaseShape(plan, release, label), beam.pvalue.AsList(summed.origins)).with_output_types(
                tuple[int, bytes]
            )
        )
        # Nothing may be taken from the step that draws, which may run again.
        return rows_beyond_barrier(drawn, "Released")


class AnonymizedHistogram(AnsweringTransform, FromTalliesTransform):
    """How many items have which number of users, without saying which items these are (the paper).

    Guarantee: user-level epsilon-differential privacy under `relation`. Each user counts once for each of at most
    `max_items` of its items, a uniform choice.

    The result is `ItemsWithCount` rows, all of them in the first output file. Rows or `Contributions` go in. What follows
    from the rows costs nothing: `with_answers()`.

    Parameters:
        budget: what all of it may cost.
        domain_size: how many items there could be, or a number that the distinct items will not exceed; public. Of more, the
            largest are kept; far too many cost accuracy. This or `buckets` is needed.
        buckets: into how many buckets items are hashed, about four for each user. Fewer bring collisions, more bring noise.
        mode: "central" sorts counts before the noise and is by far the most accurate; "l1" is the paper's Algorithm 1 (with
            buckets, 2), "l2" keeps every single count near its true one besides. "auto" (default) takes the best.
        estimate: of the noisy cells of "l1" and "l2" "likelihood" takes the most likely shape, "algorithm-1" the paper's own,
            and "auto" (default) the first unless it is too far from the second; all are of the same noise.
        max_items: the items of one user that count (default: 1). More take more noise.
        relation, release, shards, output_files: as for `Histogram`.
    """

    mechanism: AnonymizedHistogramMechanism | HashedHistogram

    def __init__(
        self,
        budget: Budget,
        *,
        domain_size: int | None = None,
        buckets: int | None = None,
        mode: ShapeMode = "auto",
        estimate: Estimate = "auto",
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        made = shape_histogram(
            budget,
            domain_size=domain_size,
            buckets=buckets,
            mode=mode,
            estimate=estimate,
            max_items=max_items,
            relation=Relation.parse(relation),
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files)

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        return self._answered(self._released(rows, self.mechanism))


class _TallyItems(beam.DoFn):
    """(item shard, chunks) -> (0, (number of a tally, its part)), and (tally and bucket shard, packed sums) beside.

    Only here is each item hashed once: a user shard would hash what others have hashed, too.
    """

    def __init__(self, tallied: tuple[int | None, ...], release: Release, shards: int) -> None:
        self._tallied, self._release, self._shards = tallied, release, shards

    def process(
        self, group: tuple[int, Iterable[bytes]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, tuple[int, bytes]] | beam.pvalue.TaggedOutput]:
        items, sums = add_sums(group[1])
        salt = release_salt(release_in(self._release, window).id)
        for number, buckets in enumerate(self._tallied):
            if buckets is None:
                yield 0, (number, pack_tally(make_tally(sums)))
                continue
            bucket, held = sums_by_bucket(items, sums, salt, buckets)
            for shard, chunk in split_sums(bucket, {"sum": held}, self._shards):
                yield beam.pvalue.TaggedOutput("buckets", (number * self._shards + shard, chunk))


class _ReleaseShape(beam.DoFn):
    """(0, tallies of all shards) -> (0, Arrow stream of what is released); it fetches the key on the worker."""

    def __init__(self, plan: FromTallies, release: Release, label: str) -> None:
        self._plan, self._release, self._label = plan, release, label

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self,
        group: tuple[int, Iterable[tuple[int, bytes]]],
        origins: list[Origin],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, bytes]]:
        Evidence.of([], origins).check(self._plan.bound)
        parts: list[list[bytes]] = [[] for _ in self._plan.tallied]
        for number, tally in group[1]:
            if tally:
                parts[number].append(tally)
        tallies = [add_tallies(each) for each in parts]
        yield 0, to_ipc(self._plan.released(tallies, *self._keys(window), self._label))


def _tally_buckets(group: tuple[int, Iterable[bytes]], shards: int) -> tuple[int, tuple[int, bytes]]:
    place, chunks = group
    return 0, (place // shards, pack_tally(make_tally(add_sums(chunks)[1])))
