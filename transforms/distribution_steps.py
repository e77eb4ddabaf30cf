"""The steps of `LearnDistribution`: tables of symbols, and what is drawn of them. (How they are wired: `distribution`.)"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.batches.domain import in_shard
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.batches.shards import Shard, gather, unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.choice.run import add_tables, encode_table
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.distribution.learn import DecidedDistribution, DistributionRelease, Steps, large_symbols
from headcount.mechanisms.distribution.plan import DistributionPlan
from headcount.mechanisms.distribution.spread import groups_of, pairs
from headcount.mechanisms.distribution.tables import merge_values, pack_values, split_values, unpack_values
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.user_shards import item_shards
from headcount.transforms.core.windows import release_in

# The distributions that p is chosen by are computed once in a shard of symbols: it should have some symbols to use them for.
_LEAST_SYMBOLS = 32
_MOST_WINDOWS = 64  # whose keys a step remembers

Known = tuple[DistributionPlan, ...] | DecidedDistribution  # the plans, or what they are found in
Part = tuple[int, bytes, int]  # plan, digest of some symbols' tables, number of their samples
Drawn = tuple[int, int, bytes]  # plan, number of users, Arrow stream of item and value
NoisyPairs = tuple[int, list[float]]  # plan, the pairs of each group with noise


class Own(NamedTuple):
    """What one window draws from: the key, the id of its release, and what gives the steps of a plan."""

    key: bytes
    id: str
    steps: Callable[[DistributionPlan], Steps]


class Source:
    """What all steps know: the release, the domain and its shards. The key is fetched on the worker."""

    def __init__(self, plan: DistributionRelease, release: Release, label: str, shards: int) -> None:
        self._plan, self._release, self._label, self._shards = plan, release, label, shards
        self.symbol_shards = min(item_shards(shards), -(-len(plan.symbols) // _LEAST_SYMBOLS))

    def fetched(self) -> Callable[[BoundedWindow], Own]:
        """What fetches the key of a window, and gives the steps of a plan there."""

        @functools.lru_cache(maxsize=_MOST_WINDOWS)
        def of(window: BoundedWindow) -> Own:
            own = release_in(self._release, window)
            steps = functools.cache(lambda plan: self._plan.steps(plan, own, self._label))
            return Own(own.key_source.fetch(), own.id, steps)

        return of

    def symbols(self, shard: int) -> Names:
        """The part of the domain that belongs to a symbol shard."""
        return in_shard(self._plan.symbols, shard, self.symbol_shards)

    def counted(
        self, number: int, shard: Shard, plans: Iterable[DistributionPlan], own: Own
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        """What the users of a shard add to the tables of each plan, and where that comes from."""
        for place, plan in enumerate(plans):
            label = f"{own.steps(plan).label}/Bounded"
            subkeys = step_subkeys(own.key, own.id, label, plan.steps)
            # As with every bound that is decided: shards that were bounded differently never meet in one table.
            origin = provenance(f"{label} at {plan.samples}", own.id, self._shards)
            batch = bound_shard(shard, plan.steps, subkeys, origin).to_batch(number)
            yield beam.pvalue.TaggedOutput("origins", (place, Origin.of(batch)))
            for home, chunk in split_values(batch, self.symbol_shards):
                yield place * self.symbol_shards + home, chunk


class CountValues(Ahead):
    """(shard, chunks) -> (plan and symbol shard, packed tables) for plans that are given."""

    def __init__(self, source: Source, plans: tuple[DistributionPlan, ...]) -> None:
        self._source, self._plans = source, plans

    def setup(self) -> None:
        self._own = self._source.fetched()

    def process(
        self, group: tuple[int, Iterable[bytes]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, chunks = group
        # A runner may fetch chunks, which only this thread can do.
        yield from self.ahead(window, (number, list(chunks)), self._own(window))

    def compute(
        self, group: tuple[int, list[bytes]], own: Own
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, chunks = group
        return self._source.counted(number, gather(chunks), self._plans, own)


class _Keyed(beam.DoFn):
    """Fetches the key on the worker, so that it is never part of the pipeline."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def setup(self) -> None:
        self._own = self._source.fetched()

    def _evidence(
        self, plan: int, steps: Steps, parts: Iterable[Part], origins: Iterable[tuple[int, Origin]], key: bytes
    ) -> tuple[Evidence, int]:
        """What a draw must know of the tables of all symbols: their digest, checked, and the number of users."""
        ours = [part for part in parts if part[0] == plan]
        evidence = Evidence.of(
            (int.from_bytes(digest, "little") for _, digest, _ in ours), (each for at, each in origins if at == plan)
        )
        evidence.check(steps.plan.bound)
        return evidence, steps.users(sum(samples for _, _, samples in ours), evidence, key)


