"""The account of a data set: what its releases cost together, and what is left of the limit. It is read, and never written."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headcount.functions import suggesting
from headcount.keywords import in_keywords

if TYPE_CHECKING:
    import pyarrow as pa

    from headcount.pipelines.ledger.records import Dataset, Entry

_COLUMNS = "at state epsilon delta command release_id label period output".split()


@dataclasses.dataclass(frozen=True)
class Account:
    """A data set of a ledger as it was when it was read. Printed, it is what `headcount ledger total` shows."""

    dataset: Dataset
    entries: Sequence[Entry]

    @property
    def told(self) -> dict[str, Any]:
        """What is spent and left as plain values, as the command prints it with --json."""
        from headcount.pipelines.ledger.descriptions import totals

        return totals(self.dataset, self.entries)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The releases in order, also those that are only reserved and those that were given back."""
        return [*map(_row, self.entries)]

    @property
    def table(self) -> pa.Table:
        """The same as an Arrow table."""
        import pyarrow as pa

        types = [(name, pa.float64() if name in ("epsilon", "delta") else pa.string()) for name in _COLUMNS]
        return pa.Table.from_pylist(self.rows, pa.schema(types))

    def to_pandas(self) -> Any:
        """The same as a pandas frame; it needs pandas."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        from headcount.pipelines.ledger.descriptions import totalled

        return in_keywords(totalled(self.dataset, self.entries))


def _row(entry: Entry) -> dict[str, Any]:
    request = entry.request
    own = {
        "at": entry.changes[0].at,
        "state": entry.state,
        "epsilon": request.guarantee.epsilon,
        "delta": request.guarantee.delta,
    }
    return {name: own[name] if name in own else getattr(request, name) for name in _COLUMNS}


@suggesting
def ledger(name: str, *, ledger: str) -> Account:
    """What the releases of a data set cost together, what is left of its limit, and which releases there are.

    Guarantee: it costs nothing, as it reads the ledger alone.

        headcount.ledger("visits", ledger="sqlite:///ledger.db").told["left"]

    Parameters:
        name: the data set.
        ledger: where the ledger is, such as "sqlite:///ledger.db" or "postgresql://server/ledger".

    The result has `told`, what is spent and left as `headcount ledger total` tells it, `rows`, a dict for each release, `table`
    and `to_pandas()` of them. Data sets are made, plans approved and entries resolved on the command line.
    """
    from headcount.keywords import spelled
    from headcount.mechanisms.errors import HeadcountError
    from headcount.pipelines.ledger.account import open_ledger

    try:
        opened = open_ledger(ledger)
        return Account(opened.dataset(name), opened.entries(name))
    except HeadcountError as error:
        raise spelled(error) from None
