"""Speed and memory of every command beside `headcount histogram`, on one log and in one run.

    python benchmarks/commands.py --rows 10000000 --items 1000000 --commands count-release partitions sips

Every job is a process of its own, start-up included, and they take turns, so that a busy machine slows all of them. The shown
time is the least of the repeats; ratios are those of the times shown, against the histogram with the bound that the command's
line names. Memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from _shared import DATA, OUT, event_log, headcount, run, write_csv

BUDGET = "--epsilon 1 --delta 1e-8"

# The words of each command, the histogram's bound that it is compared with, and how many times that it may take.
COMMANDS: dict[str, tuple[str, int, float]] = {
    "count-release": (f"count-release {BUDGET}", 10, 2),
    "count-release, noise reduced": (f"count-release {BUDGET} --noise-reduction", 10, 2),
    "top": (f"top --k 100 {BUDGET}", 10, 2),
    "partitions": (f"partitions {BUDGET} --strategy weighted-gaussian --max-items 10", 10, 2),
    "sips": (f"partitions {BUDGET} --strategy sips --max-items 10", 10, 4),
    "law": (f"partitions {BUDGET} --strategy law --max-items 10", 10, 4),
    "partitions, auto": (f"partitions {BUDGET}", 10, 4),
    "sampled": (f"sampled {BUDGET} --max-items 1", 1, 1.2),
    "shape": ("shape --epsilon 1 --domain-size 1000000", 1, 1.3),
    "plume": (f"plume {BUDGET} --max-items 10", 10, 4),
}


def words(command: str, path: Path, output: Path) -> list[str]:
    """The command line of a job on the log."""
    flags = ["--input", str(path), "--user", "user", "--item", "item", "--output", str(output), "--overwrite"]
    return headcount([*command.split(), *flags])


def main() -> None:
    """Runs the commands in turns, prints the table and writes it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--items", type=int, help="default: as the law has it")
    parser.add_argument("--laws", nargs="+", default=["tail", "spread"])
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=list(COMMANDS), metavar="COMMAND")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    out = args.out / "jobs"
    lines = []
    for law in args.laws:
        path = event_log(law, args.rows, args.data, args.items)
        bounds = sorted({COMMANDS[name][1] for name in args.commands})
        jobs = {
            f"histogram --bound {bound}": f"histogram {BUDGET} --of events --method one-stage --bound {bound}"
            for bound in bounds
        }
        jobs |= {name: COMMANDS[name][0] for name in args.commands}
        seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in jobs}
        for _ in range(args.repeats):
            for name, command in jobs.items():
                shutil.rmtree(out, ignore_errors=True)
                seen[name].append(run(words(command, path, out / "result")))
        wall = {name: min(times)[0] for name, times in seen.items()}
        for name, times in seen.items():
            line = {"data": f"{law} {args.rows}", "job": name, "seconds": f"{wall[name]:.2f}"}
            line["peak_mb"] = f"{max(peak for _, _, peak in times):.0f}"
            line |= {"times_the_histogram": "", "bar": "", "holds": ""}
            if name in COMMANDS:
                _, bound, bar = COMMANDS[name]
                ratio = wall[name] / wall[f"histogram --bound {bound}"]
                line |= {"times_the_histogram": f"{ratio:.2f}", "bar": f"{bar:g}", "holds": str(ratio <= bar)}
            print("  ".join(f"{value:>24}" for value in line.values()), flush=True)
            lines.append(line)
    write_csv(lines, args.out / "commands.csv")


if __name__ == "__main__":
    main()
