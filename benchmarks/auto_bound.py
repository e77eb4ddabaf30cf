"""The bound that is chosen privately, against the best one that can be found by hand with the same data and budget.

    python benchmarks/auto_bound.py --data words=FILE --data authors=FILE:0.85

Each FILE is Parquet with the columns user, item and count; the number after it is the share of the best that the objective
"error" must save there (0.9 unless given). By hand means: every bound, cap on one item and noise is tried with the *whole*
budget, and the best is taken, which no private release may do. The choice pays its share of the budget for itself.

Saved is the total count less the l1 error over all items; a release that shows nothing saves nothing. For each bound, a
sample of every user is drawn by the shipped step (some samples, if the data are small); noise and threshold are the shipped
calibration's, and error and items are expectations over the noise, exact. What the choice is worth is an expectation over
its draw, with the exact probabilities of all candidates. `--runs N` runs the shipped mechanism as a whole N times beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import pyarrow as pa
from _quality import Worth, as_shard, bounded_sums, item_totals, plan_for, read_batch, seed, table_of, worth
from _shared import OUT, write_csv

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.by_name.methods import choose_unknown_domain
from headcount.mechanisms.bound_choice.joint import OBJECTIVES, JointChoice
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.choice.run import default_share, split_budget
from headcount.mechanisms.histogram.auto import auto_unbounded_histogram
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

RELATION = Relation.ADD_REMOVE
NOISES = ("laplace", "gaussian")
DRAWN_PAIRS, MOST_DRAWS = 2_000_000, 20  # small data are sampled several times at each bound
ITEMS_BAR, SAVED_BAR = 0.9, 0.9
Way = tuple[int, int | None, str]  # bound, cap on one item, noise


@dataclasses.dataclass(frozen=True)
class Auto:
    """A choice for an objective, with the probability of each of its candidates."""

    choice: JointChoice
    chances: dict[Way, float]

    @classmethod
    def on(cls, shard: Shard, budget: Budget, objective: str) -> Auto:
        """The choice with the default share of the budget."""
        costs, rest = split_budget(budget, default_share(objective), "auto")
        choice = choose_unknown_domain(costs, rest, RELATION, objective=objective)
        chances = probabilities(choice.exponents(table_of(choice, [shard])))
        ways = [(c.bound, c.cap, c.noise) for c in choice.candidates]
        return cls(choice, dict(zip(ways, chances.tolist(), strict=True)))

    def expected(self, found: dict[Way, Worth]) -> Worth:
        """What the release after the choice is worth, over its draw."""
        parts = [(chance, found[way]) for way, chance in self.chances.items()]
        return Worth(sum(p * w.error for p, w in parts), sum(p * w.items for p, w in parts))

    def most_likely(self, number: int) -> str:
        """The likeliest candidates in words."""
        ranked = sorted(self.chances.items(), key=lambda entry: -entry[1])[:number]
        return ", ".join(f"{words(way)} {chance:.3f}" for way, chance in ranked)


def words(way: Way) -> str:
    """A way to release in a few letters."""
    bound, cap, noise = way
    return f"({bound}, {'-' if cap is None else cap}, {noise})"


def try_all(shard: Shard, bounds: Sequence[int], budgets: Sequence[Budget]) -> dict[Budget, dict[Way, Worth]]:
    """What every way to release is worth with each of the budgets."""
    true, most = item_totals([shard]), int(shard.totals().max())
    found: dict[Budget, dict[Way, Worth]] = {budget: {} for budget in budgets}
    draws = max(1, min(MOST_DRAWS, DRAWN_PAIRS // len(shard.count)))
    for bound in bounds:
        caps = [None, *(cap for cap in tuning.CAPS if cap <= bound)]
        samples = [dict(bounded_sums([shard], bound, caps, seed(k))) for k in range(draws if bound < most else 1)]
        for cap, noise, budget in itertools.product(caps, NOISES, budgets):
            plan = plan_for(budget, bound, cap, noise, RELATION)
            each = [worth(plan, true, sums[cap]) for sums in samples]
            found[budget][bound, cap, noise] = Worth(
                statistics.fmean(w.error for w in each), statistics.fmean(w.items for w in each)
            )
    return found


def measure(name: str, batch: pa.RecordBatch, args: argparse.Namespace, saved_bar: float) -> list[dict[str, str]]:
    """Prints and writes the grid and the choices of one data set; returns the lines of the summary."""
    budget, shard = Budget(args.epsilon, args.delta), as_shard(batch)
    autos = {objective: Auto.on(shard, budget, objective) for objective in OBJECTIVES}
    steps = 4 * args.per_decade
    bounds = sorted({*tuning.BOUNDS_OF_ONE_STAGE, *(round(10 ** (k / args.per_decade)) for k in range(steps + 1))})
    rests = {objective: auto.choice.release_budget for objective, auto in autos.items()}
    found = try_all(shard, bounds, [budget, *rests.values()])
    total = int(item_totals([shard]).sum())
    whole = found[budget]
    best = {"error": min(whole, key=lambda w: whole[w].error), "items": max(whole, key=lambda w: whole[w].items)}
    lines = []
    for objective, auto in autos.items():
        got, top = auto.expected(found[rests[objective]]), whole[best[objective]]
        bar = saved_bar if objective == "error" else ITEMS_BAR
        ratio = (total - got.error) / (total - top.error) if objective == "error" else got.items / top.items
        print(
            f"{'PASS' if ratio >= bar else 'FAIL'}  {name}, {objective}: {ratio:.4f} of the best by hand (bar {bar})\n"
            f"      by hand {words(best[objective])}: saves {total - top.error:.0f} of {total}, {top.items:.1f} items\n"
            f"      chosen: saves {total - got.error:.0f}, {got.items:.1f} items; {auto.most_likely(4)}",
            flush=True,
        )
        rested = found[rests[objective]]
        own = [rested[way] for way in auto.chances]
        best_own = min(w.error for w in own) if objective == "error" else max(w.items for w in own)
        reached = got.error / best_own if objective == "error" else got.items / best_own
        print(f"      against the best candidate at the release's own budget: {reached:.4f} of its {objective}")
        lines.append(
            {
                "data": name,
                "objective": objective,
                "by hand": words(best[objective]),
                "hand saves": f"{total - top.error:.0f}",
                "hand items": f"{top.items:.1f}",
                "likeliest": auto.most_likely(1),
                "auto saves": f"{total - got.error:.0f}",
                "auto items": f"{got.items:.1f}",
                "ratio": f"{ratio:.4f}",
                "bar": f"{bar}",
            }
        )
    write_grid(name, found, budget, autos, total, args.out)
    plot(name, whole, autos, total, args.out)
    for number in range(args.runs):
        run_shipped(name, batch, shard, budget, number)
    return lines


def write_grid(
    name: str,
    found: dict[Budget, dict[Way, Worth]],
    budget: Budget,
    autos: dict[str, Auto],
    total: int,
    folder: Path,
) -> None:
    """All ways to release with the whole budget, and beside them those of each choice, with its probability."""
    lines = []
    for way, value in found[budget].items():
        line = {"bound": str(way[0]), "cap": str(way[1] or ""), "noise": way[2]}
        line |= {"saved": f"{total - value.error:.1f}", "items": f"{value.items:.3f}"}
        for objective, auto in autos.items():
            own, chance = found[auto.choice.release_budget][way], auto.chances.get(way)
            line |= {
                f"{objective}: saved": f"{total - own.error:.1f}",
                f"{objective}: items": f"{own.items:.3f}",
                f"{objective}: chance": "" if chance is None else f"{chance:.6g}",
            }
        lines.append(line)
    write_csv(lines, folder / f"auto_bound_{name}.csv")


def plot(name: str, whole: dict[Way, Worth], autos: dict[str, Auto], total: int, folder: Path) -> None:
    """Saved and items over the bound, for the best cap and noise, with the probabilities of the choice below."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4))
    bounds = sorted({way[0] for way in whole})
    for axis, (objective, auto) in zip(axes, autos.items(), strict=True):
        for noise in NOISES:
            values = []
            for bound in bounds:
                ways = [value for way, value in whole.items() if way[0] == bound and way[2] == noise]
                values.append(max(total - w.error if objective == "error" else w.items for w in ways))
            axis.plot(bounds, values, marker=".", label=f"{noise}, best cap, whole budget")
        axis.set(xscale="log", xlabel="bound", ylabel="counts saved" if objective == "error" else "items released")
        axis.set_title(f"{name}: objective {objective}")
        beside = axis.twinx()
        own = sorted({way[0] for way in auto.chances})
        sums = [sum(p for way, p in auto.chances.items() if way[0] == bound) for bound in own]
        beside.vlines(own, 0, sums, color="grey", lw=4, alpha=0.5)
        beside.set(ylim=(0, 1), ylabel="probability of the choice (grey)")
        axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(folder / f"auto_bound_{name}.png", dpi=120)
    plt.close(figure)


