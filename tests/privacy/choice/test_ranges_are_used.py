"""All of a range is used: for each choice with the candidates that it has, neighbours on which its draw moves by it. Exact.

A draw that moves by less on all neighbours would be charged too much. On most neighbours a draw does move by less. These here
move candidates on both sides of the best one, as far as one user can. So no loss may be divided by less than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.metrics import Metric
from headcount.mechanisms.aggregate.ranges import RangeChoice
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import gather, one_shard
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice.clip_choice import ClipChoice
from headcount.mechanisms.columns.value_ranges import AutoRange
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.limited import LimitedChoice

BUDGET = Budget(10, 1e-6)  # the shares are those of any other; at a large one few users settle a choice
NAMES = [f"i{number:04}" for number in range(4096)]
Exponents = Sequence[Fraction]


def used(one: Exponents, other: Exponents, budget: Budget | float) -> float:
    """By how much the log-probabilities of two neighbours move against each other, in parts of the range."""
    moved = [float(a - b) for a, b in zip(one, other, strict=True)]
    return float(np.ptp(moved)) / (budget if isinstance(budget, float) else budget.epsilon)


def rows(users: int, items: int, count: int, first: str = "u") -> pa.RecordBatch:
    """So many users with as many rows each, on each of the first items."""
    user = np.repeat([f"{first}{number}" for number in range(users)], items)
    counts = np.full(users * items, count, dtype=np.int64)
    return contribution_batch(pa.array(user.tolist()), pa.array(NAMES[:items] * users), pa.array(counts))


def norms_table(choice: ClipChoice, batches: list[pa.RecordBatch], items: int) -> list[int]:
    """The table of a choice of norms."""
    found = choice.user_table(one_shard(batches))
    return [a + b for a, b in zip(found, choice.items_table(items), strict=True)]


def clip_choice(what: str, relation: Relation) -> ClipChoice:
    if what == "aggregate":
        return aggregate(BUDGET, [Metric("users"), Metric("events")], domain=NAMES, relation=relation).stages.choice
    return estimates(BUDGET, domain=NAMES[:64], of="events", noise=what, relation=relation).stages.clip_choice


@pytest.mark.seconds
@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize(
    ("what", "items", "own", "crowd"),
    [("laplace", 64, 1000, (1, 128)), ("gaussian", 64, 1000, (1, 128)), ("aggregate", 4096, 1, (64, 1))],
)
def test_the_norms_of_counts(what, items, own, crowd, relation):
    """Of all in the crowd as much is left from some norm in the middle on: one user more takes from it what a small norm
    costs, and from a large one as much."""
    choice = clip_choice(what, relation)
    cap = choice.caps[-1]
    others = rows(20_000 if what != "aggregate" else 2_000, *crowd)
    without, with_one = (norms_table(choice, each, items) for each in ([others], [others, rows(1, items, own, "one")]))
    one, other = (choice.counts_exponents(table, choice.under(cap)) for table in (without, with_one))
    assert choice.counts_budget is not None
    assert 0.94 < used(one, other, choice.counts_budget) <= 1 + 1e-9


@pytest.mark.parametrize("relation", Relation)
def test_the_cap_on_one_item_and_the_norms_of_totals(relation):
    choice = clip_choice("gaussian", relation)
    tables = [norms_table(choice, each, 64) for each in ([rows(9, 2, 1)], [rows(9, 2, 1), rows(1, 2, 2, "one")])]
    assert choice.cap_budget is not None and choice.totals_budget is not None
    cap = used(*map(choice.cap_exponents, tables), choice.cap_budget)
    norm = used(*map(choice.totals_exponents, tables), choice.totals_budget)
    assert 0.98 < cap <= 1 + 1e-9 and 0.99 < norm <= 1 + 1e-9


def names_table(choice: LimitedChoice, batches: list[pa.RecordBatch]) -> list[int]:
    """The table of the choice of names."""
    shard = gather(chunk for batch in batches for _, chunk in split_by_user(batch.select(["user", "item"]), 1))
    tables = [choice.user_table(shard), choice.item_table(chunk for _, chunk in choice.item_chunks(shard, 1))]
    return [sum(entries) for entries in zip(*tables, strict=True)]


@pytest.mark.parametrize("relation", Relation)
def test_the_limit_and_the_curve_of_names(relation):
    """One user has all items that the limit lets it have, on the ramp of the curve that moves most, and below that of others.
    It is half of what is allowed where one is replaced: `partitions/test_limited.py` has two such users."""
    choice: Any = auto_partitions(BUDGET, relation=relation).choice
    for limit in (8, 64):
        most = max((choice.candidates[place] for place in choice.within(limit)), key=choice.scored.sensitivity)
        users = round(float(most.threshold / 1024) * most.items**0.25 * 0.9)
        crowd = rows(users, most.items, 1)
        tables = [names_table(choice, each) for each in ([crowd], [crowd, rows(1, most.items, 1, "one")])]
        first = used(*map(choice.limit_exponents, tables), choice.limit)
        second = used(*(choice.exponents(table, limit) for table in tables), choice.scored.budget)
        assert first == pytest.approx(1) and 0.999 < second * relation.users <= 1 + 1e-9


@pytest.mark.parametrize("relation", Relation)
def test_the_ends_of_ranges(relation):
    """Many reach the middle, one user goes beyond all ends: those below become worse, and those above better."""
    choice = RangeChoice((Budget(1),), Budget(1, 1e-6), relation, {0: AutoRange("price")})
    ends = len(tuning.RANGE_ENDS)
    whole = 1 << 26
    crowd = [1000 * whole if place < ends // 2 else 0 for place in range(ends - 1)]
    one, other = (
        choice.exponents([*map(sum, zip(crowd, [each] * (ends - 1), strict=True)), 0])[0] for each in (0, whole - 1024)
    )
    assert 0.999 < used(one, other, 1.0) <= 1
