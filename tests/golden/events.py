"""The fixed input of the golden digests, and how rows and reports become a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.runners.jobs import beside

DIGESTS = Path(__file__).with_name("digests.json")
RELEASE_ID = "golden"
KEY = "5a" * 32


def events() -> pa.Table:
    """12,000 rows of 1,500 users, one of whom holds a tenth of them."""
    generator = np.random.default_rng(17)
    user = generator.integers(1, 1_500, 12_000) * (generator.random(12_000) > 0.1)
    item = generator.geometric(0.05, 12_000)
    columns = {"user": pa.array([f"u{u}" for u in user]), "item": pa.array([f"i{i}" for i in item])}
    return pa.table(columns | beside(item) | {"times": generator.integers(1, 4, 12_000)})


def write(directory: Path) -> None:
    """The events as a Parquet file, a public domain, and the key that all golden releases are drawn with."""
    pq.write_table(events(), directory / "events.parquet")
    (directory / "domain.txt").write_text("".join(f"i{i}\n" for i in range(1, 200, 3)))
    (directory / "key").write_text(KEY + "\n")
    (directory / "key").chmod(0o600)


def digest(rows: Iterable[Any], report: Mapping[str, Any] | None = None) -> str:
    """A digest of rows in their order, and of a report without the versions of what made it.

    Floats count with seven digits: the last ones of a fitted curve depend on the processor.
    """
    content = [_plain(rows), _plain({k: v for k, v in (report or {}).items() if k not in ("versions", "headcount")})]
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=12).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    if isinstance(value, Iterable):
        return [_plain(entry) for entry in value]
    return str(value)
