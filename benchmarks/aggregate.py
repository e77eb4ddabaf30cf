"""`headcount aggregate` beside PipelineDP and OpenDP: users, events, sum and mean by key, with the same data and budget.

    python benchmarks/aggregate.py --peer-python PATH [--data words=FILE]

PATH is a Python of its own with `pip install pipeline-dp dp-accounting apache-beam 'opendp[polars]'`. Data are a generated log
of orders with prices, and each FILE, Parquet with the columns user, item and count, whose values are its counts; of more than
`--rows` rows it has the first users. Headcount has its defaults, with everything chosen within the budget. Peers have the best
of a grid: for each metric the setting that is closest to Headcount, so that no single choice has to be good at all of them.

Errors are relative to the truth, values cut to the range: at the median of the keys that both release, and as a mean over all
keys, where a missing key has an error of 1, and none has more. Times are of whole processes; `--beam` also runs PipelineDP on
Beam's local runner, where the command of Headcount runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _shared import DATA, HERE, OUT, headcount, run, write_csv

METRICS = ("users", "events", "sum", "mean")
KEYS, FASTER = 2, 20  # bars: times as many keys, times as fast
GAUSSIAN, LAPLACE, WEIGHTED = "GAUSSIAN_THRESHOLDING", "TRUNCATED_GEOMETRIC", "WEIGHTED_GAUSSIAN_THRESHOLDING"
# Keys of a user, rows on each, noise, and for PipelineDP how keys are selected.
PIPELINE_DP = (
    (1, 1, "laplace", LAPLACE),
    (4, 1, "laplace", LAPLACE),
    (4, 1, "gaussian", GAUSSIAN),
    (8, 1, "gaussian", GAUSSIAN),
    (16, 1, "gaussian", GAUSSIAN),
    (8, 3, "gaussian", GAUSSIAN),
    (16, 1, "gaussian", WEIGHTED),
)
OPEN_DP = (
    (2, 1, "laplace"),
    (4, 1, "gaussian"),
    (8, 1, "gaussian"),
    (16, 1, "gaussian"),
    (32, 1, "gaussian"),
    (8, 3, "gaussian"),
)

Errors = dict[str, np.ndarray]


def orders(rows: int, folder: Path) -> Path:
    """A log of orders, kept for later runs: users of very different activity, Zipf shops, each with prices of its own."""
    path = folder / f"orders-{rows}.parquet"
    if not path.exists():
        rng = np.random.default_rng(1)
        users, shops = rows // 10, rows // 200
        activity = rng.lognormal(0, 1, users)
        user = rng.choice(users, rows, p=activity / activity.sum())
        ends = np.cumsum(np.arange(1.0, shops + 1) ** -1.05)
        shop = np.searchsorted(ends, ends[-1] * rng.random(rows))
        level = rng.lognormal(np.log(15), 0.5, shops)[shop]
        price = np.round(np.minimum(level * rng.gamma(2, 0.5, rows), 500), 2)
        columns = {"user": [f"u{each}" for each in user], "item": [f"s{each}" for each in shop], "value": price}
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
    return path


def counted(source: Path, rows: int, path: Path) -> Path:
    """The rows of the first users of a file, with their counts as values, up to this number of rows."""
    table = pq.read_table(source, columns=["user", "item", "count"]).sort_by("user")
    if table.num_rows > rows:
        after = table["user"][rows]
        table = table.filter(pc.less(table["user"], after))
    columns = [table["user"].cast(pa.string()), table["item"].cast(pa.string()), table["count"].cast(pa.float64())]
    pq.write_table(pa.table(columns, names=["user", "item", "value"]), path)
    return path


def truth_of(log: Path, low: float, high: float) -> pa.Table:
    """The true metrics of all keys, of values cut to the range."""
    table = pq.read_table(log)
    value = np.clip(np.asarray(table["value"]), low, high)
    table = table.set_column(2, "value", pa.array(value))
    asked = [("user", "count_distinct"), ("value", "count"), ("value", "sum"), ("value", "mean")]
    return table.group_by("item").aggregate(asked).rename_columns(["item", *METRICS])


def errors(truth: pa.Table, found: pa.Table) -> Errors:
    """The relative error of each metric on each true key; NaN where a key is missing."""
    place = np.asarray(pc.index_in(truth["item"], value_set=found["item"].combine_chunks()).fill_null(-1))
    known, made = place >= 0, {}
    for name in METRICS:
        true, told = np.asarray(truth[name], np.float64), np.asarray(found[name], np.float64)
        made[name] = np.full(len(true), np.nan)
        made[name][known] = np.abs(told[place[known]] - true[known]) / np.maximum(np.abs(true[known]), 1e-9)
    return made


def on_both(error: np.ndarray, own: np.ndarray) -> tuple[float, float]:
    """The median error of a peer and of Headcount on the keys that both release, over every two releases; NaN without any."""
    peer, mine = np.broadcast_arrays(error[:, None, :], own[None, :, :])
    both = ~np.isnan(peer + mine)
    return (float(np.median(peer[both])), float(np.median(mine[both]))) if both.any() else (np.nan, np.nan)


def over_all(error: np.ndarray) -> float:
    """The mean over all keys, where what is missing has an error of 1."""
    return float(np.minimum(np.nan_to_num(error, nan=1.0), 1.0).mean())


def ours(log: Path, folder: Path, args: argparse.Namespace) -> tuple[list[pa.Table], float, float]:
    """What Headcount releases, several times, and the least wall and processor seconds of its whole command."""
    span = f"value:{args.low:g}:{args.high:g}"
    words = ["aggregate", "--input", str(log), "--user", "user", "--item", "item", "--users", "--events"]
    words += ["--sum", span, "--mean", span, "--epsilon", str(args.epsilon), "--delta", str(args.delta)]
    times, told = [], []
    for number in range(args.repeats):
        times.append(run(headcount([*words, "--output", str(folder / str(number))])))
        table = pq.read_table(sorted((folder / str(number)).glob("*.parquet")))
        columns = table.select(["item", "users", "events", "sum_value", "mean_value"])
        told.append(columns.rename_columns(["item", *METRICS]))
    return told, min(wall for wall, _, _ in times), min(cpu for _, cpu, _ in times)


def settings(beam: bool) -> dict[str, dict[str, object]]:
    """The grid of both peers, by what it is called in the table."""
    made: dict[str, dict[str, object]] = {}
    for m, c, noise in OPEN_DP:
        made[f"OpenDP m={m} c={c} {noise}"] = {"peer": "OpenDP", "m": m, "c": c, "noise": noise}
    for m, c, noise, select in PIPELINE_DP:
        given: dict[str, object] = {"peer": "PipelineDP", "m": m, "c": c, "noise": noise, "select": select}
        given["account"] = "pld" if noise == "gaussian" else "naive"
        made[f"PipelineDP m={m} c={c} {noise} {select.lower()}"] = given
    if beam:
        timed = next(name for name in made if GAUSSIAN.lower() in name)
        made[f"{timed} on Beam"] = made[timed] | {"beam": True}
    return made


def theirs(log: Path, folder: Path, args: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Wall and processor seconds of all settings, which leave their results in the folder."""
    folder.mkdir()
    given = settings(args.beam)
    texts = [f"{name}={json.dumps(setting)}" for name, setting in enumerate(given.values())]
    numbers = [f"{each:g}" for each in (args.low, args.high, args.epsilon, args.delta)]
    command = [args.peer_python, str(HERE / "_peers.py"), str(log), str(folder), *numbers, *texts]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    lines = [json.loads(line) for line in said if line.startswith("{")]
    return {name: (line["wall"], line["cpu"]) for name, line in zip(given, lines, strict=True)}


