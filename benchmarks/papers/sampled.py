"""The paper "Sample-and-threshold differential privacy: Histograms and applications": its parameters beside ours.

    python benchmarks/papers/sampled.py                                  # tables, accuracy over n, quantiles
    python benchmarks/papers/sampled.py --parts items --data words=FILE --data authors=FILE

Parts:
    choice      rate and threshold by the exact curve and by Theorem 1, and what each needs to show an item
    several     the same for users with several items, beside central Laplace noise with a threshold
    levels      trees of L levels: by loss distributions, by basic composition, by disjoint groups of users, and the paper's
    rounds      heavy hitters at once, and by L rounds as the trie of Zhu et al. (2020) has them, which the paper compares with
    accuracy    the error of items' shares over the number of users, also of the shuffle protocol that the paper compares with
    quantiles   1,000,000 users of Beta(2, 5), ten levels: errors of ranks and of ranges
    items       on Parquet files with the columns user, item and count: how many of the true items each method shows

Numbers of users at which an item is shown are exact, as are the expected numbers of items shown. Sampled values are drawn by
the shipped sampler, and quantiles by the shipped mechanism. Writes a CSV for each part, and plots; prints what must hold as
PASS or FAIL.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import _path  # noqa: F401
import matplotlib
import numpy as np
import pyarrow as pa
from _quality import as_shard, item_totals, read_batch, seed, worth
from _shared import OUT, write_csv
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.bounding.clipping import limit_items, limit_per_item
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_unknown_domain
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.randomness.binomial import binomial
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.sampled.divergence import sampled_delta
from headcount.mechanisms.sampled.plan import SamplePlan, calibrate_sample, laplace_w50, paper_parameters
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy, quantile_search

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

BUDGET = Budget(1, 1e-8)
USERS = 1_000_000
Line = dict[str, str]

#: (epsilon, delta): p, theta, W50, W95 as found by a search of its own, and the paper's W95.
CHOICES = {
    (0.1, 1e-8): (0.0609, 32, 526, 682, 6803),
    (0.5, 1e-8): (0.2038, 27, 132, 172, 1642),
    (1, 1e-6): (0.3500, 20, 57, 75, 643),
    (1, 1e-8): (0.2882, 23, 80, 104, 1021),
    (1, 1e-10): (0.3119, 33, 106, 132, 1481),
    (2, 1e-8): (0.4122, 23, 56, 71, 745),
    (4, 1e-8): (0.4160, 21, 50, 65, 656),
}


def check(holds: bool, claim: str) -> None:
    """Says whether a claim holds."""
    print(f"{'PASS' if holds else 'FAIL'}: {claim}", flush=True)


def paper_plan(budget: Budget, compositions: int = 1) -> SamplePlan:
    """Theorem 1's rate and threshold, each part of a composition with an equal share of both parameters."""
    rate, threshold = paper_parameters(budget.epsilon / compositions, budget.delta / compositions)
    return SamplePlan(rate, threshold, budget.epsilon, budget.delta, Relation.ADD_REMOVE, compositions)


def choice() -> list[Line]:
    """Table 1.4 of the specification: (p, theta) for pairs of (epsilon, delta)."""
    lines = []
    for (epsilon, delta), (p, theta, w50, w95, paper_w95) in CHOICES.items():
        budget = Budget(epsilon, delta)
        ours, paper = calibrate_sample(budget), paper_plan(budget)
        exact = sampled_delta(epsilon, paper.rate, paper.threshold)
        lines.append(
            {
                "epsilon": f"{epsilon:g}",
                "delta": f"{delta:g}",
                "p": f"{float(ours.rate):.4f}",
                "theta": str(ours.threshold),
                "W50": str(ours.w50),
                "W95": str(ours.w95),
                "paper p": f"{float(paper.rate):.4f}",
                "paper theta": str(paper.threshold),
                "paper W95": str(paper.w95),
                "gain": f"{paper.w95 / ours.w95:.1f}",
                "delta at the paper's": f"{exact:.2g}",
                "Laplace W50": str(laplace_w50(budget)),
            }
        )
        good = (
            abs(float(ours.rate) - p) < 2e-4 and ours.threshold == theta and abs(ours.threshold / ours.rate - w50) <= 1
        )
        good = good and ours.w95 == w95 and abs(paper.w95 - paper_w95) <= 0.01 * paper_w95
        check(
            good, f"({epsilon:g}, {delta:g}): p {p}, theta {theta}, W50 {w50} +- 1, W95 {w95}, the paper's {paper_w95}"
        )
    gains = [float(line["gain"]) for line in lines]
    check(min(gains) >= 8, f"items {min(gains)} to {max(gains)} times rarer than by the paper's parameters")
    return lines


