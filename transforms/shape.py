"""Shapes of data (paper 002) as transforms: `AnonymizedHistogram`, `Entropy`, `SupportSize` and `SupportCoverage`.

Sums by item never leave their item shard: only how many items have which sum goes on to the one worker that draws the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.sums import add_sums, split_sums, sum_items
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.anonymized import Estimate, FromTallies
from headcount.mechanisms.shape.auto import ShapeMode, shape_histogram
from headcount.mechanisms.shape.buckets import release_salt, sums_by_bucket
from headcount.mechanisms.shape.estimators import (
    CoverageQuestion,
    EntropyKind,
    EntropyQuestion,
    Question,
    SupportQuestion,
)
from headcount.mechanisms.shape.properties import (
    CentralProperty,
    CentralShape,
    PropertyAnswers,
    ShapeProperties,
    central_property,
)
from headcount.mechanisms.shape.tallies import add_tallies, make_tally, pack_tally
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.contributions import as_contributions, check_whole
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import ShapeProperty, ToShapeRows
from headcount.transforms.core.user_shards import check_shards, item_shards
from headcount.transforms.shape_answers import PropertiesOfShape, check_questions, rows_and_answers


class _OfShape(beam.PTransform):
    """What all of them share: how the work is spread, and where randomness comes from."""

    def __init__(self, release: Release | None, shards: int | None, output_files: int | None) -> None:
        super().__init__()
        if output_files is not None and (isinstance(output_files, bool) or not 1 <= output_files <= 10_000):
            raise ParameterError(f"output_files must be an integer from 1 to 10000, got {output_files!r}")
        self._release, self._shards, self._output_files = release, check_shards(shards), output_files

    def _released(self, rows: beam.PCollection, plan: FromTallies) -> beam.PCollection:
        """One record batch with what a mechanism releases of the rows, beyond a barrier."""
        check_whole(rows)
        release, label = release_for(rows.pipeline, self._release), full_label(rows)  # one release for all steps
        shards = item_shards(self._shards)
        summed = (
            as_contributions(rows)
            | "Bounded" >> Bounded(plan.steps, release, self._shards)  # record batches, each (user, item) pair once
            | "SumByItem"
            >> beam.ParDo(_SumByItem(shards))
            .with_output_types(tuple[int, bytes], origins=Origin)
            .with_outputs("origins", main="sums")
        )
        tallied = (
            summed.sums  # (item shard, packed sums)
            | "GroupByItemShard" >> beam.GroupByKey()
            | "Tally"
            >> beam.ParDo(_TallyItems(plan.tallied, release_salt(release.id), shards))
            .with_output_types(tuple[int, tuple[int, bytes]], buckets=tuple[int, bytes])
            .with_outputs("buckets", main="tallies")
        )
        tallies = [tallied.tallies]
        if any(plan.tallied):
            tallies.append(
                tallied.buckets  # (tally and bucket shard, packed sums)
                | "GroupByBucketShard" >> beam.GroupByKey()
                | "TallyBuckets" >> beam.Map(_tally_buckets, shards).with_output_types(tuple[int, tuple[int, bytes]])
            )
        # One element at least: noise is drawn, too, if there is nothing, so that nobody can tell.
        nothing = rows.pipeline | "Nothing" >> beam.Create([(0, (0, b""))], reshuffle=False).with_output_types(
            tuple[int, tuple[int, bytes]]
        )
        return (
            (*tallies, nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, (number, packed part of a tally) of all)
            | "Release"
            >> beam.ParDo(_ReleaseShape(plan, release, label), beam.pvalue.AsList(summed.origins)).with_output_types(
                tuple[int, bytes]
            )
            # The barrier: nothing may be taken from the step that draws, which may run again.
            | "Barrier" >> beam.GroupByKey()
            | "Released" >> beam.MapTuple(_only).with_output_types(pa.RecordBatch)
        )


class AnonymizedHistogram(_OfShape):
    """How many items have which number of users, without saying which items these are (paper 002).

    Guarantee: user-level epsilon-differential privacy under `relation`. Each user counts once for each of at most
    `max_items` of its items, a uniform choice. `domain_size` is public: how many items there could be, or a number
    that the distinct items will not exceed (of more, the largest are kept); or else `buckets`, about four for each user,
    into which items are hashed. The `mode` "central" sorts counts before the noise and is by far the most accurate; "l1" is
    the paper's Algorithm 1 (with buckets, 2), "l2" keeps every single count near its true one besides. Of the noisy cells of
    the last two the `estimate` "likelihood" takes the most likely shape, "algorithm-1" the paper's own, and "auto" the first
    unless it is too far from the second; all of them are of the same noise for the same key and id. The result is
    `ItemsWithCount` rows, or with `output_files=N` one element (k, record batch) for each k < N, all rows in the first. Rows
    or `Contributions` go in.
    """

    def __init__(
        self,
        budget: Budget,
        domain_size: int | None = None,
        buckets: int | None = None,
        mode: ShapeMode = "auto",
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
        estimate: Estimate = "auto",
    ) -> None:
        super().__init__(release, shards, output_files)
        relation = Relation.parse(relation)
        self.plan = shape_histogram(budget, domain_size, buckets, mode, max_items, relation, estimate)
        self._questions: tuple[Question, ...] = ()

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs; answers from the shape cost nothing."""
        return ShapeProperties(self.plan, self._questions).guarantee() if self._questions else self.plan.guarantee()

    def with_answers(self, *questions: Question) -> AnonymizedHistogram:
        """The same transform, but its result has two fields: `counts`, the shape, and `decision`, which is one `ShapeAnswers`:
        what the shape says of these questions (see `mechanisms.symmetric`), as any number of them costs no more."""
        self._questions = check_questions(questions)
        return self

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        return rows_and_answers(self._released(rows, self.plan), self.plan, self._questions, self._output_files)


