"""Which items may be named, as a transform: `SelectPartitions`, and `NamedItems`, the rounds that it is made of.

The shards of users are gathered once. Every round reads them again, with the items that earlier rounds have named beside, and
only sums by item are shuffled anew.

    packed | NamedItems(rounds, release, shards, item_type, output_files)

takes shards of users as `transforms.bounds.choose` keeps them, (number, `pack_shard` bytes), and gives (k, record batch with
the one column `item`, sorted) for every k < output_files, beyond a barrier. Without output files it gives what later steps of
the same release read: (0, record batch) of each round, if it has named anything. Its pure twin is
`mechanisms.partitions.named_in_rounds`, with the transform's full label.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.batches.shards import gather, pack_shard, unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.released import sorted_counts
from headcount.mechanisms.partitions.auto import AutoSelection, DecidedSelection, partitions
from headcount.mechanisms.partitions.rounds import Round
from headcount.mechanisms.partitions.select import ChosenStrategy, Selection
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import beside, with_beside
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.noise import NamedBatches, Noise, names_in
from headcount.transforms.core.release import full_label
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import NamedIntItem, NamedItem
from headcount.transforms.core.user_shards import UserShards, item_shards, keeper_of
from headcount.transforms.core.windows import WindowKey, window_keys
from headcount.transforms.keyed.domain import given_items

_MANY_NAMES = 4096  # from here on names travel compressed: they meet in one group per file


class SelectPartitions(PrivateTransform):
    """The items that may be named, since enough users have them.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation` of the set of names; how often an item occurs
    plays no part, and is not told. What "auto" chooses, it chooses privately, for a 20th of epsilon.

    The result is `NamedItem` rows (`NamedIntItem` with `item_type=int`), sorted in each output file. Rows or `Contributions`
    go in. `with_decision()` gives the `DecidedSelection` beside, for the strategy "auto".

    Parameters:
        budget: what all of it may cost; it needs a delta.
        strategy: "auto" (default), "law" (coins in place of noise, in `rounds` on what is not named yet: it names the most),
            "laplace", "gaussian", "truncated-geometric", "weighted-gaussian", "weighted-laplace" or "sips" (`rounds` of
            weighted-gaussian).
        max_items: the items of one user that count (default: None, chosen by "auto"; needed with another strategy). More name
            items of users who have many, and need more users of an item elsewhere.
        rounds: how often "law" or "sips" goes over the data (default: 3). More name more where some items are popular, and
            each takes a pass.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: Selection | AutoSelection

    def __init__(
        self,
        budget: Budget,
        *,
        strategy: str = "auto",
        max_items: int | None = None,
        rounds: int = tuning.ROUNDS,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type)
        selection = partitions(
            budget,
            strategy=strategy,
            max_items=max_items,
            rounds=rounds,
            relation=Relation.parse(relation),
            item_type=items.made,
        )
        super().__init__(selection, release=release, shards=shards, output_files=output_files, items=items)

    def _given(self) -> str | None:
        return "the strategy is" if isinstance(self.mechanism, Selection) else None

    def _closes_in_streams(self) -> bool:
        return True

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, label = self._drawn(rows)
        s = self.mechanism
        shards = as_contributions(rows) | "UserShards" >> UserShards(self._shards, release.windows)
        if isinstance(s, Selection):
            packed = shards | "PackShards" >> PackShards()
            return self._named(packed, s.rounds, release, len(s.rounds))
        choice = choose(shards, s.choice, release, self._shards, f"{label}/ChooseStrategy", result=ChosenStrategy)
        decided = choice.chosen | "Calibrate" >> beam.Map(s.decided).with_output_types(DecidedSelection)
        return self._result(self._named(choice.shards, decided, release, s.most_rounds), decided)

    def _named(
        self, packed: beam.PCollection, rounds: tuple[Round, ...] | beam.PCollection, release: Release, most: int
    ) -> beam.PCollection:
        item_type = self.mechanism.item_type
        files = self._output_files or item_shards(self._shards)
        named = packed | "NamedItems" >> NamedItems(rounds, release, self._shards, item_type, files, most)
        return self._shown(named, NamedIntItem if item_type is int else NamedItem)


class NamedItems(beam.PTransform):
    """Packed shards of users -> (k, items that all rounds together name), beyond a barrier.

    `rounds` are given, or one value with the attribute `rounds`, at most `most_rounds` of them, that the job decides. With
    `with_sums` the noisy sums come beside, as the rows of `Noise`.
    """

    def __init__(
        self,
        rounds: Sequence[Round] | beam.PCollection,
        release: Release,
        shards: int,
        item_type: type = str,
        output_files: int | None = None,
        most_rounds: int = tuning.ROUNDS,
        with_sums: bool = False,
    ) -> None:
        super().__init__()
        self._with_sums = with_sums
        self._decided = rounds if isinstance(rounds, beam.PCollection) else None
        self._given = () if isinstance(rounds, beam.PCollection) else tuple(rounds)
        self._rounds = len(self._given) or most_rounds
        self._release, self._shards = release, shards
        self._item_type, self._output_files = item_type, output_files

    def expand(self, packed: beam.PCollection) -> beam.PCollection:
        named: list[beam.PCollection] = []
        for number in range(self._rounds):
            named.append(packed | f"Round{number + 1}" >> self._round(number, tuple(named)))
        if len(named) == 1:
            return named[0]
        united = named | "AllRounds" >> beam.Flatten()  # (file, named items), each round's beyond a barrier of its own
        if self._output_files is None:
            return united
        return (
            united
            | "Pack" >> beam.MapTuple(_packed_names).with_output_types(tuple[int, bytes])
            | "GroupByPartition" >> beam.GroupByKey()
            | "SortByItem" >> beam.MapTuple(_united).with_output_types(tuple[int, pa.RecordBatch])
        )

    def _round(self, number: int, named: tuple[beam.PCollection, ...]) -> _OneRound:
        rounds = self._given if self._decided is None else self._decided
        return _OneRound(
            number, rounds, named, self._release, self._shards, self._item_type, self._output_files, self._with_sums
        )


class _OneRound(beam.PTransform):
    """What one round names: the users' items less those named before, a sample of them, weights, sums, noise, threshold."""

    def __init__(
        self,
        number: int,
        rounds: tuple[Round, ...] | beam.PCollection,
        named: tuple[beam.PCollection, ...],
        release: Release,
        shards: int,
        item_type: type,
        output_files: int | None,
        with_sums: bool,
    ) -> None:
        super().__init__()
        self._with_sums = with_sums
        self._number, self._rounds, self._named, self._release = number, rounds, named, release
        self._shards, self._item_type, self._output_files = shards, item_type, output_files

    def expand(self, packed: beam.PCollection) -> beam.PCollection:
        bound = _Bound(self._number, self._release, f"{full_label(packed)}/Bounded", self._shards)
        before: object = []
        if self._named:
            one, *more = self._named
            before = beam.pvalue.AsList(
                self._named | "NamedBefore" >> beam.Flatten() if more else beside(one, "NamedBefore")
            )
        plan_of = None
        if isinstance(self._rounds, tuple):
            rounds, plan = self._rounds, self._rounds[self._number].plan
        else:
            rounds = beam.pvalue.AsSingleton(self._rounds)
            plan, plan_of = self._rounds, functools.partial(_plan, number=self._number)
        files, every_file = self._output_files or 1, self._output_files is not None and not self._named
        noise = Noise(
            plan, None, self._item_type, self._release, self._shards, files, every_file=every_file, plan_of=plan_of
        )
        bounding = beam.ParDo(bound, rounds, before).with_output_types(ContributionBatch)
        counts = with_beside(packed, "Bounded", bounding, self._shards) | "NoisyCounts" >> noise
        if self._with_sums:
            return counts
        return counts | "OnlyNames" >> beam.MapTuple(_only_names).with_output_types(tuple[int, pa.RecordBatch])


class PackShards(beam.PTransform):
    """(shard, chunks) of `UserShards` -> (shard, packed): each shard gathered once, for all that reads it later."""

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        return shards | "Pack" >> beam.ParDo(_Pack(keeper_of(shards))).with_output_types(tuple[int, bytes])


class _Pack(Ahead):
    def __init__(self, keep: Keeper) -> None:
        self._keep = keep

    def process(
        self, group: tuple[int, Iterable[bytes]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        number, chunks = group
        yield from self.ahead(window, (number, list(chunks)))  # a runner may fetch them, which only this thread can do

    def compute(self, group: tuple[int, list[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, chunks = group
        yield number, self._keep(pack_shard(gather(chunks)))


class _Bound(Ahead):
    """Packed shards -> what each user adds to one round; nothing if there is no such round.

    Fetches the key on the worker, so that it is never part of the pipeline.
    """

    def __init__(self, number: int, release: Release, label: str, shards: int) -> None:
        self._number, self._release, self._label, self._shards = number, release, label, shards

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self,
        packed: tuple[int, bytes],
        rounds: object,
        named: NamedBatches,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[pa.RecordBatch]:
        each = _the_round(rounds, self._number)
        if each is not None:
            yield from self.ahead(window, packed, each, named, self._keys(window))

    def compute(
        self, packed: tuple[int, bytes], each: Round, named: NamedBatches, own: WindowKey
    ) -> Iterator[pa.RecordBatch]:
        number, data = packed
        shard = unpack_shard(data)
        if named:
            shard = shard.without_items(names_in(named, shard.items.type))
        subkeys = step_subkeys(own.key, own.id, self._label, each.steps)
        # How users were bounded is part of where the batch comes from: differently bounded shards never meet in one noise step.
        where = f"{self._label} at {each.max_items}, {each.weights}"
        yield bound_shard(shard, each.steps, subkeys, provenance(where, own.id, self._shards)).to_batch(number)


def _the_round(rounds: object, number: int) -> Round | None:
    """The round of this number, of those given or of what was decided; None beyond the last."""
    known: tuple[Round, ...] = rounds if isinstance(rounds, tuple) else rounds.rounds  # type: ignore[attr-defined]
    return known[number] if number < len(known) else None


def _plan(decided: object, number: int) -> NoisePlan:
    """The noise of a round; where there is none, nothing gets noise, whatever the plan is."""
    each = _the_round(decided, number) or _the_round(decided, 0)
    assert each is not None
    return each.plan


def _only_names(file: int, counts: pa.RecordBatch) -> tuple[int, pa.RecordBatch]:
    return file, counts.select(["item"])


def _packed_names(file: int, names: pa.RecordBatch) -> tuple[int, bytes]:
    return file, to_ipc(names, compress=names.num_rows > _MANY_NAMES)


def _united(file: int, chunks: Iterable[bytes]) -> tuple[int, pa.RecordBatch]:
    return file, sorted_counts(chunks)