def several() -> list[Line]:
    """Users with several items: coins of their own for each, beside noise."""
    lines = []
    for items in (1, 2, 5, 10, 20, 50, 100):
        plan, paper = calibrate_sample(BUDGET, "w50", compositions=items), paper_plan(BUDGET, items)
        line = {"items": str(items), "p": f"{float(plan.rate):.4f}", "theta": str(plan.threshold), "W50": str(plan.w50)}
        lines.append(line | {"Laplace W50": str(laplace_w50(BUDGET, items=items)), "paper W50": str(paper.w50)})
    return lines


def levels() -> list[Line]:
    """Table 1.9: trees of L levels."""
    lines = []
    for count, (printed, basic, disjoint, paper) in {
        5: (100, 320, 411, 3049),
        10: (115, 630, 823, 5983),
        20: (140, 1230, 1645, 12516),
    }.items():
        part = Budget(BUDGET.epsilon / count, BUDGET.delta / count)
        ours = calibrate_sample(BUDGET, "w50", compositions=count)
        found = (
            calibrate_sample(part, "w50").w50,
            count * calibrate_sample(BUDGET, "w50").w50,
            paper_plan(BUDGET, count).w50,
        )
        line = {"L": str(count), "p": f"{float(ours.rate):.4f}", "theta": str(ours.threshold), "W50": str(ours.w50)}
        names = ("basic composition W50", "disjoint groups W50", "paper W50")
        lines.append(line | dict(zip(names, map(str, found), strict=True)))
        near = all(abs(a / b - 1) < 0.06 for a, b in zip(found, (basic, disjoint, paper), strict=True))
        check(ours.w50 <= printed and near, f"L = {count}: W50 {ours.w50} <= {printed}; the others within 6 %")
    return lines


def rounds() -> list[Line]:
    """Heavy hitters over words of L letters: one histogram, or L rounds with a part of the budget each."""
    once, paper = calibrate_sample(BUDGET), paper_plan(BUDGET)
    lines = []
    for letters in (1, 5, 10, 20):
        exact, by_paper = calibrate_sample(BUDGET, compositions=letters), paper_plan(BUDGET, letters)
        numbers = {
            "at once": once.w95,
            "L rounds": exact.w95,
            "paper at once": paper.w95,
            "paper L rounds": by_paper.w95,
        }
        lines.append({"L": str(letters)} | {f"{name} W95": str(value) for name, value in numbers.items()})
    return lines


