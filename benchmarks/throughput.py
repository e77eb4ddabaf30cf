"""Speed and memory of the whole private job beside the plain non-private count, on the same runner and file.

    python benchmarks/throughput.py --rows 1000000 10000000 30000000

Every job is a process of its own, start-up included, and both kinds take turns, so that a busy machine slows both. The
shown time is the least of the repeats, the ratio that of the two shown; memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def run(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak megabytes of a command; its failure is ours."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.monotonic()
    quiet = os.open(os.devnull, os.O_WRONLY)
    child = os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, quiet, 1), (os.POSIX_SPAWN_DUP2, quiet, 2)],
    )
    os.close(quiet)
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"failed with status {status}: {' '.join(command)}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def jobs(path: Path, out: Path, user: str, item: str, bound: int) -> dict[str, list[str]]:
    """The commands to compare, by name."""
    headcount = [sys.executable, "-m", "headcount.pipelines.main", "histogram", "--input", str(path)]
    headcount += ["--user", user, "--item", item, "--epsilon", "1", "--delta", "1e-8", "--bound", str(bound)]
    return {
        "plain": [sys.executable, str(HERE / "plain_count.py"), str(path), str(out / "plain"), item],
        "private": [*headcount, "--output", str(out / "private"), "--overwrite"],
    }


def compare(name: str, path: Path, args: argparse.Namespace) -> list[dict[str, str]]:
    """One line per job; both take turns, `repeats` times."""
    out = args.out / "jobs"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    commands = jobs(path, out, args.user, args.item, args.bound)
    seen: dict[str, list[tuple[float, float, float]]] = {job: [] for job in commands}
    for _ in range(args.repeats):
        for job, command in commands.items():
            seen[job].append(run(command))
    wall = {job: min(times)[0] for job, times in seen.items()}
    return [
        {
            "data": name,
            "job": job,
            "seconds": f"{wall[job]:.2f}",
            "cpu_seconds": f"{min(cpu for _, cpu, _ in times):.2f}",
            "peak_mb": f"{max(peak for _, _, peak in times):.0f}",
            "times_faster_than_plain": f"{wall['plain'] / wall[job]:.2f}",
        }
        for job, times in seen.items()
    ]


def plot(lines: list[dict[str, str]], path: Path) -> None:
    """Seconds over rows of both jobs, one panel per law, where rows were generated."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    points: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for line in lines:
        law, _, rows = line["data"].partition(" ")
        if rows:
            points.setdefault(law, {}).setdefault(line["job"], []).append((int(rows), float(line["seconds"])))
    if not points:
        return
    figure, panels = pyplot.subplots(1, len(points), figsize=(5 * len(points), 4), squeeze=False)
    for panel, (law, jobs_seen) in zip(panels[0], points.items(), strict=True):
        for job, seen in jobs_seen.items():
            panel.loglog(*zip(*sorted(seen), strict=True), marker="o", label=job)
        panel.set(title=law, xlabel="rows", ylabel="seconds, start-up included")
        panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Generates what is missing, runs all pairs, prints the table and writes it as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--laws", nargs="+", default=["tail", "spread"])
    parser.add_argument("--input", type=Path, help="a Parquet file of events to use instead of generated ones")
    parser.add_argument("--user", default="user")
    parser.add_argument("--item", default="item")
    parser.add_argument("--bound", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "out")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    files = {args.input.name: args.input} if args.input else {}
    for rows in [] if args.input else args.rows:
        for law in args.laws:
            path = args.out / f"{law}-{rows}.parquet"
            if not path.exists():
                generate = [sys.executable, "-m", "headcount.pipelines.main", "generate", "--law", law]
                run([*generate, "--rows", str(rows), "--seed", "1", "--output", str(path)])
            files[f"{law} {rows}"] = path
    lines = []
    for name, path in files.items():
        for line in compare(name, path, args):
            if not lines:
                print("  ".join(f"{name:>12}" for name in line))
            lines.append(line)
            print("  ".join(f"{value:>12}" for value in line.values()), flush=True)
    plot(lines, args.out / "throughput.png")
    with open(args.out / "throughput.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys())
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
