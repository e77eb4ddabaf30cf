"""The paper "Algorithms for bounding contribution for histogram estimation under user-level privacy", reproduced.

    python benchmarks/papers/contribution_bounds.py                       # Table 1, Figures 2 to 6, on synthetic data
    python benchmarks/papers/contribution_bounds.py --parts table bounded --reddit FILE --authors FILE
    python benchmarks/papers/contribution_bounds.py --parts printed       # Table 1 as printed: 500,000 users, Dir(2)

Parts: table (Table 1 and Figure 3), printed, bounded (Figures 2, 5 and 6), debiasing (Figure 4). The two files are Parquet
with the columns user, item and count; without them synthetic data alone are used. Writes a CSV and a plot for each, and
prints what must hold as PASS or FAIL.

Errors are expectations: exact over the noise; over the draw of a choice by the probabilities of all its candidates, which
is better than any number of draws (descent and output perturbation: 200 draws). Sums are expected ones where no cap on one
item is involved, else one sample by the shipped step. The relation is adding or removing a user. "Best", "C*", "median",
"90 %", "TQ" and "Min" look at the data and are not private: they are references, and the product does not have them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import _path  # noqa: F401
import matplotlib
import numpy as np
from _data import most_frequent, skewed, synthetic
from _debiasing import measure as measure_debiased
from _debiasing import poisson_users
from _public_domain import Domain, auto_ratio, domain_of
from _quality import as_shard, read_batch
from _shared import OUT, write_csv
from _unknown_domain import Curve, Row, measure

from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

# Table 1 of the paper: Best C, Private C*, Median, 90 % quantile.
PRINTED = {
    ("iid", 50): (0.001, 0.0015, 0.0397, 0.0049),
    ("iid", 100): (0.0026, 0.0026, 0.0394, 0.0053),
    ("iid", 200): (0.0048, 0.0048, 0.0397, 0.0068),
    ("non-iid", 50): (0.0094, 0.0124, 0.6957, 0.1645),
    ("non-iid", 100): (0.0175, 0.0224, 0.6957, 0.1685),
    ("non-iid", 200): (0.0461, 0.0462, 0.7016, 0.1713),
}
SIZES = (100, 200, 500, 1000, 2000, 5000)
ALPHAS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 50)
EPSILON = 0.1  # of the choice, in Figures 2, 5 and 6
WITHIN, RATIO = 1.9, 1.2
Data = dict[str, tuple[Shard, int]]  # by name: all users in one shard, and their number


def check(holds: bool, what: str) -> None:
    """One line of what must hold."""
    print(f"{'PASS' if holds else 'FAIL'}  {what}", flush=True)


def table(args: argparse.Namespace, data: Data) -> None:
    """Table 1 at the parameters that match its numbers (50,000 users, Dir(1/2)), and Figure 3."""
    rows = dict(synthetic_rows(50_000, 0.5, args.seed, True))
    curves = {"non-iid, 50 items": rows["non-iid", 50].curve}
    for name, (shard, users) in data.items():
        for support in (100, 1000):
            rows[name, support] = measure([most_frequent(shard, support)], users)
            print(line_of((name, support), rows[name, support]), flush=True)
        curves[f"{name}, 1000 items"] = rows[name, 1000].curve
    for (law, support), row in rows.items():
        what = f"Table 1, {law} {support}: auto {row.auto.error:.4f}"
        if (law, support) in PRINTED:
            ratio = row.auto.ratio
            check(
                ratio <= WITHIN, f"{what} is {ratio:.2f} times the best candidate's {row.auto.best:.4f} (bar {WITHIN})"
            )
        against = f"{what}, against {row.quantile:.4f} at the 90 % quantile"
        if law == "non-iid":
            check(row.auto.error < row.quantile, against)
        else:
            print(f"      {against}", flush=True)
    write_csv([line_of(key, row) for key, row in rows.items()], args.out / "paper000_table1.csv")
    figure3(curves, args.out)


def printed(args: argparse.Namespace, data: Data) -> None:
    """Table 1 as printed: 500,000 users, Dir(2). Its own columns only."""
    rows = dict(synthetic_rows(500_000, 2.0, args.seed, False))
    write_csv([line_of(key, row) for key, row in rows.items()], args.out / "paper000_table1_printed.csv")


def synthetic_rows(users: int, concentration: float, seed: int, joint: bool) -> Iterator[tuple[tuple[str, int], Row]]:
    """The six rows of the paper's own data."""
    for law, support in PRINTED:
        rng = np.random.default_rng([seed, support])
        shards = synthetic(users, support, None if law == "iid" else concentration, rng)
        row = measure(shards, users, joint)
        print(line_of((law, support), row), flush=True)
        yield (law, support), row


