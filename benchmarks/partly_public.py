"""A series by page and day: days that are public, beside pages and days that are named together.

    python benchmarks/partly_public.py
    python benchmarks/partly_public.py --of events --rows 1000000

The log is that of `headcount generate --law visits`, with its visits spread over the 30 days of November by a weekly wave. Both
ways are calls of `headcount.histogram` at (1, 1e-8), under ids of their own. The error of a (page, day) is against the truth,
as a share of it, in the median over all days of the ten largest pages, or of the next twenty. A row that is missing reads as 0,
as in a chart of the series. Saved is 1 - l1 over all pages and days: 1 is the truth, and 0 is worth as much as nothing shown.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
from _shared import OUT, write_csv

import headcount
from headcount.mechanisms.randomness.keys import write_key_file
from headcount.pipelines.sources.synthetic import default_items, default_users, visit_batches

DAYS = 30
PUBLIC = {"viewed_at_day": ("2026-11-01", "2026-11-30")}
ASKED = {"user": "user_id", "item": ["page", "viewed_at:day"], "epsilon": 1, "delta": 1e-8}
WAYS = {"pages and days named": {}, "days public": {"domain": PUBLIC}}


def log(rows: int) -> pa.Table:
    """The visits, spread over a month."""
    users = default_users(rows)
    made = pa.Table.from_batches(list(visit_batches(rows, users, default_items("tail", rows, users), 1)))
    wave = 1 + 0.4 * np.sin(np.arange(DAYS) * 2 * np.pi / 7)
    day = np.random.default_rng(20261101).choice(DAYS, rows, p=wave / wave.sum())
    at = np.datetime64("2026-11-01T12:00:00", "s") + day.astype("timedelta64[D]")
    return made.select(["user_id", "page"]).append_column("viewed_at", pa.array(at))


def truth(visits: pa.Table, of: str) -> dict[str, np.ndarray]:
    """The true numbers of each page by day."""
    rows = visits if of == "events" else visits.group_by(["user_id", "page", "viewed_at"]).aggregate([])
    counts = rows.group_by(["page", "viewed_at"]).aggregate([([], "count_all")])
    found: dict[str, np.ndarray] = {}
    for page, at, number in zip(
        *(counts.column(name).to_pylist() for name in ("page", "viewed_at", "count_all")), strict=True
    ):
        found.setdefault(page, np.zeros(DAYS))[at.day - 1] = number
    return found


def measured(result: headcount.Result, true: dict[str, np.ndarray]) -> dict[str, float]:
    """One release beside the truth."""
    shown: dict[str, np.ndarray] = {}
    held = []
    for row in result.table.to_pylist():
        day = row["viewed_at_day"].day - 1
        shown.setdefault(row["page"], np.full(DAYS, np.nan))[day] = row["count"]
        held.append(row["low"] <= true.get(row["page"], np.zeros(DAYS))[day] <= row["high"])
    largest = sorted(true, key=lambda page: -true[page].sum())
    numbers = {page: np.nan_to_num(shown.get(page, np.zeros(DAYS))) for page in true}
    errors = [np.abs(numbers[page] - true[page]) / np.maximum(true[page], 1) for page in largest]
    lost = sum(np.abs(numbers[page] - true[page]).sum() for page in true)
    return {
        "pages": len(shown),
        "with all days": sum(not np.isnan(days).any() for days in shown.values()),
        "rows": result.table.num_rows,
        "error, first ten": float(np.median(np.concatenate(errors[:10]))),
        "error, next twenty": float(np.median(np.concatenate(errors[10:30]))),
        "saved": 1 - lost / sum(days.sum() for days in true.values()),
        "held": fmean(held) if held else float("nan"),
    }


def main() -> None:
    """Release the log in both ways, several times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--of", choices=("users", "events"), default="users")
    parser.add_argument("--releases", type=int, default=10)
    given = parser.parse_args()
    visits = log(given.rows)
    true = truth(visits, given.of)
    table = []
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        write_key_file(key)
        for way, domain in WAYS.items():
            found = [
                measured(
                    headcount.histogram(
                        visits, **ASKED, **domain, of=given.of, key_file=key, release_id=f"{len(table)}-{k}"
                    ),
                    true,
                )
                for k in range(given.releases)
            ]
            table.append({"way": way, **{name: f"{fmean(each[name] for each in found):.3g}" for name in found[0]}})
            print("  ".join(f"{name} {value}" for name, value in table[-1].items()), flush=True)
    write_csv(table, OUT / "partly_public.csv")


if __name__ == "__main__":
    main()
