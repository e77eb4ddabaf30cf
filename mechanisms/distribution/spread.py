"""How much users differ, which decides how well the mean of their samples is known: one more private number for a few groups.

Users have tastes of their own, and texts their topics. m samples of one user then say less than m samples of different ones:
the variance of a symbol's share is that of sampling times 1 + (m - 1) r, where r, from 0 to 1, is the correlation of two
samples of the same user. It shows in how often two samples of a user agree. Symbols are put into groups of about equal share,
by what was released of them before. For each group the pairs of a user's samples that are the same symbol, n (n - 1) for a
symbol that it has n times, are summed over all users and get noise. What they exceed that of independent samples by, p^2 for
each symbol, tells r of the group.

Guarantee: (epsilon, delta = 0)-differential privacy, per user and for either relation, of the sums: a user with m samples has
m (m - 1) pairs in all, and so moves all groups by no more than that together, in the l1 norm. Groups are known beforehand.
Everything else here is post-processing. Proof: docs/proofs/distribution.md.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.distribution.tables import ValueCounts

NAMES = pa.array([f"group {number}" for number in range(tuning.SPREAD_GROUPS)])


def spread_noise(budget: Budget, samples: int, relation: Relation) -> NoisePlan:
    """The noise for the pairs of all groups together."""
    return calibrate_public_domain(budget, Bound(l1=samples * (samples - 1)), relation, "laplace")


def groups_of(drawn: np.ndarray) -> np.ndarray:
    """The group of each symbol, from the noisy numbers of its samples: in whole numbers, as all workers must agree."""
    held = np.rint(np.maximum(drawn, 0)).astype(np.int64)
    order = np.argsort(-held, kind="stable")
    above = np.cumsum(held[order]) - held[order]
    groups = np.empty(len(held), dtype=np.int64)
    groups[order] = np.minimum(above // -(-max(int(held.sum()), 1) // tuning.SPREAD_GROUPS), tuning.SPREAD_GROUPS - 1)
    return groups


def pairs(table: ValueCounts, groups: np.ndarray) -> np.ndarray:
    """For each group, how many pairs of samples of one user are the same symbol; `groups` are those of the table's symbols."""
    own = np.repeat(groups, np.diff(table.offsets))
    sums = np.zeros(tuning.SPREAD_GROUPS, dtype=np.int64)
    np.add.at(sums, own, table.value * (table.value - 1) * table.users)
    return sums


def correlations(
    noisy: np.ndarray, p: np.ndarray, groups: np.ndarray, samples: int, users: float, noise_stddev: float
) -> np.ndarray:
    """r of each symbol's group, from the noisy pairs and the estimates p, which have noise of that stddev."""
    agree = noisy / (max(users, 1.0) * samples * (samples - 1))
    alone = np.bincount(groups, weights=p**2 - noise_stddev**2, minlength=tuning.SPREAD_GROUPS)
    likely = np.clip(p, 0.0, 1.0)
    most = np.bincount(groups, weights=likely * (1 - likely), minlength=tuning.SPREAD_GROUPS)
    found = np.divide(agree - alone, most, out=np.zeros(tuning.SPREAD_GROUPS), where=most > 0)
    return np.clip(found, 0.0, 1.0)[groups]
