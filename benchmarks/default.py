"""Is the default ever worse than a plain way? Beside one stage by hand, all keys, and no totals, in all cells of a table.

    python benchmarks/default.py --cells '*/500/1/*/users' --releases 6
    python benchmarks/default.py --data words=FILE --against ../before/.venv/bin/python

A cell is law/users/epsilon/names/of: 200, 500, 1,000, 2,000 or all users of a law, drawn once; (0.1, 1e-6), (1, 1e-8) or
(3, 1e-6); items whose names are private, or a public list; users or events. `--cells` takes those that match a pattern. FILE is
Parquet with the columns user, item and count. `--against` takes the default of another checkout, too, by its Python.

    default      `histogram` as it comes
    by hand      the best in hindsight, which no release may look at: of one stage at a bound that half or 95 in 100 users
                 stay within; of a list, of one stage with Laplace noise, and counts without totals at norms of 95 and 99 in 100
    all keys     no totals, with all that a user may have: a norm of the root of the number of items; up to a thousand of them
    no totals    `--calibrate none`, the bound chosen

Saved is 1 - l1 over all items, where one that is not shown counts as zero and no count is below it: the median of the releases,
and the worst of them. Held is the share of rows whose `low` to `high` has the truth, and of the ten largest; what it means of
events is what at most c of one user on one item come to. Cells in which no way saves a tenth are named, and not judged.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from _laws import drawn
from _quality import as_shard, item_totals, read_batch
from _shared import OUT, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file

LAWS = ("one of five", "six of twenty", "72 of 100", "90 of 3,700", "months")
LAWS += ("few keys", "weekly series", "few items, all popular", "readers", "short lists")
USERS, BUDGETS = ("200", "500", "1000", "2000", "all"), {"0.1": 1e-6, "1": 1e-8, "3": 1e-6}
MOST_LISTED, MOST_KEYS = 5_000, 1_000  # of a public list; of all keys at once
SAVED_BAR, HELD_BAR, TEN_BAR, HOPELESS = 0.95, 0.93, 0.85, 0.1
Line = dict[str, str]


class Cell(NamedTuple):
    """What is asked."""

    law: str
    users: str
    epsilon: str
    names: str
    of: str

    @property
    def name(self) -> str:
        """All of it, as `--cells` matches it."""
        return "/".join(self)


class Rows(NamedTuple):
    """The rows of a cell, all its items with their true numbers, and norms and sizes of its users."""

    batch: pa.RecordBatch
    shard: Shard
    items: pa.Array
    true: np.ndarray
    size: np.ndarray
    norm: np.ndarray

    @classmethod
    def of(cls, batch: pa.RecordBatch, items: pa.Array, of: str) -> Rows:
        """Those of a batch, where there may be items that none of its users has."""
        shard = as_shard(batch)
        counted = limit_per_item(shard, 1) if of == "users" else shard
        count = counted.count.astype(float)
        user = np.repeat(np.arange(len(shard.users)), shard.rows_per_user())
        norm = np.sqrt(np.bincount(user, count**2))
        return cls(batch, shard, items, truth(counted, items), np.bincount(user, count), norm)


def truth(shard: Shard, items: pa.Array) -> np.ndarray:
    """The true number of each item."""
    found = np.zeros(len(items))
    found[np.asarray(pc.index_in(shard.items, items))] = item_totals([shard])
    return found


def some_users(batch: pa.RecordBatch, number: str) -> pa.RecordBatch | None:
    """The rows of so many users, drawn once; None if there are no more than these."""
    if number == "all":
        return batch
    users = pc.unique(batch.column("user"))
    if len(users) <= int(number):
        return None
    taken = users.take(pa.array(np.random.default_rng(1).permutation(len(users))[: int(number)]))
    return batch.filter(pc.is_in(batch.column("user"), taken))


def ways(cell: Cell, rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """The parameters of each way; where there are several, the better one counts."""
    listed, found = cell.names == "public", {"default": [{}], "no totals": [{"calibrate": "none"}]}
    if listed:
        bounds = {math.ceil(np.quantile(rows.norm, share)) for share in (0.95, 0.99)}
        found["by hand"] = [{"bound": bound, "calibrate": "none", "noise": "gaussian"} for bound in sorted(bounds)]
        most = math.ceil(np.quantile(rows.size, 0.95))
        found["by hand"].append({"bound": most, "method": "one-stage", "noise": "laplace"})
    else:
        bounds = {math.ceil(np.quantile(rows.size, share)) for share in (0.5, 0.95)}
        found["by hand"] = [{"bound": bound, "method": "one-stage"} for bound in sorted(bounds)]
    if cell.of == "users" and len(rows.items) <= MOST_KEYS:
        bound = math.ceil(math.sqrt(len(rows.items)))
        found["all keys"] = [{"bound": bound, "calibrate": "none", "noise": "gaussian"}]
    return found


def released(cell: Cell, rows: Rows, given: Mapping[str, Any], releases: Iterator[Release], times: int) -> Line:
    """What a way comes to in a cell."""
    budget = Budget(float(cell.epsilon), BUDGETS[cell.epsilon])
    domain = rows.items.to_pylist() if cell.names == "public" else None
    mechanism = histogram(budget, domain=domain, of=cell.of, item_type=type(rows.items[0].as_py()), **given)
    saved, held, ten, number = [], [], [], []
    largest = set(np.argsort(-rows.true, kind="stable")[:10].tolist())

    @cache
    def meant(cap: int) -> np.ndarray:
        return rows.true if cap == 0 or cell.of == "users" else truth(limit_per_item(rows.shard, cap), rows.items)

    for _ in range(times):
        decided = None
        if hasattr(mechanism, "run_decided"):
            made, decided = mechanism.run_decided([rows.batch], next(releases))
        else:
            made = mechanism.run([rows.batch], next(releases))
        place = np.asarray(pc.index_in(made.column("item"), rows.items)).astype(np.int64)
        name = "count" if "count" in made.schema.names else "bounded_count"
        count, low, high = (np.asarray(made.column(each)) for each in (name, "low", "high"))
        shown = np.zeros(len(rows.items))
        shown[place] = np.maximum(count, 0)
        saved.append(1 - np.abs(shown - rows.true).sum() / rows.true.sum())
        cap = getattr(getattr(getattr(decided, "plan", None), "kept", None), "cap", 0)
        true = meant(cap)[place]
        inside = (low <= true) & (true <= high)
        held += inside.tolist()
        ten += inside[[each in largest for each in place.tolist()]].tolist()
        number.append(len(place))
    found = {"items": np.mean(number), "saved": np.median(saved), "worst": min(saved)}
    found |= {"held": np.mean(held or [np.nan]), "ten": np.mean(ten or [np.nan])}
    return {key: f"{value:.3g}" for key, value in found.items()}


def measured(cell: Cell, rows: Rows, args: argparse.Namespace, releases: Iterator[Release]) -> list[Line]:
    """A line for each way."""
    lines = []
    for way, several in ways(cell, rows).items():
        if way in args.ways:
            found = [released(cell, rows, given, releases, args.releases) for given in several]
            best = max(found, key=lambda line: float(line["saved"]))
            lines.append({"cell": cell.name, "way": way, **best})
    return lines


def against(python: str, words: list[str]) -> list[Line]:
    """The lines of the default of another checkout, by its Python."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "before.csv")
        subprocess.run(
            [python, __file__, *words, "--ways", "default", "--output", str(out)], check=True, stdout=sys.stderr
        )
        with open(out, newline="") as file:
            return [{**line, "way": "before"} for line in csv.DictReader(file)]