def accuracy(trials: int) -> list[Line]:
    """Mean and largest error of 1000 items' shares by Zipf's law, over the number of users; a hidden item counts as zero."""
    weights = 1 / np.arange(1, 1001)
    shares = weights / weights.sum()
    noisy = calibrate_unknown_domain(BUDGET, Bound(l0=1, l1=1, linf=1), Relation.ADD_REMOVE, "laplace")
    rng, lines = np.random.default_rng(1), []
    for users in (10**4, 10**5, 10**6, 10**7):
        counts = np.floor(shares * users).astype(np.int64)
        truth = counts / users

        def sampled(plan: SamplePlan, counts: np.ndarray = counts) -> np.ndarray:
            ids = rng.integers(0, 2**64, (len(counts), 2), dtype=np.uint64)
            drawn = binomial(Lanes(bytes(32), ids), counts, plan.rate)
            return np.where(drawn >= plan.threshold, drawn, 0) / float(plan.rate)

        def laplace(counts: np.ndarray = counts) -> np.ndarray:
            value = counts + np.rint(rng.laplace(scale=float(noisy.scale), size=len(counts)))
            return np.where((value >= noisy.threshold) & (counts > 0), value, 0.0)

        def shuffled(counts: np.ndarray = counts, users: int = users) -> np.ndarray:
            """Balcer and Cheu (2020): each user also sends every item with a probability of 50 ln(2/delta) / (epsilon^2 n)."""
            extra = min(0.5, 50 * math.log(2 / BUDGET.delta) / (BUDGET.epsilon**2 * users))
            return counts + rng.binomial(users, extra, len(counts)) - users * extra

        methods: dict[str, Callable[[], np.ndarray]] = {
            "sampled, exact": lambda s=sampled: s(calibrate_sample(BUDGET)),
            "sampled, paper": lambda s=sampled: s(paper_plan(BUDGET)),
            "Laplace threshold": laplace,
            "shuffled (local noise)": shuffled,
        }
        for name, method in methods.items():
            off = [np.abs(method() / users - truth) for _ in range(trials)]
            line = {"users": str(users), "method": name, "mean error": f"{np.mean(off):.3g}"}
            lines.append(line | {"largest error": f"{np.mean([each.max() for each in off]):.3g}"})
    return lines


def plot_accuracy(lines: list[Line], path: Path) -> None:
    """Both errors over the number of users."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4))
    for name in dict.fromkeys(line["method"] for line in lines):
        own = [line for line in lines if line["method"] == name]
        for panel, column in zip(panels, ("mean error", "largest error"), strict=True):
            panel.loglog([int(line["users"]) for line in own], [float(line[column]) for line in own], "o-", label=name)
            panel.set(xlabel="users", ylabel=f"{column} of an item's share")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_several(lines: list[Line], path: Path) -> None:
    """From how many users on an item is shown, over the items of a user."""
    figure, panel = plt.subplots(figsize=(6, 4))
    for column in ("W50", "Laplace W50", "paper W50"):
        label = "sampled, exact W50" if column == "W50" else column
        panel.loglog([int(line["items"]) for line in lines], [int(line[column]) for line in lines], "o-", label=label)
    panel.set(xlabel="items of a user", ylabel="users from which on an item is shown")
    panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_items(lines: list[Line], path: Path) -> None:
    """Items shown by each method over the items of a user, a panel for each set, at the first promise."""
    names = list(dict.fromkeys(line["data"] for line in lines))
    figure, panels = plt.subplots(1, len(names), figsize=(5 * len(names), 4), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        first = lines[0]["epsilon"], lines[0]["delta"]
        own = [line for line in lines if line["data"] == name and (line["epsilon"], line["delta"]) == first]
        for method in list(own[0])[4:]:
            found = [max(0.1, float(line[method])) for line in own]
            panel.loglog([int(line["items per user"]) for line in own], found, "o-", label=method)
        panel.set(title=name, xlabel="items of a user", ylabel="items shown")
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def quantiles(trials: int, release: Callable[[int], Release]) -> list[Line]:
    """Ranks of 99 quantiles and counts of 100 ranges, by the tree, by the paper's parameters in it, and by the search."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.beta(2, 5, USERS))
    wanted = [check_share("quantile", k / 100) for k in range(1, 100)]
    ranges = [tuple(sorted(rng.random(2).tolist())) for _ in range(100)]
    true = np.array([np.searchsorted(x, high) - np.searchsorted(x, low) for low, high in ranges])
    hierarchy = quantile_hierarchy(BUDGET, 0, 1, levels=10)
    batch = contribution_batch(pa.array(np.arange(USERS)), pa.array(hierarchy.leaves.index(x)))
    ways = {
        "tree, exact": hierarchy,
        "tree, paper": dataclasses.replace(hierarchy, plan=paper_plan(BUDGET, 10)),
    }
    lines = []
    for name, way in ways.items():
        ranks, counts = [], []
        for trial in range(trials):
            tree = way.tree(way.run([batch], release(trial)))
            values = np.asarray(tree.quantiles(wanted).column("value"))
            ranks.append(np.abs(np.searchsorted(x, values) / USERS - np.array(wanted, dtype=float)))
            counts.append(np.abs(np.asarray(tree.range_counts(ranges).column("count")) - true) / USERS)
        numbers = [np.mean(ranks), np.max(ranks), np.mean(counts), np.max(counts)]
        names = ("mean rank error", "largest rank error", "mean range error", "largest range error")
        lines.append({"method": name} | {what: f"{value:.5f}" for what, value in zip(names, numbers, strict=True)})
        if name == "tree, exact":
            check(
                numbers[0] <= 0.002 and numbers[2] <= 0.0012,
                f"mean rank error {numbers[0]:.5f} <= 0.002, mean range error {numbers[2]:.5f} <= 0.0012",
            )
    searched = []
    for q in (0.1, 0.25, 0.5, 0.75, 0.9):
        (row,) = quantile_search(BUDGET, q, 0, 1).run([batch], release(0)).to_pylist()
        searched.append(abs(np.searchsorted(x, row["value"]) / USERS - q))
    line = {"method": "search (one quantile)", "mean rank error": f"{np.mean(searched):.5f}"}
    return [
        *lines,
        line | {"largest rank error": f"{np.max(searched):.5f}", "mean range error": "", "largest range error": ""},
    ]


