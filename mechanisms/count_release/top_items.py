"""The k items with the most users, without their counts: Unknown Domain Gumbel with k draws (the paper, Theorem 4).

Items are drawn from the frame (`frames`) one by one without replacement, until bot is drawn or there are k. This has the
distribution of ranking all scores with one Gumbel noise each, and reading the ranking down to bot. So the delta of the
threshold is paid once, and not for every draw.

Guarantee: user-level (epsilon, delta)-differential privacy for the relation. Users may have any number of items.
Proof: docs/proofs/count-release.md, "The top by draws". Let u be 1, or 2 if a user is replaced, and d the delta of the
threshold. If k draws of eps1 are (e, d2)-differentially private among common items, all is (e + k d, d + d2)-differentially
private. There are two ways to (e, d2), and the better is taken, by public numbers. Either e is k u eps1 with d2 = 0 and all of
delta as d. Or it is that of k (u eps1)^2 / 8-zCDP at d2, with half of delta for either.

(The paper pays no k d. It is tiny, and here the proof has it.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, zcdp_rho
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import arrow_type
from headcount.mechanisms.bounding.steps import LimitPerItemStep, Step
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.choice.exponential import Integers
from headcount.mechanisms.count_release.frames import (
    Frame,
    check_frame,
    draw_excess,
    drawn_without_replacement,
    frame_of,
    on_grid,
    threshold,
)
from headcount.mechanisms.counting.noisy import bounded_batches
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.subkeys import subkey


class OnceByItem:
    """What draws of items by their users take of each user."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution to one item; that to all of them has no bound."""
        return (LimitPerItemStep(1),)

    @property
    def bound(self) -> Bound:
        """What the input must be bounded by."""
        return Bound(linf=1)


@dataclasses.dataclass(frozen=True)
class TopItemsMechanism(OnceByItem):
    """A whole private top k by draws as a value: `draws_of_top` makes and checks one.

    `epsilon` is that of one draw, `threshold` how far bot is above the base, and `accounting` how the draws add up.
    """

    budget: Budget
    k: int
    k_bar: int
    epsilon: Fraction
    threshold: Fraction
    accounting: str
    relation: Relation
    item_type: type
    name = "TopItems"

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        details: dict[str, str | int | float] = {
            "draws": self.k,
            "candidates": self.k_bar,
            "epsilon of a draw": float(self.epsilon),
            "threshold": float(self.threshold),
            "accounting": self.accounting,
        }
        steps = (
            MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": "1 to each of any number of items"}),
            MechanismStep("draws", self.budget.epsilon, self.budget.delta, details),
        )
        return Guarantee(self.budget.epsilon, self.budget.delta, self.relation, steps)

    def subkey(self, key: bytes, release_id: str, label: str) -> bytes:
        """The subkey of the draws, from their label and all public parameters."""
        parameters = {
            "epsilon": repr(self.budget.epsilon),
            "delta": repr(self.budget.delta),
            "k": self.k,
            "k_bar": self.k_bar,
            "draw": [self.epsilon, self.threshold],
            "relation": self.relation.value,
        }
        return subkey(key, release_id, label, parameters)

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows rank, item of contribution batches."""
        label = self.name if label is None else label
        bounded = bounded_batches(batches, self.steps, release, f"{label}/Bounded")
        frame = frame_of(bounded, self.bound, self.k_bar, self.item_type)
        return self.release(frame, self.subkey(release.key_source.fetch(), release.id, label))

    def release(self, frame: Frame, subkey: bytes) -> pa.RecordBatch:
        """The items that are drawn before bot, with their ranks from 1."""

        def excess(users: np.ndarray) -> tuple[Integers, int]:
            return draw_excess(users, frame.base, self.epsilon, self.threshold)

        return ranked(drawn_without_replacement(frame, subkey, self.k, excess))


def ranked(items: pa.Array) -> pa.RecordBatch:
    """Items in their order as released rows rank, item."""
    return pa.RecordBatch.from_pydict({"rank": pa.array(np.arange(1, len(items) + 1)), "item": items})


def draws_of_top(
    budget: Budget,
    k: int,
    *,
    k_bar: int = tuning.ITEMS_LOOKED_AT,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> TopItemsMechanism:
    """The k items with the most users, or fewer: those that too few users have stay hidden. `k_bar` are looked at."""
    check_budget(budget)
    if not 0 < budget.delta < 0.5:
        raise ParameterError(
            f"the top of items that are not known needs a delta above 0 and below 1/2, got {budget.delta!r}: "
            "which items there are cannot be hidden with certainty"
        )
    k_bar, relation = check_frame(k_bar), Relation.parse(relation)
    k = check_whole("k", k, 1, k_bar, f"k_bar = {k_bar}")
    arrow_type(item_type)
    ways = {"pure": Fraction(repr(budget.delta)), "zCDP": Fraction(repr(budget.delta)) / 2}
    found = {name: _draw_epsilon(budget, k, delta, relation) for name, delta in ways.items()}
    name = max(found, key=lambda name: found[name])
    if found[name] <= 0:
        raise ParameterError(
            f"epsilon = {budget.epsilon} is too little for k = {k} with delta = {budget.delta}: k times delta must be below it"
        )
    far = threshold(found[name], k_bar, ways[name], relation)
    return TopItemsMechanism(budget, k, k_bar, found[name], far, name, relation, item_type)


def _draw_epsilon(budget: Budget, k: int, delta: Fraction, relation: Relation) -> Fraction:
    """The epsilon of each of k draws if this delta is for the threshold: by zCDP if some of the budget's is left."""
    room = Fraction(repr(budget.epsilon)) - k * delta
    if room <= 0:
        return Fraction(0)
    rest = Fraction(repr(budget.delta)) - delta
    if rest == 0:
        return on_grid(room / (k * relation.users))
    rho = zcdp_rho(math.nextafter(float(room), 0), math.nextafter(float(rest), 0))
    return on_grid(Fraction(math.sqrt(8 * rho / k) * (1 - 2**-40)) / relation.users)
