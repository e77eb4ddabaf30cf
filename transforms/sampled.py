"""Sample and threshold (paper 001) as transforms: `SampledHistogram`, `HeavyHitters`, `Quantile` and `Quantiles`.

No noise is added: users are sampled, and what too few sampled users have stays hidden. The number of sampled users, of hidden
items or of all users is never part of a result: each would give a sampled user away.

A sample is defined by the release (key and id), the collection, and what is sampled with which rate and threshold. Transforms
that agree in these read the same sample, in one pipeline or in several, and together are one release, whose guarantee is that
of any one of them: a `SampledHistogram` and `HeavyHitters` at any number of shares, of the same budget, items per user,
objective and relation; `Quantiles` with any quantiles and ranges over one tree. The collection is known by the label of the
step that made it, or by `sample`, a name for one column of one input: give the same in pipelines (or steps of Beam YAML) that
make the same collection in other ways, and never for two inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.counting.evidence import Origin
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.axis import Axis, Value
from headcount.mechanisms.sampled.heavy_hitters import CountedHitters, heavy_hitters
from headcount.mechanisms.sampled.histogram import CHOICES, SampleKey, sampled_histogram
from headcount.mechanisms.sampled.histogram import SampledHistogram as SampledHistogramPlan
from headcount.mechanisms.sampled.plan import Objective
from headcount.mechanisms.sampled.quantiles import (
    Hierarchy,
    QuantileSearch,
    add_leaves,
    quantile_hierarchy,
    quantile_search,
    share,
)
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.contributions import as_contributions, check_whole
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.rows import (
    QuantileTime,
    QuantileValue,
    RangeCount,
    RangeTimeCount,
    SampledCount,
    SampledIntCount,
    ToRows,
)
from headcount.transforms.core.sampling import NumberOfUsers, Sampled, SumBatches, check_sample, sample_name
from headcount.transforms.core.user_shards import check_shards, item_shards
from headcount.transforms.core.values import Values

Range = tuple[Value, Value]


class QuantilesAndRanges(NamedTuple):
    """The result of `Quantiles` that was asked for both."""

    quantiles: beam.PCollection
    ranges: beam.PCollection


class _Sampling(beam.PTransform):
    """What all of them share: how the work is spread, and where randomness comes from."""

    def __init__(
        self, release: Release | None, shards: int | None, output_files: int | None, sample: str | None = None
    ) -> None:
        super().__init__()
        self._sample = check_sample(sample)
        if output_files is not None and (isinstance(output_files, bool) or not 1 <= output_files <= 10_000):
            raise ParameterError(f"output_files must be an integer from 1 to 10000, got {output_files!r}")
        self._release, self._output_files, self._shards = release, output_files, check_shards(shards)

    plan: SampledHistogramPlan | QuantileSearch | Hierarchy

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.plan.guarantee()


class _Items(_Sampling):
    """Contributions, bounding and sampling of one histogram."""

    plan: SampledHistogramPlan

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        check_whole(rows)
        release = release_for(rows.pipeline, self._release)  # one for all steps
        key = SampleKey(self.plan, release, sample_name(rows, self._sample))
        contributions = as_contributions(rows)
        counts = (
            contributions
            | "Bounded"
            >> Bounded(
                self.plan.steps, key.choices, self._shards, CHOICES
            )  # record batches, each (user, item) pair once
            | "Sampled" >> Sampled(self.plan, key, self._shards, self._output_files or item_shards(self._shards))
        )
        if isinstance(self.plan, CountedHitters):  # this works on released numbers only
            users = contributions | "Users" >> NumberOfUsers(self.plan.users, key, self._shards)
            counts = counts | "Report" >> beam.Map(
                _reported, self.plan, beam.pvalue.AsSingleton(users)
            ).with_output_types(tuple[int, pa.RecordBatch])
        if self._output_files is not None:
            return counts
        return counts | "ToRows" >> ToRows(SampledIntCount if self.plan.item_type is int else SampledCount)


def _reported(file: tuple[int, pa.RecordBatch], plan: CountedHitters, users: int) -> tuple[int, pa.RecordBatch]:
    number, rows = file
    return number, plan.reported(rows, users)


class SampledHistogram(_Items):
    """How many users have each item, for items that are not known before, from a sample and without noise (paper 001).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts once for each of at most
    `max_items` of its items, a uniform choice, with a coin of its own for each; an item is shown if as many users as the
    threshold were sampled, or more. Rate and threshold are chosen so that an item of few users is shown with
    probability 0.95 (`objective="w95"`) or 0.5 ("w50"). An item that nobody has cannot appear. The result is `SampledCount`
    rows (`SampledIntCount` with `item_type=int`), or with `output_files=N` one element (k, record batch) for each k < N, sorted
    by item. Rows or `Contributions` go in.
    """

    def __init__(
        self,
        budget: Budget,
        max_items: int = 1,
        objective: Objective = "w95",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
        sample: str | None = None,
    ) -> None:
        super().__init__(release, shards, output_files, sample)
        self.plan = sampled_histogram(budget, max_items, objective, Relation.parse(relation), item_type)


class HeavyHitters(_Items):
    """The items that a share `phi` of all `users` have, with the estimates of their users (paper 001).

    Guarantee and result are those of `SampledHistogram` with the same budget, `max_items`, objective and relation: of the
    same sample less is shown. On the same collection and with the same `release`, both, and any number of shares,
    together cost no more than one of them. `users` is public (needed under REPLACE), and never the exact number of the data's
    users; or None: then they are counted, by `users_share` of epsilon (default: a tenth), and the sample is that of the rest.
    """

    def __init__(
        self,
        budget: Budget,
        phi: float,
        users: int | None = None,
        max_items: int = 1,
        objective: Objective = "w95",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
        sample: str | None = None,
        users_share: float | None = None,
    ) -> None:
        super().__init__(release, shards, output_files, sample)
        self.plan = heavy_hitters(
            budget, phi, users, max_items, objective, Relation.parse(relation), item_type, users_share
        )


class _OverValues(_Sampling):
    """What quantiles share: users' values become leaves of a public grid."""

    plan: QuantileSearch | Hierarchy

    def __init__(
        self,
        axis: Axis,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
        user: str,
        value: str,
        drop_null: bool,
        sample: str | None = None,
    ) -> None:
        super().__init__(release, shards, output_files, sample)
        self.axis = axis
        self._user, self._value, self._drop_null = user, value, drop_null
        self._of_leaves = False

    def of_leaves(self) -> _OverValues:
        """The same transform, for `Contributions` whose items are the numbers of leaves, as `plan.leaves` gives them."""
        self._of_leaves = True
        return self

    def _bounded(self, rows: beam.PCollection, release: Release, drawn_as: str | None = None) -> beam.PCollection:
        """Record batches in which each user has one leaf, once."""
        check_whole(rows)
        if self._of_leaves:
            leaves = as_contributions(rows)
        else:
            leaves = rows | "Values" >> Values(self.axis, self.plan.leaves, self._user, self._value, self._drop_null)
        return leaves | "Bounded" >> Bounded(self.plan.steps, release, self._shards, drawn_as)


