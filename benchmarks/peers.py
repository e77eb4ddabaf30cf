"""Headcount beside PipelineDP, OpenDP and Tumult Analytics: users, events, sum and mean by key, same data and budget, one run.

    python benchmarks/peers.py --environments FOLDER [--data NAME=FILE] [--record]

Each peer runs in a Python environment of its own, which is made in FOLDER on the first run: it needs pip, and Tumult Analytics
needs Java. A release of a peer is one process of a file in `_peers/`; seconds are of whole processes, start included, for all
alike. Data are made here: a log of orders whose shops must be named privately, and a log of visits whose countries are public.
A FILE is Parquet with the columns user, item and count, whose values are its counts; of more than `--rows` rows it has the
first users.

Headcount has its defaults, with everything chosen within the budget. A peer has the bounds that Headcount chose, and a grid of
others. Errors are relative to the truth, values cut to the range: at the median of the keys that both release; theirs stands
beside ours on the same keys. An interval holds if it has the truth of all rows in it. `--record` writes `peers.json` beside
this file, and the tables of the pages from it; a test compares both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _peers import tables
from _shared import DATA, HERE, OUT, headcount, run

METRICS = tables.METRICS
THRESHOLD, GEOMETRIC, WEIGHTED = (
    "GAUSSIAN_THRESHOLDING",
    "TRUNCATED_GEOMETRIC",
    "WEIGHTED_GAUSSIAN_THRESHOLDING",
)
Setting = dict[str, Any]
Releases = list[pa.Table]


@dataclass(frozen=True)
class Peer:
    """A library: what pip installs for it, its runner, and its settings where keys are named and where they are public."""

    packages: tuple[str, ...]
    runner: str
    own: Setting
    named: tuple[Setting, ...]
    public: tuple[Setting, ...]
    slow: bool = False  # one release of each setting has to do


def bounds(noise: str, *pairs: tuple[int, int], **more: Any) -> tuple[Setting, ...]:
    """Settings of m keys of a user and c rows on each."""
    return tuple({"m": m, "c": c, "noise": noise, **more} for m, c in pairs)


KNOWN = bounds("laplace", (1, 1), (1, 10), (3, 10))
PEERS = {
    "PipelineDP": Peer(
        ("pipeline-dp", "python-dp", "dp-accounting", "apache-beam", "pyarrow"),
        "run_pipeline_dp.py",
        {"noise": "gaussian", "select": THRESHOLD},
        bounds("laplace", (1, 1), select=GEOMETRIC)
        + bounds("gaussian", (32, 1), select=THRESHOLD)
        + bounds("gaussian", (16, 1), (32, 1), select=WEIGHTED)
        + bounds("gaussian", (16, 1), select=THRESHOLD, beam=True),
        KNOWN,
    ),
    "OpenDP": Peer(
        ("opendp[polars]", "pyarrow"),
        "run_opendp.py",
        {"noise": "gaussian"},
        bounds("laplace", (2, 1)) + bounds("gaussian", (32, 1), (64, 1)),
        KNOWN,
    ),
    "Tumult Analytics": Peer(
        ("tmlt.analytics", "pyarrow"),
        "run_tumult.py",
        {"noise": "gaussian"},
        bounds("laplace", (1, 1), names=1) + bounds("gaussian", (16, 1), names=1),
        bounds("laplace", (1, 10)),
        slow=True,
    ),
}


@dataclass(frozen=True)
class Log:
    """Rows of user, item and value, the range of values, and the public keys if keys are public."""

    name: str
    about: str
    path: Path
    low: float
    high: float
    keys: Path | None = None


def orders(rows: int, folder: Path) -> Log:
    """Users of very different activity, Zipf shops, each with prices of its own; nobody knows the shops beforehand."""
    rng, users, shops = np.random.default_rng(1), rows // 10, rows // 200
    activity = rng.lognormal(0, 1, users)
    user = rng.choice(users, rows, p=activity / activity.sum())
    ends = np.cumsum(np.arange(1.0, shops + 1) ** -1.05)
    shop = np.searchsorted(ends, ends[-1] * rng.random(rows))
    price = np.round(np.minimum(rng.lognormal(np.log(15), 0.5, shops)[shop] * rng.gamma(2, 0.5, rows), 500), 2)
    path = written(folder / f"orders-{rows}.parquet", user, [f"s{each}" for each in shop], price)
    return Log("orders", f"{rows:,} orders of {users:,} users in {shops:,} shops, to be named privately", path, 0, 100)


def visits(rows: int, folder: Path) -> Log:
    """Users with a country of their own and seldom another; the 25 countries are public, and most are small."""
    rng, users, places = np.random.default_rng(2), rows // 10, 25
    activity = rng.lognormal(0, 1, users)
    user = rng.choice(users, rows, p=activity / activity.sum())
    weights = np.arange(1.0, places + 1) ** -1.0
    home = rng.choice(places, users, p=weights / weights.sum())
    away = rng.choice(places, rows, p=weights / weights.sum())
    place = np.where(rng.random(rows) < 0.9, home[user], away)
    price = np.round(np.minimum(rng.lognormal(np.log(15), 0.5, places)[place] * rng.gamma(2, 0.5, rows), 500), 2)
    keys = folder / "countries.txt"
    path = written(folder / f"visits-{rows}.parquet", user, [f"c{each}" for each in place], price)
    keys.write_text("".join(f"c{each}\n" for each in range(places)))
    return Log(
        "visits", f"{rows:,} visits of {users:,} users in {places} countries, which are public", path, 0, 100, keys
    )


def written(path: Path, user: np.ndarray, item: Sequence[str], value: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"user": [f"u{each}" for each in user], "item": item, "value": value}), path)
    return path


def counted(name: str, source: Path, rows: int, folder: Path) -> Log:
    """The rows of the first users of a file, with their counts as values, up to this number of rows."""
    table = pq.read_table(source, columns=["user", "item", "count"]).sort_by("user")
    if table.num_rows > rows:
        table = table.filter(pc.less(table["user"], table["user"][rows]))
    columns = [table["user"].cast(pa.string()), table["item"].cast(pa.string()), table["count"].cast(pa.float64())]
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table(columns, names=["user", "item", "value"]), path)
    users, items = (pc.count_distinct(table[column]).as_py() for column in ("user", "item"))
    about = f"{name}: {table.num_rows:,} rows of {users:,} users and {items:,} items, to be named privately"
    return Log(name, about, path, 0, 10)


def truth_of(log: Log) -> pa.Table:
    """The true metrics of all keys, of values cut to the range."""
    table = pq.read_table(log.path)
    value = np.clip(np.asarray(table["value"]), log.low, log.high)
    asked = [("user", "count_distinct"), ("value", "count"), ("value", "sum"), ("value", "mean")]
    made = table.set_column(2, "value", pa.array(value)).group_by("item").aggregate(asked)
    return made.rename_columns(["item", *METRICS])


def errors(truth: pa.Table, found: pa.Table, metric: str) -> np.ndarray:
    """The relative error on each true key; NaN where a key is missing."""
    true, told = on_truth(truth, found, metric)
    return np.abs(told - true) / np.maximum(np.abs(true), 1e-9)


def held(truth: pa.Table, found: pa.Table, metric: str) -> float | None:
    """The share of the released keys whose interval holds the truth of all rows; nothing where no intervals are told."""
    true, low = on_truth(truth, found, f"{metric}_low", metric)
    _, high = on_truth(truth, found, f"{metric}_high", metric)
    told = ~np.isnan(low)
    return float(((low <= true) & (true <= high))[told].mean()) if told.any() else None


def on_truth(truth: pa.Table, found: pa.Table, column: str, metric: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The true metric of each true key, and a column of what was found there; NaN where there is none."""
    place = np.asarray(pc.index_in(truth["item"], value_set=found["item"].combine_chunks()).fill_null(-1))
    told = np.append(np.asarray(found[column].cast(pa.float64()).fill_null(np.nan)), np.nan)
    return np.asarray(truth[metric or column], np.float64), told[place]


