"""How long Headcount takes to start, in two checkouts that take turns, so that a busy machine slows both.

    python benchmarks/startup.py --old ../before --new .

`headcount --help` imports no subcommand, and no library; a histogram of a thousand rows is nearly nothing but its start. The
shown time is the least of the repeats, as whatever else the machine does can only add to it; that of the processor depends less
on it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import run

FOLDERS = ("mechanisms", "transforms", "pipelines")
ROWS = 1000


def install(checkout: Path, place: Path) -> Path:
    """A folder for PYTHONPATH in which a checkout is `headcount`."""
    (place / "headcount").mkdir(parents=True)
    for name in FOLDERS:
        (place / "headcount" / name).symlink_to((checkout / name).resolve())
    return place


def command(path: Path, words: str) -> list[str]:
    """The command line of a checkout that `install` has put there."""
    program = "from headcount.pipelines.main import run; run()"
    return ["/usr/bin/env", f"PYTHONPATH={path}", sys.executable, "-c", program, *words.split()]


def main() -> None:
    """Runs the command lines in turns, and prints the least time of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1], metavar="CHECKOUT")
    parser.add_argument(
        "--new-flags", default="", metavar="FLAGS", help="for the job of the new one, to ask for the same job"
    )
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        log, output = Path(scratch, "events.parquet"), Path(scratch, "out")
        random = np.random.default_rng(0)
        numbers = {"user": random.integers(0, 500, ROWS), "item": random.geometric(0.3, ROWS)}
        pq.write_table(pa.table({name: pa.array(column).cast(pa.string()) for name, column in numbers.items()}), log)
        histogram = (
            f"histogram --input {log} --user user --item item --epsilon 1 --delta 1e-6 --output {output} --overwrite"
        )
        jobs = {"headcount --help": ("--help", "--help")}
        jobs[f"a histogram of {ROWS} rows"] = (histogram, f"{histogram} {args.new_flags}")
        paths = {name: install(getattr(args, name), Path(scratch, name)) for name in ("old", "new")}
        for job, both in jobs.items():
            words = dict(zip(paths, both, strict=True))
            seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in paths}
            for name, path in paths.items():
                run(command(path, words[name]))  # the first one compiles
            for _ in range(args.repeats):
                for name, path in paths.items():
                    seen[name].append(run(command(path, words[name])))
            for at, what in enumerate(("seconds", "seconds of the processor")):
                old, new = (min(each[at] for each in seen[name]) for name in ("old", "new"))
                print(f"{job:<28} old {old:6.3f}   new {new:6.3f}   {new / old - 1:+.1%}   {what}", flush=True)


if __name__ == "__main__":
    main()
