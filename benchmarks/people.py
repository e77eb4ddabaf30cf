"""How long questions about people take, beside a histogram of users on the same log.

    python benchmarks/people.py [--rows 1000000] [--times 5]

A log of visits to a made-up shop is generated once. Jobs run in turn, each in a process of its own, and the least wall
seconds of some runs count: on a shared machine the least is the one that others disturbed least.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from _shared import DATA, OUT, event_log, headcount, run, write_csv

_TIMED = ["--user", "user_id", "--time", "viewed_at"]
_STEPS = ["--step", "page=/", "--step", "page=/search", "--step", "price>0"]
_DAYS = "2026-11-02..2026-11-15"
_BY_PAGE = ["histogram", "--user", "user_id", "--item", "page", "--delta", "1e-8"]
JOBS = {
    "histogram of users by page": ["histogram", "--user", "user_id", "--item", "page", "--delta", "1e-8"],
    "funnel": ["funnel", *_TIMED, *_STEPS],
    "funnel within 7 days": ["funnel", *_TIMED, *_STEPS, "--within", "7d"],
    "funnel by country, named": ["funnel", *_TIMED, *_STEPS, "--by", "country", "--delta", "1e-8"],
    "retention by day": ["retention", *_TIMED, "--every", "day", "--from", "2026-11-02", "--to", "2026-11-15"],
    "actives": ["actives", *_TIMED, "--from", "2026-11-02", "--to", "2026-11-15", "--delta", "1e-8"],
    "activity": ["activity", "--user", "user_id"],
    "users by page and day": [*_BY_PAGE, "--item", "viewed_at:day", "--domain", f"viewed_at_day={_DAYS}"],
    "users by page, last 7 days": [*_BY_PAGE, "--item", "viewed_at:last7", "--domain", f"viewed_at_last7={_DAYS}"],
    "users by page, last 28 days": [*_BY_PAGE, "--item", "viewed_at:last28", "--domain", f"viewed_at_last28={_DAYS}"],
}


def main() -> None:
    """Prints a line for each job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5, help="runs of each job (default: %(default)s)")
    given = parser.parse_args()
    path = event_log("visits", given.rows, DATA)
    wall: dict[str, list[float]] = {name: [] for name in JOBS}
    busy: dict[str, list[float]] = {name: [] for name in JOBS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.times):
            for name, words in JOBS.items():
                output = ["--epsilon", "1", "--input", str(path), "--output", str(Path(folder) / "out"), "--overwrite"]
                seconds, processor, _ = run(headcount([*words, *output]))
                wall[name].append(seconds)
                busy[name].append(processor)
    first = next(iter(JOBS))
    lines = []
    for name in JOBS:
        line = {
            "job": name,
            "seconds": f"{min(wall[name]):.2f}",
            "processor seconds": f"{min(busy[name]):.2f}",
            "by the histogram": f"{min(wall[name]) / min(wall[first]):.2f}",
        }
        print(f"{name:30}{line['seconds']:>9}{line['processor seconds']:>9}{line['by the histogram']:>8}", flush=True)
        lines.append(line)
    write_csv(lines, OUT / "people.csv")


if __name__ == "__main__":
    main()
