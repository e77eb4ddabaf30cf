"""Counts in levels beside those of the whole key: noise of each level, how often intervals hold, and what levels take in time.

    python benchmarks/levels.py
    python benchmarks/levels.py --rows 10000000 --releases 0

The tree has 50 regions of 100 cities, with users by a Zipf law on both; users have one city (noise), or several (coverage).
Noise is that of a count of one city, by itself: if cities are added up, n of them have the root of n times that. The truth of
events is that of at most c of one user on one city, with the c that the release states.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import OUT, headcount, run, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.keys import JOINT
from headcount.mechanisms.levels.release import LevelsMechanism, in_levels
from headcount.mechanisms.levels.tree import UNIT, Tree
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file

REGIONS, CITIES = 50, 100
LEVELS = ("all", "region", "city")
KINDS = {"users": {}, "events": {"of": "events"}, "home": {"home": True}}
EXPECTED = {"all": 3.1, "region": 3.0, "city": 1.11}  # by the noise of cities alone


def log(users: int, cities: float, events: float, seed: int = 1) -> pa.Table:
    """Rows of users who are mostly in one region, with some cities each, and some events on each."""
    random = np.random.default_rng(seed)
    by_region, by_city = (1 / np.arange(1, number + 1) for number in (REGIONS, CITIES))
    each = 1 + random.poisson(cities - 1, users)
    user = np.repeat(np.arange(users), each)
    region = random.choice(REGIONS, len(user), p=by_region / by_region.sum())
    home = random.choice(REGIONS, users, p=by_region / by_region.sum())
    region = np.where(random.random(len(user)) < 0.7, home[user], region)
    city = random.choice(CITIES, len(user), p=by_city / by_city.sum())
    count = 1 + random.poisson(events - 1, len(user))
    return pa.table({"user": user, "region": region, "city": city, "count": count})


def true_numbers(tree: Tree, rows: pa.Table, kind: str, cap: int) -> np.ndarray:
    """What is true of each cell; for users at home, of users with one row alone."""
    user, region, city, count = (np.asarray(rows.column(name)) for name in ("user", "region", "city", "count"))
    key = (user * REGIONS + region) * CITIES + city
    pairs, place = np.unique(key, return_inverse=True)
    sums = np.bincount(place, count)
    if kind == "events":
        sums = np.minimum(sums, cap)
    names, of = set(tree.cells.to_pylist()), collections.defaultdict(list)
    for pair, events in zip(pairs.tolist(), sums.tolist(), strict=True):
        who, at, town = pair // (REGIONS * CITIES), pair // CITIES % REGIONS, pair % CITIES
        path = ["0:", f"1:{at}", f"2:{at}{JOINT}{town}"]
        for depth in (1, 2):
            if path[depth] not in names:
                path = [*path[:depth], path[depth - 1].replace(":", "+:", 1)]
                break
        for cell in path:
            of[cell].append((who, events))
    if kind == "events":
        return np.array([sum(events for _, events in of[name]) for name in tree.cells.to_pylist()])
    return np.array([len({who for who, _ in of[name]}) for name in tree.cells.to_pylist()])


def batch_of(rows: pa.Table) -> pa.RecordBatch:
    """The rows as contributions."""
    names = [
        f"{region}{JOINT}{city}"
        for region, city in zip(rows.column("region").to_pylist(), rows.column("city").to_pylist(), strict=True)
    ]
    return contribution_batch(
        rows.column("user").combine_chunks(), pa.array(names), rows.column("count").combine_chunks()
    )


def releases(kind: str, rows: pa.Table, number: int, key: Path) -> list[dict[str, object]]:
    """Noise, error, coverage and width of each level, over releases."""
    mechanism: LevelsMechanism = in_levels(Budget(1, 1e-8), depth=2, **KINDS[kind])
    batch, found = batch_of(rows), collections.defaultdict(list)
    for release in range(number):
        made, decided = mechanism.run_decided([batch], Release(KeyFile(str(key)), f"levels-{kind}-{release}"))
        tree = Tree(2, made.column("item"))
        true = true_numbers(tree, rows, kind, decided.cap)
        count, noise, low, high = (np.asarray(made.column(name)) for name in ("count", "noise_stddev", "low", "high"))
        assert decided.plan.counts is not None
        alone = decided.plan.counts.stddev / UNIT  # of a count of leaves alone, with this norm
        for level, name in enumerate(LEVELS):
            at = tree.level == level
            found[name, "held"] += ((low <= true) & (true <= high))[at].tolist()
            found[name, "off"] += np.abs(count - true)[at].tolist()
            found[name, "noise"] += (noise[at & ~tree.other] / alone).tolist()
            found[name, "nodes"].append(int(at.sum()))
    return [
        {
            "of": kind,
            "level": name,
            "nodes": round(float(np.mean(found[name, "nodes"]))),
            "held": round(float(np.mean(found[name, "held"])), 3),
            "mean error": round(float(np.mean(found[name, "off"])), 1),
            "noise by leaves alone": round(float(np.median(found[name, "noise"])), 2),
        }
        for name in LEVELS
    ]


def timed(rows: int) -> list[dict[str, object]]:
    """Time and memory of whole jobs, with and without levels, on as many rows."""
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        pq.write_table(log(rows // 10, 10, 1).drop_columns(["count"]), path)
        for flags in ("--item region --item city", "--levels region,city"):
            words = (
                f"histogram --input {path} --user user {flags} --epsilon 1 --delta 1e-8 --output {folder}/{len(found)}"
            )
            seconds, cpu, memory = run(headcount(words.split()))
            found.append({"job": flags, "seconds": round(seconds, 1), "cpu": round(cpu, 1), "MB": round(memory)})
            found[-1]["ratio"] = round(cpu / float(str(found[0]["cpu"])), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=0, help="of whole jobs that are timed (default: none)")
    args = parser.parse_args()
    found: list[dict[str, object]] = []
    if args.releases:
        with tempfile.TemporaryDirectory() as folder:
            key = Path(folder) / "key"
            write_key_file(key)
            found += releases("home", log(2 * args.users, 1, 1), args.releases, key)
            found += releases("users", log(args.users, 5, 1), args.releases, key)
            found += releases("events", log(args.users, 5, 3), args.releases, key)
        for row in found:
            print("  ".join(f"{name} {value}" for name, value in row.items()))
        write_csv(found, OUT / "levels.csv")
        noise = {row["level"]: row["noise by leaves alone"] for row in found[:3]}
        print("noise by level, by that of cities alone:", noise, "expected", EXPECTED)
    for row in timed(args.rows) if args.rows else ():
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
