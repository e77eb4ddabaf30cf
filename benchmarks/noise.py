"""Samples per second on one core of discrete Laplace and Gaussian noise, lane ids given, next to OpenDP.

python benchmarks/noise.py --samples 1000000
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian, discrete_laplace

SCALES = (Fraction(1, 100), Fraction(7, 3), Fraction(10), Fraction(1000), Fraction(10**6))
SAMPLERS = {"laplace": discrete_laplace, "gaussian": discrete_gaussian}


def rate(run: Callable[[], object], samples: int, repeats: int = 3) -> float:
    """The best rate of some runs, by the time of the processor: other programs on the machine do not count."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return samples / min(seconds)


def headcount_rate(noise: str, scale: Fraction, samples: int) -> float:
    ids = np.random.default_rng(0).integers(0, 2**64, (samples, 2), dtype=np.uint64)
    return rate(lambda: SAMPLERS[noise](Lanes(bytes(32), ids), scale), samples)


def opendp_rate(noise: str, scale: Fraction, samples: int) -> float:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    make, distance = {
        "laplace": (dp.m.make_laplace, dp.l1_distance),
        "gaussian": (dp.m.make_gaussian, dp.l2_distance),
    }[noise]
    measurement = make(dp.vector_domain(dp.atom_domain(T=int)), distance(T=int), scale=float(scale))
    zeros = [0] * samples
    return rate(lambda: measurement(zeros), samples, repeats=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000, help="values to draw per figure (OpenDP: 1/20)")
    samples = parser.parse_args().samples
    oracle = importlib.util.find_spec("opendp") is not None
    print(f"{'noise':<10}{'scale':>10}{'million/s':>12}" + (f"{'OpenDP':>10}" if oracle else ""))
    for noise in SAMPLERS:
        for scale in SCALES:
            line = f"{noise:<10}{float(scale):>10g}{headcount_rate(noise, scale, samples) / 1e6:>12.2f}"
            if oracle:
                line += f"{opendp_rate(noise, scale, max(samples // 20, 1)) / 1e6:>10.3f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
