"""How many users and how many events there are, in all or on given items: one noisy number each.

Each user counts once, or with its events up to a bound. The bound of the events is given, or chosen privately
(`bound_choice.one_total`) by a share of the budget.

Guarantee: epsilon-differential privacy per user under the relation, delta 0; parts add up (basic composition). Both numbers are
histograms of one public item that every row counts for (`HistogramMechanism`), with Laplace noise. On one item a user who is
replaced moves the sum by no more than one who is added, so both relations have the same noise (`NoisePlan.one_item`).
Proof: docs/proofs/histogram.md.

What the numbers say: nobody's part of the users is cut, so that number is right up to its noise. Events beyond the bound are
missing from theirs, and nobody can say how many: a single user may have a billion, and no private number shows one user. So the
true number of events is `low` or more, with a chance of 97.5 %, and `high` covers the noise alone.

`TotalPlan.run` is the mechanism without Beam, and a pipeline with the same key, id and label gives exactly its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_parts
from headcount.mechanisms.accounting.guarantee import Guarantee, spent_of
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, only_domain, public_domain
from headcount.mechanisms.bound_choice.one_total import TotalChoice
from headcount.mechanisms.calibration.expected_error import expected_error
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.choice.protocol import ChosenBound, Decision
from headcount.mechanisms.choice.run import split_budget
from headcount.mechanisms.counting.noisy import promised
from headcount.mechanisms.counting.users import EVERYBODY, EVERYBODY_STEPS, all_as_one
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism, AutoRelease, Decided
from headcount.mechanisms.histogram.fixed import HistogramMechanism, bounded_histogram
from headcount.mechanisms.randomness.keys import Release

OF = ("users", "events")
NAME = "Total"


class TotalRow(NamedTuple):
    """One released number: of what, the bound on a user, the noisy number under it, and what the noise may do to it."""

    of: str
    bound: int
    bounded_count: float
    noise_stddev: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class TotalPlan:
    """The number of users, of events, or of both as a value. Without a `domain` all rows count, else those on its items."""

    budget: Budget
    relation: Relation
    domain: Domain | None
    item_type: type
    users: HistogramMechanism | None
    events: HistogramMechanism | AutoHistogramMechanism | None
    name = NAME

    def __post_init__(self) -> None:
        promises = [part.guarantee() for _, part in self.parts()]
        check_parts(self.budget, *(Budget(promise.epsilon, promise.delta) for promise in promises))
        if any(promise.relation is not self.relation for promise in promises):
            raise ParameterError(f"every part must be under the relation {self.relation.value!r} of the whole")

    def parts(self) -> Iterator[tuple[str, HistogramMechanism | AutoHistogramMechanism]]:
        """What is counted, and how."""
        if self.users is not None:
            yield "users", self.users
        if self.events is not None:
            yield "events", self.events

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._whole({of: part.guarantee() for of, part in self.parts()})

    def decided(self, events: Decided) -> Decision[ChosenBound]:
        """All that follows from the choice of the events' bound."""
        found = {of: part.guarantee() for of, part in self.parts()} | {"events": events.guarantee}
        return Decision(events.chosen, self._whole(found))

    def _whole(self, parts: Mapping[str, Guarantee]) -> Guarantee:
        steps = (
            dataclasses.replace(step, name=f"{of}: {step.name}")
            for of, part in parts.items()
            for step in part.mechanisms
        )
        losses = Losses.together(part.losses for part in parts.values())
        return Guarantee(
            self.budget.epsilon, 0.0, self.relation, tuple(steps), losses=losses, spent=spent_of(parts.values())
        )

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows of contribution batches: those of `TotalRow`."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, Decision[ChosenBound] | None]:
        """The same, and the bound of the events, where it was chosen."""
        label = label or self.name
        held = [all_as_one(batch if self.domain is None else only_domain(batch, self.domain)) for batch in batches]
        rows, decision = [], None
        for of, part in self.parts():
            where = f"{label}/{of.capitalize()}"
            if isinstance(part, AutoHistogramMechanism):
                counts, decided = part.run_decided(held, release, where)
                rows.append(total_row(of, counts, decided.plan))
                decision = self.decided(decided)
            else:
                rows.append(total_row(of, part.run(held, release, where), part.plan))
        return total_rows(rows), decision


def total_row(of: str, counts: pa.RecordBatch, plan: NoisePlan) -> TotalRow:
    """The released count of the one item as a row. It is whole, and an interval for it has no negative numbers."""
    (count,) = counts.column("bounded_count").to_pylist()
    error = expected_error(plan)
    ends = (max(0.0, float(round(count + side * error.half_width))) for side in (-1, 1))
    bound = plan.bound.l1
    assert bound is not None
    return TotalRow(of, bound, float(round(count)), error.stddev, *ends)


def total_rows(rows: Sequence[TotalRow]) -> pa.RecordBatch:
    """Rows as a batch, users first."""
    return pa.RecordBatch.from_pylist([row._asdict() for row in sorted(rows, key=lambda row: OF.index(row.of))])


def total(
    budget: Budget,
    *,
    of: str | Sequence[str] = OF,
    domain: Iterable[str] | Iterable[int] | None = None,
    bound: int | Literal["auto"] = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> TotalPlan:
    """How many users and events there are, of all rows or of those on the items of a public `domain` together.

    `of` is "users", "events" or both; of both, a tenth of epsilon goes to the users. `bound` is how many events of one user
    count at most; "auto" chooses it privately, by a fifth of the events' part.
    """
    check_budget(budget)
    wanted = [of] if isinstance(of, str) else list(of)
    for each in wanted:
        check_one_of("of", each, OF)
    if not wanted or len(set(wanted)) < len(wanted):
        raise ParameterError(f"of must name users, events or both, each once, got {of!r}", "of")
    budget = Budget(budget.epsilon)  # Laplace noise alone: whatever delta is given, none is taken
    shares = dict.fromkeys(wanted, budget)
    if len(wanted) == 2:
        shares["users"], shares["events"] = budget.split(tuning.USERS_SHARE, 1 - tuning.USERS_SHARE)
    if bound != "auto" and "events" not in shares:
        raise ParameterError(
            f"a bound is for the events, got bound={bound!r} for the users alone: leave it out", "bound"
        )
    users, events = None, None
    if "users" in shares:
        plan = calibrate_public_domain(shares["users"], promised(EVERYBODY_STEPS), relation, "laplace", len(EVERYBODY))
        users = HistogramMechanism(NAME, EVERYBODY_STEPS, plan, EVERYBODY, str)
    if "events" in shares:
        events = _events(shares["events"], bound, relation)
    names = None if domain is None else public_domain(domain, item_type)
    return TotalPlan(budget, relation, names, item_type, users, events)


def _events(
    budget: Budget, bound: int | Literal["auto"], relation: Relation
) -> HistogramMechanism | AutoHistogramMechanism:
    if bound != "auto":
        return bounded_histogram(budget, EVERYBODY, bound=bound, relation=relation)
    costs, rest = split_budget(budget, tuning.CHOICE_SHARE_FOR_TOTAL, "tail-count")
    choice = TotalChoice(costs, rest, relation)
    return AutoHistogramMechanism(
        NAME, AutoRelease(budget, choice, rest, relation, True, len(EVERYBODY)), EVERYBODY, str
    )
