"""Forecast against outcome: from one release at epsilon 1, what half and double of it would give, beside what they gave.

    python benchmarks/forecast.py --data words=FILE --data authors=FILE
    python benchmarks/forecast.py --keys levels

Each FILE is Parquet with the columns user, item and count; the demo's log and synthetic laws of very different shape are always
measured (`--law` names the ones to take). The outcome is the mean of some real releases. A forecast is good if the items are
within 15 % of it, and the median error within 25 %, or within half of one count on a typical item. In brackets: the range that
the forecast gives; at the end, how many of all ranges hold the outcome. The synthetic laws, and after misses the real sets,
were looked at while forecasts were built.

With `--keys levels`, `home` or `partly` the items are cities, dealt out in turn to 200 regions, and these to 20 countries; or
each event has one of ten days. Beside each forecast stands one real release: named nodes and half widths, level by level.
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


KEYS = {
    "levels": {"levels": "country,region,city"},
    "home": {"levels": "country,region,city", "home": True},
    "partly": {"item": ["city", "day"], "domain": {"day": (1, 10)}},
}


def measure_keys(name: str, batch: pa.RecordBatch, keys: str, of: str, delta: float) -> list[dict[str, str]]:
    """The same for keys in levels or partly public."""
    city = np.unique(np.asarray(batch.column("item")), return_inverse=True)[1]
    day = np.random.default_rng(1).integers(1, 11, len(city))
    user = batch.column("user").to_numpy(zero_copy_only=False)
    rows = pa.table({"user": user, "country": city % 20, "region": city % 200, "city": city, "day": day})
    given = {"user": "user", "of": of, "delta": delta, **KEYS[keys]}
    first = headcount.histogram(rows, epsilon=FROM, **given)
    started = time.monotonic()
    try:
        told = headcount.forecast(like=first, epsilon=TO)
    except headcount.InputError as error:
        print(f"{name:>24}: {error}", flush=True)
        return []
    seconds = time.monotonic() - started
    released = {epsilon: headcount.histogram(rows, epsilon=epsilon, **given).table.to_pylist() for epsilon in TO}
    lines = []
    for outlook in told.outlooks:
        found = released[outlook.promised.epsilon]
        shown = [row for row in found if outlook.level is None or (row["level"] == outlook.level and not row["other"])]
        items = len({row["city"] for row in shown}) if outlook.level is None else len(shown)
        width = float(np.median([(row["high"] - row["low"]) / 2 for row in shown])) if shown else float("nan")
        named, half = outlook.expected["items"], outlook.expected.get("half_width")
        inside = [named.low <= items <= named.high, *([half.low <= width <= half.high] if half and shown else [])]
        where = f"{name} {outlook.level or keys}, epsilon {outlook.promised.epsilon:g}"
        words = f"named {_range(named, '{:,.0f}')} and were {items:,}"
        print(
            f"{where:>40}: {words}, half width {_range(half, '{:,.0f}')} and was {width:,.0f}, {seconds:.0f} s",
            flush=True,
        )
        lines.append(
            {
                "data": where,
                "items": f"{named.mean:.5g}",
                "items were": f"{items}",
                "half width": "" if half is None else f"{half.mean:.5g}",
                "half width was": f"{width:.5g}",
                "passed": "PASS" if abs(named.mean - items) <= ITEMS_BAR * items else "FAIL",
                "ranges hold": f"{sum(inside)} of {len(inside)}",
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
    parser.add_argument("--keys", choices=tuple(KEYS), help="default: items in one column")
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--delta", type=float, default=1e-8)
    args = parser.parse_args()
    lines = []
    for law in args.law or ("demo", *LAWS):
        batch = demo_log(OUT) if law == "demo" else drawn(law)
        if args.keys is None:
            lines += measure(law, batch, args.of, args.delta, args.releases)
        else:
            lines += measure_keys(law, batch, args.keys, args.of, args.delta)
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
