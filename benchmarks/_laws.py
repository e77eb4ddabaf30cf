"""Synthetic data of very different shape, to see that a choice is not made for one of them: users and items as numbers.

Nothing is fitted to any real data. A law takes a generator and gives the two columns of its rows; repeated pairs may occur.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.pipelines.sources import synthetic

Columns = tuple[np.ndarray, np.ndarray]


def demo_log(folder: Path) -> pa.RecordBatch:
    """The log of `headcount demo`, kept in the folder for later runs."""
    path = folder / "demo-1000000.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        synthetic.generate("tail", 1_000_000, 500_000, None, 1, path)
    table = pq.read_table(path, columns=["user", "item"]).combine_chunks()
    return contribution_batch(*(column.chunk(0) for column in table.columns))


def drawn(law: str, seed: int = 1) -> pa.RecordBatch:
    """The rows of a law as a contribution batch."""
    user, item = (LAWS | CHECKS | PLAIN)[law](np.random.default_rng(seed))
    return contribution_batch(pa.array(user.astype(np.int64)), pa.array(item.astype(np.int64)))


def _users(sizes: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def _zipf(random: np.random.Generator, items: int, exponent: float, size: int) -> np.ndarray:
    ends = np.cumsum(np.arange(1.0, items + 1) ** -exponent)
    return np.searchsorted(ends, ends[-1] * random.random(size))


def _spread(
    sizes: Callable[[np.random.Generator], np.ndarray], items: int, exponent: float = 0.0
) -> Callable[..., Columns]:
    """Users of these sizes, with items that are all drawn by one Zipf law (flat: exponent 0)."""

    def law(random: np.random.Generator) -> Columns:
        user = _users(sizes(random))
        return user, _zipf(random, items, exponent, len(user))

    return law


def _pareto(random: np.random.Generator, users: int, exponent: float, most: int) -> np.ndarray:
    return np.minimum(random.pareto(exponent, users) + 1, most).astype(int)


def _sloped(random: np.random.Generator) -> Columns:
    user = _users(random.integers(1, 50, 60_000))
    return user, (30_000 * random.random(len(user)) ** 2).astype(int)


def _two_kinds(random: np.random.Generator) -> Columns:
    user = _users(np.repeat([1, 300], [50_000, 3_000]))
    return user, _zipf(random, 20_000, 0.8, len(user))


def _common(random: np.random.Generator) -> Columns:
    """Everyone has thirty of a hundred common items, and five of three thousand others."""
    user = _users(np.full(60_000, 35))
    place = np.tile(np.arange(35), 60_000)
    return user, np.where(place < 30, random.integers(0, 100, len(user)), random.integers(100, 3_100, len(user)))


def _noise_of_few(random: np.random.Generator) -> Columns:
    """Users of one item, all by a Zipf law; and some of two hundred items that hardly anyone else has."""
    user = _users(np.repeat([1, 200], [60_000, 4_000]))
    item = np.where(
        user < 60_000, _zipf(random, 20_000, 1.0, len(user)), 20_000 + random.integers(0, 200_000, len(user))
    )
    return user, item


def _below(random: np.random.Generator) -> Columns:
    """A few items of users of one item can be named; very many others of long lists stay at a fifth of any threshold."""
    user = _users(np.repeat([1, 100], [5_000, 10_000]))
    item = np.where(user < 5_000, random.integers(0, 200, len(user)), 200 + random.integers(0, 15_000, len(user)))
    return user, item


def _favourites(random: np.random.Generator) -> Columns:
    """Half of a user's events are on three favourites."""
    user = _users(np.clip(random.lognormal(np.log(12), 1.2, 25_000), 1, 2_000).astype(int))
    own = _zipf(random, 30_000, 1.1, 75_000).reshape(-1, 3)[user, random.integers(0, 3, len(user))]
    return user, np.where(random.random(len(user)) < 0.5, own, _zipf(random, 30_000, 0.6, len(user)))


