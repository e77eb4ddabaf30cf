"""How items of an estimated histogram are named: the plan of it, which is public."""

from __future__ import annotations

import dataclasses

from headcount.mechanisms.partitions.rounds import Round
from headcount.mechanisms.partitions.select import ChosenStrategy, in_items


@dataclasses.dataclass(frozen=True)
class NamesPlan:
    """How items are named, as was chosen, and the rounds for it."""

    named: ChosenStrategy
    rounds: tuple[Round, ...]

    def description(self) -> str:
        """How items are named, in one line."""
        if self.counts_too:
            return f"names and counts at once, of one {'item' if self.rounds[0].weights == 'count' else 'event'} of each user"
        return f"names by {self.named.strategy}, with at most {in_items(self.named.max_items)} of each user"

    @property
    def counts_too(self) -> bool:
        """Whether the noisy sums by which items were named are their counts."""
        return self.named.strategy == "laplace"
