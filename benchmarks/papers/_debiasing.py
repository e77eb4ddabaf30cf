"""The paper on bounding contribution, appendix C.4: Figure 4, the total of one item with the bias of the cap taken out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.histogram.fixed import bounded_histogram
from headcount.mechanisms.histogram.papers.debiased import debiased_count
from headcount.mechanisms.randomness.keys import Release

ITEM = "item"


@dataclasses.dataclass(frozen=True)
class Debiased:
    """Relative errors of one item's total: capped alone, and debiased."""

    clipped: float
    debiased: float


def poisson_users(users: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Counts of one item that are Poisson with mean 1 on average; the means are a Dirichlet(alpha) vector times users."""
    means = rng.gamma(alpha, size=users)
    return rng.poisson(means * users / means.sum())


def measure(counts: np.ndarray, cap: int, release: Release) -> Debiased:
    """One release of each kind at epsilon 1: with this many users the noise hardly shows.

    The number of users is public, as in the paper, since users without the item have no rows to be counted by.
    """
    held = np.flatnonzero(counts)
    item = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(held), dtype=np.int32)), pa.array([ITEM]))
    batch = contribution_batch(pa.array(held), item, pa.array(counts[held]))
    total = int(counts.sum())
    clipped = bounded_histogram(Budget(1.0), [ITEM], bound=cap).run([batch], release)
    plan = debiased_count(Budget(1.0), ITEM, max_per_item=cap, users=len(counts))
    debiased = plan.run([batch], release)
    found = clipped.column("bounded_count"), debiased.column("count")
    return Debiased(*(abs(column[0].as_py() / total - 1) for column in found))
