"""What a private choice of a bound is, and what it gives: the same few things for every method."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.losses import Draw, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import Lanes

T_co = TypeVar("T_co", covariant=True)


class ChosenBound(NamedTuple):
    """The bounds and the noise that were chosen; public, since the choice is paid for.

    `max_per_item` 0 stands for no cap on one item (a Beam row has no better word for it that all runners know).
    """

    bound: int
    max_per_item: int
    noise: str

    def description(self) -> str:
        """The choice in one line."""
        cap = f", at most {self.max_per_item:,} on one item" if self.max_per_item else ""
        return f"chosen: a bound of {self.bound:,}{cap}, with {self.noise} noise"

    def report_fields(self) -> Mapping[str, Any]:
        """The choice as a part of a report."""
        return {"chosen": {name: value for name, value in self._asdict().items() if value}}


class Described(Protocol):
    """What was chosen: a bound, a strategy."""

    def description(self) -> str:
        """The choice in one line."""

    def report_fields(self) -> Mapping[str, Any]:
        """The choice as a part of a report."""


ChosenT = TypeVar("ChosenT", bound=Described)


@dataclasses.dataclass(frozen=True)
class Decision(Generic[ChosenT]):
    """What was chosen, and the whole promise in its numbers. All of it is public."""

    chosen: ChosenT
    guarantee: Guarantee

    def description(self) -> str:
        """What was chosen, in one line."""
        return self.chosen.description()

    def report_fields(self) -> Mapping[str, Any]:
        """What was chosen, as a part of the report."""
        return self.chosen.report_fields()


class Choice(Protocol[T_co]):
    """One method to choose a T privately (a bound, a strategy), from a table of integers to which every user adds.

    Tables of shards of users and of shards of items add up, entry by entry, to the table that `choose` looks at: how the
    data are sharded changes nothing.
    """

    @property
    def name(self) -> str:
        """The method's name."""

    @property
    def budget(self) -> Budget:
        """What the choice costs."""

    @property
    def release_budget(self) -> Budget:
        """The budget of the release that it is made for."""

    @property
    def relation(self) -> Relation:
        """What a neighbouring input is."""

    @property
    def by_item(self) -> bool:
        """Whether items have a part in the table."""

    @property
    def bounded_range(self) -> bool:
        """Whether it is a draw by `exponential.select`, and nothing else: log-probabilities of neighbours differ by amounts
        within an interval as long as epsilon."""

    @property
    def entries(self) -> int:
        """The length of the table."""

    @property
    def draws(self) -> int:
        """The lanes that it draws from."""

    def user_table(self, shard: Any) -> list[int]:
        """What the users of a shard add to the table: a `Shard`, or one of the kind that the choice is made for."""

    def item_chunks(self, shard: Any, shards: int) -> Iterator[tuple[int, bytes]]:
        """What the users of a shard add to their items, by item shard."""

    def item_table(self, chunks: Iterable[bytes]) -> list[int]:
        """What the items of an item shard add to the table."""

    def choose(self, table: Sequence[int], lanes: Lanes) -> T_co:
        """The private choice."""

    def ends(self) -> tuple[T_co, T_co]:
        """The smallest and the largest that can be chosen."""

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form: part of its randomness."""

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""


def choice_losses(choice: Choice[Any]) -> Losses:
    """What composition needs to know of a choice: its range, or no more than its promise where it is no draw."""
    if choice.bounded_range and choice.budget.delta == 0:
        return Losses.of(Draw(choice.budget.epsilon))
    return Losses.of_promise(choice.budget.epsilon, choice.budget.delta)


def check_relation(choice: Choice[Any], relation: Relation) -> None:
    """Refuses a choice that protects other neighbours than the release that it is made for."""
    if choice.relation is not relation:
        raise ParameterError(
            f"a choice under the relation {choice.relation.value!r} cannot go with a release under {relation.value!r}, as the "
            "two promise something together: give both the same relation"
        )
