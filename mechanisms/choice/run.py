"""Runs a private choice: its share of the budget, its tables, its randomness, and the decision.

Guarantee: that which the choice itself states, for the budget of its own that `split_budget` gives it. Choice and release look
at the same data, so their costs add up to the whole budget (basic composition). The decision is drawn from lanes that depend on
the whole table of the data: a repeated step decides the same again, and another table draws other bits.
Proof: docs/proofs/choice.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget
from headcount.mechanisms.batches.cut import brought_together, item_shards_here
from headcount.mechanisms.batches.threads import Parts, side_by_side
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.checks import is_real, wrong
from headcount.mechanisms.choice.protocol import Choice
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey

T = TypeVar("T")


def default_share(objective: str) -> Fraction:
    """The share of the budget that a choice takes unless another is given."""
    return tuning.CHOICE_SHARE_FOR_ITEMS if objective == "items" else tuning.CHOICE_SHARE_FOR_ERROR


def split_budget(budget: Budget, share: float | Fraction, method: str) -> tuple[Budget, Budget]:
    """What the choice may cost, and what is left for the release. Only the method "dp-gd" takes a part of delta."""
    check_budget(budget)
    if not is_real(share) or not 0 < share < 1:
        raise wrong("bound_share", "must lie between 0 and 1", share)
    weights = (float(share), float(1 - Fraction(str(share))))
    if budget.delta == 0:
        choice, release = budget.split(*weights)
    else:
        choice, release = budget.split(*weights, delta=weights if method == "dp-gd" else (0, 1))
    return choice, release


def encode_table(table: Sequence[int]) -> bytes:
    """A table of integers of any size as bytes, in one form only."""
    return json.dumps(list(table), separators=(",", ":")).encode()


def add_tables(tables: Iterable[bytes]) -> list[int]:
    """The sum of encoded tables, entry by entry."""
    return [sum(entries) for entries in zip(*map(json.loads, tables), strict=True)]


def choice_subkey(key: bytes, release_id: str, label: str, choice: Choice[Any]) -> bytes:
    """The subkey of a choice, from its label and all that defines it."""
    budgets = [choice.budget, choice.release_budget]
    shared = {
        "name": choice.name,
        "relation": choice.relation.value,
        "budgets": [[repr(budget.epsilon), repr(budget.delta)] for budget in budgets],
    }
    return subkey(key, release_id, label, {"choice": choice.parameters(), **shared})


def decide(choice: Choice[T], table: Sequence[int], subkey: bytes) -> T:
    """The private choice, with randomness that depends on the whole table: another table, other bits."""
    ids = decision_lane_ids(lane_key(subkey), encode_table(table), choice.draws)
    return choice.choose(table, Lanes(block_key(subkey), ids))


def choose_bound(batches: Iterable[pa.RecordBatch], choice: Choice[T], release: Release, label: str) -> T:
    """The choice on contribution batches, without Beam: what `ChooseBound` gives."""
    return choose_of(users_of(batches), choice, release, label)


def choose_of(
    users: Parts[Any], choice: Choice[T], release: Release, label: str, public: Sequence[int] | None = None
) -> T:
    """The same for all users in shards, and entries of the table that are `public`."""

    shards = item_shards_here(users)

    def of_shard(shard: Any) -> tuple[bytes, list[tuple[int, bytes]]]:
        return encode_table(choice.user_table(shard)), list(choice.item_chunks(shard, shards))

    found = users.each(of_shard)
    tables = [encode_table([0] * choice.entries if public is None else public), *(table for table, _ in found)]
    by_item = brought_together(chunk for _, chunks in found for chunk in chunks)
    tables += side_by_side(lambda chunks: encode_table(choice.item_table(chunks)), by_item)
    return decide(choice, add_tables(tables), choice_subkey(release.key_source.fetch(), release.id, label, choice))
