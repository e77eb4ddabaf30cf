"""The fixed input of the golden digests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.runners.jobs import beside, write_regions

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
    """The events as a Parquet file, a public domain, a public table, and the key that all golden releases are drawn with."""
    pq.write_table(events(), directory / "events.parquet")
    (directory / "domain.txt").write_text("".join(f"i{i}\n" for i in range(1, 200, 3)))
    write_regions(directory)
    (directory / "key").write_text(KEY + "\n")
    (directory / "key").chmod(0o600)
