"""How close counts come to the truth: the default histogram, one stage, and the best of the default's own family in hindsight.

    python benchmarks/estimates.py --data words=FILE --data authors=FILE --releases 20

Each FILE is Parquet with the columns user, item and count; the demo's log and synthetic laws of very different shape are always
measured (`--law` names the ones to take). Every release is the shipped mechanism as a whole, under an id of its own. l1 is the
error over all items as a share of all events, where an item that is not shown counts as zero. The median and the 90 % quantile
of the relative error are those of the items shown. Saved is 1 - l1.

In hindsight: the way of naming that names most, then the bounds of counts and totals with the lowest l1, each tried once with
the noise of the default but without a choice, which no private release may do. The three best of these are released again as
often as the default, and the best mean of these releases counts: what was tried once may have been the luckiest.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
from _laws import LAWS, demo_log, drawn
from _quality import as_shard, item_totals, read_batch
from _shared import OUT, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.histogram import estimates
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.partitions.select import ChosenStrategy, counts_in_rounds
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file

SAVED_BAR = 0.9
# Of the default, everything chosen: the most of l1, the least of items, the most of the median error.
BARS = {"demo": (0.35, 500, None), "words": (0.30, 3000, None), "authors": (None, 110, 0.30)}
NORMS = (1, 2, 4, 8, 16, 32, 64, 128)
CAPS = (1, 3, 10, 100)
MODERATE = (4, 10)
MOST_TOTALS = (10, 30, 100, 300, 1000, 3000, 10_000)
FINALISTS = 3


@dataclasses.dataclass(frozen=True)
class Worth:
    """What one release, or the mean of several, is worth."""

    items: float
    l1: float
    median: float
    most: float

    def description(self) -> str:
        """In one line."""
        return f"{self.items:9,.1f} items, l1 {self.l1:.3f}, relative error {self.median:.3f} (90 %: {self.most:.2f})"


def mean(worths: list[Worth]) -> Worth:
    """The mean of several releases; without items there is no relative error."""
    fields = [[getattr(each, field.name) for each in worths] for field in dataclasses.fields(Worth)]
    known = [[value for value in values if not np.isnan(value)] for values in fields]
    # An empty release has no relative error, and so has the mean of releases that are all empty.
    return Worth(*(statistics.fmean(values) if values else float("nan") for values in known))


def worth(rows: pa.RecordBatch, true: dict[str | int, int]) -> Worth:
    """What released rows are worth beside the truth."""
    name = "count" if "count" in rows.schema.names else "bounded_count"
    shown = np.array([true[item] for item in rows.column("item").to_pylist()], dtype=float)
    error = np.abs(np.asarray(rows.column(name)) - shown)
    total = sum(true.values())
    l1 = (error.sum() + total - shown.sum()) / total
    if len(shown) == 0:
        return Worth(0, l1, np.nan, np.nan)
    return Worth(len(shown), l1, float(np.median(error / shown)), float(np.quantile(error / shown, 0.9)))


class Fixed(NamedTuple):
    """What is given in place of all choices."""

    way: ChosenStrategy
    counts: tuple[int, int]
    totals: int

    def description(self) -> str:
        """In one line."""
        way, (norm, cap) = self.way, self.counts
        return f"{way.strategy} {way.max_items}, norm {norm}, {cap} on one item, totals {self.totals}"


@contextlib.contextmanager
def chosen(named: ChosenStrategy, kept: ClipBound) -> Iterator[None]:
    """In place of the private choices, these."""

    def choose(shard: Shard, choice: object, release: Release, label: str, public: Sequence[int] = (0,)) -> object:
        return named if label.endswith("ChooseNames") else kept._replace(items=public[-1])

    with mock.patch.object(estimates, "choose_of", choose):
        yield


def in_hindsight(
    mechanism: EstimatesMechanism,
    batch: pa.RecordBatch,
    true: dict[str | int, int],
    releases: Iterator[Release],
    times: int,
) -> tuple[Fixed, Worth]:
    """The best of the family, released `times` times, and what it was."""

    def one(fixed: Fixed) -> Worth:
        with chosen(fixed.way, ClipBound(*fixed.counts, "gaussian", fixed.totals)):
            return worth(mechanism.run([batch], next(releases)), true)

    stages, shard = mechanism.stages, as_shard(batch)
    ways = [each.chosen for each in stages.names_choice.candidates]
    sizes = {}
    for way in ways:
        rounds = stages.names_plan(way).rounds
        sizes[way] = counts_in_rounds(shard, rounds, next(releases), "Named", mechanism.item_type).num_rows
    found: dict[Fixed, Worth] = {}
    for way in sorted(ways, key=lambda way: -sizes[way])[:1] + [way for way in ways if way.strategy == "laplace"]:
        counts = [(0, 0)] if way.strategy == "laplace" else list(itertools.product(NORMS, CAPS))
        moderate = MODERATE if len(counts) > 1 else counts[0]
        first = {fixed: one(fixed) for fixed in (Fixed(way, moderate, totals) for totals in MOST_TOTALS)}
        totals = min(first, key=lambda fixed: first[fixed].l1).totals
        found |= first | {fixed: one(fixed) for fixed in (Fixed(way, bounds, totals) for bounds in counts)}
    finalists = sorted(found, key=lambda fixed: found[fixed].l1)[:FINALISTS]
    means = {fixed: mean([one(fixed) for _ in range(times)]) for fixed in finalists}
    best = min(means, key=lambda fixed: means[fixed].l1)
    return best, means[best]


def measure(name: str, batch: pa.RecordBatch, args: argparse.Namespace, releases: Iterator[Release]) -> dict[str, str]:
    """Prints and returns what the ways to count are worth on one data set."""
    shard = as_shard(batch)
    true = dict(zip(shard.items.to_pylist(), item_totals([shard]).tolist(), strict=True))
    item_type, budget = type(next(iter(true))), Budget(args.epsilon, args.delta)
    lines, found = {"data": name}, {}
    for label, method in (("default", "estimates"), ("one-stage", "one-stage")):
        mechanism = histogram(budget, of="events", method=method, item_type=item_type)
        each = [worth(mechanism.run([batch], next(releases)), true) for _ in range(args.releases)]
        found[label] = mean(each)
        empty = sum(result.items == 0 for result in each)
        print(f"{name:>24}, {label:<10} {found[label].description()}{f', {empty} empty' if empty else ''}", flush=True)
        lines |= {f"{label} {key}": f"{value:.4g}" for key, value in dataclasses.asdict(found[label]).items()}
        lines[f"{label} empty"] = str(empty)
    fixed, best = in_hindsight(
        histogram(budget, of="events", item_type=item_type), batch, true, releases, args.releases
    )
    ratio = (1 - found["default"].l1) / (1 - best.l1)
    print(f"{'':>26}hindsight  {best.description()}: {fixed.description()}")
    most, least, median = BARS.get(name, (None, None, None))
    got = found["default"]
    passed = ratio >= SAVED_BAR and lines["default empty"] == "0"
    passed &= (most is None or got.l1 <= most) and (least is None or got.items >= least)
    passed &= median is None or got.median <= median
    print(f"{'PASS' if passed else 'FAIL':>26}  saves {ratio:.3f} of the best in hindsight", flush=True)
    return lines | {
        "hindsight": fixed.description(),
        "hindsight l1": f"{best.l1:.4g}",
        "ratio": f"{ratio:.4f}",
        "passed": str(passed),
    }


def main() -> None:
    """Measures all data sets that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--law", action="append", choices=("demo", *LAWS), help="default: all of them")
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        key = Path(scratch, "key")
        write_key_file(key)
        releases = (Release(KeyFile(str(key)), f"r{number}") for number in itertools.count())
        lines = []
        for law in args.law or ("demo", *LAWS):
            lines.append(measure(law, demo_log(OUT) if law == "demo" else drawn(law), args, releases))
        for entry in args.data:
            name, path = entry.split("=", 1)
            lines.append(measure(name, read_batch(Path(path)), args, releases))
    write_csv(lines, OUT / "estimates.csv")


if __name__ == "__main__":
    main()
