"""Forecast against outcome: from one release at epsilon 1, what half and double of it would give, beside what they gave.

    python benchmarks/forecast.py --data words=FILE --data authors=FILE

Each FILE is Parquet with the columns user, item and count; the demo's log and synthetic laws of very different shape are always
measured (`--law` names the ones to take). The outcome is the mean of some real releases. A forecast is good if the items are
within 15 % of it, and the median error within 25 %, or within half of one count on a typical item. In brackets: the range that
the forecast gives; at the end, how many of all ranges hold the outcome. The synthetic laws, and after misses the real sets,
were looked at while forecasts were built.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from _laws import LAWS, demo_log, drawn
from _quality import read_batch
from _shared import OUT, write_csv

import headcount
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
from headcount.pipelines.studies.data import in_memory
from headcount.pipelines.studies.forecast import Expected
from headcount.pipelines.studies.methods import Promised, method_of
from headcount.pipelines.studies.run import grid

FROM, TO = 1.0, (0.5, 2.0)
ITEMS_BAR, MEDIAN_BAR = 0.15, 0.25
HALF_A_COUNT = 0.5


def measure(name: str, batch: pa.RecordBatch, of: str, delta: float, releases: int) -> list[dict[str, str]]:
    """Prints and returns the forecast and the outcome of one data set."""
    item_type = type(batch.column("item")[0].as_py())
    data = in_memory([batch], item_type)
    first = headcount.histogram(pa.table(batch), **_columns(batch), of=of, epsilon=FROM, delta=delta)
    if first.table.num_rows < 10:
        print(f"{name:>24}: {first.table.num_rows} items, too few to tell of others", flush=True)
        return []
    started = time.monotonic()
    told = headcount.forecast(like=first, epsilon=TO)
    seconds = time.monotonic() - started
    promises = [Promised(epsilon, delta) for epsilon in TO]
    cells = grid(data, [method_of(("histogram", "--of", of))], promises, releases, release=Release(ephemeral_key()))
    lines = []
    for outlook, cell in zip(told.outlooks, cells, strict=True):
        found = cell.mean
        assert found is not None
        items = outlook.expected["items"]
        good = [abs(items.mean - found.items) <= ITEMS_BAR * found.items]
        words = [f"items {_range(items, '{:,.0f}')} and were {found.items:,.1f}"]
        median = outlook.expected.get("median_error")
        if found.median_error is not None:
            typical = float(np.median(np.sort(data.truth(of))[::-1][: max(1, round(found.items))]))
            slack = max(MEDIAN_BAR * found.median_error, HALF_A_COUNT / typical)
            good.append(median is not None and abs(median.mean - found.median_error) <= slack)
            words.append(f"median {_range(median, '{:.3f}')} and was {found.median_error:.3f}")
        passed = ["PASS" if each else "FAIL" for each in good]
        asked = ("items", "median_error", "error_90", "held", "covered")
        ranges = [(outlook.expected.get(each), getattr(found, each)) for each in asked]
        inside = [told.low <= was <= told.high for told, was in ranges if told is not None and was is not None]
        words.append(f"ranges hold {sum(inside)} of {len(inside)}, {seconds:.0f} s")
        verdict = ", ".join(f"{text} {mark}".strip() for text, mark in zip(words, [*passed, ""], strict=True))
        print(f"{name:>24}, epsilon {cell.promised.epsilon:g}: {verdict}", flush=True)
        lines.append(
            {
                "data": name,
                "epsilon": f"{cell.promised.epsilon:g}",
                "items": f"{items.mean:.5g}",
                "items were": f"{found.items:.5g}",
                "median": "" if median is None else f"{median.mean:.4g}",
                "median was": "" if found.median_error is None else f"{found.median_error:.4g}",
                "covered": f"{outlook.expected['covered'].mean:.3f}",
                "covered was": f"{found.covered:.3f}",
                "passed": " ".join(passed),
                "ranges hold": f"{sum(inside)} of {len(inside)}",
                "seconds": f"{seconds:.1f}",
            }
        )
    return lines


def _range(found: Expected | None, shape: str) -> str:
    if found is None:
        return "unknown"
    return f"{shape} [{shape} to {shape}]".format(found.mean, found.low, found.high)


def _columns(batch: pa.RecordBatch) -> dict[str, str]:
    return {name: name for name in ("user", "item", "count") if name in batch.schema.names}


def main() -> None:
    """Measures all data sets that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--law", action="append", choices=("demo", *LAWS), help="default: all of them")
    parser.add_argument("--of", choices=("users", "events"), default="users")
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--delta", type=float, default=1e-8)
    args = parser.parse_args()
    lines = []
    for law in args.law or ("demo", *LAWS):
        lines += measure(law, demo_log(OUT) if law == "demo" else drawn(law), args.of, args.delta, args.releases)
    for entry in args.data:
        name, path = entry.split("=", 1)
        lines += measure(name, read_batch(Path(path)), args.of, args.delta, args.releases)
    if lines:
        write_csv(lines, OUT / "forecast.csv")
    marks = " ".join(line["passed"] for line in lines).split()
    held, asked = (sum(int(line["ranges hold"].split(" of ")[part]) for line in lines) for part in (0, 1))
    print(f"{marks.count('PASS')} of {len(marks)} pass; {held} of {asked} ranges hold")


if __name__ == "__main__":
    main()
