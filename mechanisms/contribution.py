"""What one user's contribution can be at most, as the bounding steps promise it."""

from __future__ import annotations

import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Bound:
    """Norm bounds of one user's whole contribution, in counts; None means no bound of that kind.

    `l0` limits the items, `linf` the count of one item, `l1` and `l2` the norms over all items. A contribution
    is an integer multiple of 2**-grid. `label` names the steps that did the bounding: two collections bounded
    separately have two labels, and together twice the sensitivity.
    """

    l0: int | None = None
    l1: int | None = None
    l2: int | None = None
    linf: int | None = None
    grid: int = 0
    label: str = ""

    def describe(self) -> str:
        """The bounds that hold, in words for a message."""
        held = {name: getattr(self, name) for name in ("l0", "l1", "l2", "linf")}
        text = ", ".join(f"{name} <= {value}" for name, value in held.items() if value is not None)
        return text or "nothing"

    def to_json(self) -> str:
        """The canonical text that travels with every bounded batch."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Bound:
        """Inverse of `to_json`."""
        return cls(**json.loads(text))