def run_shipped(name: str, batch: pa.RecordBatch, shard: Shard, budget: Budget, number: int) -> None:
    """One release of each objective by the shipped mechanism as a whole."""
    item_type = int if pa.types.is_int64(shard.items.type) else str
    true = dict(zip(shard.items.to_pylist(), item_totals([shard]).tolist(), strict=True))
    total = sum(true.values())
    with tempfile.TemporaryDirectory() as scratch:
        write_key_file(Path(scratch, "key"))
        for objective in OBJECTIVES:
            histogram = auto_unbounded_histogram(budget, objective=objective, item_type=item_type)
            rows = histogram.run([batch], Release(KeyFile(Path(scratch, "key")))).to_pydict()
            known = [true[item] for item in rows["item"]]
            error = total - sum(known) + float(np.abs(np.array(known, float) - np.array(rows["bounded_count"])).sum())
            noise = f"{rows['noise_stddev'][0]:.1f}" if known else "unknown"
            print(
                f"      run {number + 1} of {name}, {objective}: saves {total - error:.0f}, {len(known)} items, noise of "
                f"stddev {noise}",
                flush=True,
            )


def main() -> None:
    """Measures all data sets, prints the bars, and writes grids, plots and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME=FILE[:BAR]", help="may be repeated")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--per-decade", type=int, default=12, help="bounds tried by hand in a factor of ten")
    parser.add_argument("--runs", type=int, default=0, help="whole releases beside the expectations")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for data in args.data:
        name, _, rest = data.partition("=")
        path, _, bar = rest.partition(":")
        lines += measure(name, read_batch(Path(path)), args, float(bar or SAVED_BAR))
    write_csv(lines, args.out / "auto_bound.csv")


if __name__ == "__main__":
    main()
