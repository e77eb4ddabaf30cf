"""Outputs that no test would wait for: with the report of a real one, and as many rows as are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headcount.pipelines.commands.outputs.complete import read_complete
from headcount.pipelines.reports.outcome import Outcome


def made_output(folder: Path, like: Path, number: int, times: float = 1) -> Outcome:
    """An output of so many items with long names, and with counts from 40 `times` on: a real one with other rows."""
    rng = np.random.default_rng(8)
    counts = np.floor(40 * times * 10 ** rng.exponential(0.6, number))
    noise = np.where(rng.random(number) < 0.7, 39.8, 40 + 2 * np.sqrt(counts))
    table = pa.table(
        {
            "item": [f"a rather long name of an item, number {k:09d}" for k in range(number)],
            "count": counts,
            "noise_stddev": noise,
            "low": np.maximum(counts - 2 * noise, 0),
            "high": counts + 2 * noise,
            "bounded_count": counts,
        }
    )
    report = json.loads((like / "report.json").read_text())
    folder.mkdir()
    pq.write_table(table, folder / "counts-00000-of-00001.parquet")
    (folder / "report.json").write_text(json.dumps(report | {"rows": number}))
    return read_complete(str(folder)).outcome()
