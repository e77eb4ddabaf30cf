"""What is promised, in numbers and in words, before anything runs."""

from __future__ import annotations

import dataclasses
import decimal
from collections.abc import Iterable, Mapping
from typing import Any

from headcount.mechanisms.accounting.budget import sum_up
from headcount.mechanisms.accounting.calibration import NoisePlan
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
    def of_plan(cls, name: str, plan: NoisePlan) -> MechanismStep:
        """The step that adds the noise of `plan`; scale and threshold are given in counts."""
        details: dict[str, str | int | float] = {
            "noise": f"discrete {plan.kind.capitalize()}",
            "scale": float(plan.scale / 2**plan.grid),
            "grid": f"2^-{plan.grid}" if plan.grid else "1",
            "stddev": plan.stddev,
        }
        if plan.threshold_in_counts is not None:
            details["threshold"] = float(plan.threshold_in_counts)
        return cls(name, plan.epsilon, plan.delta, details)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MechanismStep:
        """The step that `as_dict` of its guarantee has."""
        found = _fields("a mechanism of a guarantee", values, _STEP_FIELDS)
        details = found["details"]
        if not isinstance(details, Mapping) or not all(
            isinstance(key, str) and (isinstance(value, str) or is_real(value)) for key, value in details.items()
        ):
            raise ParameterError(f"the details of a mechanism must be names with texts or numbers, got {details!r}")
        epsilon, delta = (check_at_least_0(f"a mechanism's {name}", found[name]) for name in ("epsilon", "delta"))
        return cls(_text_of("a mechanism's name", found["name"]), epsilon, delta, dict(details))

    def words(self) -> str:
        """One line: the share of the budget, then the details, rounded to 8 digits."""
        details = ", ".join(f"{key} {_text(value, 8)}" for key, value in self.details.items())
        share = f"{self.name}: epsilon = {_text(self.epsilon)}, delta = {_text(self.delta)}"
        return f"{share}; {details}." if details else f"{share}."


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) promise to each `unit` under `relation`, and the mechanisms that together keep
    it."""

    epsilon: float
    delta: float
    relation: Relation
    mechanisms: tuple[MechanismStep, ...]
    unit: str = "user"

    def words(self) -> str:
        """The promise as plain lines: the whole, then each mechanism with its share, noise and threshold."""
        promise = _promise(self.unit, _text(self.epsilon), _text(self.delta), self.relation)
        return "\n".join([promise, *(step.words() for step in self.mechanisms)])

    def total_words(self) -> str:
        """The promise alone, in one line with its numbers rounded upwards: for one that `compose` has made."""
        return _promise(self.unit, _text_up(self.epsilon), _text_up(self.delta), self.relation)

    def per(self, unit: str) -> Guarantee:
        """The same promise to each `unit` in place of each user, for contributions whose users are such units."""
        if self.unit not in ("user", unit):
            raise ParameterError(f"this promises something to each {self.unit}, not to each user: leave out {unit!r}")
        return dataclasses.replace(self, unit=unit)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation.value,
            "unit": self.unit,
            "mechanisms": [
                {"name": s.name, "epsilon": s.epsilon, "delta": s.delta, "details": dict(s.details)}
                for s in self.mechanisms
            ],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Guarantee:
        """The guarantee of which this is the `as_dict`, as report.json has it; whatever else is refused.

        The words that report.json has beside follow from the rest, and are left out.
        """
        found = _fields("a guarantee", values, _FIELDS, ("words",))
        steps = found["mechanisms"]
        if not isinstance(steps, list | tuple):
            raise ParameterError(f"the mechanisms of a guarantee must be a list, got {steps!r}")
        return cls(
            check_at_least_0("epsilon", found["epsilon"]),
            check_at_least_0("delta", found["delta"]),
            Relation.parse(found["relation"]),
            tuple(map(MechanismStep.from_dict, steps)),
            _text_of("unit", found["unit"]),
        )


def compose(guarantees: Iterable[Guarantee]) -> Guarantee:
    """What several releases of the same data promise together, by basic composition: epsilons and deltas add up.

    All must have one relation and one unit: under another one, the same numbers are another promise. The sums are exact in
    the decimals that the parts print as, and then rounded upwards. A release may have been planned after a look at an earlier
    one, if its budget was fixed before that.
    """
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
    return Guarantee(
        sum_up(part.epsilon for part in parts),
        sum_up(part.delta for part in parts),
        parts[0].relation,
        tuple(step for part in parts for step in part.mechanisms),
        parts[0].unit,
    )


def _fields(what: str, values: object, names: Iterable[str], others: Iterable[str] = ()) -> Mapping[str, Any]:
    """A mapping with just these names, and perhaps others."""
    if not isinstance(values, Mapping):
        raise ParameterError(f"{what} must be a mapping of names to values, as as_dict gives it, got {values!r}")
    missing, unknown = set(names) - set(values), set(values) - set(names) - set(others)
    if missing or unknown:
        wrong = [f"without {_listed(missing)}"] if missing else []
        wrong += [f"with {_listed(unknown)}, which is not known here"] if unknown else []
        raise ParameterError(f"{what} must have {_listed(names)}, got one {' and '.join(wrong)}")
    return values


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))


def _text_of(what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ParameterError(f"{what} must be a text that is not empty, got {value!r}")
    return value


def _promise(unit: str, epsilon: str, delta: str, relation: Relation) -> str:
    promise = f"{unit.capitalize()}-level (epsilon = {epsilon}, delta = {delta}) differential privacy"
    return f"{promise} under {relation.words(unit)}."


def _text_up(value: float) -> str:
    up = decimal.Context(prec=15, rounding=decimal.ROUND_CEILING)
    return f"{float(up.create_decimal(repr(value))):.15g}"


def _text(value: str | int | float, digits: int = 15) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