class _Property(_OfShape):
    """One question: to the curator, or to a shape."""

    def __init__(
        self,
        budget: Budget,
        question: Question,
        mode: Literal["central", "shape"],
        samples: int | None,
        domain_size: int | None,
        buckets: int | None,
        max_items: int,
        relation: Relation | str,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
    ) -> None:
        super().__init__(release, shards, output_files)
        self._decided = False
        self.plan: CentralProperty | ShapeProperties[CentralShape]
        relation = Relation.parse(relation)
        if mode == "central":
            if domain_size is not None or buckets is not None:
                raise ParameterError(
                    f"domain_size = {domain_size!r} and buckets = {buckets!r} are for mode 'shape', got mode 'central': leave "
                    "them out, or take mode 'shape'"
                )
            self.plan = central_property(budget, question, samples, max_items, relation)
        elif mode == "shape":
            if samples is not None:
                raise ParameterError(f"samples = {samples!r} is for mode 'central': a shape tells its own number")
            shape = shape_histogram(budget, domain_size, buckets, "auto", max_items, relation)
            self.plan = ShapeProperties(shape, (question,))
        else:
            raise ParameterError(f"mode must be 'central' or 'shape', got {mode!r}")

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.plan.guarantee()

    def with_decision(self) -> _Property:
        """The same transform, but its result has two fields: `counts`, the rows, and `decision`, one `PropertyAnswers`."""
        self._decided = True
        return self

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        if isinstance(self.plan, CentralProperty):
            found = self._released(rows, self.plan)
        else:
            found = self._released(rows, self.plan.source) | "Answer" >> beam.Map(self.plan.of_rows).with_output_types(
                pa.RecordBatch
            )
        shown = found | "ToRows" >> ToShapeRows(ShapeProperty, self._output_files)
        if not self._decided:
            return shown
        answer = found | "Decision" >> beam.Map(PropertyAnswers.of, self.guarantee()).with_output_types(PropertyAnswers)
        return CountsAndDecision(shown, answer)


