"""What private choices by the exponential mechanism have in common: a new one says what is scored, and how users move it.

A choice has a table of integers to which users add, by themselves (`user_table`) or by their items (`item_chunks` and
`item_table`), and `exponents` that follow from the table: the candidate k is drawn with a probability proportional to
exp(-exponents[k]). The proof of a choice is about its exponents alone (`exponential.em_exponents`, `gem_exponents`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Generic, TypeVar

from headcount.mechanisms.choice.exponential import select
from headcount.mechanisms.randomness.lanes import Lanes

T = TypeVar("T")


class TableChoice:
    """A choice by a table of integers to which users add; here, nobody does yet. It draws from one lane."""

    by_item = False  # whether items have a part in the table
    bounded_range = True  # it is draws by `select`, whose ranges add up, and nothing else
    draws = 1  # lanes that it draws from

    @property
    def entries(self) -> int:
        """The length of the table."""
        raise NotImplementedError

    def user_table(self, shard: Any) -> list[int]:
        """What the users of a shard add by themselves."""
        return [0] * self.entries

    def item_chunks(self, shard: Any, shards: int) -> Iterator[tuple[int, bytes]]:
        """What the users of a shard add to their items, by item shard."""
        return iter(())

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """What the items of an item shard add."""
        return [0] * self.entries


class ExponentialChoice(TableChoice, Generic[T]):
    """One draw among public candidates, by a table that has an entry for each of them."""

    @property
    def outcomes(self) -> Sequence[T]:
        """What can be chosen, in the order of the exponents."""
        raise NotImplementedError

    @property
    def entries(self) -> int:
        """The length of the table: one for each candidate."""
        return len(self.outcomes)

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the candidates: each is chosen with a probability proportional to exp(-exponent)."""
        raise NotImplementedError

    def choose(self, table: Sequence[int], lanes: Lanes) -> T:
        """The private choice."""
        return self.outcomes[select(self.exponents(table), lanes)]

    def ends(self) -> tuple[T, T]:
        """The smallest and the largest that can be chosen."""
        return self.outcomes[0], self.outcomes[-1]
