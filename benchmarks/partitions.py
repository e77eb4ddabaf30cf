"""Items that each strategy of partition selection names, and the private choice among them beside the best in hindsight.

    python benchmarks/partitions.py --data words=FILE --data authors=FILE

Each FILE is Parquet with the columns user, item and count. A run is the shipped mechanism, with its steps, weights, noise and
thresholds, but for random keys in place of lanes that depend on the data, which saves hashing all of them again in each run.
"By hand" is the best strategy and number of items per user with the whole budget: nobody may look for it in the data.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from _quality import as_shard, read_batch, table_of
from _shared import OUT, write_csv

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.counting.noisy import noise_of
from headcount.mechanisms.partitions.auto import ChosenStrategy, auto_partitions
from headcount.mechanisms.partitions.rounds import SIPS_ROUNDS, Round, rounds_of
from headcount.mechanisms.randomness.lanes import Lanes

RELATION = Relation.ADD_REMOVE
BAR = 0.9
# Strategy, rounds (which sips alone has), and numbers of items per user.
GRID = {
    "laplace": (SIPS_ROUNDS, (1, 3, 10)),
    "truncated-geometric": (SIPS_ROUNDS, (1, 3)),
    "gaussian": (SIPS_ROUNDS, (1, 3, 10, 30, 100)),
    "weighted-laplace": (SIPS_ROUNDS, (1, 10, 100)),
    "weighted-gaussian": (SIPS_ROUNDS, (1, 3, 10, 30, 100, 300)),
    "sips, 2 rounds": (2, (10, 30, 100, 300)),
    "sips, 3 rounds": (3, (1, 3, 10, 30, 100, 300)),
}


def named(shard: Shard, rounds: tuple[Round, ...], random: np.random.Generator) -> int:
    """How many items one run names."""
    unnamed, total = np.ones(len(shard.items), dtype=bool), 0
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
        found = present[noisy >= each.plan.threshold]
        unnamed[found] = False
        total += len(found)
    return total


def main() -> None:
    """Prints and writes the table of each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    budget, lines = Budget(args.epsilon, args.delta), []
    for entry in args.data:
        name, path = entry.split("=", 1)
        shard, random = limit_per_item(as_shard(read_batch(Path(path))), 1), np.random.default_rng(3)
        for strategy, (rounds, numbers) in GRID.items():
            for items in numbers:
                made = rounds_of(budget, strategy.split(",")[0], items, rounds, RELATION)
                found = [named(shard, made, random) for _ in range(args.runs)]
                lines.append(_line(name, strategy, items, found))
        best = max(float(line["mean"]) for line in lines if line["data"] == name)
        auto = auto_partitions(budget)
        chances = probabilities(auto.choice.exponents(table_of(auto.choice, [shard])))
        drawn = random.choice(len(chances), size=args.runs, p=chances)
        ways = [auto.choice.candidates[k] for k in drawn]
        chosen = [ChosenStrategy(way.strategy, way.items) for way in ways]
        found = [named(shard, auto.decided(each).rounds, random) for each in chosen]
        often, _ = Counter((each.strategy, each.max_items) for each in chosen).most_common(1)[0]
        lines.append(_line(name, f"auto ({often[0]})", often[1], found))
        ratio = np.mean(found) / best
        print(f"{'PASS' if ratio >= BAR else 'FAIL'}  {name}: auto names {ratio:.3f} of the best by hand (bar {BAR})")
    write_csv(lines, args.out / "partitions.csv")


def _line(name: str, strategy: str, items: int, found: list[int]) -> dict[str, str]:
    line = {"data": name, "strategy": strategy, "max_items": str(items), "mean": f"{np.mean(found):.1f}"}
    line["stddev"] = f"{np.std(found):.1f}"
    print("  ".join(f"{value:>24}" for value in line.values()), flush=True)
    return line


if __name__ == "__main__":
    main()
