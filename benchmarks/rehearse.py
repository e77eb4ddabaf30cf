"""How long a rehearsal takes: all methods at five epsilons on a generated log of a million rows.

    python benchmarks/rehearse.py [--rows 1000000] [--releases 1 3] [--law tail]

The bar is two minutes on two cores, with reading, scoring and both files. Seconds by method tell where the time goes: those of
calibration fall on the first release at an epsilon, so that more releases take less than as many times.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict

from _shared import DATA, OUT, event_log, headcount, run, write_csv

from headcount.pipelines.commands.studies.rehearse import EPSILONS
from headcount.pipelines.parser import parse
from headcount.pipelines.studies.data import Data, in_memory
from headcount.pipelines.studies.methods import QUESTIONS, Promised, methods_of
from headcount.pipelines.studies.run import grid

BAR = 120


def by_method(data: Data, releases: int) -> dict[str, float]:
    """Seconds of each method, at all epsilons."""
    spent: dict[str, float] = defaultdict(float)
    last = ["", time.monotonic()]

    def step(doing: str) -> None:
        now = time.monotonic()
        spent[str(last[0])] += now - float(last[1])
        last[:] = [doing.split(" at ")[0], now]

    grid(data, methods_of(QUESTIONS, 10), [Promised(each, 1e-8) for each in EPSILONS], releases, step=step)
    step("")
    return {name: seconds for name, seconds in spent.items() if name}


def main() -> None:
    """Measures whole runs of the command, then methods by themselves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--law", choices=("tail", "spread"), default="tail")
    parser.add_argument("--releases", type=int, nargs="+", default=[1, 3])
    args = parser.parse_args()
    path = event_log(args.law, args.rows, DATA)
    flags = ["--public-data", str(path), "--user", "user", "--item", "item"]
    lines = []
    for releases in args.releases:
        with tempfile.TemporaryDirectory() as folder:
            words = ["rehearse", *flags, "--releases", str(releases), "--output", folder]
            seconds, cpu, megabytes = run(headcount(words))
        passed = "PASS" if seconds <= BAR else "FAIL"
        print(
            f"{passed}  {args.law}, {args.rows:,} rows, {releases} releases: {seconds:.1f} s ({cpu:.1f} s of CPU)",
            flush=True,
        )
        line = {"law": args.law, "rows": str(args.rows), "releases": str(releases)}
        lines.append(line | {"seconds": f"{seconds:.1f}", "cpu": f"{cpu:.1f}", "megabytes": f"{megabytes:.0f}"})
    write_csv(lines, OUT / "rehearse.csv")
    from headcount.pipelines.commands.studies.rehearse import COMMAND
    from headcount.pipelines.studies.rows_of_files import read_contributions

    batches, keys = read_contributions(parse(COMMAND, flags)[0], [str(path)])
    found = by_method(in_memory(batches, keys.item_type), 1)
    for name, seconds in sorted(found.items(), key=lambda each: -each[1]):
        print(f"{name:>24} {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