def items(sets: dict[str, str], pairs: list[tuple[float, float]]) -> list[Line]:
    """How many true items each method shows, in expectation, for users cut to some of their items."""
    lines = []
    for name, path in sets.items():
        shard = limit_per_item(as_shard(read_batch(Path(path))), 1)
        for per_user in (1, 5, 10, 100):
            sums = item_totals([limit_items(shard, per_user, seed(per_user))])
            held = sums[sums > 0]
            for epsilon, delta in pairs:
                budget = Budget(epsilon, delta)
                exact = calibrate_sample(budget, compositions=per_user)
                found = {
                    "sampled exact": _shown(exact, held),
                    "sampled paper": _shown(paper_plan(budget, per_user), held),
                }
                bound = Bound(l0=per_user, l1=per_user, linf=1)
                for kind in ("laplace", "gaussian"):
                    plan = calibrate_unknown_domain(budget, bound, Relation.ADD_REMOVE, kind)
                    found[f"{kind.capitalize()} threshold"] = worth(plan, held, held).items
                line = {"data": name, "epsilon": f"{epsilon:g}", "delta": f"{delta:g}", "items per user": str(per_user)}
                lines.append(line | {method: f"{count:.1f}" for method, count in found.items()})
                print("  ".join(lines[-1].values()), flush=True)
    return lines


def _shown(plan: SamplePlan, counts: np.ndarray) -> float:
    return float(stats.binom.sf(plan.threshold - 1, counts, float(plan.rate)).sum())


def main() -> None:
    """Runs the parts, and writes a table of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["choice", "several", "levels", "rounds", "accuracy", "quantiles", "items"]
    parser.add_argument("--parts", nargs="+", choices=names, default=names)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sets = dict(entry.split("=", 1) for entry in args.data)
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        write_key_file(str(key))
        parts: dict[str, Callable[[], list[Line]]] = {
            "choice": choice,
            "several": several,
            "levels": levels,
            "rounds": rounds,
            "accuracy": lambda: accuracy(args.trials),
            "quantiles": lambda: quantiles(args.trials, lambda trial: Release(KeyFile(str(key)), f"trial-{trial}")),
            "items": lambda: items(sets, [(1, 1e-8), (1, 1e-6), (0.5, 1e-8)]) if sets else [],
        }
        plots = {"accuracy": plot_accuracy, "several": plot_several, "items": plot_items}
        for name in args.parts:
            lines = parts[name]()
            if not lines:
                continue
            print("  ".join(f"{column:>22}" for column in lines[0]))
            for line in lines:
                print("  ".join(f"{value:>22}" for value in line.values()), flush=True)
            write_csv(lines, args.out / f"sampled_{name}.csv")
            if name in plots:
                plots[name](lines, args.out / f"sampled_{name}.png")


if __name__ == "__main__":
    main()