def ours(log: Log, folder: Path, args: argparse.Namespace) -> tuple[Releases, list[float], list[float], Setting]:
    """What Headcount releases, several times, the wall and processor seconds of its command, and the bounds it chose."""
    span = f"value:{log.low:g}:{log.high:g}"
    words = ["aggregate", "--input", str(log.path), "--user", "user", "--item", "item", "--users", "--events"]
    words += ["--sum", span, "--mean", span, "--epsilon", str(args.epsilon), "--delta", str(args.delta)]
    words += ["--domain", str(log.keys)] if log.keys else []
    walls, cpus, told, chosen = [], [], [], []
    for number in range(args.repeats):
        output, seconds = folder / f"ours{number}", folder / f"ours{number}.json"
        if not seconds.exists():
            shutil.rmtree(output, ignore_errors=True)
            seconds.write_text(json.dumps(run(headcount([*words, "--output", str(output)]))[:2]))
        wall, cpu = json.loads(seconds.read_text())
        walls.append(wall)
        cpus.append(cpu)
        chosen.append(json.loads((output / "report.json").read_text())["details"]["chosen"])
        table = pq.read_table(sorted(output.glob("*.parquet")))
        names = {"item": "item"}
        for metric in METRICS:
            own = metric if metric in ("users", "events") else f"{metric}_value"
            names |= {own: metric, f"{own}_low": f"{metric}_low", f"{own}_high": f"{metric}_high"}
        told.append(table.select(list(names)).rename_columns(list(names.values())))
    bound = {"m": "max_items", "c": "sampled_per_item"}
    return (
        told,
        walls,
        cpus,
        {name: round(statistics.median(each[key] for each in chosen)) for name, key in bound.items()},
    )


