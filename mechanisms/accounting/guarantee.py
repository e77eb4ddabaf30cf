"""What is promised, in numbers and in words, before anything runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from headcount.mechanisms.accounting.budget import Zcdp, check_order, digits_up, sum_up
from headcount.mechanisms.accounting.losses import Losses, check_list, check_names
from headcount.mechanisms.accounting.pld_sums import losses_epsilon
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.checks import check_at_least_0, is_real
from headcount.mechanisms.errors import ParameterError

_FIELDS = ("epsilon", "delta", "relation", "unit", "mechanisms")
_STEP_FIELDS = ("name", "epsilon", "delta", "details")


@dataclasses.dataclass(frozen=True)
class MechanismStep:
    """One mechanism's share of the budget, and the public numbers that define it."""

    name: str
    epsilon: float
    delta: float
    details: Mapping[str, str | int | float]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MechanismStep:
        """The step that `as_dict` of its guarantee has."""
        found = check_names("a mechanism of a guarantee", values, _STEP_FIELDS)
        details = found["details"]
        if not isinstance(details, Mapping) or not all(
            isinstance(key, str) and (isinstance(value, str) or is_real(value)) for key, value in details.items()
        ):
            raise ParameterError(f"the details of a mechanism must be names with texts or numbers, got {details!r}")
        epsilon, delta = (check_at_least_0(f"a mechanism's {name}", found[name]) for name in ("epsilon", "delta"))
        return cls(_text_of("a mechanism's name", found["name"]), epsilon, delta, dict(details))

    def description(self) -> str:
        """One line: the share of the budget, then the details, rounded to 8 digits."""
        details = ", ".join(f"{key} {_text(value, 8)}" for key, value in self.details.items())
        share = f"{self.name}: epsilon = {_text(self.epsilon)}, delta = {_text(self.delta)}"
        return f"{share}; {details}." if details else f"{share}."


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) promise to each `unit` under `relation`, and the mechanisms that together keep it.

    `losses` says what composition needs (`accounting.losses`), and holds before the data is seen: it covers all that may be
    chosen on the way. Where it is not given, nothing but the promise is known. `spent` is what the course that was taken
    cost in zCDP, up to the order `spent_order`, for totals that hold even if later costs depend on it (`totals`); None before
    that is known.
    """

    epsilon: float
    delta: float
    relation: Relation
    mechanisms: tuple[MechanismStep, ...]
    unit: str = "user"
    losses: Losses = None  # type: ignore[assignment]  # never None: see __post_init__
    spent: Zcdp | None = None
    spent_order: float = math.inf

    def __post_init__(self) -> None:
        if self.losses is None:
            object.__setattr__(self, "losses", Losses.of_promise(self.epsilon, self.delta))
        check_order(self.spent_order)

    @property
    def zcdp(self) -> Zcdp:
        """The zCDP that was spent, or may be."""
        return self.zcdp_to(math.inf)

    @property
    def order(self) -> float:
        """The order up to which more than the promise is known of what was spent, or may be."""
        return self.losses.order_of_all() if self.spent is None else self.spent_order

    def zcdp_to(self, order: float) -> Zcdp:
        """What was spent, or may be, as zCDP of orders up to this one alone; of what ends before, by the promise."""
        known = self.losses.zcdp_to_order() if self.spent is None else self.spent
        if known is not None and order <= self.order:
            return known
        return Zcdp(max(self.epsilon**2 / 2 * (1 + 1e-15), math.ulp(0.0)), self.delta)

    def description(self) -> str:
        """The promise as plain lines: the whole, then each mechanism with its share, noise and threshold."""
        promise = _promise(self.unit, _text(self.epsilon), _text(self.delta), self.relation)
        return "\n".join([promise, *(step.description() for step in self.mechanisms)])

    def promise_line(self) -> str:
        """The promise alone, in one line with its numbers rounded upwards: for one that `compose` has made."""
        return _promise(self.unit, _text_up(self.epsilon), _text_up(self.delta), self.relation)

    def per(self, unit: str) -> Guarantee:
        """The same promise to each `unit` in place of each user, for contributions whose users are such units."""
        if self.unit not in ("user", unit):
            raise ParameterError(f"this promises something to each {self.unit}, not to each user: leave out {unit!r}")
        return dataclasses.replace(self, unit=unit)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        spent = {}
        if self.spent is not None:
            order = {"order": self.spent_order} if math.isfinite(self.spent_order) else {}
            spent = {"spent": {"rho": self.spent.rho, "delta": self.spent.delta} | order}
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "unit": self.unit,
            "mechanisms": [
                {"name": s.name, "epsilon": s.epsilon, "delta": s.delta, "details": dict(s.details)}
                for s in self.mechanisms
            ],
            "losses": self.losses.as_dict(),
        } | spent

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Guarantee:
        """The guarantee of which this is the `as_dict`, as report.json has it; whatever else is refused.

        The words that report.json has beside follow from the rest, and are left out. Reports of older versions say nothing of
        losses: of those, no more than the promise is known.
        """
        found = check_names("a guarantee", values, _FIELDS, ("words", "losses", "spent"))
        spent, order = None, math.inf
        if "spent" in found:
            told = check_names("what a guarantee has spent", found["spent"], ("rho", "delta"), ("order",))
            spent, order = Zcdp(told["rho"], told["delta"]), told.get("order", math.inf)
        return cls(
            check_at_least_0("epsilon", found["epsilon"]),
            check_at_least_0("delta", found["delta"]),
            Relation.parse(found["relation"]),
            tuple(map(MechanismStep.from_dict, check_list("the mechanisms of a guarantee", found["mechanisms"]))),
            _text_of("unit", found["unit"]),
            Losses.from_dict(found["losses"]) if "losses" in found else None,  # type: ignore[arg-type]
            spent,
            order,
        )


def compose(guarantees: Iterable[Guarantee]) -> Guarantee:
    """What several releases of the same data promise together: deltas add up, and epsilon is the least that is known for that.

    All must have one relation and one unit: under another one, the same numbers are another promise. Epsilon is that of
    `totals.total_epsilon`, and at most the sum of all. The sums are exact in the decimals that the parts print as, and then
    rounded upwards. A release may have been planned after a look at an earlier one, if its budget was fixed before that.
    """
    parts = check_alike(guarantees)
    epsilon, delta = (sum_up(getattr(part, name) for part in parts) for name in ("epsilon", "delta"))
    losses = Losses.together(part.losses for part in parts)
    if len(parts) > 1 and 0 < delta < 1:
        epsilon = min(epsilon, losses_epsilon(losses, delta))
    return Guarantee(
        epsilon,
        delta,
        parts[0].relation,
        tuple(step for part in parts for step in part.mechanisms),
        parts[0].unit,
        losses,
        *((parts[0].spent, parts[0].spent_order) if len(parts) == 1 else (total_zcdp(parts),)),
    )


def spent_of(parts: Iterable[Guarantee]) -> Zcdp | None:
    """What all parts have spent together, if that is known of one of them; of the others it is what they may."""
    found = list(parts)
    return total_zcdp(found) if any(part.spent is not None for part in found) else None


def check_alike(guarantees: Iterable[Guarantee]) -> list[Guarantee]:
    """The guarantees, if they can be composed: there is one at least, and all have one relation and one unit."""
    parts = list(guarantees)
    if not parts:
        raise ParameterError("compose needs at least one guarantee, got none")
    for part in parts:
        if not isinstance(part, Guarantee):
            raise ParameterError(f"compose takes guarantees, such as that of transform.guarantee(), got {part!r}")
    for name, found in (
        ("relation", {part.relation.value for part in parts}),
        ("unit", {part.unit for part in parts}),
    ):
        if len(found) > 1:
            raise ParameterError(
                f"guarantees add up under one {name} only, got {' and '.join(sorted(found))}: compose those of each apart"
            )
    return parts


def total_zcdp(guarantees: Iterable[Guarantee], order: float = math.inf) -> Zcdp | None:
    """The zCDP that all of them have spent together, of orders up to this one; None if that is nothing."""
    parts = [part.zcdp_to(order) for part in guarantees]
    rho, delta = (sum_up(getattr(part, name) for part in parts) for name in ("rho", "delta"))
    return Zcdp(rho, delta) if delta < 1 else None


def _text_of(what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ParameterError(f"{what} must be a text that is not empty, got {value!r}", what)
    return value


def _promise(unit: str, epsilon: str, delta: str, relation: Relation) -> str:
    promise = f"{unit.capitalize()}-level (epsilon = {epsilon}, delta = {delta}) differential privacy"
    return f"{promise} under {relation.description(unit)}."


def _text_up(value: float) -> str:
    return f"{digits_up(value, 15):.15g}"


def _text(value: str | int | float, digits: int = 15) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
