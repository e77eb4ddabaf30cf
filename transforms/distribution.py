"""`LearnDistribution`: how likely each public symbol is, from users with many samples each.

One pass over the users gives every symbol's table, how many users have it how often. The tables lie in shards of symbols, and
each shard draws for its own. Where the samples per user are chosen, so are the method and the noise: every step that may be
needed is in the graph, and does nothing where it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.counting.evidence import Origin
from headcount.mechanisms.counting.released import by_file, sorted_counts
from headcount.mechanisms.distribution.learn import (
    BUCKETS,
    DecidedDistribution,
    DistributionRelease,
    combined,
    estimated,
    learn_distribution,
)
from headcount.mechanisms.distribution.plan import ROBUST
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.coders import typed
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import IntItemProbability, ItemProbability
from headcount.transforms.core.user_shards import UserShards
from headcount.transforms.core.windows import every
from headcount.transforms.distribution_steps import (
    Choose,
    CountAsDecided,
    CountValues,
    Draw,
    Drawn,
    DrawSpread,
    Known,
    Merge,
    NoisyPairs,
    Pairs,
    Source,
    plans_of,
)
from headcount.transforms.keyed.domain import given_items


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
        source = Source(plan, release, label, self._shards)
        row = IntItemProbability if plan.item_type is int else ItemProbability
        samples = as_contributions(rows) | "OnlyDomain" >> OnlyDomain(plan.symbols)
        shards = samples | "UserShards" >> UserShards(self._shards, release.windows)  # (shard, Arrow streams)
        if plan.choice is None:
            plans = plan.plans()
            counted = _counted(shards, beam.ParDo(CountValues(source, plans)))
            sparse = any(each.method == "sparse" for each in plans)
            learned = self._learned(counted, source, plans, sparse, any(each.spread is not None for each in plans))
            return self._shown(learned, row)
        choice = choose(shards, plan.choice, release, self._shards, f"{label}/ChooseSamples")
        decision = choice.chosen | "Plan" >> beam.Map(plan.decided).with_output_types(DecidedDistribution)
        known = beam.pvalue.AsSingleton(decision)
        counted = _counted(choice.shards, beam.ParDo(CountAsDecided(source), known))
        learned = self._learned(counted, source, known, plan.method == "sparse", plan.method in ("auto", *ROBUST))
        return self._result(self._shown(learned, row), decision)

    def _learned(
        self, counted: beam.pvalue.DoOutputsTuple, source: Source, known: object, sparse: bool, spread: bool
    ) -> beam.PCollection:
        """(file, probabilities) beyond all barriers; `sparse` says whether that method may have to be done, and `spread`
        whether it may be asked how much users differ."""
        plans = len(BUCKETS) if self.mechanism.samples == "buckets" else 1
        places = range(plans * source.symbol_shards)
        every_shard = every(counted.values, "EveryShard", [(place, b"") for place in places])  # nobody's symbols, too
        merged = (
            (counted.values, every_shard)
            | "WithEveryShard" >> beam.Flatten()  # (plan and symbol shard, packed tables)
            | "GroupBySymbolShard" >> beam.GroupByKey()
            | "Merge"
            >> beam.ParDo(Merge(source), known)
            .with_output_types(tuple[int, bytes])
            .with_outputs("parts", main="tables")
        )
        typed(merged, parts=tuple[int, bytes, int])
        evidence = beam.pvalue.AsList(merged.parts), beam.pvalue.AsList(counted.origins)
        # The barriers: all that reads what was drawn stands on the far side of these GroupByKeys, so that a repeated step can
        # reach no consumer twice. Nothing may be taken from before them.
        drawn = (
            merged.tables
            | "Draw" >> beam.ParDo(Draw(source), known, *evidence).with_output_types(tuple[int, tuple[int, bytes]])
            | "DrawBarrier" >> beam.GroupByKey()
            | "Drawn" >> beam.MapTuple(_united).with_output_types(tuple[int, int, bytes])
        )
        chosen: object = []
        if sparse:
            choices = (
                merged.tables
                | "ChooseLarge"
                >> beam.ParDo(Choose(source), known, *evidence, beam.pvalue.AsList(drawn)).with_output_types(
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
                >> beam.ParDo(Pairs(source), known, beam.pvalue.AsList(drawn)).with_output_types(tuple[int, bytes])
                | "GatherPairs" >> beam.GroupByKey()
                | "DrawSpread" >> beam.ParDo(DrawSpread(source), known, *evidence).with_output_types(NoisyPairs)
                | "SpreadBarrier" >> beam.GroupByKey()
                | "Spread" >> beam.MapTuple(lambda plan, found: (plan, next(iter(found)))).with_output_types(NoisyPairs)
            )
            differ = beam.pvalue.AsList(noisy)
        # One worker puts the released numbers together, for they have to add up to one.
        return every(counted.values, "Once", [self._output_files or 1]) | "Combine" >> beam.FlatMap(
            _combined, self.mechanism.symbols, known, beam.pvalue.AsList(drawn), chosen, differ
        ).with_output_types(tuple[int, pa.RecordBatch])


def _counted(shards: beam.PCollection, count: beam.ParDo) -> beam.pvalue.DoOutputsTuple:
    counting = count.with_output_types(tuple[int, bytes]).with_outputs("origins", main="values")
    return typed(shards | "CountValues" >> counting, origins=tuple[int, Origin])


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
        estimated(plans_of(known)[plan], users, _value(rows), choices.get(plan, np.zeros(0)), noisy_pairs.get(plan))
        for plan, users, rows in sorted(drawn)
    ]
    for file, rows in by_file(combined(symbols.sorted_names, estimates), files):
        yield file, from_ipc(rows)
