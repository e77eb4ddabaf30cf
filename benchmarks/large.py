"""Time and memory of whole jobs on a large log, each at the size that is asked for: ten rows of each user by default.

    python benchmarks/large.py --rows 100000000

The log is one of visits (`headcount generate --law visits`), which is made once and kept. The jobs are the default histogram of
pages, `aggregate` with three metrics by page, levels of country and page, and a funnel of three steps. Each is a process of its
own, start-up included. They take turns; the shown times are the least of the repeats, and memory is the peak of the process.
`--jobs default funnel` runs some of them, and `--flags="--memory-limit 500M"` gives all of them more flags.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from _shared import DATA, OUT, headcount, run, write_csv

JOBS = {
    "default": "histogram --item page",
    "aggregate": "aggregate --item page --users --sum price:0:100 --mean seconds:0:3600",
    "levels": "histogram --levels country,page",
    "funnel": "funnel --time viewed_at --step page=/ --step page=/cart --step 'price > 0'",
}


def visits(rows: int, users: int, folder: Path) -> Path:
    """The log of this size, kept in the folder for later runs."""
    path = folder / f"visits-{rows}-{users}.parquet"
    if not path.exists():
        print(f"generating {path}", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        words = f"generate --law visits --rows {rows} --users {users} --seed 1 --output".split()
        unfinished = path.with_name(f"unfinished-{path.name}")
        run(headcount([*words, str(unfinished)]))
        unfinished.rename(path)
    return path


def main() -> None:
    """Makes the log if it is not there, runs the jobs in turns, prints the table and writes it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, help="default: a tenth of the rows")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--flags", type=shlex.split, default=[], help="more flags of every job")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA, help="where the log is kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    users = args.users or args.rows // 10
    log, folder = visits(args.rows, users, args.data), args.out / "large"
    shutil.rmtree(folder, ignore_errors=True)
    shared = ["--input", str(log), "--user", "user_id", "--epsilon", "1", "--delta", "1e-8", "--overwrite", *args.flags]
    seen: dict[str, list[tuple[float, float, float]]] = {job: [] for job in args.jobs}
    for _ in range(args.repeats):
        for job in args.jobs:
            words = [*shlex.split(JOBS[job]), *shared, "--output", str(folder / job)]
            seen[job].append(run(headcount(words)))
    lines = [
        {
            "rows": f"{args.rows}",
            "users": f"{users}",
            "job": job,
            "seconds": f"{min(wall for wall, _, _ in runs):.1f}",
            "cpu_seconds": f"{min(cpu for _, cpu, _ in runs):.1f}",
            "peak_mb": f"{max(peak for _, _, peak in runs):.0f}",
        }
        for job, runs in seen.items()
    ]
    for line in [dict(zip(lines[0], lines[0], strict=True)), *lines]:
        print("  ".join(f"{value:>12}" for value in line.values()), flush=True)
    write_csv(lines, args.out / "large.csv")


if __name__ == "__main__":
    main()
