"""The contract that every mechanism keeps: it has a name, states its guarantee before it sees data, and runs without Beam.

A mechanism is a frozen dataclass, made by a factory of its family, which takes the budget first and all else by keyword. It
holds public numbers only, so that it can be pickled, printed and compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from headcount.mechanisms.accounting.guarantee import Guarantee
    from headcount.mechanisms.randomness.keys import Release


@runtime_checkable
class Promise(Protocol):
    """What can be said of a release before it runs. Protocols whose noise is the users' own have no more than this."""

    @property
    def name(self) -> str:
        """What it is called: the label of its randomness, unless another is given."""

    def guarantee(self) -> Guarantee:
        """What is promised, and what each part takes of the budget."""


@runtime_checkable
class Mechanism(Promise, Protocol):
    """A mechanism of the central model: rows of users in, released rows out."""

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows of contribution batches (`batches.contributions.contribution_batch`).

        `label` names what is drawn, by default the mechanism's `name`; a transform with this full label draws the same. A
        sample is known by the data that it is of, and not by who reads it. So in the family `sampled`, where several
        mechanisms read one sample, `label` is the sample's name, and its default is the same for all of them.
        """


@runtime_checkable
class Deciding(Mechanism, Protocol):
    """One that may decide something on its way, within its budget: a bound, a number of items, what a shape says."""

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, Any]:
        """The rows of `run`, and what was decided, as `with_decision()` of the transform gives it; None if nothing was."""