def compare(name: str, log: Path, args: argparse.Namespace) -> list[dict[str, str]]:
    """The lines of one data set; prints them, and how the bars were met."""
    folder = args.out / "aggregate"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    truth = truth_of(log, args.low, args.high)
    told, wall, cpu = ours(log, folder / "ours", args)
    each = [errors(truth, table) for table in told]
    own = {name: np.stack([error[name] for error in each]) for name in METRICS}
    keys = float(np.mean([table.num_rows for table in told]))
    print(f"{name}: {truth.num_rows:,} keys, epsilon {args.epsilon:g}, delta {args.delta:g}", flush=True)
    lines = [line_of(name, "Headcount", keys, wall, cpu, own, own)]
    ratios: dict[str, float] = {}
    runs = [theirs(log, folder / f"theirs{number}", args) for number in range(args.peer_repeats)]
    for number, setting in enumerate(runs[0]):
        found = [pq.read_table(each / f"{number}.parquet") for each in sorted(folder.glob("theirs*"))]
        released = [errors(truth, table) for table in found]
        error = {metric: np.stack([each[metric] for each in released]) for metric in METRICS}
        peer_keys = float(np.mean([table.num_rows for table in found]))
        peer_wall, peer_cpu = (min(run[setting][place] for run in runs) for place in (0, 1))
        lines.append(line_of(name, setting, peer_keys, peer_wall, peer_cpu, error, own))
        pairs = {
            "times as many keys": keys / max(1.0, peer_keys),
            "times as fast": peer_wall / wall,
            "times less CPU": peer_cpu / cpu,
        }
        for metric in METRICS if peer_keys else ():
            peer_error, own_error = on_both(error[metric], own[metric])
            pairs[f"error of {metric}"] = peer_error / own_error
            pairs[f"error of {metric}, all keys"] = over_all(error[metric]) / over_all(own[metric])
        peer = setting.split(" m=")[0] + (" on Beam" if setting.endswith("on Beam") else "")
        for what, ratio in pairs.items():
            ratios[f"{peer}: {what}"] = min(ratio, ratios.get(f"{peer}: {what}", np.inf))
    print("  ".join([f"{'':<52}", *(f"{head:>8}" for head in [*lines[0]][2:])]))
    for line in lines:
        print(
            "  ".join(
                f"{value:>8}" if place > 1 else f"{value:<52}" for place, value in enumerate(line.values()) if place
            )
        )
    bars = {"times as many keys": KEYS, "times as fast": FASTER}
    for what, ratio in ratios.items():
        bar = bars.get(what.partition(": ")[2], 1)
        print(f"{'PASS' if ratio >= bar else 'FAIL'}  {what}: {ratio:.2f} (bar {bar})", flush=True)
    return lines


