"""A privacy filter and odometer for zero-concentrated differential privacy: spend while it fits, and never beyond.

Theorem (Whitehouse, Ramdas, Rogers, Wu: "Fully Adaptive Composition in Differential Privacy", 2023). Let a sequence of
mechanisms be chosen one after another, the n-th of them delta_n-approximate rho_n-zCDP given the outputs of those before it.
The mechanism, delta_n and rho_n may be any function of those outputs. If it ends, by a rule that looks at those outputs alone,
before the sum of the rho_n exceeds rho or the sum of the delta_n exceeds delta, then all the outputs together are
delta-approximate rho-zCDP. Proof: docs/proofs/accounting.md.

How it is used: `spend` before a mechanism touches the data, with what that mechanism costs; it raises if the cost does not
fit, and then nothing was spent. `can` asks beforehand. What is asked and when it ends must follow from what has been
released (and from public parameters), never from the data.
"""

from __future__ import annotations

import numbers
from fractions import Fraction
from typing import NamedTuple

from headcount.mechanisms.accounting.budget import Zcdp
from headcount.mechanisms.errors import HeadcountError, ParameterError

# All sums are of whole multiples of this: the budget is rounded down to one and every cost up. It is far below any cost
# that is worth its while, and keeps sums of thousands of fractions short.
_UNITS = 2**100


class Spend(NamedTuple):
    """One entry of the ledger: what was paid for, and its cost, rounded up."""

    what: str
    rho: Fraction
    delta: Fraction


class BudgetExceeded(HeadcountError, RuntimeError):
    """A cost does not fit into what is left of a budget; nothing was spent."""


class ZcdpFilter:
    """What may still be spent of a `Zcdp` budget (as the exact decimals that it prints as), and what has been so far."""

    def __init__(self, budget: Zcdp) -> None:
        self.budget = budget
        self._whole = tuple(int(Fraction(repr(part)) * _UNITS) for part in (budget.rho, budget.delta))
        self._spent = (0, 0)
        self._ledger: list[Spend] = []

    @property
    def ledger(self) -> tuple[Spend, ...]:
        """All that was spent, in order."""
        return tuple(self._ledger)

    @property
    def spent(self) -> tuple[Fraction, Fraction]:
        """The odometer: rho and delta of everything so far, which is what all outputs so far promise together."""
        rho, delta = self._spent
        return Fraction(rho, _UNITS), Fraction(delta, _UNITS)

    @property
    def left(self) -> tuple[Fraction, Fraction]:
        """The rho and delta that may still be spent."""
        rho, delta = (whole - spent for whole, spent in zip(self._whole, self._spent, strict=True))
        return Fraction(rho, _UNITS), Fraction(delta, _UNITS)

    def can(self, rho: Fraction, delta: Fraction) -> bool:
        """Whether so much may still be spent."""
        return self._after(rho, delta) is not None

    def spend(self, rho: Fraction, delta: Fraction, what: str) -> None:
        """Pays for a mechanism that is about to look at the data; raises if that does not fit."""
        after = self._after(rho, delta)
        if after is None:
            raise BudgetExceeded(
                f"{what} costs rho = {float(rho):g} and delta = {float(delta):g}, which is more than is left of "
                f"rho = {self.budget.rho!r} and delta = {self.budget.delta!r}: nothing was spent, and it must not run"
            )
        costs = (Fraction(new - old, _UNITS) for new, old in zip(after, self._spent, strict=True))
        self._spent = after
        self._ledger.append(Spend(what, *costs))

    def _after(self, rho: Fraction, delta: Fraction) -> tuple[int, int] | None:
        """What will have been spent after this cost; None if it does not fit."""
        after = self._spent[0] + _units("rho", rho), self._spent[1] + _units("delta", delta)
        return after if after[0] <= self._whole[0] and after[1] <= self._whole[1] else None


def rounded_up(cost: Fraction) -> Fraction:
    """What a filter charges for a cost: several of these are charged as their sum."""
    return Fraction(_units("rho", cost), _UNITS)


def _units(name: str, cost: Fraction) -> int:
    """A cost in whole units, rounded up."""
    if isinstance(cost, bool) or not isinstance(cost, numbers.Rational) or cost < 0:
        raise ParameterError(f"a cost in {name} must be an integer or Fraction, 0 or more, got {cost!r}")
    return -(-int(cost.numerator) * _UNITS // int(cost.denominator))