def line_of(key: tuple[str, int], row: Row) -> dict[str, str]:
    """A row with the paper's numbers beside ours."""
    line = {"data": key[0], "items": str(key[1])}
    names = ("best", "private", "median", "90 %")
    line |= {f"paper {name}": str(value) for name, value in zip(names, PRINTED.get(key, ("",) * 4), strict=True)}
    line |= {"best": f"{row.best:.5f}"} | {f"private {name}": f"{error:.5f}" for name, error in row.private.items()}
    line |= {"median": f"{row.median:.5f}", "90 %": f"{row.quantile:.5f}"}
    if row.auto is not None:
        line |= {"auto": f"{row.auto.error:.5f}", "best candidate": f"{row.auto.best:.5f}"}
        line |= {"auto / best": f"{row.auto.ratio:.3f}", "likeliest": row.auto.likeliest}
    return line


def figure3(curves: dict[str, Curve], folder: Path) -> None:
    """Error and V over the bound, and their ratio."""
    figure, axes = plt.subplots(len(curves), 2, figsize=(10, 3.5 * len(curves)), squeeze=False)
    lines = []
    for (name, curve), (left, right) in zip(curves.items(), axes, strict=True):
        left.plot(curve.bounds, curve.error, label="error of Algorithm 3")
        left.plot(curve.bounds, curve.volume, label="V(C)")
        left.set(title=name, xlabel="C", ylabel="relative to the total", yscale="log")
        left.legend()
        right.plot(curve.bounds, curve.ratio)
        right.set(title="V / error", xlabel="C")
        for bound, error, volume in zip(curve.bounds, curve.error, curve.volume, strict=True):
            lines.append({"data": name, "C": str(bound), "error": f"{error:.6f}", "V": f"{volume:.6f}"})
        low, high = curve.ratio.min(), curve.ratio.max()
        check(low >= 1, f"Figure 3, {name}: V is {low:.2f} to {high:.2f} times the error, never below it")
    save(figure, lines, folder / "paper000_figure3")