def _calendar(random: np.random.Generator) -> Columns:
    """Items are the days of a year: a user is there on a run of them, with some events on each."""
    days = _users(random.geometric(1 / 30, 15_000))
    first = np.flatnonzero(np.diff(days, prepend=-1))
    day = random.integers(0, 365, 15_000)[days] + np.arange(len(days)) - first[days]
    events = 1 + random.poisson(4, len(days))
    return np.repeat(days, events), np.repeat(day % 365, events)


def _two_markets(random: np.random.Generator) -> Columns:
    """Many users of a few items that are all alike, and some of many others by a Zipf law."""
    user = _users(np.concatenate([random.integers(1, 4, 70_000), random.integers(20, 61, 10_000)]))
    flat, steep = random.integers(0, 2_000, len(user)), 2_000 + _zipf(random, 40_000, 1.2, len(user))
    return user, np.where(user < 70_000, flat, steep)


def _robots(random: np.random.Generator) -> Columns:
    """Forty users have most of all events, on items that others hardly have."""
    user = _users(np.concatenate([1 + random.poisson(3, 40_000), np.full(40, 20_000)]))
    flat = random.permutation(20_000)[:10_000][random.integers(0, 10_000, len(user))]
    return user, np.where(user < 40_000, _zipf(random, 20_000, 1.0, len(user)), flat)


def _many_and_few(random: np.random.Generator) -> Columns:
    """Half of the users have two items and half forty, by one law that falls slowly."""
    user = _users(np.tile([2, 40], 20_000))
    return user, _zipf(random, 10_000, 0.5, len(user))


def _popular_and_rest(random: np.random.Generator) -> Columns:
    """Everyone has eight of twenty popular items, and twelve of eight thousand others."""
    user = _users(np.full(50_000, 20))
    place = np.tile(np.arange(20), 50_000)
    return user, np.where(place < 8, random.integers(0, 20, len(user)), random.integers(20, 8_020, len(user)))


LAWS: dict[str, Callable[[np.random.Generator], Columns]] = {
    "flat": _spread(lambda random: np.full(40_000, 10), 5_000),
    "flat, long lists": _spread(lambda random: np.full(10_000, 100), 3_500),
    "sloped": _sloped,
    "heavy users": _spread(lambda random: _pareto(random, 100_000, 1.0, 3_000), 50_000, 1.0),
    "long texts": _spread(lambda random: random.integers(50, 400, 6_000), 100_000, 1.05),
    "one item each": _spread(lambda random: np.ones(200_000, int), 100_000, 1.0),
    "5,000 users": _spread(lambda random: 1 + random.geometric(0.2, 5_000), 3_000, 0.9),
    "500,000 users": _spread(lambda random: random.geometric(0.4, 500_000), 300_000, 0.9),
    "1 to 10,000 items": _spread(lambda random: _pareto(random, 30_000, 0.7, 10_000), 100_000, 0.7),
    "few items, all popular": _spread(lambda random: random.integers(1, 20, 20_000), 200),
    "near the threshold": _spread(lambda random: random.integers(2, 7, 40_000), 4_000, 0.25),
    "two kinds of users": _two_kinds,
    "common and own": _common,
    "noise of a few": _noise_of_few,
    "much below": _below,
    # Written down after everything was chosen: nothing was chosen by these, but the worth of one step by "two markets".
    "favourites": _favourites,
    "calendar": _calendar,
    "two markets": _two_markets,
    "robots": _robots,
    # Written down after the numbers of items of `partitions.auto` were chosen. What comes back in rounds was then raised for
    # the last of these, and nothing else was chosen by them.
    "short lists": _spread(lambda random: 1 + random.poisson(1, 80_000), 20_000, 0.8),
    "flat, 25 items": _spread(lambda random: np.full(20_000, 25), 4_000),
    "readers": _spread(
        lambda random: np.clip(random.lognormal(np.log(40), 0.8, 12_000), 1, 2_000).astype(int), 60_000, 0.9
    ),
    "a thousand items": _spread(lambda random: np.full(2_000, 1_000), 15_000, 0.3),
    "many and few": _many_and_few,
    "popular and the rest": _popular_and_rest,
}


