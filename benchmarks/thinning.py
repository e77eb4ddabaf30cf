"""Binomial draws per second on one core, lane ids given, for counts as histograms have them.

python benchmarks/thinning.py --counts 1000000
"""

from __future__ import annotations

import argparse
from fractions import Fraction

import numpy as np
from noise import rate

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.randomness.binomial import binomial
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.sampled.plan import calibrate_sample

CAP = 10**6


def laws(counts: int) -> dict[str, np.ndarray]:
    """Counts by name: light and heavy tails, and all alike."""
    random = np.random.default_rng(0)
    made = {f"zipf {a:g}, at most {CAP}": np.minimum(random.zipf(a, counts), CAP) for a in (2.0, 1.5, 1.2)}
    made["geometric, mean 10"] = random.geometric(0.1, counts)
    return made | {f"all {each}": np.full(counts, each) for each in (1, 50, 1000, 100_000)}


def main() -> None:
    """Prints a line for each law, at the rate for (1, 1e-8) and at a short one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, default=1_000_000)
    counts = parser.parse_args().counts
    chosen = calibrate_sample(Budget(1, 1e-8)).rate
    ids = np.random.default_rng(1).integers(0, 2**64, (counts, 2), dtype=np.uint64)
    print(f"{'counts':<28}{'mean':>10}{'million/s':>12}{'at 9/32':>10}")
    for name, values in laws(counts).items():
        speeds = [
            rate(lambda v=values, q=q: binomial(Lanes(bytes(32), ids), v, q), counts) for q in (chosen, Fraction(9, 32))
        ]
        print(f"{name:<28}{values.mean():>10.1f}{speeds[0] / 1e6:>12.2f}{speeds[1] / 1e6:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
