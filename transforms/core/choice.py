"""A private choice wired into a pipeline: tables of all shards meet in one worker, which decides before a barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.batches.chunk_store import Keeper
from headcount.mechanisms.batches.shards import gather, pack_shard, unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.choice.protocol import Choice, ChosenBound
from headcount.mechanisms.choice.run import add_tables, choice_subkey, decide, encode_table
from headcount.mechanisms.counting.evidence import MIXED_USERS
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.histogram.auto import AutoRelease, Decided
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import one_beyond_barrier, with_beside
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import ContributionBatch
from headcount.transforms.core.release import full_label
from headcount.transforms.core.user_shards import item_shards, keeper_of
from headcount.transforms.core.windows import WindowKey, every, window_keys


class Chosen(NamedTuple):
    """The one result of the choice, and if they are kept, the shards of users that it was chosen from, gathered and packed."""

    chosen: beam.PCollection
    shards: beam.PCollection


def choose(
    shards: beam.PCollection,
    choice: Choice[Any],
    release: Release,
    number: int,
    label: str,
    keep: bool = True,
    result: type = ChosenBound,
    public: beam.PCollection | None = None,
    unpack: Callable[[bytes], Any] = unpack_shard,
) -> Chosen:
    """Wires a choice to grouped shards of users (as many as `number`); `label` names it in its randomness, and `result` is the
    type of what it gives. `public` is the one table with the public entries, if there are any.
    Shards may be packed already: `unpack` makes of them what the choice looks at."""
    tabulate = _Tabulate(choice, item_shards(number), keeper_of(shards), keep, unpack)
    tabled = shards | "Tabulate" >> beam.ParDo(tabulate).with_output_types(tuple[int, bytes]).with_outputs(
        "tables", "items", main="shards"
    )
    typed(tabled, tables=tuple[str, bytes], items=tuple[int, bytes])
    if public is None:
        public = every(shards, "EmptyTable", [encode_table([0] * choice.entries)])
    of_items: list[bytes] | beam.pvalue.AsList = []
    if choice.by_item:
        of_items = beam.pvalue.AsList(
            tabled.items  # (item shard, chunk)
            | "GroupByItemShard" >> beam.GroupByKey()
            | "TabulateItems" >> beam.ParDo(_TabulateItems(choice)).with_output_types(bytes)
        )
    # The public table is there also without users. Those of the shards come beside, which takes no stage of its own.
    deciding = beam.ParDo(
        _Decide(choice, release, label), beam.pvalue.AsList(tabled.tables), of_items
    ).with_output_types(beam.typehints.Tuple[int, result])
    decided = with_beside(public, "Decide", deciding)
    # Bounding, noise and report all stand beyond this barrier: a repeated decision can reach no two of them differently.
    chosen = one_beyond_barrier(decided, result, "Barrier", "Chosen")
    return Chosen(chosen, tabled.shards)


class Choose(beam.PTransform):
    """Shards of users -> what is chosen from them, by a choice that is called as this is; with `keep` also the shards."""

    def __init__(
        self,
        choice: Choice[Any],
        release: Release,
        shards: int,
        result: type,
        public: beam.PCollection | None = None,
        keep: bool = False,
        unpack: Callable[[bytes], Any] = unpack_shard,
    ) -> None:
        super().__init__()
        self._choice, self._release, self._shards = choice, release, shards
        self._result, self._public, self._keep, self._unpack = result, public, keep, unpack

    def expand(self, shards: beam.PCollection) -> Chosen:
        where, more = full_label(shards), (self._keep, self._result, self._public, self._unpack)
        return choose(shards, self._choice, self._release, self._shards, where, *more)


class BoundAsDecided(beam.PTransform):
    """Packed shards of users, bounded as was decided; `label` names the bounding, as that of `Bounded` does."""

    def __init__(
        self, auto: AutoRelease, decided: beam.PCollection[Decided], release: Release, number: int, label: str
    ) -> None:
        super().__init__()
        self._decided, self._number = decided, number
        self._bound = _BoundAsDecided(auto, release, label, number)

    def expand(self, shards: beam.PCollection) -> beam.PCollection[pa.RecordBatch]:
        decided = beam.pvalue.AsSingleton(self._decided)
        return with_beside(
            shards, "Bound", beam.ParDo(self._bound, decided).with_output_types(ContributionBatch), self._number
        )


class _Tabulate(Ahead):
    """(shard, chunks or packed) -> (users' type, table), what items need by item shard, and if kept the packed shard.

    Flink's runner sends all of this once for each of these outputs: there are no more than need be.
    """

    def __init__(
        self, choice: Choice[Any], item_shards: int, keep: Keeper, shards: bool, unpack: Callable[[bytes], Any]
    ) -> None:
        self._choice, self._item_shards, self._unpack = choice, item_shards, unpack
        self._keep, self._with_shards = keep, shards

    def process(
        self, group: tuple[int, Iterable[bytes] | bytes], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, data = group
        # A runner may fetch chunks, which only this thread can do.
        yield from self.ahead(window, (number, data if isinstance(data, bytes) else list(data)))

    def compute(self, group: tuple[int, list[bytes] | bytes]) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, data = group
        shard = self._unpack(data) if isinstance(data, bytes) else gather(data)
        users = str(shard.users.type) if len(shard.users) else ""
        yield beam.pvalue.TaggedOutput("tables", (users, encode_table(self._choice.user_table(shard))))
        for home, chunk in self._choice.item_chunks(shard, self._item_shards):
            yield beam.pvalue.TaggedOutput("items", (home, self._keep(chunk)))
        if self._with_shards:
            yield number, self._keep(pack_shard(shard))


class _TabulateItems(Ahead):
    """(item shard, chunks) -> its table."""

    def __init__(self, choice: Choice[Any]) -> None:
        self._choice = choice

    def process(
        self, group: tuple[int, Iterable[bytes]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[bytes]:
        yield from self.ahead(window, list(group[1]))

    def compute(self, chunks: list[bytes]) -> Iterator[bytes]:
        yield encode_table(self._choice.item_table(chunks))


class _Decide(beam.DoFn):
    """Fetches the key on the worker, so that it is never part of the pipeline."""

    def __init__(self, choice: Choice[Any], release: Release, label: str) -> None:
        self._choice, self._release, self._label = choice, release, label

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self,
        public: bytes,
        tables: list[tuple[str, bytes]],
        of_items: list[bytes],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, Any]]:
        if len({users for users, _ in tables if users}) > 1:  # one person may count as two
            raise InputError(MIXED_USERS)
        own = self._keys(window)
        subkey = choice_subkey(own.key, own.id, self._label, self._choice)
        yield 0, decide(self._choice, add_tables([public, *(table for _, table in tables), *of_items]), subkey)


class _BoundAsDecided(Ahead):
    def __init__(self, auto: AutoRelease, release: Release, label: str, number: int) -> None:
        self._auto, self._release, self._label, self._number = auto, release, label, number

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self, packed: tuple[int, bytes], decided: Decided, window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[pa.RecordBatch]:
        yield from self.ahead(window, packed, decided, self._keys(window))

    def compute(self, packed: tuple[int, bytes], decided: Decided, own: WindowKey) -> Iterator[pa.RecordBatch]:
        number, shard = packed
        steps = self._auto.steps(decided.chosen)
        subkeys = step_subkeys(own.key, own.id, self._label, steps)
        # The choice is part of where the batch comes from: shards that were bounded differently never meet in one noise step.
        origin = provenance(f"{self._label} at {tuple(decided.chosen)}", own.id, self._number)
        yield bound_shard(unpack_shard(shard), steps, subkeys, origin).to_batch(number)
