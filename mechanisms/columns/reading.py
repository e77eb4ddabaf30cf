"""How rows are read, as a text: which columns hold what, and which rows are left out.

Noise must differ between two releases under one id that read rows in two ways. If it did not, their equality would tell that no
row makes a difference: that nobody has an item that is null, say. So the key of a release depends on this text (`RowsKey`).
"""

from __future__ import annotations

import json
from typing import Any

from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES
from headcount.mechanisms.columns.times import UTC

_PLAIN = {
    "user": "user",
    "item": ["item"],
    "value": "value",
    "count": None,
    "drop_null": False,
    "max_item_bytes": MAX_ITEM_BYTES,
    "explode": None,
    "time_zone": UTC,
    "window": None,
    "where": None,
    "join": None,
    "on": None,
}


def reading(**said: Any) -> str:
    """What is said of rows, in one form; empty if all of it is what tuples (user, item) or (user, value) are read by."""
    other = {name: value for name, value in said.items() if value != _PLAIN[name]}
    return json.dumps(other, sort_keys=True, separators=(",", ":")) if other else ""