def bounded(args: argparse.Namespace, data: Data) -> None:
    """Figures 2, 5 and 6, and the bar of Histogram(auto, Gaussian)."""
    users = 100_000
    data = {"synthetic": (skewed(users, 10_000, np.random.default_rng(args.seed)), users), **data}
    lines, ratios, bars = [], [], []
    for name, (shard, users) in data.items():
        for size in SIZES:
            domain = domain_of(most_frequent(shard, size), users)
            sparsity = max(1, size // 10)
            line = {
                "best": domain.errors.min(),
                "C*": float(domain.error_at(domain.optimum)),
                "DP-M-quantile": domain.exactly("m-quantile", EPSILON, sparsity),
                "C_DPSGD": domain.by_descent(EPSILON, sparsity),
                "C_output": domain.by_perturbation(EPSILON, sparsity, None),
                "C_output, C_m = 150": domain.by_perturbation(EPSILON, sparsity, 150),
                "em": domain.exactly("em", EPSILON, sparsity),
                "gem": domain.exactly("gem", EPSILON, sparsity),
            }
            lines.append({"data": name, "d": str(size)} | {method: f"{error:.5f}" for method, error in line.items()})
            print(lines[-1], flush=True)
            ratio, method = auto_ratio(domain.shard, users)
            told = f"Histogram(auto, Gaussian), {name}, d = {size}: G(C)/G(C*) = {ratio:.4f} by {method}"
            each = {by: f"{auto_ratio(domain.shard, users, by)[0]:.4f}" for by in ("em", "gem", "m-quantile")}
            ratios.append({"data": name, "d": str(size), "auto": f"{ratio:.4f}", "method": method} | each)
            if size in (1000, 5000):
                check(ratio <= RATIO, f"{told} (bar {RATIO})")
            else:
                print(f"      {told}", flush=True)
        for size in (1000, 10_000):
            bars.append({"data": name, "d": str(size)} | figure6(domain_of(most_frequent(shard, size), users)))
            print(bars[-1], flush=True)
    write_csv(ratios, args.out / "paper000_ratios.csv")
    over_size(lines, [name for name in lines[0] if name not in ("data", "d", "C_output, C_m = 150")], args.out, 2)
    over_size(lines, ["C*", "DP-M-quantile", "C_DPSGD", "C_output", "C_output, C_m = 150"], args.out, 5)
    figure, axes = plt.subplots(len(data), 2, figsize=(10, 3.5 * len(data)), squeeze=False)
    for axis, line in zip(axes.flat, bars, strict=True):
        names = [name for name in line if name not in ("data", "d")]
        axis.bar(names, [float(line[name]) for name in names])
        axis.set(title=f"{line['data']}, d = {line['d']}", ylabel="relative error")
        axis.tick_params("x", labelsize="small")
    save(figure, bars, args.out / "paper000_figure6")


def figure6(domain: Domain) -> dict[str, str]:
    """The bars of Figure 6, by the paper's names."""
    found = {
        "TQ": float(domain.error_at(domain.quantile)),
        "PQ": domain.exactly("m-quantile", EPSILON, domain.size),
        "P2-Opt": domain.by_descent(EPSILON, domain.size),
        "PS2-Opt": domain.by_descent(EPSILON, domain.size // 10),
        "T2-Opt": float(domain.error_at(domain.optimum)),
        "Min": domain.errors.min(),
    }
    return {name: f"{error:.5f}" for name, error in found.items()}


def over_size(lines: Sequence[dict[str, str]], methods: Sequence[str], folder: Path, number: int) -> None:
    """Errors of methods over the size of the domain, one plot for each data set."""
    names = list(dict.fromkeys(line["data"] for line in lines))
    figure, axes = plt.subplots(1, len(names), figsize=(5.5 * len(names), 4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        own = [line for line in lines if line["data"] == name]
        for method in methods:
            axis.plot([int(line["d"]) for line in own], [float(line[method]) for line in own], marker=".", label=method)
        axis.set(title=name, xlabel="d", ylabel="relative error", xscale="log", yscale="log")
        axis.legend(fontsize="small")
    kept = [{key: line[key] for key in ("data", "d", *methods)} for line in lines]
    save(figure, kept, folder / f"paper000_figure{number}")


def debiasing(args: argparse.Namespace, data: Data) -> None:
    """Figure 4: a cap of 2 on a mean of 1, with a million users."""
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        write_key_file(Path(scratch, "key"))
        for alpha in ALPHAS:
            counts = poisson_users(1_000_000, alpha, np.random.default_rng(args.seed))
            found = measure_debiased(counts, 2, Release(KeyFile(Path(scratch, "key"))))
            lines.append({"alpha": str(alpha), "clipped": f"{found.clipped:.5f}", "debiased": f"{found.debiased:.5f}"})
            told = f"Figure 4, alpha {alpha}: debiased {found.debiased:.4f}, clipped {found.clipped:.4f}"
            if alpha >= 0.5:
                check(found.debiased < found.clipped, told)
            else:
                print(f"      {told}", flush=True)
    figure, axis = plt.subplots()
    for name in ("clipped", "debiased"):
        axis.plot(ALPHAS, [float(line[name]) for line in lines], marker=".", label=name)
    axis.set(xscale="log", xlabel="alpha", ylabel="relative error", title="One item, cap 2, mean 1")
    axis.legend()
    save(figure, lines, args.out / "paper000_figure4")


def save(figure: Figure, lines: Sequence[dict[str, str]], path: Path) -> None:
    """A plot and its numbers, under one name."""
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=120)
    plt.close(figure)
    write_csv(lines, path.with_suffix(".csv"))


PARTS: dict[str, Callable[[argparse.Namespace, Data], None]] = {
    "table": table,
    "printed": printed,
    "bounded": bounded,
    "debiasing": debiasing,
}


def main() -> None:
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["table", "bounded", "debiasing"])
    parser.add_argument("--reddit", type=Path, help="words of posts, or any other such file")
    parser.add_argument("--authors", type=Path, help="authors of packages, or any other such file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data = {}
    for name in ("reddit", "authors"):
        if (path := getattr(args, name)) is not None:
            shard = as_shard(read_batch(path))
            data[name] = shard, len(shard.users)
    for part in args.parts:
        PARTS[part](args, data)


if __name__ == "__main__":
    main()