class Quantile(_OverValues):
    """One quantile of the users' values, by a search that halves lo .. hi in each of its rounds (paper 001).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts with one of its values,
    chosen uniformly, and is sampled anew in each of the `rounds`, which compose. Values are numbers, or dates or times if `lo`
    and `hi` are; those outside count as the ends. The result is one `QuantileValue` row (`QuantileTime` for dates and times),
    or none if too few users were sampled to tell; with `output_files=N` one element (k, record batch) for each k < N. Rows go
    in: Arrow batches, pandas frames, dicts, `beam.Row`s or named tuples with the fields `user` and `value`, or (user, value)
    tuples; or `Contributions`, whose items are then the values. Every search is a release of its own.
    """

    plan: QuantileSearch

    def __init__(
        self,
        budget: Budget,
        q: float,
        lo: Value,
        hi: Value,
        rounds: int = 10,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
        user: str = "user",
        value: str = "value",
        drop_null: bool = False,
    ) -> None:
        super().__init__(Axis.of(lo, hi), release, shards, output_files, user, value, drop_null)
        ends = self.axis.number("lo", lo), self.axis.number("hi", hi)
        self.plan = quantile_search(budget, q, *ends, rounds, Relation.parse(relation))

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        release, label = release_for(rows.pipeline, self._release), f"{full_label(rows)}/Sampled"
        summed = self._bounded(rows, release) | "SumByLeaf" >> beam.ParDo(
            SumBatches(self.plan, item_shards(self._shards))
        ).with_output_types(tuple[int, bytes], origins=Origin).with_outputs("origins", main="sums")
        sums = (
            summed.sums  # (leaf shard, packed sums)
            | "GroupByLeafShard" >> beam.GroupByKey()
            | "AddUp" >> beam.MapTuple(_added).with_output_types(tuple[int, bytes])
        )
        # One element at least, so that there is a result, or none, from no rows as from too few.
        nothing = rows.pipeline | "Nothing" >> beam.Create([(0, b"")], reshuffle=False)
        found = (
            (sums, nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, sums of leaves)
            | "Search"
            >> beam.ParDo(
                _Search(SampleKey(self.plan, release, label), self.plan), beam.pvalue.AsList(summed.origins)
            ).with_output_types(tuple[int, bytes])
            # The barrier: nothing may be taken from the search itself, which may run again.
            | "Barrier" >> beam.GroupByKey()
            | "Shown" >> beam.Map(_searched, self.axis).with_output_types(pa.RecordBatch)
        )
        return found | "Rows" >> _Rows(self.axis, self._output_files, QuantileValue, QuantileTime)