class CountAsDecided(_Keyed):
    """Packed shards of users -> (plan and symbol shard, packed tables) for what was decided."""

    def process(
        self,
        packed: tuple[int, bytes],
        known: DecidedDistribution,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, data = packed
        return self._source.counted(number, unpack_shard(data), known.plans, self._own(window))


class Merge(_Keyed):
    """(plan and symbol shard, chunks) -> (plan, tables of the shard's symbols), and what is told of them to all shards."""

    def process(
        self, group: tuple[int, Iterable[bytes]], known: Known, window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        place, chunks = group
        own = self._own(window)
        plan, shard = divmod(place, self._source.symbol_shards)
        table = merge_values(filter(None, chunks), self._source.symbols(shard))
        digest = own.steps(plans_of(known)[plan]).digest(table, own.key)
        part = plan, digest.to_bytes(16, "little"), int(table.totals().sum())
        yield beam.pvalue.TaggedOutput("parts", part)
        if len(table.symbols):
            yield plan, pack_values(table)


class Draw(_Keyed):
    """(plan, tables) -> (plan, (users, what is released of the symbols))."""

    def process(
        self,
        tables: tuple[int, bytes],
        known: Known,
        parts: list[Part],
        origins: list[tuple[int, Origin]],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, tuple[int, bytes]]]:
        plan, table = tables[0], unpack_values(tables[1])
        own = self._own(window)
        steps = own.steps(plans_of(known)[plan])
        evidence, users = self._evidence(plan, steps, parts, origins, own.key)
        yield plan, (users, _values(table.symbols, steps.drawn(table, users, evidence, own.key)))


class Choose(_Keyed):
    """(plan, tables) -> (plan, (users, p of those symbols that are not small)), for the method "sparse" alone."""

    def process(
        self,
        tables: tuple[int, bytes],
        known: Known,
        parts: list[Part],
        origins: list[tuple[int, Origin]],
        drawn: list[Drawn],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, tuple[int, bytes]]]:
        plan, data = tables
        own = self._own(window)
        steps = own.steps(plans_of(known)[plan])
        ((users, vector),) = ((users, from_ipc(rows)) for at, users, rows in drawn if at == plan)
        large = large_symbols(np.asarray(vector.column("value")), users, steps.plan)
        if not len(large):
            return
        table = unpack_values(data)
        names = vector.column("item").take(pa.array(large))
        table = table.take(np.flatnonzero(np.asarray(pc.is_in(table.symbols, value_set=names))))
        if len(table.symbols):
            evidence, _ = self._evidence(plan, steps, parts, origins, own.key)
            yield plan, (users, _values(table.symbols, steps.chosen(table, users, evidence, own.key, len(large))))


class Pairs(_Keyed):
    """(plan, tables) -> (plan, pairs of a user's equal samples by group), where the plan asks how much users differ."""

    def process(self, tables: tuple[int, bytes], known: Known, drawn: list[Drawn]) -> Iterator[tuple[int, bytes]]:
        plan, data = tables
        if plans_of(known)[plan].spread is None:
            return
        (vector,) = (from_ipc(rows) for at, _, rows in drawn if at == plan)
        table = unpack_values(data)
        place = np.asarray(pc.index_in(table.symbols, value_set=vector.column("item")))
        groups = groups_of(np.asarray(vector.column("value")))
        yield plan, encode_table(pairs(table, groups[place]).tolist())


class DrawSpread(_Keyed):
    """(plan, pairs of all symbol shards) -> (plan, the same with noise)."""

    def process(
        self,
        group: tuple[int, Iterable[bytes]],
        known: Known,
        parts: list[Part],
        origins: list[tuple[int, Origin]],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[NoisyPairs]:
        plan, sums = group
        own = self._own(window)
        steps = own.steps(plans_of(known)[plan])
        evidence, _ = self._evidence(plan, steps, parts, origins, own.key)
        yield plan, steps.spread(np.array(add_tables(sums), dtype=np.int64), evidence, own.key).tolist()


def plans_of(known: Known) -> tuple[DistributionPlan, ...]:
    return known if isinstance(known, tuple) else known.plans


def _values(symbols: Names, values: np.ndarray) -> bytes:
    return to_ipc(pa.RecordBatch.from_pydict({"item": symbols, "value": pa.array(values)}), compress=True)
