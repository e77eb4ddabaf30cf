"""Shapes without trust in whoever counts (Ghazi et al. 2022, Theorem 4, Corollary 3): errors of shapes and answers.

    python benchmarks/papers/models.py                        # 100,000 samples, 10 trials: two minutes
    python benchmarks/papers/models.py --samples 10000 --trials 40

Ways: "shuffle" is ShuffledReports at (1, 1e-8) under replace; "pan-private, both" and "either" are PanPrivateCounts at epsilon
1 under add-remove; all with four buckets for each sample. Noise of the laws of these models is drawn from keys, so that a run
can be repeated; the models themselves draw from the operating system. Errors of answers are roots of mean squares against the
answer that the counts themselves give; `l1` and `l2` are the mean sums of distances and of their squares over sorted counts.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from fractions import Fraction

import _path  # noqa: F401
import numpy as np
from _shared import OUT, write_csv
from anonymized import LAWS

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.shape.anonymized import ESTIMATES
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion
from headcount.mechanisms.shape.hashed import summed_shape
from headcount.mechanisms.shape.papers.pan_private import pan_private_counts
from headcount.mechanisms.shape.papers.shuffled import shuffled
from headcount.mechanisms.shape.properties import shape_properties
from headcount.mechanisms.shape.tallies import Tally, make_tally
from headcount.mechanisms.shape.tally_noise import noisy_tally

QUESTIONS = (EntropyQuestion(accuracy=0.5), DistinctQuestion(), CoverageQuestion())


def ways(samples: int) -> dict[str, tuple[float, int]]:
    """The parameter p of each model's noise, and how often it is in a sum."""
    reports = shuffled(Budget(1, 1e-8), users=samples, buckets=4 * samples)
    p = math.exp(-1 / float(pan_private_counts(Budget(1), buckets=4 * samples).scale))
    return {"shuffle": (float(reports.p), 1), "pan-private, both": (p, 2), "pan-private, either": (p, 1)}


def noisy_sums(counts: np.ndarray, buckets: int, p: float, noises: int, trial: int) -> Tally:
    """How many buckets have which sum, after a hash and this number of noises."""
    rng = np.random.default_rng([buckets, trial])
    sums = make_tally(np.bincount(rng.integers(0, buckets, len(counts)), counts, minlength=buckets).astype(np.int64))
    scale = Fraction(-1 / math.log(p)).limit_denominator(1 << 20)
    for noise in range(noises):
        sums = noisy_tally(sums, scale, hashlib.sha256(f"{trial} {noise} {p}".encode()).digest())
    return sums


def sorted_distance(shape: Tally, counts: np.ndarray) -> tuple[float, float]:
    """The sums of distances, and of their squares, over sorted counts."""
    found = np.repeat(shape.values, shape.cells)[::-1]
    size = max(len(found), len(counts))
    apart = np.pad(found, (0, size - len(found))) - np.pad(np.sort(counts)[::-1], (0, size - len(counts)))
    return float(np.abs(apart).sum()), float((apart.astype(float) ** 2).sum())


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=10)
    args = parser.parse_args()
    lines: list[dict[str, str]] = []
    for law in ("zipf", "uniform"):
        for way, (p, noises) in ways(args.samples).items():
            for estimate in ESTIMATES:
                apart: dict[str, list[float]] = {}
                for trial in range(args.trials):
                    counts = LAWS[law](args.samples, np.random.default_rng([args.samples, trial]))
                    counts = counts[counts > 0]
                    sums = noisy_sums(counts, 4 * args.samples, p, noises, trial)
                    rows = summed_shape(sums, None, p, args.samples, noises, estimate=estimate)
                    shape = Tally(np.asarray(rows.column("count")), np.asarray(rows.column("items")))
                    for name, value in zip(("l1", "l2"), sorted_distance(shape, counts), strict=True):
                        apart.setdefault(name, []).append(value)
                    found = {row["property"]: row["value"] for row in shape_properties(rows, QUESTIONS).to_pylist()}
                    for question in QUESTIONS:
                        estimator = question.estimator(args.samples, float(np.asarray(rows.column("error")).sum()))
                        truth = estimator.value(estimator.exact(make_tally(counts)))
                        apart.setdefault(question.name, []).append((found[question.name] - truth) ** 2)
                        apart.setdefault(f"{question.name}, true", []).append(truth)
                line = {"law": law, "way": way, "estimate": estimate}
                for name, values in apart.items():
                    mean = float(np.mean(values))
                    line[name] = f"{math.sqrt(mean) if name in found else mean:.4g}"
                print(line, flush=True)
                lines.append(line)
    write_csv(lines, OUT / "models.csv")


if __name__ == "__main__":
    main()
