"""A question about people as a mechanism: records, then noisy cells, then what they say.

Guarantee: user-level epsilon-differential privacy under the relation with Laplace noise, and (epsilon, delta) with Gaussian
noise, as the table promises (`table`). A user's record depends on that user's rows alone. Where people are told apart by a
column whose values are not given, those that enough users have are named first, by a part of epsilon and with delta: each user
has one value, so that the optimal selection for one item is taken (`partitions.rounds`). Both parts add up (basic
composition). All behind the noisy cells is post-processing. Proof: docs/proofs/people.md.

`run` is the mechanism without Beam, and a pipeline with the same key, id and label gives exactly its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_delta_or_domain
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, public_domain
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.counting.evidence import Origin
from headcount.mechanisms.counting.noisy import bounded_users, sums_of
from headcount.mechanisms.counting.users import EVERYBODY
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.partitions.rounds import Round, rounds_losses, rounds_of
from headcount.mechanisms.partitions.select import named_in_rounds, selection_steps
from headcount.mechanisms.people.questions import Question
from headcount.mechanisms.people.records import Records
from headcount.mechanisms.people.table import Table, make_table, noisy_cells, table_subkey
from headcount.mechanisms.randomness.keys import Release

#: Cells that a public list of values may have in all.
MOST_CELLS = 1_000_000
_STRATEGY = "truncated-geometric"  # for one item of each user, none names more


@dataclasses.dataclass(frozen=True)
class Naming:
    """How the values of a column are named: the budget of it, and the one round."""

    budget: Budget
    rounds: tuple[Round, ...]


@dataclasses.dataclass(frozen=True)
class PeopleMechanism:
    """A question about people as a value. `by` says whether they are told apart; then by the values of a public `domain`, or
    by those that are named."""

    question: Question
    budget: Budget
    relation: Relation
    table: Table
    by: bool
    domain: Domain | None
    naming: Naming | None
    item_type: type

    @property
    def name(self) -> str:
        """That of the question."""
        return self.question.name

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        steps, losses, delta = self.table.mechanism_steps(), [self.table.losses()], self.table.plans[0].delta
        if self.naming is not None:
            named, rounds = self.naming.budget, self.naming.rounds
            told = selection_steps(_STRATEGY, named, rounds)
            steps = (*(dataclasses.replace(step, name=f"names: {step.name}") for step in told), *steps)
            losses.append(rounds_losses(_STRATEGY, named, rounds))
            delta = self.budget.delta
        return Guarantee(self.budget.epsilon, delta, self.relation, steps, losses=Losses.together(losses))

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows of contribution batches that carry what the question needs."""
        label = label or self.name
        records = value_users_of(batches).map(self.recorded).held(Records.pack, Records.unpack)
        if self.domain is not None:
            public = self.domain.sorted_names
        else:
            assert self.naming is not None
            held = records.map(lambda each: each.by)
            own = self.names_release(release)
            public = named_in_rounds(held, self.naming.rounds, own, f"{label}/NamedItems", self.item_type)
        counted = records.map(lambda each: self.counted(each, public))
        bounded = bounded_users(counted, self.table.steps, release, f"{label}/Bounded")
        chunks, origins = sums_of(bounded)
        return self.released(chunks, origins, public, release, f"{label}/NoisyCells")

    def names_release(self, release: Release) -> Release:
        """That of the names, which depend on the question: another one has users with other values of `by`."""
        return release.of_part(repr(self.question))

    def recorded(self, shard: ValueShard) -> Records:
        """The records of the users of a shard, whose rows carry what the question needs."""
        others = not self.by and set(shard.pairs.items.to_pylist()) - set(EVERYBODY)
        if len(shard.values) != self.question.values or others:
            raise InputError(
                f"{self.name} makes its own contributions, which carry times and steps: give it the rows, and leave out "
                "Contributions"
            )
        return self.question.records(shard)

    def counted(self, records: Records, public: Names) -> Shard:
        """The users of records with the numbers of their cells as items."""
        return records.counted(public, self.table.cells)

    def released(
        self, chunks: Iterable[bytes], origins: Iterable[Origin], public: Names, release: Release, label: str
    ) -> pa.RecordBatch:
        """The released rows of sums of bounded batches, and where these come from, for a list of values that is public."""
        key = release.key_source.fetch()
        own = table_subkey(key, release.id, label, self.table, repr(self.question), public)
        cells = noisy_cells(chunks, origins, self.table, len(public), own)
        columns = self.question.answer(cells, self.table.noise())
        if self.by:
            places = np.repeat(np.arange(len(public)), self.question.height)
            columns = {"item": public.take(pa.array(places)), **columns}
        return pa.RecordBatch.from_pydict(columns)


def ask_people(
    budget: Budget,
    question: Question,
    *,
    by: bool = False,
    domain: Iterable[str] | Iterable[int] | Domain | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> PeopleMechanism:
    """The mechanism of a question, for people in all, or by values of a column: those of a domain, or named privately."""
    check_budget(budget)
    if not by:
        if domain is not None:
            raise ParameterError(
                "the domain has the values of by, but there is no by: give it, or leave out domain", "domain"
            )
        table = make_table(budget, question.sizes, question.most, relation, noise)
        return PeopleMechanism(question, _taken(budget, table), relation, table, False, EVERYBODY, None, str)
    if domain is not None:
        names = public_domain(domain, item_type)
        cells = len(names) * sum(question.sizes)
        if cells > MOST_CELLS:
            raise ParameterError(
                f"{len(names):,} values of by have {cells:,} cells together: give {MOST_CELLS:,} at most", "domain"
            )
        table = make_table(budget, question.sizes, question.most, relation, noise)
        return PeopleMechanism(question, _taken(budget, table), relation, table, True, names, None, item_type)
    check_delta_or_domain(budget.delta)
    share = tuning.NAMES_SHARE_OF_PEOPLE
    if noise == "auto":  # and then delta goes where the noise that is taken needs it
        _, halved = budget.split(share, 1 - share, delta=(1, 1))
        noise = make_table(halved, question.sizes, question.most, relation, noise).plans[0].kind
    names_part, counts_part = budget.split(share, 1 - share, delta=(1, 1) if noise == "gaussian" else (1, 0))
    table = make_table(counts_part, question.sizes, question.most, relation, noise)
    naming = Naming(names_part, rounds_of(names_part, _STRATEGY, 1, tuning.ROUNDS, relation))
    return PeopleMechanism(question, budget, relation, table, True, None, naming, item_type)


def _taken(budget: Budget, table: Table) -> Budget:
    """Laplace noise takes no delta, whatever is given."""
    return Budget(budget.epsilon, table.plans[0].delta)
