"""Items that each strategy of partition selection names, the mass that they miss, and the private choice beside the best.

    python benchmarks/partitions.py --data words=FILE --data authors=FILE

Data are the log of the demo, the laws of `_laws`, and each FILE, Parquet with the columns user, item and count; `--only` takes
some. A run is the shipped mechanism, with its steps, weights, noise and thresholds, but for random keys in place of lanes that
depend on the data, which saves hashing all of them again in each run. "By hand" is the best strategy and number of items per
user with the whole budget: nobody may look for it in the data. `auto` is the mean over its choices by their exact chances, each
run as it would be (choices below one in a hundred are left out). The missing mass is the share of all pairs of a user and an
item whose item is not named: who names many rare items may still miss more.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from _quality import as_shard, data_sets, table_of
from _shared import OUT, write_csv

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.counting.noisy import noise_of
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.rounds import Round, rounds_of
from headcount.mechanisms.randomness.lanes import Lanes

RELATION = Relation.ADD_REMOVE
BAR = 0.9
LEAST = 0.01
# Numbers of items per user; sips and law have their rounds by default, and "law, one round" has one.
GRID = {
    "laplace": (1, 3),
    "truncated-geometric": (1,),
    "gaussian": (3, 10, 30),
    "weighted-laplace": (10,),
    "weighted-gaussian": (3, 10, 30, 100, 300, 1000, 3000),
    "sips": (3, 10, 30, 100, 300, 1000, 3000),
    "law": (1, 3, 10, 30, 100, 300, 1000, 3000),
    "law, one round": (3, 10, 30, 100, 300, 1000, 3000),
}


def named(shard: Shard, rounds: tuple[Round, ...], random: np.random.Generator) -> np.ndarray:
    """Which items one run names."""
    unnamed = np.ones(len(shard.items), dtype=bool)
    for each in rounds:
        rows = np.flatnonzero(unnamed[shard.item])
        kept = shard.keep(rows, shard.count[rows])
        for step in each.steps:
            kept = step.apply(kept, random.bytes(32))
        sums = sum_by_code(kept.item, kept.count, len(kept.items))
        present = np.flatnonzero(sums)
        ids = np.frombuffer(random.bytes(16 * len(present)), dtype=np.uint64).reshape(-1, 2)
        shift = each.plan.grid - each.plan.bound.grid
        noisy = (sums[present] << shift) + noise_of(each.plan, Lanes(random.bytes(32), ids))
        unnamed[present[noisy >= each.plan.threshold]] = False
    return ~unnamed


def main() -> None:
    """Prints and writes the table of each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    sets = data_sets(args.data)
    budget, lines = Budget(args.epsilon, args.delta), []
    for name in args.only or sets:
        shard = limit_per_item(as_shard(sets[name]()), 1)
        lines += compared(name, shard, budget, args.runs)
    write_csv(lines, args.out / "partitions.csv")


def compared(name: str, shard: Shard, budget: Budget, runs: int) -> list[dict[str, str]]:
    """The lines of one data set: every fixed strategy, and the choice."""
    random, lines = np.random.default_rng(3), []

    def mean(rounds: tuple[Round, ...]) -> np.ndarray:
        found = [named(shard, rounds, random) for _ in range(runs)]
        return np.mean([(each.sum(), 1 - each[shard.item].mean()) for each in found], axis=0)

    def line(strategy: str, items: int, found: np.ndarray) -> dict[str, str]:
        count, missing = found
        numbers = {"mean": f"{count:.1f}", "missing_mass": f"{missing:.4f}"}
        return {"data": name, "strategy": strategy, "max_items": str(items), **numbers}

    for strategy, numbers in GRID.items():
        for items in numbers:
            rounds = 1 if "," in strategy else tuning.ROUNDS
            found = mean(rounds_of(budget, strategy.split(",")[0], items, rounds, RELATION))
            lines.append(line(strategy, items, found))
    best = max(lines, key=lambda line: float(line["mean"]))
    least = min(lines, key=lambda line: float(line["missing_mass"]))
    auto = auto_partitions(budget)
    chances = auto.choice.chances(table_of(auto.choice, [shard]))
    found: dict[int, np.ndarray] = {}
    for number in np.flatnonzero(chances >= LEAST).tolist():
        way = auto.choice.candidates[number]
        found[number] = mean(auto.decided(way.chosen).rounds)
    whole = sum(chances[number] * count for number, count in found.items()) / sum(chances[number] for number in found)
    often = auto.choice.candidates[int(np.argmax(chances))]
    lines.append(line(f"auto ({often.strategy})", often.items, whole))
    ratio = whole[0] / max(float(best["mean"]), 1e-9)
    print(
        f"{'PASS' if ratio >= BAR else 'FAIL'}  {name:>24}  {ratio:.3f}  best {best['strategy']} {best['max_items']}: "
        f"{best['mean']}  auto, {often.strategy} {often.items} by {chances.max():.2f}: {whole[0]:.1f}  "
        f"worst choice {min(count for count, _ in found.values()):.1f}  missing mass of best {best['missing_mass']}, "
        f"auto {whole[1]:.4f}, least ({least['strategy']} {least['max_items']}) {least['missing_mass']}",
        flush=True,
    )
    return lines


if __name__ == "__main__":
    main()
