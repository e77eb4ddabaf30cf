"""Processor time and memory of the private job beside Polars and DuckDB, which do the same bounding without privacy.

    python benchmarks/engines.py --rows 10000000

All read the same Parquet file, leave each user a uniform sample of at most `--bound` of its events (with replayable draws: by a
hash of the row's number), count by item, and write Parquet. Only `headcount` adds noise and hides rare items; `default` is its
default, which counts users and chooses everything. Each is a process of its own with two threads, start-up included; they take
turns. Polars and DuckDB must be installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _shared import DATA, HERE, OUT, default_job, event_log, headcount, private_job, run, write_csv

THREADS = 2


def polars(path: str, output: str, bound: int) -> None:
    """The bounded histogram by Polars."""
    import os

    os.environ["POLARS_MAX_THREADS"] = str(THREADS)
    import polars as pl

    (
        pl.scan_parquet(path)
        .select("user", "item")
        .with_row_index()
        .with_columns(order=pl.col("index").hash(seed=1))
        .filter(pl.col("order").rank("ordinal").over("user") <= bound)
        .group_by("item")
        .agg(count=pl.len())
        .sort("item")
        .collect(engine="streaming")
        .write_parquet(output)
    )


def duckdb(path: str, output: str, bound: int) -> None:
    """The bounded histogram by DuckDB."""
    import duckdb as engine

    connection = engine.connect(config={"threads": THREADS})
    connection.execute(
        f"""COPY (
            SELECT item, count(*) AS count FROM (
                SELECT item, row_number() OVER (PARTITION BY user ORDER BY hash(file_row_number)) AS place
                FROM read_parquet('{path}', file_row_number = true)
            ) WHERE place <= {bound} GROUP BY item ORDER BY item
        ) TO '{output}' (FORMAT parquet)"""
    )


ENGINES = {"polars": polars, "duckdb": duckdb}


def main() -> None:
    """Runs all of them in turns, and prints the least time and the largest memory of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--laws", nargs="+", default=["tail", "spread"])
    parser.add_argument("--bound", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine is not None:
        ENGINES[args.engine](*args.files, args.bound)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for rows in args.rows:
        for law in args.laws:
            lines += compare(law, rows, args)
    write_csv(lines, args.out / "engines.csv")


def compare(law: str, rows: int, args: argparse.Namespace) -> list[dict[str, str]]:
    """One line for each, of one log."""
    path, out = event_log(law, rows, args.data), args.out / "engines"
    commands = {
        "headcount": headcount(private_job(path, out / "given", bound=args.bound)),
        "default": headcount(default_job(path, out / "default")),
    }
    for name in ENGINES:
        words = ["--bound", str(args.bound), "--engine", name, str(path), str(args.out / f"{name}.parquet")]
        commands[name] = [sys.executable, str(HERE / "engines.py"), *words]
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(args.repeats):
        for name, command in commands.items():
            seen[name].append(run(command))
    least = {name: min(cpu for _, cpu, _ in times) for name, times in seen.items()}
    lines = [
        {
            "data": f"{law} {rows}",
            "job": name,
            "seconds": f"{min(wall for wall, _, _ in times):.2f}",
            "cpu_seconds": f"{least[name]:.2f}",
            "peak_mb": f"{max(peak for _, _, peak in times):.0f}",
            "headcount_times_its_cpu": f"{least['headcount'] / least[name]:.2f}",
            "default_times_its_cpu": f"{least['default'] / least[name]:.2f}",
        }
        for name, times in seen.items()
    ]
    for line in lines:
        print("  ".join(f"{value:>16}" for value in line.values()), flush=True)
    return lines


if __name__ == "__main__":
    main()