class Quantiles(_OverValues):
    """Any number of quantiles of the users' values, and of counts of users by ranges, from one sample (paper 001).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts with one of its values,
    chosen uniformly, on each level of a tree over branching^levels equal parts of lo .. hi; every node is sampled by itself,
    and the levels compose. `quantiles` and `ranges` are read off the nodes that are shown: any number costs no more, also by
    other transforms with the same release, budget and tree on the same collection. The ends
    of a range move to the edge of a part (`SampledTree.range_counts`). The result is `QuantileValue` rows, or `RangeCount`
    rows where only `ranges` are asked for (`QuantileTime`, `RangeTimeCount` for dates and times); asked for both, it has
    fields `quantiles` and `ranges`. A quantile is left out if nothing was shown at all. Else as for `Quantile`.
    """

    plan: Hierarchy

    def __init__(
        self,
        budget: Budget,
        quantiles: Sequence[float],
        lo: Value,
        hi: Value,
        ranges: Sequence[Range] = (),
        levels: int = 10,
        branching: int = 2,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
        user: str = "user",
        value: str = "value",
        drop_null: bool = False,
        sample: str | None = None,
    ) -> None:
        super().__init__(Axis.of(lo, hi), release, shards, output_files, user, value, drop_null, sample)
        self._quantiles = [share("a quantile", q) for q in quantiles]
        if not quantiles and not ranges:
            raise ParameterError("give at least one quantile or one range")
        number = self.axis.number
        self._ranges = [(number("a range", low), number("a range", high)) for low, high in ranges]
        for given, (low, high) in zip(ranges, self._ranges, strict=True):
            if not low < high:
                raise ParameterError(f"a range must begin below its end, got {given!r}")
        self.plan = quantile_hierarchy(
            budget, number("lo", lo), number("hi", hi), levels, branching, Relation.parse(relation)
        )
        leaves = self.plan.leaves
        for given, (low, high) in zip(ranges, self._ranges, strict=True):
            if low >= leaves.hi or high <= leaves.lo:
                raise ParameterError(
                    f"a range must overlap with lo .. hi, which values outside count as, got {given!r}"
                )
            if leaves.nearest_edge(low) == leaves.nearest_edge(high):
                raise ParameterError(
                    f"a range must not be smaller than one of the {leaves.count} parts of lo .. hi, got {given!r}: give more "
                    "levels, or a lo and hi that are nearer"
                )

    def expand(self, rows: beam.PCollection) -> beam.PCollection | QuantilesAndRanges:
        release = release_for(rows.pipeline, self._release)
        key = SampleKey(self.plan, release, sample_name(rows, self._sample, self._user, self._value))
        nodes = self._bounded(rows, key.choices, CHOICES) | "Sampled" >> Sampled(self.plan, key, self._shards, 1)
        # All from here on works on released nodes only: (0, record batch).
        made = []
        if self._quantiles:
            values = nodes | "Quantiles" >> beam.Map(
                _quantiles, self.plan, self._quantiles, self.axis
            ).with_output_types(pa.RecordBatch)
            made.append(values | "QuantileRows" >> _Rows(self.axis, self._output_files, QuantileValue, QuantileTime))
        if self._ranges:
            counts = nodes | "Ranges" >> beam.Map(_ranges, self.plan, self._ranges, self.axis).with_output_types(
                pa.RecordBatch
            )
            made.append(counts | "RangeRows" >> _Rows(self.axis, self._output_files, RangeCount, RangeTimeCount))
        return QuantilesAndRanges(*made) if len(made) == 2 else made[0]