def line_of(data: str, who: str, keys: float, wall: float, cpu: float, error: Errors, own: Errors) -> dict[str, str]:
    """A line of the table: median errors on the keys that both release, of this one and of Headcount."""
    line = {"data": data, "who": who, "keys": f"{keys:.0f}", "seconds": f"{wall:.1f}", "cpu": f"{cpu:.1f}"}
    for metric in METRICS:
        for label, each in zip(("", " ours"), on_both(error[metric], own[metric]), strict=True):
            line[metric + label] = f"{each:.4f}"
        line[f"{metric} all"] = f"{over_all(error[metric]):.4f}"
    return line


def main() -> None:
    """Compares on the generated log, then on each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True, metavar="PATH")
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--low", type=float, default=0.0)
    parser.add_argument("--high", type=float, default=100.0, help="of prices; values of a FILE have `--high-count`")
    parser.add_argument("--high-count", type=float, default=10.0)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer-repeats", type=int, default=1)
    parser.add_argument("--beam", action="store_true")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lines = []
    if args.only in (None, "orders"):
        lines += compare("orders", orders(args.rows, DATA), args)
    args.high = args.high_count
    for name, path in (entry.split("=", 1) for entry in args.data):
        if args.only in (None, name):
            lines += compare(name, counted(Path(path), args.rows, args.out / f"{name}.parquet"), args)
    write_csv(lines, args.out / "aggregate.csv")


if __name__ == "__main__":
    main()
