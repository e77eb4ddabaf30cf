"""The k items with the most users, by names first: a selection curve names items (`partitions`), and k draws rank these.

The draws of `top_items` hide items behind a threshold, which is the higher the less epsilon each draw has: with k = 100 an item
needs some 800 users at epsilon 1. A selection curve needs about a hundred. Among named items nothing is left to hide, and a
draw needs no threshold: it takes item i with probability proportional to exp(epsilon * users(i)), and i leaves. (That names
first, by Gaussian weights, find more of the top is a result of "missing mass", ICLR 2026.)

Guarantee: user-level (epsilon, delta)-differential privacy for the relation. Users may have any number of items.
Proof: docs/proofs/count-release.md.

Proof. Let u be 1, or 2 if a user is replaced. Given the same names, less those of items of one user alone, each count moves by
0 or 1 in one direction, or if a user is replaced by at most 1 in either. So a draw with eps1 has scores of range u eps1,
whatever was drawn before, and is (u eps1)^2 / 8-zCDP (`exponential.select`). k of them are rho-zCDP with rho = k (u eps1)^2 /
8; there are fewer only if there are fewer names. What follows names and is rho-zCDP given them is covered by `curve_budget`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, Zcdp, check_budget, check_delta_for_names, zcdp_rho
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.choice.exponential import Integers
from headcount.mechanisms.choice.run import choose_of
from headcount.mechanisms.count_release.frames import (
    LARGEST_FRAME,
    Frame,
    draw_cost,
    drawn_without_replacement,
    frame_of,
    named_excess,
    on_grid,
)
from headcount.mechanisms.count_release.top_items import OnceByItem, TopItemsMechanism, draws_of_top, ranked
from headcount.mechanisms.counting.noisy import bounded_users
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.auto import AutoSelection, DecidedSelection, auto_partitions
from headcount.mechanisms.partitions.limited import LimitedChoice
from headcount.mechanisms.partitions.select import ChosenStrategy, named_in_rounds
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.subkeys import subkey

#: The ways to a top, and up to which k draws are the default: from 10 on, names missed less mass on synthetic data, or about
#: as little.
METHODS = ("draws", "names")


@dataclasses.dataclass(frozen=True)
class NamedTopMechanism(OnceByItem):
    """A whole private top k by names first, as a value: `named_top` makes and checks one. `epsilon` is that of one draw."""

    selection: AutoSelection
    k: int
    epsilon: Fraction
    name = "TopItems"

    def __post_init__(self) -> None:
        if self.k * draw_cost(self.epsilon, self.relation) > Fraction(self.selection.curves.rho):
            raise ParameterError(f"{self.k} draws with {float(self.epsilon)} cost more than names leave: make it anew")

    @property
    def relation(self) -> Relation:
        """What a neighbouring input is."""
        return self.selection.relation

    @property
    def item_type(self) -> type:
        """The type of items."""
        return self.selection.item_type

    @property
    def choice(self) -> LimitedChoice:
        """The choice of the curve."""
        return self.selection.choice

    @property
    def counted(self) -> str:
        """The named items that one user counts for."""
        return "all"

    @property
    def k_bar(self) -> int:
        """The frame has every named item: to leave out one by its count would tell of its users."""
        return 2**62

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._whole(self.selection.guarantee())

    def decided(self, chosen: ChosenStrategy) -> DecidedSelection:
        """All that follows from the choice of the curve."""
        made = self.selection.decided(chosen)
        return dataclasses.replace(made, guarantee=self._whole(made.guarantee))

    def subkey(self, key: bytes, release_id: str, label: str) -> bytes:
        """The subkey of the draws, from their label and all public parameters."""
        budget = self.selection.curves.budget
        parameters = {
            "epsilon": repr(budget.epsilon),
            "delta": repr(budget.delta),
            "k": self.k,
            "named": self.epsilon,
            "relation": self.relation.value,
        }
        return subkey(key, release_id, label, parameters)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows rank, item of contribution batches."""
        return self.run_decided(batches, release, label)[0]

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, DecidedSelection]:
        """The same, and what was chosen."""
        label, users = self.name if label is None else label, users_of(batches)
        decided = self.decided(choose_of(users, self.choice, release, f"{label}/ChooseStrategy"))
        named = named_in_rounds(users, decided.rounds, release, f"{label}/NamedItems", self.item_type)
        rows = users.map(lambda shard: shard.with_items(named))
        bounded = bounded_users(rows, self.steps, release, f"{label}/Counted")
        frame = frame_of(bounded, self.bound, self.k_bar, self.item_type)
        return self.release(frame, self.subkey(release.key_source.fetch(), release.id, label)), decided

    def release(self, frame: Frame, subkey: bytes) -> pa.RecordBatch:
        """The items that are drawn, with their ranks from 1: k of them, or all."""

        def excess(users: np.ndarray) -> tuple[Integers, int]:
            return named_excess(users, self.epsilon)

        return ranked(drawn_without_replacement(frame, subkey, self.k, excess))

    def _whole(self, naming: Guarantee) -> Guarantee:
        """The parts of naming, and the draws."""
        curves = self.selection.curves
        details: dict[str, str | int | float] = {"draws": self.k, "epsilon of a draw": float(self.epsilon)}
        details["zCDP of all draws"] = curves.rho
        first, *parts = naming.mechanisms
        words = {"by": "Renyi divergences of the choice, of the selection curve that is chosen and of the draws"}
        alone = Zcdp(curves.rho).to_budget(curves.budget.delta)
        draws = MechanismStep("draws among the named", alone.epsilon, alone.delta, details)
        steps = (dataclasses.replace(first, details=words), *parts, draws)
        return dataclasses.replace(naming, mechanisms=steps)


def named_top(
    budget: Budget, k: int, *, relation: Relation = Relation.ADD_REMOVE, item_type: type = str
) -> NamedTopMechanism:
    """The k items with the most users, or fewer, of those that a selection curve names; its parameters are chosen privately."""
    check_budget(budget)
    check_delta_for_names(budget.delta)
    k = check_whole("k", k, 1, LARGEST_FRAME)
    rho = tuning.TOP_DRAWS_SHARE * zcdp_rho(budget.epsilon, budget.delta / 2)
    selection = auto_partitions(budget, relation=relation, item_type=item_type, rho=rho)
    epsilon = on_grid(Fraction(math.sqrt(8 * rho / k) * (1 - 2**-40)) / relation.users)
    return NamedTopMechanism(selection, k, epsilon)


def top_items(
    budget: Budget,
    k: int,
    *,
    method: str | None = None,
    k_bar: int | None = None,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> TopItemsMechanism | NamedTopMechanism:
    """The k items with the most users, or fewer: those that too few users have stay hidden.

    By "draws" from the `k_bar` items that are looked at (default: 10,000), or by "names" first; by default draws below k = 10.
    """
    relation = Relation.parse(relation)
    if method not in (None, *METHODS):
        raise ParameterError(f"method must be one of {', '.join(METHODS)}, got {method!r}", "method")
    if (method or ("draws" if k <= tuning.MOST_DRAWN else "names")) == "draws":
        return draws_of_top(
            budget, k, k_bar=tuning.ITEMS_LOOKED_AT if k_bar is None else k_bar, relation=relation, item_type=item_type
        )
    if k_bar is not None:
        raise ParameterError(
            f"k_bar = {k_bar!r} is for the method draws, and k = {k!r} goes by names: leave it out, or give that method"
        )
    return named_top(budget, k, relation=relation, item_type=item_type)
