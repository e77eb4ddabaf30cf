"""How long Headcount takes to start, in two checkouts that take turns, so that a busy machine slows both.

    python benchmarks/startup.py --old ../before --new .

`headcount --help` imports no subcommand, and no library; a histogram of a thousand rows is nearly nothing but its start, as a
command and as a call in Python (where pandas is installed, Arrow imports that too). `--rows 1000000` is for more than that.
The shown time is the least of the repeats, as whatever else the machine does can only add to it; that of the processor depends
less on it.
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


def install(checkout: Path, place: Path) -> Path:
    """A folder for PYTHONPATH in which a checkout is `headcount`."""
    (place / "headcount").mkdir(parents=True)
    for path in (*(checkout / name for name in FOLDERS), *(checkout / "headcount").glob("*")):
        (place / "headcount" / path.name).symlink_to(path.resolve())
    # An older checkout has none; without it, `headcount` would not be a package like any other.
    (place / "headcount" / "__init__.py").touch()
    return place


def command(path: Path, words: str) -> list[str]:
    """The command line of a checkout that `install` has put there."""
    return [*python(path, "from headcount.pipelines.main import run; run()"), *words.split()]


def python(path: Path, program: str) -> list[str]:
    """The command line of a program that imports such a checkout."""
    return ["/usr/bin/env", f"PYTHONPATH={path}", sys.executable, "-P", "-c", program]  # -P: not what lies here


def main() -> None:
    """Runs the command lines in turns, and prints the least time of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--new", type=Path, default=Path(__file__).parents[1], metavar="CHECKOUT")
    parser.add_argument(
        "--new-flags", default="", metavar="FLAGS", help="for the job of the new one, to ask for the same job"
    )
    parser.add_argument("--rows", type=int, default=1000, help="of two events of each user (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        log, output = Path(scratch, "events.parquet"), Path(scratch, "out")
        random = np.random.default_rng(0)
        numbers = {"user": random.integers(0, args.rows // 2, args.rows), "item": random.geometric(0.3, args.rows)}
        pq.write_table(pa.table({name: pa.array(column).cast(pa.string()) for name, column in numbers.items()}), log)
        histogram = (
            f"histogram --input {log} --user user --item item --epsilon 1 --delta 1e-6 --output {output} --overwrite"
        )
        calls = {
            "import, and a function": "import headcount; headcount.histogram",
            f"a call on {args.rows} rows": "import headcount, pyarrow.parquet as pq\n"
            f"headcount.histogram(pq.read_table({str(log)!r}), user='user', item='item', epsilon=1, delta=1e-6)",
        }
        paths = {name: install(getattr(args, name), Path(scratch, name)) for name in ("old", "new")}
        jobs = {"headcount --help": {name: command(path, "--help") for name, path in paths.items()}}
        flags = {"old": "", "new": args.new_flags}
        jobs[f"a histogram of {args.rows} rows"] = {
            name: command(path, f"{histogram} {flags[name]}") for name, path in paths.items()
        }
        for what, program in calls.items():
            jobs[what] = {
                name: python(path, program)
                for name, path in paths.items()
                if (path / "headcount" / "calls.py").exists()
            }
        for job, words in jobs.items():
            seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in words}
            for each in words.values():
                run(each)  # the first one compiles
            for _ in range(args.repeats):
                for name, each in words.items():
                    seen[name].append(run(each))
            for at, what in enumerate(("seconds", "seconds of the processor")):
                least = {name: min(each[at] for each in found) for name, found in seen.items()}
                shown = "   ".join(f"{name} {seconds:6.3f}" for name, seconds in least.items())
                change = f"   {least['new'] / least['old'] - 1:+.1%}" if len(least) == 2 else ""
                print(f"{job:<28} {shown}{change}   {what}", flush=True)


if __name__ == "__main__":
    main()
