"""Histograms, their frames and the exact law of one draw: what the audits of counts and of the top share."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
from scipy.special import logsumexp

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.names import hash64
from headcount.mechanisms.count_release.frames import (
    draw_excess,
    make_frame,
    sum_users,
)

ONE = Fraction(1)
HUNDREDTH = Fraction(1, 100)
BOT = ""
NAMES = sorted((f"n{k}" for k in range(400)), key=lambda name: int(hash64(pa.array([name]))[0]))  # equal counts go so


def frame(users, k_bar):
    """The frame of a histogram {item: users}."""
    rows = [(item, count) for item, count in users.items() if count]
    if not rows:
        return make_frame([], k_bar, str)
    items, counts = zip(*rows, strict=True)
    pairs = {"user": np.arange(sum(counts)), "item": np.repeat(items, counts), "count": np.ones(sum(counts), dtype=int)}
    return make_frame([chunk for _, chunk in sum_users(pa.RecordBatch.from_pydict(pairs), 1)], k_bar, str)


def law(data, epsilon, far, alive=None):
    """The log-probability of each item, and of bot, in one draw."""
    kept = [k for k, item in enumerate(data.items.to_pylist()) if alive is None or item in alive]
    excess, denominator = draw_excess(data.users[kept], data.base, epsilon, far)
    logs = -np.array([float(Fraction(int(x), denominator)) for x in excess])
    return dict(zip([*(data.items[k].as_py() for k in kept), BOT], logs - logsumexp(logs), strict=True))


def neighbours(relation, k_bar, pairs=300):
    """Random histograms and neighbours: counts close to each other, so that frame, base and scores all change."""
    random = np.random.default_rng(0)
    for _ in range(pairs):
        names = NAMES[: random.integers(1, 4 * k_bar)]
        before = dict(zip(names, random.integers(0, 2 ** random.integers(1, 5), len(names)).tolist(), strict=True))
        gone = {name for name, count in before.items() if count and random.random() < 0.5}
        come = {name for name in names if random.random() < 0.5} if relation is Relation.REPLACE else set()
        yield before, {name: count - (name in gone) + (name in come) for name, count in before.items()}
