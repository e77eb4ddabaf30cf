"""The paper "Learning discrete distributions: user vs item-level privacy": errors, how they fall, and speed.

    python benchmarks/papers/distribution.py                              # table and falling
    python benchmarks/papers/distribution.py --parts speed                # 1,000,000 users with 20 samples of 1,000 symbols

Parts: *table*, l1 errors at four sizes beside reference values, which are means of four runs by another program; *falling*,
the error over the samples per user; *speed*, whole jobs beside `headcount histogram --bound 20`, in turns. Distributions are
Dirichlet(1), users have exactly m samples each, epsilon is 1 and delta 1e-6. Errors are means over the runs, with the standard
error beside; all methods see the same data. "none" is the mean of all samples, without privacy. Writes a CSV and a plot for
each, and prints what must hold as PASS or FAIL.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import _path  # noqa: F401
import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _quality import seed
from _shared import DATA, OUT, headcount, run, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import public_domain
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.distribution.learn import Steps, combined, estimate
from headcount.mechanisms.distribution.plan import plan_distribution
from headcount.mechanisms.distribution.tables import ValueCounts

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

BUDGET = Budget(1, 1e-6)
# k, m, s: reference l1 errors under replacement with public s.
REFERENCE = {
    (10, 100, 2000): {"none": 0.0041, "gaussian": 0.0237, "laplace": 0.0104, "dense, phs": 0.0072, "dense": 0.0081},
    (10, 1000, 2000): {"none": 0.0011, "gaussian": 0.0238, "laplace": 0.0089, "dense, phs": 0.0024, "dense": 0.0016},
    (50, 1000, 2000): {"none": 0.0032, "gaussian": 0.1130, "laplace": 0.0503, "dense, phs": 0.0153, "dense": 0.0088},
    (10, 1000, 20000): {"none": 0.0004, "gaussian": 0.0022, "laplace": 0.0010, "dense, phs": 0.0006, "dense": 0.0006},
}
REFERENCE_RUNS = 4
WITHIN = 1.1
SYMBOLS, SAMPLES, USERS = (10, 50, 200), (10, 100, 1000), 20_000
METHODS = ("none", "gaussian", "laplace", "dense", "sparse")
STEEP, FLAT = -0.4, -0.2
SPEED = 1.5  # times the histogram's


def check(holds: bool, what: str) -> None:
    """One line of what must hold."""
    print(f"{'PASS' if holds else 'FAIL'}  {what}", flush=True)


def samples_of(symbols: int, samples: int, users: int, number: int) -> tuple[np.ndarray, ValueCounts]:
    """A distribution, and the tables of users with samples of it."""
    p = np.random.default_rng([symbols, number]).dirichlet(np.ones(symbols))
    rng = np.random.default_rng([symbols, samples, users, number])
    counts = np.concatenate([rng.multinomial(samples, p, some) for some in _in_parts(users)])
    held = [np.bincount(column, minlength=2) for column in counts.T]
    values = [np.flatnonzero(each[1:]) + 1 for each in held]
    offsets = np.append(0, np.cumsum([len(each) for each in values]))
    having = np.concatenate([each[value] for each, value in zip(held, values, strict=True)])
    names = pa.array([f"s{symbol:06d}" for symbol in range(symbols)])
    return p, ValueCounts(names, offsets, np.concatenate(values), having)


def _in_parts(users: int) -> list[int]:
    return [min(20_000, users - start) for start in range(0, users, 20_000)]


def error(
    p: np.ndarray, table: ValueCounts, samples: int, users: int, method: str, relation: Relation, number: int
) -> float:
    """The l1 error of one run."""
    if method == "none":
        return float(np.abs(table.totals() / (samples * users) - p).sum())
    name, _, hypothesis = method.partition(", ")
    plan = plan_distribution(BUDGET, len(p), samples, relation, users, name, hypothesis or "ks")
    symbols = public_domain(table.symbols.to_pylist(), str)
    steps, key = Steps(plan, symbols, f"run-{number}", "benchmark"), seed(number)
    found = estimate(table, steps, Evidence.of([steps.digest(table, key)], []), key)
    rows = combined(table.symbols, [found])
    return float(np.abs(np.asarray(rows.column("probability")) - p).sum())


def lines_of(
    size: tuple[int, int, int], methods: tuple[str, ...], relations: tuple[Relation, ...], runs: int
) -> Iterator[dict[str, str]]:
    """One line for each method and relation at one size."""
    seen: dict[tuple[Relation, str], list[float]] = {}
    for number in range(runs):
        p, table = samples_of(*size, number)
        for relation, method in itertools.product(relations, methods):
            seen.setdefault((relation, method), []).append(error(p, table, *size[1:], method, relation, number))
    for (relation, method), errors in seen.items():
        line = dict(zip(("symbols", "samples", "users"), map(str, size), strict=True))
        line |= {"relation": relation.value, "method": method, "runs": str(runs)}
        line |= {"error": f"{np.mean(errors):.5f}", "standard_error": f"{np.std(errors) / np.sqrt(runs):.5f}"}
        line["reference"] = str(REFERENCE.get(size, {}).get(method, ""))
        print("  ".join(f"{value:>10}" for value in line.values()), flush=True)
        yield line


def table(args: argparse.Namespace) -> None:
    """Four sizes beside the reference."""
    lines = []
    for size, known in REFERENCE.items():
        for line in lines_of(size, tuple(known), (Relation.REPLACE,), args.runs):
            lines.append(line)
            mean, reference = float(line["error"]), float(line["reference"])
            if line["method"].startswith("dense"):
                own = float(line["standard_error"])
                of_four = own * np.sqrt(args.runs / REFERENCE_RUNS)  # how far a mean of so few runs is off by chance
                apart = (mean - reference) / of_four if of_four else 0.0
                check(
                    mean <= WITHIN * reference,
                    f"k, m, s = {size}, {line['method']}: {mean:.4f} +- {own:.4f} of {args.runs} runs, at most {WITHIN} "
                    f"times {reference} of {REFERENCE_RUNS} runs ({apart:+.1f} standard errors of the latter)",
                )
    write_csv(lines, args.out / "paper004_table.csv")


def falling(args: argparse.Namespace) -> None:
    """The error over the samples per user, and its slope."""
    relations = (Relation.REPLACE, Relation.ADD_REMOVE)
    lines = []
    for symbols, samples in itertools.product(SYMBOLS, SAMPLES):
        lines += lines_of((symbols, samples, USERS), METHODS, relations, args.runs)
    for line in lines:
        line.pop("reference")
    found = {
        (line["relation"], int(line["symbols"]), line["method"], int(line["samples"])): float(line["error"])
        for line in lines
    }
    slopes = []
    for relation, symbols in itertools.product(relations, SYMBOLS):
        for few, many in itertools.pairwise(SAMPLES):
            slope = {
                method: np.log(
                    found[relation.value, symbols, method, many] / found[relation.value, symbols, method, few]
                )
                / np.log(many / few)
                for method in METHODS
            }
            slopes.append({"relation": relation.value, "symbols": str(symbols), "from": str(few), "to": str(many)})
            slopes[-1] |= {method: f"{value:.2f}" for method, value in slope.items()}
            where = f"{relation.value}, k = {symbols}, m = {few} to {many}"
            flat = [method for method in ("gaussian", "laplace") if slope[method] > FLAT]
            told = ", ".join(f"{method} {slope[method]:.2f}" for method in ("gaussian", "laplace"))
            if flat:
                check(slope["dense"] <= STEEP, f"{where}: the slope of dense is {slope['dense']:.2f} ({told})")
            if symbols > many:
                check(slope["sparse"] <= STEEP, f"{where}: the slope of sparse is {slope['sparse']:.2f} ({told})")
    write_csv(lines, args.out / "paper004_falling.csv")
    write_csv(slopes, args.out / "paper004_slopes.csv")
    plot(found, args.out / "paper004_falling.png")


def plot(found: dict[tuple[str, int, str, int], float], path: Path) -> None:
    """Errors over the samples per user, a panel for each relation and number of symbols."""
    relations = list(dict.fromkeys(key[0] for key in found))
    figure, panels = plt.subplots(len(relations), len(SYMBOLS), figsize=(12, 7), sharex=True)
    for (row, relation), (column, symbols) in itertools.product(enumerate(relations), enumerate(SYMBOLS)):
        panel = panels[row][column]
        for method in METHODS:
            errors = [found[relation, symbols, method, samples] for samples in SAMPLES]
            panel.loglog(SAMPLES, errors, marker="o", linestyle="--" if method == "none" else "-", label=method)
        panel.set(title=f"{relation}, k = {symbols}", xlabel="samples per user", ylabel="l1 error")
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def sample_log(users: int, samples: int, symbols: int, folder: Path) -> tuple[Path, Path]:
    """A log of users with this number of samples each, in no order, and the file of the domain; kept for later runs."""
    path = folder / f"samples-{users}-{samples}-{symbols}.parquet"
    domain = path.with_suffix(".txt")
    names = [f"s{symbol:06d}" for symbol in range(symbols)]
    if not path.exists():
        print(f"generating {path}", file=sys.stderr, flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(1)
        law = np.cumsum(1 / np.arange(1, symbols + 1))
        user = rng.permutation(np.repeat(np.arange(users, dtype=np.int32), samples))
        user_names = pa.array([f"u{number:08d}" for number in range(users)])
        part = path.with_suffix(".part")
        with pq.ParquetWriter(part, pa.schema([("user", pa.string()), ("item", pa.string())])) as writer:
            for start in range(0, len(user), 1 << 20):
                some = user[start : start + (1 << 20)]
                item = np.searchsorted(law, rng.random(len(some)) * law[-1])
                columns = {"user": user_names.take(pa.array(some)), "item": pa.array(names).take(pa.array(item))}
                writer.write_table(pa.table(columns))
        part.rename(path)
    domain.write_text("\n".join(names))
    return path, domain


def speed(args: argparse.Namespace) -> None:
    """Whole jobs, in turns, and the choices of all symbols alone."""
    users, samples, symbols = args.size
    path, domain = sample_log(users, samples, symbols, args.data)
    budget = f"--epsilon {BUDGET.epsilon:g} --delta {BUDGET.delta:g}"
    jobs = {"histogram": f"histogram {budget} --of events --bound {samples}"}
    for method in args.methods:
        jobs[f"distribution, {method}"] = f"distribution {budget} --samples-per-user {samples} --method {method}"
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in jobs}
    out = args.out / "jobs"
    for _, (name, words) in itertools.product(range(args.repeats), jobs.items()):
        shutil.rmtree(out, ignore_errors=True)
        flags = ["--input", str(path), "--user", "user", "--item", "item", "--output", str(out / "result")]
        if name != "histogram":
            flags += ["--domain", str(domain)]
        seen[name].append(run(headcount([*words.split(), *flags])))
    lines = []
    for name, times in seen.items():
        wall, ratio = min(times)[0], min(times)[0] / min(seen["histogram"])[0]
        lines.append({"job": name, "seconds": f"{wall:.2f}", "cpu_seconds": f"{min(cpu for _, cpu, _ in times):.2f}"})
        lines[-1] |= {"peak_mb": f"{max(peak for _, _, peak in times):.0f}", "times_the_histogram": f"{ratio:.2f}"}
        print("  ".join(f"{value:>24}" for value in lines[-1].values()), flush=True)
        if name != "histogram":
            check(ratio <= SPEED, f"{name}: {ratio:.2f} times the histogram, at most {SPEED}")
    write_csv(lines, args.out / "paper004_speed.csv")
    p = np.random.default_rng(1).dirichlet(np.ones(symbols))
    held = [
        np.bincount(np.random.default_rng([2, i]).binomial(samples, p[i], users), minlength=2) for i in range(symbols)
    ]
    values = [np.flatnonzero(each[1:]) + 1 for each in held]
    having = np.concatenate([each[value] for each, value in zip(held, values, strict=True)])
    offsets = np.append(0, np.cumsum([len(each) for each in values]))
    tables = ValueCounts(pa.array(domain.read_text().split()), offsets, np.concatenate(values), having)
    choice = plan_distribution(BUDGET, symbols, samples, Relation.ADD_REMOVE, users, "dense").choice(users)
    start = time.monotonic()
    choice.estimates(tables, seed(0), 0)
    seconds = time.monotonic() - start
    check(seconds < 10, f"the choices of {symbols} symbols take {seconds:.2f} s on one worker, at most 10")


def main() -> None:
    """Runs the parts that are asked for."""
    parts = {"table": table, "falling": falling, "speed": speed}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(parts), default=["table", "falling"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--size", type=int, nargs=3, default=[1_000_000, 20, 1000], metavar=("USERS", "SAMPLES", "SYMBOLS")
    )
    parser.add_argument("--methods", nargs="+", default=["auto", "dense", "sparse"], help="of the jobs of speed")
    parser.add_argument("--repeats", type=int, default=1, help="of the jobs of speed")
    parser.add_argument("--data", type=Path, default=DATA, help="where generated logs are kept (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for part in args.parts:
        parts[part](args)


if __name__ == "__main__":
    main()