class _Rows(beam.PTransform):
    """One record batch of a few released rows, as the caller wants it: rows, or all of them in the first file."""

    def __init__(self, axis: Axis, output_files: int | None, number: type, time: type) -> None:
        super().__init__()
        self._output_files, self._row = output_files, number if axis.kind == "number" else time

    def expand(self, batch: beam.PCollection) -> beam.PCollection:
        output_files = batch | "InFirst" >> beam.FlatMap(_in_first, self._output_files or 1).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        return output_files if self._output_files is not None else output_files | "ToRows" >> ToRows(self._row)


class _Search(beam.DoFn):
    """(0, sums of leaves) -> (0, Arrow stream of the found quantile)."""

    def __init__(self, key: SampleKey, plan: QuantileSearch) -> None:
        self._key, self._plan = key, plan

    def setup(self) -> None:
        self._subkey = self._key.fetch()

    def process(self, group: tuple[int, Iterable[bytes]], origins: list[Origin]) -> Iterator[tuple[int, bytes]]:
        yield 0, to_ipc(self._plan.search([chunk for chunk in group[1] if chunk], origins, self._subkey))


def _added(_: int, chunks: Iterable[bytes]) -> tuple[int, bytes]:
    return 0, add_leaves(chunks)


def _searched(found: tuple[int, Iterable[bytes]], axis: Axis) -> pa.RecordBatch:
    return axis.shown(from_ipc(next(iter(found[1]))))


def _quantiles(
    nodes: tuple[int, pa.RecordBatch], plan: Hierarchy, wanted: Sequence[Fraction], axis: Axis
) -> pa.RecordBatch:
    return axis.shown(plan.tree(nodes[1]).quantiles(wanted))


def _ranges(
    nodes: tuple[int, pa.RecordBatch], plan: Hierarchy, wanted: Sequence[tuple[float, float]], axis: Axis
) -> pa.RecordBatch:
    return axis.shown(plan.tree(nodes[1]).range_counts(wanted))


def _in_first(rows: pa.RecordBatch, output_files: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    yield 0, rows
    for file in range(1, output_files):
        yield file, rows.slice(0, 0)