class Entropy(_Property):
    """The Shannon entropy, in nats, of the distribution that users' items are samples of.

    Guarantee: user-level epsilon-differential privacy under `relation`; each user has at most `max_items` of its items
    in it, a uniform choice. In mode "central" noise is added to the exact estimate, which is the most accurate; the number
    of `samples`, users' items in all, is public (never counted from the data) or is counted with a tenth of epsilon. In mode
    "shape" it follows from an `AnonymizedHistogram` with `domain_size` or `buckets`. By the estimator `kind`: "plug-in",
    "miller-madow" or "polynomial", whose degree is lowered until noise costs at most half of `accuracy`. The result is one
    `ShapeProperty` row, or with `output_files=N` one element (k, record batch) for each k < N. Rows or `Contributions` go in.
    """

    def __init__(
        self,
        budget: Budget,
        kind: EntropyKind = "polynomial",
        accuracy: float = 0.1,
        mode: Literal["central", "shape"] = "central",
        samples: int | None = None,
        domain_size: int | None = None,
        buckets: int | None = None,
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        question = EntropyQuestion(kind, accuracy)
        super().__init__(
            budget,
            question,
            mode,
            samples,
            domain_size,
            buckets,
            max_items,
            relation,
            release,
            shards,
            output_files,
        )

    @staticmethod
    def of_shape(kind: EntropyKind = "polynomial", accuracy: float = 0.1) -> PropertiesOfShape:
        """The same of the released rows of a shape, in any model; see `PropertiesOfShape`."""
        return PropertiesOfShape([EntropyQuestion(kind, accuracy)])


class SupportSize(_Property):
    """How many items there are, if each is at least one in `most` of all samples: also those that nobody has yet.

    Guarantee, parameters and result are those of `Entropy`. Without a row in the result, there were too few samples to say.
    """

    def __init__(
        self,
        budget: Budget,
        most: int,
        accuracy: float = 0.1,
        mode: Literal["central", "shape"] = "central",
        samples: int | None = None,
        domain_size: int | None = None,
        buckets: int | None = None,
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        question = SupportQuestion(most, accuracy)
        super().__init__(
            budget,
            question,
            mode,
            samples,
            domain_size,
            buckets,
            max_items,
            relation,
            release,
            shards,
            output_files,
        )

    @staticmethod
    def of_shape(most: int, accuracy: float = 0.1) -> PropertiesOfShape:
        """The same of the released rows of a shape, in any model; see `PropertiesOfShape`."""
        return PropertiesOfShape([SupportQuestion(most, accuracy)])


class SupportCoverage(_Property):
    """How many distinct items `target` samples would have, of users like these; without a target, twice as many samples.

    Guarantee, parameters and result are those of `Entropy`. Without a row in the result, the target was too far: from some four
    times the samples on.
    """

    def __init__(
        self,
        budget: Budget,
        target: int | None = None,
        accuracy: float = 0.1,
        mode: Literal["central", "shape"] = "central",
        samples: int | None = None,
        domain_size: int | None = None,
        buckets: int | None = None,
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        question = CoverageQuestion(target, accuracy)
        super().__init__(
            budget,
            question,
            mode,
            samples,
            domain_size,
            buckets,
            max_items,
            relation,
            release,
            shards,
            output_files,
        )

    @staticmethod
    def of_shape(target: int | None = None, accuracy: float = 0.1) -> PropertiesOfShape:
        """The same of the released rows of a shape, in any model; see `PropertiesOfShape`."""
        return PropertiesOfShape([CoverageQuestion(target, accuracy)])


class _SumByItem(beam.DoFn):
    """Bounded batches -> (item shard, packed sums), and where each batch comes from beside."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        yield beam.pvalue.TaggedOutput("origins", Origin.of(batch))
        yield from sum_items(batch, self._shards)


class _TallyItems(beam.DoFn):
    """(item shard, chunks) -> (0, (number of a tally, its part)), and (tally and bucket shard, packed sums) beside.

    Only here is each item hashed once: a user shard would hash what others have hashed, too.
    """

    def __init__(self, tallied: tuple[int | None, ...], salt: bytes, shards: int) -> None:
        self._tallied, self._salt, self._shards = tallied, salt, shards

    def process(
        self, group: tuple[int, Iterable[bytes]]
    ) -> Iterator[tuple[int, tuple[int, bytes]] | beam.pvalue.TaggedOutput]:
        items, sums = add_sums(group[1])
        for number, buckets in enumerate(self._tallied):
            if buckets is None:
                yield 0, (number, pack_tally(make_tally(sums)))
                continue
            bucket, held = sums_by_bucket(items, sums, self._salt, buckets)
            for shard, chunk in split_sums(bucket, {"sum": held}, self._shards):
                yield beam.pvalue.TaggedOutput("buckets", (number * self._shards + shard, chunk))


class _ReleaseShape(beam.DoFn):
    """(0, tallies of all shards) -> (0, Arrow stream of what is released); it fetches the key on the worker."""

    def __init__(self, plan: FromTallies, release: Release, label: str) -> None:
        self._plan, self._release, self._label = plan, release, label

    def setup(self) -> None:
        self._key = self._release.key_source.fetch()

    def process(
        self, group: tuple[int, Iterable[tuple[int, bytes]]], origins: list[Origin]
    ) -> Iterator[tuple[int, bytes]]:
        Evidence.of([], origins).check(self._plan.bound)
        parts: list[list[bytes]] = [[] for _ in self._plan.tallied]
        for number, tally in group[1]:
            if tally:
                parts[number].append(tally)
        tallies = [add_tallies(each) for each in parts]
        yield 0, to_ipc(self._plan.released(tallies, self._key, self._release.id, self._label))


def _tally_buckets(group: tuple[int, Iterable[bytes]], shards: int) -> tuple[int, tuple[int, bytes]]:
    place, chunks = group
    return 0, (place // shards, pack_tally(make_tally(add_sums(chunks)[1])))


def _only(_: int, streams: Iterable[bytes]) -> pa.RecordBatch:
    return from_ipc(next(iter(streams)))