def theirs(
    log: Log, peer: Peer, setting: Setting, repeats: int, folder: Path, args: argparse.Namespace
) -> tuple[Releases, list[float], list[float]]:
    """What a peer releases with a setting, several times, and the wall and processor seconds of its process."""
    told, walls, cpus = [], [], []
    for number in range(repeats):
        output, job = folder / f"theirs{number}.parquet", folder / "job.json"
        keys = str(log.keys) if log.keys else None
        told_job = {"log": str(log.path), "output": str(output), "low": log.low, "high": log.high, "keys": keys}
        job.write_text(json.dumps(told_job | {"epsilon": args.epsilon, "delta": args.delta, "setting": setting}))
        python = str(args.environments / Path(peer.runner).stem / "bin" / "python")
        wall, cpu, _ = run([python, str(HERE / "_peers" / peer.runner), str(job)])
        walls.append(wall)
        cpus.append(cpu)
        table = pq.read_table(output)
        for metric in METRICS:
            half = table[f"{metric}_half"]
            table = table.append_column(f"{metric}_low", pc.subtract(table[metric], half))
            table = table.append_column(f"{metric}_high", pc.add(table[metric], half))
        told.append(table)
    return told, walls, cpus


def line_of(truth: pa.Table, own: Releases, told: Releases, walls: list[float], cpus: list[float]) -> dict[str, Any]:
    """A line of the results: for each metric the median error and ours on the same keys, with the spread of releases."""
    line: dict[str, Any] = {"keys": [table.num_rows for table in told], "errors": {}, "held": {}}
    for metric in METRICS:
        peer = [errors(truth, table, metric) for table in told]
        mine = [errors(truth, table, metric) for table in own]
        both = [~np.isnan(a[None] + np.stack(mine)) for a in peer]
        each = [
            float(np.median(np.broadcast_to(a, kept.shape)[kept]))
            for a, kept in zip(peer, both, strict=True)
            if kept.any()
        ]
        beside = [float(np.median(np.stack(mine)[kept])) for kept in both if kept.any()]
        line["errors"][metric] = {"theirs": each, "ours": beside}
        shares = [share for table in told if (share := held(truth, table, metric)) is not None]
        line["held"][metric] = statistics.mean(shares) if shares else None
    return tables.rounded(line | {"wall": min(walls), "cpu": min(cpus)})