def summary(lines: list[Line]) -> list[str]:
    """In how many cells the default is below the bars, and which these are."""
    cells: dict[str, dict[str, Line]] = {}
    for line in lines:
        cells.setdefault(line["cell"], {})[line["way"]] = line
    worse, wide, ten, hopeless = [], [], [], []
    for name, found in cells.items():
        default, best = found["default"], max(found.values(), key=lambda line: float(line["saved"]))
        saved, most = float(default["saved"]), float(best["saved"])
        if most < HOPELESS:
            hopeless.append(name)
            continue
        if saved < SAVED_BAR * most:
            worse.append(f"{name}: {saved:.3g}, {best['way']} {most:.3g}")
        wide += [f"{name}: {default['held']}"] if float(default["held"]) < HELD_BAR else []
        ten += [f"{name}: {default['ten']}"] if float(default["ten"]) < TEN_BAR else []
    judged = len(cells) - len(hopeless)
    told = []
    for what, those in (
        (f"the default saves less than {SAVED_BAR} of the best", worse),
        (f"fewer than {HELD_BAR} of its rows hold", wide),
        (f"fewer than {TEN_BAR} of the ten largest hold", ten),
    ):
        told += [f"{what}: in {len(those)} of {judged} cells", *(f"    {each}" for each in those)]
    return [*told, f"no way saves {HOPELESS}: in {len(hopeless)} cells", *(f"    {each}" for each in hopeless)]


def cells_of(law: str, pattern: str) -> list[Cell]:
    """The cells of a law that match."""
    found = [
        Cell(law, users, epsilon, names, of)
        for users in USERS
        for epsilon in BUDGETS
        for names in ("private", "public")
        for of in ("users", "events")
    ]
    return [cell for cell in found if fnmatch.fnmatchcase(cell.name, pattern)]


def main() -> None:
    """Measures all cells that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--cells", default="*", metavar="PATTERN", help="law/users/epsilon/names/of (default: all)")
    parser.add_argument("--releases", type=int, default=20)
    parser.add_argument("--ways", default="default,by hand,all keys,no totals", help="default: all")
    parser.add_argument("--against", metavar="PYTHON", help="of another checkout, whose default is measured beside")
    parser.add_argument("--output", type=Path, default=OUT / "default.csv")
    args = parser.parse_args()
    args.ways = args.ways.split(",")
    makers: dict[str, Callable[[], pa.RecordBatch]] = {law: partial(drawn, law) for law in LAWS}
    makers |= {name: partial(read_batch, Path(path)) for name, path in (each.split("=", 1) for each in args.data)}
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        write_key_file(key)
        releases = (Release(KeyFile(str(key)), f"r{number}") for number in range(10**9))
        for law, make in makers.items():
            asked = cells_of(law, args.cells)
            batch = make() if asked else None
            for cell in asked:
                some, items = some_users(batch, cell.users), pc.unique(batch.column("item")).sort()
                if some is None or (cell.names == "public" and len(items) > MOST_LISTED):
                    continue
                for line in measured(cell, Rows.of(some, items, cell.of), args, releases):
                    print("  ".join(f"{name} {value}" for name, value in line.items()), flush=True)
                    lines.append(line)
    if args.against:
        words = ["--cells", args.cells, "--releases", str(args.releases)]
        lines += against(args.against, [*words, *(word for each in args.data for word in ("--data", each))])
    write_csv(lines, args.output)
    if "default" in args.ways:
        print("\n".join(summary(lines)))


if __name__ == "__main__":
    main()
