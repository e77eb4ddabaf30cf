"""Do intervals hold the truth? The share of rows whose `low` to `high` has the true number in it, over many releases.

    python benchmarks/coverage.py --data words=FILE --data authors=FILE --releases 20

Every release is the shipped default as a whole, under an id of its own. The truth of a row is what its column means: users, or
events of which at most c of one user on one item count, with the c that the release states. Rows are told apart by their true
rank: the ten largest, the next ninety, and the rest. Width is that of the interval by the interval of the noise alone, in the
median of all rows. Saved is 1 - l1, as in `estimates.py`; `saved of all` is the same against all events, so that a small c
cannot buy good looks. `--of aggregate` measures the events of `headcount aggregate --users --events` in the same way.

Besides the laws of `estimates.py` there are four, by which nothing was chosen (but for aggregates): bots (one user in two
hundred has a thousand events on ten items), two kinds of users with tastes of their own, few keys, and a series of days with a
weekly wave.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _laws import CHECKS, LAWS, demo_log, drawn
from _quality import as_shard, item_totals, read_batch
from _shared import OUT, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file

CLASSES = {"ten largest": 10, "next ninety": 100, "rest": None}
HELD_BAR, CLASS_BAR, WIDTH_BAR = 0.93, 0.85, 2.0
EVENTS = {"item": "item", "count": "events"} | {name: f"events_{name}" for name in ("low", "high", "noise_stddev")}
LEAST_ROWS = 20  # of a class over all releases: fewer say nothing


@dataclasses.dataclass
class Found:
    """What the rows of all releases of one data set have come to."""

    held: dict[str, list[bool]] = dataclasses.field(default_factory=lambda: {name: [] for name in CLASSES})
    width: list[float] = dataclasses.field(default_factory=list)
    saved: list[float] = dataclasses.field(default_factory=list)
    saved_of_all: list[float] = dataclasses.field(default_factory=list)
    items: list[int] = dataclasses.field(default_factory=list)
    left_out: list[float] = dataclasses.field(default_factory=list)

    def add(self, rows: pa.RecordBatch, true: np.ndarray, every: np.ndarray, place: np.ndarray) -> None:
        """Rows of one release beside the truth of all items: `place` has that of each row."""
        count, low, high, noise = (np.asarray(rows.column(name)) for name in ("count", "low", "high", "noise_stddev"))
        held = (low <= true[place]) & (true[place] <= high)
        rank = np.empty(len(true), dtype=np.int64)
        rank[np.argsort(-true, kind="stable")] = np.arange(len(true))
        first = 0
        for name, end in CLASSES.items():
            mine = (rank[place] >= first) & (rank[place] < (len(true) if end is None else end))
            self.held[name] += held[mine].tolist()
            first = end or 0
        self.width += ((high - low) / (2 * DEVIATIONS * np.maximum(noise, 1e-9))).tolist()
        self.saved.append(_saved(count, true, place))
        self.saved_of_all.append(_saved(count, every, place))
        self.items.append(len(place))

    def line(self, name: str, of: str) -> dict[str, str]:
        """All of it as a line of the table."""
        held = {each: np.mean(found) if len(found) >= LEAST_ROWS else np.nan for each, found in self.held.items()}
        every = np.mean(list(itertools.chain(*self.held.values())) or [np.nan])
        width = float(np.median(self.width)) if self.width else np.nan
        passed = not (every < HELD_BAR or any(each < CLASS_BAR for each in held.values()) or width > WIDTH_BAR)
        numbers = {"items": np.mean(self.items), "all": every} | held | {"width": width}
        numbers |= {"saved": np.mean(self.saved), "saved of all": np.mean(self.saved_of_all)}
        numbers["left out"] = np.mean(self.left_out) if self.left_out else np.nan
        return {"data": name, "of": of, "passed": str(passed)} | {key: f"{value:.4g}" for key, value in numbers.items()}


def _saved(count: np.ndarray, true: np.ndarray, place: np.ndarray) -> float:
    shown = true[place]
    return float(1 - (np.abs(count - shown).sum() + true.sum() - shown.sum()) / true.sum())


def truth(shard: Shard, cap: int) -> np.ndarray:
    """The number of each item of which at most `cap` of one user count; 0 stands for no cap."""
    return item_totals([limit_per_item(shard, cap) if cap else shard])


def measure(
    name: str, batch: pa.RecordBatch, of: str, args: argparse.Namespace, ids: Iterator[Release]
) -> dict[str, str]:
    """Prints and returns how often the intervals of one data set held."""
    shard = as_shard(batch)
    budget, item_type = Budget(args.epsilon, args.delta), type(shard.items[0].as_py())
    by_metric = of == "aggregate"
    mechanism: Any = (
        aggregate(budget, ["users", "events"], item_type=item_type)
        if by_metric
        else estimates(budget, of=of, item_type=item_type)
    )
    found, caps = Found(), {}
    every = truth(shard, 1 if of == "users" else 0)
    for _ in range(args.releases):
        rows, decided = mechanism.run_decided([batch], next(ids))
        cap = 1 if of == "users" else decided.plan.kept.cap
        if by_metric:
            rows = pa.RecordBatch.from_pydict({name: rows.column(own) for name, own in EVENTS.items()})
        if cap not in caps:
            caps[cap] = truth(shard, cap)
        place = np.asarray(pa.compute.index_in(rows.column("item"), shard.items))
        found.add(rows, caps[cap], every, place)
        if decided.left_out is not None:
            found.left_out.append(decided.left_out)
        if args.chosen:
            print(f"    {decided.plan.description()}; groups {decided.groups}, left out {decided.left_out or 0:.3f}")
    line = found.line(name, of)
    print("  ".join(f"{key} {value}" for key, value in line.items()), flush=True)
    return line


def main() -> None:
    """Measures all data sets that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    laws = ("demo", *LAWS, *CHECKS)
    parser.add_argument("--law", action="append", choices=(*laws, "none"), help="default: all of them")
    parser.add_argument(
        "--of", action="append", choices=("users", "events", "aggregate"), help="default: the first two"
    )
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--chosen", action="store_true", help="print what each release has chosen")
    args = parser.parse_args()
    sets: dict[str, Callable[[], pa.RecordBatch]] = {}
    for law in args.law or laws:
        if law != "none":
            sets[law] = (lambda: demo_log(OUT)) if law == "demo" else (lambda law=law: drawn(law))
    for name, path in (entry.split("=", 1) for entry in args.data):
        sets[name] = lambda path=path: read_batch(Path(path))
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        key = Path(scratch, "key")
        write_key_file(key)
        ids = (Release(KeyFile(str(key)), f"r{number}") for number in itertools.count())
        for name, make in sets.items():
            batch = make()
            lines += [measure(name, batch, of, args, ids) for of in args.of or ("users", "events")]
    write_csv(lines, OUT / "coverage.csv")
    passed = sum(line["passed"] == "True" for line in lines)
    print(
        f"{passed} of {len(lines)}: {HELD_BAR} of all rows held, {CLASS_BAR} of each class, width at most {WIDTH_BAR}"
    )


if __name__ == "__main__":
    main()
