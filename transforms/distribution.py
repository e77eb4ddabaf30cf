"""`LearnDistribution`: how likely each public symbol is, from users with many samples each.

One pass over the users gives every symbol's table, how many users have it how often. The tables lie in shards of symbols, and
each shard draws for its own. Where the samples per user are chosen, so are the method and the noise: every step that may be
needed is in the graph, and does nothing where it is not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, in_shard
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.batches.shards import Shard, gather, unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.choice.run import add_tables, encode_table
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.released import by_file, sorted_counts
from headcount.mechanisms.distribution.learn import (
    BUCKETS,
    DecidedDistribution,
    DistributionRelease,
    Steps,
    combined,
    estimated,
    large_symbols,
    learn_distribution,
)
from headcount.mechanisms.distribution.plan import ROBUST, DistributionPlan
from headcount.mechanisms.distribution.spread import groups_of, pairs
from headcount.mechanisms.distribution.tables import merge_values, pack_values, split_values, unpack_values
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import IntItemProbability, ItemProbability
from headcount.transforms.core.user_shards import UserShards, item_shards
from headcount.transforms.keyed.domain import given_items

# The distributions that p is chosen by are computed once in a shard of symbols: it should have some symbols to use them for.
_LEAST_SYMBOLS = 32

Known = tuple[DistributionPlan, ...] | DecidedDistribution  # the plans, or what they are found in
Part = tuple[int, bytes, int]  # plan, digest of some symbols' tables, number of their samples
Drawn = tuple[int, int, bytes]  # plan, number of users, Arrow stream of item and value
NoisyPairs = tuple[int, list[float]]  # plan, the pairs of each group with noise


class LearnDistribution(PrivateTransform):
    """The probabilities of the symbols of a public `domain`, from users who each hold samples of them (the paper, corrected).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Users with fewer than `samples_per_user`
    samples are left out, and those with more count with a uniform sample of that many. What "auto" chooses from the data, it
    chooses privately, within the budget. The result is the mean of users who may differ, and its errors say so; "dense" and
    "sparse" take all users to be alike, and are biased where they are not, and as private.

    The result is `ItemProbability` rows (`IntItemProbability` with `item_type=int`), sorted by item in each output file. Rows
    or `Contributions` go in. `with_decision()` gives the `DecidedDistribution` beside, where the samples per user are chosen.

    Parameters:
        budget: what all of it may cost.
        domain: the public symbols, as tuples or a frame where the key has several columns.
        samples_per_user: the samples of each user that count (default: "auto", chosen privately). "median" chooses half of the
            users, and "buckets" learns from users of all sizes apart. More have less noise each, of fewer users.
        method: "gaussian" or "laplace", or for users who are all alike "dense" or "sparse"; "auto" (default) takes the one of
            the first two with the least error to expect, from public numbers alone.
        users: the number of users with that many samples, if it is public (default: None, it is counted).
        hypothesis: how "dense" and "sparse" choose probabilities: "ks" (default), or "phs", the paper's own, which needs more
            users. Too few public `users` are refused; if the noisy number of them is too small, the errors of all rows are 1.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: DistributionRelease
    _domain_field = "symbols"

    def __init__(
        self,
        budget: Budget,
        domain: Any,
        *,
        samples_per_user: int | Literal["auto", "median", "buckets"] = "auto",
        method: str = "auto",
        users: int | None = None,
        hypothesis: str = "ks",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        made = learn_distribution(
            budget,
            items.domain,
            samples_per_user=samples_per_user,
            method=method,
            users=users,
            hypothesis=hypothesis,
            relation=Relation.parse(relation),
            item_type=items.made,
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, items=items)

    def _given(self) -> str | None:
        return "the samples per user are" if self.mechanism.choice is None else None

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, label = self._drawn(rows)
        plan = self.mechanism
        source = _Source(plan, release, label, self._shards)
        row = IntItemProbability if plan.item_type is int else ItemProbability
        samples = as_contributions(rows) | "OnlyDomain" >> OnlyDomain(plan.symbols)
        shards = samples | "UserShards" >> UserShards(self._shards)  # (shard, Arrow streams)
        if plan.choice is None:
            plans = plan.plans()
            counted = _counted(shards, beam.ParDo(_CountValues(source, plans)))
            sparse = any(each.method == "sparse" for each in plans)
            learned = self._learned(counted, source, plans, sparse, any(each.spread is not None for each in plans))
            return self._shown(learned, row)
        choice = choose(shards, plan.choice, release, self._shards, f"{label}/ChooseSamples")
        decision = choice.chosen | "Plan" >> beam.Map(plan.decided).with_output_types(DecidedDistribution)
        known = beam.pvalue.AsSingleton(decision)
        counted = _counted(choice.shards, beam.ParDo(_CountAsDecided(source), known))
        learned = self._learned(counted, source, known, plan.method == "sparse", plan.method in ("auto", *ROBUST))
        return self._result(self._shown(learned, row), decision)

    def _learned(
        self, counted: beam.pvalue.DoOutputsTuple, source: _Source, known: object, sparse: bool, spread: bool
    ) -> beam.PCollection:
        """(file, probabilities) beyond all barriers; `sparse` says whether that method may have to be done, and `spread`
        whether it may be asked how much users differ."""
        pipeline = counted.values.pipeline
        plans = len(BUCKETS) if self.mechanism.samples == "buckets" else 1
        every = pipeline | "EveryShard" >> beam.Create(  # symbols that nobody has are learned too
            [(place, b"") for place in range(plans * source.symbol_shards)], reshuffle=False
        )
        merged = (
            (counted.values, every)
            | "WithEveryShard" >> beam.Flatten()  # (plan and symbol shard, packed tables)
            | "GroupBySymbolShard" >> beam.GroupByKey()
            | "Merge"
            >> beam.ParDo(_Merge(source), known)
            .with_output_types(tuple[int, bytes])
            .with_outputs("parts", main="tables")
        )
        typed(merged, parts=tuple[int, bytes, int])
        evidence = beam.pvalue.AsList(merged.parts), beam.pvalue.AsList(counted.origins)
        # The barriers: all that reads what was drawn stands on the far side of these GroupByKeys, so that a repeated step can
        # reach no consumer twice. Nothing may be taken from before them.
        drawn = (
            merged.tables
            | "Draw" >> beam.ParDo(_Draw(source), known, *evidence).with_output_types(tuple[int, tuple[int, bytes]])
            | "DrawBarrier" >> beam.GroupByKey()
            | "Drawn" >> beam.MapTuple(_united).with_output_types(tuple[int, int, bytes])
        )
        chosen: object = []
        if sparse:
            choices = (
                merged.tables
                | "ChooseLarge"
                >> beam.ParDo(_Choose(source), known, *evidence, beam.pvalue.AsList(drawn)).with_output_types(
                    tuple[int, tuple[int, bytes]]
                )
                | "ChoiceBarrier" >> beam.GroupByKey()
                | "LargeSymbols" >> beam.MapTuple(_united).with_output_types(tuple[int, int, bytes])
            )
            chosen = beam.pvalue.AsList(choices)
        differ: object = []
        if spread:
            noisy = (
                merged.tables
                | "Pairs"
                >> beam.ParDo(_Pairs(source), known, beam.pvalue.AsList(drawn)).with_output_types(tuple[int, bytes])
                | "GatherPairs" >> beam.GroupByKey()
                | "DrawSpread" >> beam.ParDo(_DrawSpread(source), known, *evidence).with_output_types(NoisyPairs)
                | "SpreadBarrier" >> beam.GroupByKey()
                | "Spread" >> beam.MapTuple(lambda plan, found: (plan, next(iter(found)))).with_output_types(NoisyPairs)
            )
            differ = beam.pvalue.AsList(noisy)
        # One worker puts the released numbers together, for they have to add up to one.
        return (
            pipeline
            | "Once" >> beam.Create([self._output_files or 1], reshuffle=False)
            | "Combine"
            >> beam.FlatMap(
                _combined, self.mechanism.symbols, known, beam.pvalue.AsList(drawn), chosen, differ
            ).with_output_types(tuple[int, pa.RecordBatch])
        )


class _Source:
    """What all steps know: the release, the domain and its shards. The key is fetched on the worker."""

    def __init__(self, plan: DistributionRelease, release: Release, label: str, shards: int) -> None:
        self._plan, self._release, self._label, self._shards = plan, release, label, shards
        self.symbol_shards = min(item_shards(shards), -(-len(plan.symbols) // _LEAST_SYMBOLS))

    def fetched(self) -> tuple[bytes, Callable[[DistributionPlan], Steps]]:
        """The key, and what gives the steps of a plan."""
        steps = functools.cache(lambda plan: self._plan.steps(plan, self._release, self._label))
        return self._release.key_source.fetch(), steps

    def symbols(self, shard: int) -> Names:
        """The part of the domain that belongs to a symbol shard."""
        return in_shard(self._plan.symbols, shard, self.symbol_shards)

    def counted(
        self, number: int, shard: Shard, plans: Iterable[Steps], key: bytes
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        """What the users of a shard add to the tables of each plan, and where that comes from."""
        for place, steps in enumerate(plans):
            label, plan = f"{steps.label}/Bounded", steps.plan
            subkeys = step_subkeys(key, self._release.id, label, plan.steps)
            # As with every bound that is decided: shards that were bounded differently never meet in one table.
            origin = provenance(f"{label} at {plan.samples}", self._release.id, self._shards)
            batch = bound_shard(shard, plan.steps, subkeys, origin).to_batch(number)
            yield beam.pvalue.TaggedOutput("origins", (place, Origin.of(batch)))
            for home, chunk in split_values(batch, self.symbol_shards):
                yield place * self.symbol_shards + home, chunk


class _CountValues(Ahead):
    """(shard, chunks) -> (plan and symbol shard, packed tables) for plans that are given."""

    def __init__(self, source: _Source, plans: tuple[DistributionPlan, ...]) -> None:
        self._source, self._plans = source, plans

    def setup(self) -> None:
        self._key, steps = self._source.fetched()
        self._steps = [steps(plan) for plan in self._plans]

    def process(self, group: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, chunks = group
        yield from self.ahead((number, list(chunks)))  # a runner may fetch them, which only this thread can do

    def compute(self, group: tuple[int, list[bytes]]) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, chunks = group
        return self._source.counted(number, gather(chunks), self._steps, self._key)


class _Keyed(beam.DoFn):
    """Fetches the key on the worker, so that it is never part of the pipeline."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def setup(self) -> None:
        self._key, self._steps = self._source.fetched()

    def _evidence(
        self, plan: int, steps: Steps, parts: Iterable[Part], origins: Iterable[tuple[int, Origin]]
    ) -> tuple[Evidence, int]:
        """What a draw must know of the tables of all symbols: their digest, checked, and the number of users."""
        own = [part for part in parts if part[0] == plan]
        evidence = Evidence.of(
            (int.from_bytes(digest, "little") for _, digest, _ in own), (each for at, each in origins if at == plan)
        )
        evidence.check(steps.plan.bound)
        return evidence, steps.users(sum(samples for _, _, samples in own), evidence, self._key)


class _CountAsDecided(_Keyed):
    """Packed shards of users -> (plan and symbol shard, packed tables) for what was decided."""

    def process(
        self, packed: tuple[int, bytes], known: DecidedDistribution
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        number, data = packed
        steps = [self._steps(plan) for plan in known.plans]
        return self._source.counted(number, unpack_shard(data), steps, self._key)


class _Merge(_Keyed):
    """(plan and symbol shard, chunks) -> (plan, tables of the shard's symbols), and what is told of them to all shards."""

    def process(
        self, group: tuple[int, Iterable[bytes]], known: Known
    ) -> Iterator[tuple[int, bytes] | beam.pvalue.TaggedOutput]:
        place, chunks = group
        plan, shard = divmod(place, self._source.symbol_shards)
        table = merge_values(filter(None, chunks), self._source.symbols(shard))
        digest = self._steps(_plans(known)[plan]).digest(table, self._key)
        part = plan, digest.to_bytes(16, "little"), int(table.totals().sum())
        yield beam.pvalue.TaggedOutput("parts", part)
        if len(table.symbols):
            yield plan, pack_values(table)


class _Draw(_Keyed):
    """(plan, tables) -> (plan, (users, what is released of the symbols))."""

    def process(
        self, tables: tuple[int, bytes], known: Known, parts: list[Part], origins: list[tuple[int, Origin]]
    ) -> Iterator[tuple[int, tuple[int, bytes]]]:
        plan, table = tables[0], unpack_values(tables[1])
        steps = self._steps(_plans(known)[plan])
        evidence, users = self._evidence(plan, steps, parts, origins)
        yield plan, (users, _values(table.symbols, steps.drawn(table, users, evidence, self._key)))


class _Choose(_Keyed):
    """(plan, tables) -> (plan, (users, p of those symbols that are not small)), for the method "sparse" alone."""

    def process(
        self,
        tables: tuple[int, bytes],
        known: Known,
        parts: list[Part],
        origins: list[tuple[int, Origin]],
        drawn: list[Drawn],
    ) -> Iterator[tuple[int, tuple[int, bytes]]]:
        plan, data = tables
        steps = self._steps(_plans(known)[plan])
        ((users, vector),) = ((users, from_ipc(rows)) for at, users, rows in drawn if at == plan)
        large = large_symbols(np.asarray(vector.column("value")), users, steps.plan)
        if not len(large):
            return
        table = unpack_values(data)
        names = vector.column("item").take(pa.array(large))
        table = table.take(np.flatnonzero(np.asarray(pc.is_in(table.symbols, value_set=names))))
        if len(table.symbols):
            evidence, _ = self._evidence(plan, steps, parts, origins)
            yield plan, (users, _values(table.symbols, steps.chosen(table, users, evidence, self._key, len(large))))


class _Pairs(_Keyed):
    """(plan, tables) -> (plan, pairs of a user's equal samples by group), where the plan asks how much users differ."""

    def process(self, tables: tuple[int, bytes], known: Known, drawn: list[Drawn]) -> Iterator[tuple[int, bytes]]:
        plan, data = tables
        if _plans(known)[plan].spread is None:
            return
        (vector,) = (from_ipc(rows) for at, _, rows in drawn if at == plan)
        table = unpack_values(data)
        place = np.asarray(pc.index_in(table.symbols, value_set=vector.column("item")))
        groups = groups_of(np.asarray(vector.column("value")))
        yield plan, encode_table(pairs(table, groups[place]).tolist())


class _DrawSpread(_Keyed):
    """(plan, pairs of all symbol shards) -> (plan, the same with noise)."""

    def process(
        self, group: tuple[int, Iterable[bytes]], known: Known, parts: list[Part], origins: list[tuple[int, Origin]]
    ) -> Iterator[NoisyPairs]:
        plan, sums = group
        steps = self._steps(_plans(known)[plan])
        evidence, _ = self._evidence(plan, steps, parts, origins)
        yield plan, steps.spread(np.array(add_tables(sums), dtype=np.int64), evidence, self._key).tolist()


def _counted(shards: beam.PCollection, count: beam.ParDo) -> beam.pvalue.DoOutputsTuple:
    counting = count.with_output_types(tuple[int, bytes]).with_outputs("origins", main="values")
    return typed(shards | "CountValues" >> counting, origins=tuple[int, Origin])


def _plans(known: Known) -> tuple[DistributionPlan, ...]:
    return known if isinstance(known, tuple) else known.plans


def _values(symbols: Names, values: np.ndarray) -> bytes:
    return to_ipc(pa.RecordBatch.from_pydict({"item": symbols, "value": pa.array(values)}), compress=True)


def _value(rows: bytes) -> np.ndarray:
    return np.asarray(from_ipc(rows).column("value"))


def _united(plan: int, found: Iterable[tuple[int, bytes]]) -> Drawn:
    """The rows of all symbol shards of a plan, sorted by symbol: the order of the domain."""
    users, chunks = zip(*found, strict=True)
    return plan, users[0], to_ipc(sorted_counts(chunks), compress=True)


def _combined(
    files: int, symbols: Domain, known: Known, drawn: list[Drawn], chosen: list[Drawn], differ: list[NoisyPairs]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The released rows, from all that was drawn for each plan."""
    noisy_pairs = {plan: np.array(values) for plan, values in differ}
    choices = {plan: _value(rows) for plan, _, rows in chosen}
    estimates = [
        estimated(_plans(known)[plan], users, _value(rows), choices.get(plan, np.zeros(0)), noisy_pairs.get(plan))
        for plan, users, rows in sorted(drawn)
    ]
    for file, rows in by_file(combined(symbols.sorted_names, estimates), files):
        yield file, from_ipc(rows)