def _bots(random: np.random.Generator) -> Columns:
    """One user in two hundred has a thousand events on each of ten items, which others have too."""
    people, bots = 1 + random.poisson(8, 40_000), np.full(200, 10_000)
    user = _users(np.concatenate([people, bots]))
    favourites = random.permutation(2_000)[:10]
    return user, np.where(user < 40_000, _zipf(random, 2_000, 0.9, len(user)), favourites[np.arange(len(user)) % 10])


def _two_tastes(random: np.random.Generator) -> Columns:
    """Many who do little and some who do much, each kind with a ranking of its own of the same items."""
    user = _users(
        np.concatenate([1 + random.poisson(3, 50_000), np.clip(random.lognormal(4, 1, 5_000), 1, 3_000).astype(int)])
    )
    rank = _zipf(random, 5_000, 0.8, len(user))
    other = random.permutation(5_000)
    return user, np.where(user < 50_000, rank, other[rank])


def _few_keys(random: np.random.Generator) -> Columns:
    """Twenty-five countries: a user has one or two, and in some countries users do far more than in others."""
    home, eager = _zipf(random, 25, 1.0, 60_000), random.lognormal(0, 0.5, 25)
    user = _users(1 + random.poisson(10 * eager[home]))
    abroad = random.random(len(user)) < 0.05
    return user, np.where(abroad, _zipf(random, 25, 1.0, len(user)), home[user])


def _weekly(random: np.random.Generator) -> Columns:
    """The days of half a year, with quiet weekends: some users come once, some on most days, with some events on each."""
    chance = np.where(np.arange(182) % 7 < 5, 1.0, 0.6)
    daily = random.beta(0.3, 4, 20_000)
    there = random.random((20_000, 182)) < np.minimum(1, daily[:, None] * chance * 1.5)
    user, day = np.nonzero(there)
    events = 1 + random.poisson(3, len(user))
    return np.repeat(user, events), np.repeat(day, events)


#: By which nothing is chosen, but how many rows the sums of an aggregate see.
CHECKS: dict[str, Callable[[np.random.Generator], Columns]] = {
    "bots": _bots,
    "two tastes": _two_tastes,
    "few keys": _few_keys,
    "weekly series": _weekly,
}


def _each_of(users: int, own: int, items: int, exponent: float = 0.0) -> Callable[..., Columns]:
    """Every user has so many of the items, no two alike: any of them, or more often those of low rank."""

    def law(random: np.random.Generator) -> Columns:
        chance = np.log(np.arange(1.0, items + 1)) * -exponent
        keys = chance + random.gumbel(size=(users, items)).astype(np.float32)
        return np.repeat(np.arange(users), own), np.argpartition(-keys, own - 1, axis=1)[:, :own].ravel()

    return law


def _months(random: np.random.Generator) -> Columns:
    """Customers who come, stay for some months out of eighteen, and buy a few times in each."""
    stay = np.minimum(random.geometric(0.2, 6_000), 18)
    user = _users(stay)
    place = np.arange(len(user)) - np.repeat(np.cumsum(stay) - stay, stay)
    month = (random.integers(0, 18, 6_000)[user] + place) % 18
    events = 1 + random.poisson(2, len(user))
    return np.repeat(user, events), np.repeat(month, events)


#: What is asked of small teams and of few keys, where the plain way is hard to beat. Nothing is chosen by these.
PLAIN: dict[str, Callable[[np.random.Generator], Columns]] = {
    "one of five": _each_of(10_000, 1, 5),
    "six of twenty": _each_of(10_000, 6, 20, 0.5),
    "72 of 100": _each_of(5_000, 72, 100, 0.3),
    "90 of 3,700": _each_of(3_000, 90, 3_700, 0.8),
    "months": _months,
}
