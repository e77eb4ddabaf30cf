"""What one user's contribution can be at most, as the bounding steps promise it."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Bound:
    """Norm bounds of one user's whole contribution, in counts; None means no bound of that kind.

    `l0` limits the items, `linf` the count of one item, `l1` and `l2` the norms over all items. A contribution
    is an integer multiple of 2**-grid. `label` names the steps that did the bounding, and the releases that they belong
    to: two collections bounded separately have two labels, and together twice the sensitivity.
    """

    l0: int | None = None
    l1: int | None = None
    l2: int | None = None
    linf: int | None = None
    grid: int = 0
    label: str = ""

    @property
    def scaled(self) -> bool:
        """Whether counts were scaled down, or weighed, to keep it: nothing else limits l2. That a large bound leaves no
        fractions of them makes no difference."""
        return self.l2 is not None or self.grid > 0

    def within(self, other: Bound) -> bool:
        """Whether whatever keeps this bound keeps the other one, too; what was scaled is not what noise for samples is for."""
        limits = ((getattr(self, name), getattr(other, name)) for name in ("l0", "l1", "l2", "linf"))
        narrower = all(theirs is None or (ours is not None and ours <= theirs) for ours, theirs in limits)
        return narrower and self.grid == other.grid and self.scaled <= other.scaled

    def describe(self) -> str:
        """The bounds that hold, in words for a message."""
        held = {name: getattr(self, name) for name in ("l0", "l1", "l2", "linf")}
        parts = [f"{name} <= {value}" for name, value in held.items() if value is not None]
        return ", ".join(parts + [f"in steps of 2^-{self.grid}"] * (self.grid > 0)) or "nothing"

    def description(self) -> str:
        """The bounds that hold, for a person; what follows from another one is left out."""
        if self.linf == 1 and self.grid == 0:
            items = min((limit for limit in (self.l0, self.l1) if limit is not None), default=None)
            if items is not None:
                return "1 item, once" if items == 1 else f"{items} items, once each"
        norm, parts = self.l1, []
        if self.l1 is not None:
            parts.append(_events(self.l1) if self.grid == 0 else f"an l1 norm of {self.l1}")
        elif self.l0 is None:
            norm = self.l2
            parts.append(f"an l2 norm of {self.l2}")
        if self.l0 is not None and (norm is None or self.l0 < norm):
            parts.append(f"on {self.l0} item{'s' * (self.l0 > 1)}")
        if self.linf is not None and (norm is None or self.linf < norm):
            parts.append(f"{self.linf} on one item")
        return " and ".join(parts)

    def to_json(self) -> str:
        """The canonical text that travels with every bounded batch."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Bound:
        """Inverse of `to_json`."""
        return cls(**json.loads(text))


def most_l1(bound: Bound) -> int | None:
    """The most that a user counts in all; None if nothing limits it."""
    limits = [] if bound.l1 is None else [bound.l1]
    if bound.l0 is not None and bound.linf is not None:
        limits.append(bound.l0 * bound.linf)
    return min(limits, default=None)


def most_l2_squared(bound: Bound) -> int | None:
    """The largest squared l2 norm of a user's counts; None if nothing limits it."""
    limits = [] if bound.l2 is None else [bound.l2**2]
    if bound.l1 is not None:  # the norm is convex: largest with all mass on as few items as the cap allows
        cap = bound.l1 if bound.linf is None else min(bound.linf, bound.l1)
        full, rest = divmod(bound.l1, cap)
        limits.append(full * cap**2 + rest**2)
    if bound.l0 is not None and bound.linf is not None:
        limits.append(bound.l0 * bound.linf**2)
    return min(limits, default=None)


def most_on_one(bound: Bound) -> int:
    """The most that a user counts on one item, where an l2 norm is limited."""
    return min(limit for limit in (bound.linf, bound.l1, bound.l2) if limit is not None)


def _events(number: int) -> str:
    return "1 event" if number == 1 else f"{number} events"
