"""What is promised, in numbers and in words, before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from headcount.mechanisms.calibration import NoisePlan
from headcount.mechanisms.relation import Relation


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
        promise = (
            f"{self.unit.capitalize()}-level (epsilon = {_text(self.epsilon)}, delta = {_text(self.delta)}) "
            f"differential privacy under {self.relation.words}."
        )
        return "\n".join([promise, *(step.words() for step in self.mechanisms)])

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


def _text(value: str | int | float, digits: int = 15) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
