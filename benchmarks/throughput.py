"""Speed and memory of the whole private job beside the plain non-private count, on the same runner and file.

    python benchmarks/throughput.py --rows 1000000 10000000 30000000

Every job is a process of its own, start-up included: the plain count, one private stage with a given bound, the one that
chooses it, estimates of events with everything chosen, and the default, which is the same of users. They take turns, so that a
busy machine slows all of them. The shown time is the least of the repeats, the ratios are those of the times shown; memory is
the peak of the process.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from _shared import DATA, OUT, default_job, event_log, headcount, plain_job, private_job, run, write_csv


def jobs(path: Path, out: Path, user: str, item: str, bound: int) -> dict[str, list[str]]:
    """The commands to compare, by name."""
    return {
        "plain": plain_job(path, out / "plain", item),
        "private": headcount(private_job(path, out / "private", user, item, bound)),
        "auto": headcount(private_job(path, out / "auto", user, item, "auto")),
        "events": headcount(private_job(path, out / "events", user, item, "auto", "estimates")),
        "default": headcount(default_job(path, out / "default", user, item)),
    }


def compare(name: str, path: Path, args: argparse.Namespace) -> list[dict[str, str]]:
    """One line per job; they take turns, `repeats` times."""
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
            "times_a_given_bound": f"{wall[job] / wall['private']:.2f}",
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
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    files = {args.input.name: args.input} if args.input else {}
    for rows in [] if args.input else args.rows:
        for law in args.laws:
            files[f"{law} {rows}"] = event_log(law, rows, args.data)
    lines = []
    for name, path in files.items():
        for line in compare(name, path, args):
            if not lines:
                print("  ".join(f"{name:>12}" for name in line))
            lines.append(line)
            print("  ".join(f"{value:>12}" for value in line.values()), flush=True)
    plot(lines, args.out / "throughput.png")
    write_csv(lines, args.out / "throughput.csv")


if __name__ == "__main__":
    main()
