"""How much of the true top k `headcount top` finds: by draws with a threshold, and by names first.

    python benchmarks/top.py --data words=FILE --data authors=FILE

Data are the log of the demo, the laws of `_laws`, and each FILE, Parquet with the columns user, item and count; `--only` takes
some. For each epsilon and k, two numbers of either method: the share of the true top k that it names (of equal items any), and
the missing mass, which is what the users of its items fall short of those of the true top k, as a share. A run is the shipped
mechanism, but for random keys, and for the law: the one that is chosen most often.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from _quality import as_shard, data_sets, table_of
from _shared import OUT, write_csv
from partitions import named

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.count_release.frames import Frame
from headcount.mechanisms.count_release.top_items import draws_of_top
from headcount.mechanisms.count_release.top_names import named_top

KS = (3, 10, 20, 100, 1000)


def frame_of_codes(users: np.ndarray, codes: np.ndarray, k_bar: int) -> Frame:
    """The frame of these items, which are called by their numbers."""
    ranked = codes[np.argsort(-users[codes], kind="stable")]
    base = int(users[ranked[k_bar]]) if len(ranked) > k_bar else 0
    top = ranked[:k_bar]
    return Frame(pa.array(top), users[top], users[top], base)


def by_draws(users: np.ndarray, budget: Budget, k: int, random: np.random.Generator) -> np.ndarray:
    """The items of one run by draws."""
    made = draws_of_top(budget, k, item_type=int)
    frame = frame_of_codes(users, np.flatnonzero(users), made.k_bar)
    return np.asarray(made.release(frame, random.bytes(32)).column("item"))


def by_names(users: np.ndarray, names: np.ndarray, budget: Budget, k: int, random: np.random.Generator) -> np.ndarray:
    """The items of one run among the named ones."""
    made = named_top(budget, k, item_type=int)
    frame = frame_of_codes(users, np.flatnonzero(names), len(users))
    return np.asarray(made.release(frame, random.bytes(32)).column("item"))


def names_of(shard: Shard, budget: Budget, random: np.random.Generator, runs: int) -> list[np.ndarray]:
    """Which items are named in some runs, by the curve that is chosen most often."""
    selection = named_top(budget, 1, item_type=int).selection
    chances = selection.choice.chances(table_of(selection.choice, [shard]))
    chosen = selection.choice.candidates[int(np.argmax(chances))].chosen
    return [named(shard, selection.decided(chosen).rounds, random) for _ in range(runs)]


def worth(users: np.ndarray, found: np.ndarray, k: int) -> tuple[float, float]:
    """The share of the true top k that was found, and the missing mass."""
    top = np.sort(users)[::-1][:k]
    return float((users[found] >= top[-1]).sum() / len(top)), float(1 - users[found].sum() / top.sum())


def compared(name: str, shard: Shard, epsilons: Sequence[float], runs: int) -> list[dict[str, str]]:
    """The lines of one data set."""
    users, random, lines = np.bincount(shard.item, minlength=len(shard.items)), np.random.default_rng(3), []
    for epsilon in epsilons:
        budget = Budget(epsilon, 1e-8)
        names = names_of(shard, budget, random, runs)
        for k in KS:
            drawn_ = np.mean([worth(users, by_draws(users, budget, k, random), k) for _ in range(runs)], axis=0)
            named_ = np.mean([worth(users, by_names(users, each, budget, k, random), k) for each in names], axis=0)
            print(
                f"{name:>24}  epsilon {epsilon:g}, k = {k:>4}  draws {drawn_[0]:.2f} missing {drawn_[1]:.2f}   "
                f"names {named_[0]:.2f} missing {named_[1]:.2f}",
                flush=True,
            )
            line = {"data": name, "epsilon": f"{epsilon:g}", "k": str(k)}
            for method, (found, missing) in (("draws", drawn_), ("names", named_)):
                line |= {f"{method}_found": f"{found:.3f}", f"{method}_missing": f"{missing:.3f}"}
            lines.append(line)
    return lines


def main() -> None:
    """Prints and writes the table of each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1, 2])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    sets = data_sets(args.data)
    lines = []
    for name in args.only or sets:
        lines += compared(name, limit_per_item(as_shard(sets[name]()), 1), args.epsilon, args.runs)
    write_csv(lines, args.out / "top.csv")


if __name__ == "__main__":
    main()