def compare(log: Log, args: argparse.Namespace) -> dict[str, Any]:
    """All lines of one log."""
    folder = args.out / "peers" / log.name
    if not args.resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    truth = truth_of(log)
    own, walls, cpus, chosen = ours(log, folder, args)
    lines = [{"who": "Headcount", "setting": "all chosen", "own": False} | line_of(truth, own, own, walls, cpus)]
    print(json.dumps(lines[-1]), flush=True)
    jobs = [
        (name, number, setting)
        for name, peer in PEERS.items()
        for number, setting in enumerate((peer.own | chosen, *(peer.public if log.keys else peer.named)))
        if name not in args.missing
    ]

    def line(job: tuple[str, int, Setting]) -> dict[str, Any]:
        name, number, setting = job
        peer, given = PEERS[name], {"who": name, "setting": tables.words(setting), "own": number == 0}
        repeats = 1 if peer.slow or setting.get("beam") else args.peer_repeats
        place = folder / f"{name}-{number}"
        if not (place / "line.json").exists():
            place.mkdir(exist_ok=True)
            made = given | line_of(truth, own, *theirs(log, peer, setting, repeats, place, args))
            (place / "line.json").write_text(json.dumps(made))
            print(json.dumps(made), flush=True)
        return json.loads((place / "line.json").read_text())

    with ThreadPoolExecutor(args.jobs) as pool:
        lines += pool.map(line, jobs)
    return {
        "about": log.about,
        "keys": truth.num_rows,
        "public": log.keys is not None,
        "chosen": chosen,
        "lines": lines,
    }


def prepare(args: argparse.Namespace) -> dict[str, str]:
    """Makes the environments that are not there yet; versions of all, and in `args.missing` why a peer is not run."""
    versions, args.missing = {"Headcount": version(sys.executable, "headcount")}, {}
    for name, peer in PEERS.items():
        place = args.environments / Path(peer.runner).stem
        python = place / "bin" / "python"
        if name == "Tumult Analytics" and not shutil.which("java"):
            args.missing[name] = "there is no Java"
            continue
        if not (place / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            made = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *peer.packages])
            if made.returncode:
                args.missing[name] = "pip could not install it"
                continue
            (place / "ready").touch()
        versions[name] = version(str(python), peer.packages[0].partition("[")[0])
    return versions


def version(python: str, package: str) -> str:
    words = [python, "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> None:
    """Compares on the generated logs, then on each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, default=DATA / "environments", metavar="FOLDER")
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--peer-repeats", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="processes of peers at a time")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped, whose releases stay")
    parser.add_argument("--record", action="store_true", help="write the results and the tables of the pages")
    parser.add_argument("--tables", action="store_true", help="run nothing; write the pages from what is recorded")
    args = parser.parse_args()
    args.environments, args.out = args.environments.absolute(), args.out.absolute()
    if not args.tables:
        versions, load = prepare(args), os.getloadavg()[0]
        folder = args.out / "logs"
        logs = [orders(args.rows, folder), visits(args.rows // 2, folder)]
        logs += [
            counted(name, Path(path), args.rows, folder) for name, path in (each.split("=", 1) for each in args.data)
        ]
        results = {
            "epsilon": args.epsilon,
            "delta": args.delta,
            "versions": versions,
            "missing": args.missing,
            "python": sys.version.split()[0],
            "cores": os.cpu_count(),
            "releases": [args.repeats, args.peer_repeats],
            "jobs": args.jobs,
            "logs": {log.name: compare(log, args) for log in logs},
        }
        results["load"] = [round(load, 1), round(os.getloadavg()[0], 1)]
        text = json.dumps(results, indent=1) + "\n"
        (args.out / "peers.json").write_text(text)
        if args.record:
            tables.RESULTS.write_text(text)
    if args.record or args.tables:
        tables.write_pages()


if __name__ == "__main__":
    main()
