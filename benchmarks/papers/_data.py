"""Data of the experiments on bounding contribution: its synthetic users, and the most frequent items of a file.

Shards list the same items in the same order, so that their sums by item can be added up.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.names import canonical_order, hash64
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import Shard

USERS_AT_A_TIME = 50_000


def synthetic(users: int, support: int, concentration: float | None, rng: np.random.Generator) -> list[Shard]:
    """The paper's users (section 7.2), all with a mean of 100 events over `support` items.

    `concentration` None: i.i.d. users with Poisson(100) events by p(j) ~ 1/(j + 50). Else user i has Poisson(l_i) events by an
    own p_i ~ Dirichlet(p/2), and the l_i are 100 users times a Dirichlet vector of the concentration: printed as
    "100 Dir(2)", which taken literally would be 100 events in all.
    """
    weights = 1 / (np.arange(1, support + 1) + 50)
    p = weights / weights.sum()
    means = np.full(users, 100.0)
    if concentration is not None:
        means = rng.gamma(concentration, size=users)
        means *= 100 * users / means.sum()
    shards = []
    for start in range(0, users, USERS_AT_A_TIME):
        some = means[start : start + USERS_AT_A_TIME]
        own = p if concentration is None else rng.dirichlet(p / 2, size=len(some))
        shards.append(_from_matrix(rng.poisson(some[:, None] * own), start))
    return shards


def skewed(users: int, items: int, rng: np.random.Generator) -> Shard:
    """Users of lognormal sizes (mean 41, some thousands at most) over Zipf items, the most frequent first."""
    sizes = np.ceil(rng.lognormal(3, 1.2, size=users)).astype(np.int64)
    weights = np.cumsum(1 / np.arange(1, items + 1))
    item = np.searchsorted(weights, rng.random(int(sizes.sum())) * weights[-1])
    pair, count = np.unique(np.repeat(np.arange(users), sizes) * items + item, return_counts=True)
    return _shard(pair // items, pair % items, count.astype(np.int64), items)


def most_frequent(shard: Shard, number: int) -> Shard:
    """The contributions to the most frequent items alone, and the users who have any (not private: as in the paper)."""
    totals = sum_by_code(shard.item, shard.count, len(shard.items))
    kept = np.sort(np.argsort(-totals, kind="stable")[:number])  # keeps the canonical order
    place = np.full(len(totals), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    rows = np.flatnonzero(place[shard.item] >= 0)
    fewer = shard.keep(rows, shard.count[rows])
    there = np.flatnonzero(fewer.rows_per_user())
    return dataclasses.replace(
        fewer,
        users=shard.users.take(pa.array(there)),
        items=shard.items.take(pa.array(kept)),
        offsets=np.append(fewer.offsets[there], len(rows)),
        item=place[fewer.item],
    )


def _from_matrix(counts: np.ndarray, first_user: int) -> Shard:
    user, item = np.nonzero(counts)
    return _shard(user + first_user, item, counts[user, item].astype(np.int64), counts.shape[1])


def _shard(user: np.ndarray, item: np.ndarray, count: np.ndarray, items: int) -> Shard:
    """The shard of pairs that are sorted by user and item; what number an item has does not matter."""
    users, starts = np.unique(user, return_index=True)
    names = pa.array(np.arange(items))
    names = names.take(pa.array(canonical_order(names, hash64(names))))
    return Shard(pa.array(users), names, np.append(starts, len(user)).astype(np.int64), item, count)
