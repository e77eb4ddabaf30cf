"""What the tests of Beam YAML share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 6,000 rows, of which a bound of 10 cuts some, and of which some items are rare."""
    random = np.random.default_rng(5)
    user = (random.pareto(1, 6_000) * 300).astype(int) % 3_000
    item = (random.pareto(1, 6_000) * 3).astype(int) % 300
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"user": [f"u{u}" for u in user], "item": [f"{i:03}" for i in item]}), path)
    return path
