"""The model of a population: how often items occur, how much users do, how often they come back, and users drawn so.

Users are alike but for how much they do. A user has favourites, numbered from 1: an event goes to number j or beyond with a
chance of j^-habit, and each favourite is an item drawn by how often items occur. So with a habit of 0 all events are drawn
anew, and else a user of n events has about n^(1 / (1 + habit)) favourites.

Where items are `apart`, those who do much have other items than those who do little: each item has a number of its own, normal
with that standard deviation, and is so much likelier, in logarithms, for a user one standard deviation above the middle event.

Items may be the leaves of a `tree`, in one part of which users stay. And events may have a `public` value, such as a day.
"""

from __future__ import annotations

import dataclasses
import functools
from functools import cached_property

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.run_sums import begins_run
from headcount.mechanisms.batches.shards import Shard
from headcount.pipelines.studies.populations.normal import normal_quantiles
from headcount.pipelines.studies.populations.trees import ItemTree

#: What one user does at most.
MOST_EVENTS = 200_000

_QUANTILES = 20_000
_LEAST_HABIT = 0.02
_BANDS = 8  # of users by how much they do, in each of which items are drawn alike
_FAVOURITES = 40  # bits: the more cannot be told from no favourites at all


@dataclasses.dataclass(frozen=True)
class UserModel:
    """How much users do: the logarithm of a user's events is `centre` and `spread` times a normal number.

    Where users are `heavy`, that is an exponential number, so that the most active ones follow a power law.
    """

    centre: float
    spread: float
    habit: float
    heavy: bool = False

    def sizes(self, quantiles: np.ndarray) -> np.ndarray:
        """The events of the users at these quantiles, 1 at least."""
        return self._sizes(_beyond(quantiles, self.heavy))

    def _sizes(self, beyond: np.ndarray) -> np.ndarray:
        """The same by normal, or exponential, numbers."""
        logs = np.clip(self.centre + self.spread * beyond, 0.0, np.log(MOST_EVENTS))
        return np.exp(logs).astype(np.int64)

    @cached_property
    def mean(self) -> float:
        """The events of a user on average."""
        return float(self._sizes(_beyond_all(self.heavy)).mean())


def _beyond(quantiles: np.ndarray, heavy: bool) -> np.ndarray:
    """The exponential, or normal, numbers at these quantiles."""
    return -np.log1p(-quantiles) if heavy else normal_quantiles(quantiles)


@functools.cache
def _beyond_all(heavy: bool) -> np.ndarray:
    """The same at quantiles that stand for all users."""
    return _beyond((np.arange(_QUANTILES) + 0.5) / _QUANTILES, heavy)


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """Users of one model, and how often each item is expected to occur, the most frequent first.

    `public` is how often each public value occurs; None if that is not known, and all occur alike.
    """

    items: np.ndarray
    users: UserModel
    apart: float = 0.0
    tree: ItemTree | None = None
    public: np.ndarray | None = None

    @cached_property
    def events(self) -> float:
        """How many events there are."""
        return float(self.items.sum())

    @property
    def size(self) -> float:
        """How many users there are."""
        return self.events / self.users.mean

    def of_size(self, users: float) -> Population:
        """The same with so many users."""
        return dataclasses.replace(self, items=self.items * (users / self.size))

    def drawn(self, random: np.random.Generator, most_events: float) -> Shard:
        """All users, or where they have more events than `most_events` a part of them; items are named by their places, and
        in this order, which is not the canonical one: what is drawn by items needs the shard of its batch."""
        number = max(1, round(self.size * min(1.0, most_events / self.events)))
        quantiles = (np.arange(number) + random.random(number)) / number  # of every kind as many as there should be
        sizes = self.users.sizes(np.minimum(quantiles, 1 - 1e-12))
        user = np.repeat(np.arange(number), sizes)
        habit = self.users.habit
        if habit < _LEAST_HABIT:
            item = self._items(random, sizes[user], user)
        else:
            favourite = np.minimum(random.random(len(user)) ** (-1 / habit), 2.0**_FAVOURITES - 1).astype(np.int64)
            favourite += user << _FAVOURITES  # there are fewer users than 2**23
            order = np.argsort(favourite, kind="stable")
            starts = begins_run(favourite[order])
            one, place = order[starts], np.empty(len(order), dtype=np.int64)
            place[order] = np.cumsum(starts) - 1
            item = self._items(random, sizes[user[one]], user[one])[place]
        pairs = np.sort(user << 32 | item)
        starts = np.flatnonzero(begins_run(pairs))
        pairs, count = pairs[starts], np.diff(starts, append=len(pairs))
        item = pairs & 0xFFFFFFFF
        drawn = np.bincount(item, minlength=len(self.items)) > 0
        rows = np.bincount(pairs >> 32, minlength=number)
        held, item = np.flatnonzero(drawn), (np.cumsum(drawn) - 1)[item]
        return Shard(pa.array(np.arange(number)), pa.array(held), np.append(0, np.cumsum(rows)), item, count)

    def _items(self, random: np.random.Generator, sizes: np.ndarray, user: np.ndarray) -> np.ndarray:
        """An item for each of these, drawn by these users, who do so much."""
        found = self._anywhere(random, sizes)
        if self.tree is None or not any(self.tree.staying):
            return found
        return self.tree.at_home(random, self.items, user, found)

    def _anywhere(self, random: np.random.Generator, sizes: np.ndarray) -> np.ndarray:
        """The same, wherever users are at home."""
        if self.apart == 0 or len(sizes) == 0:
            return _drawn_by(self.items, random, len(sizes))
        logs, own = np.log(sizes), self.apart * random.standard_normal(len(self.items))
        above = (logs - logs.mean()) / max(float(logs.std()), 1e-9)
        band = np.searchsorted(np.unique(np.quantile(above, np.arange(1, _BANDS) / _BANDS)), above)
        groups = [np.flatnonzero(band == each) for each in np.unique(band)]
        likelier = [np.exp(own * above[rows].mean()) for rows in groups]
        mean = sum(each * (len(rows) / len(sizes)) for each, rows in zip(likelier, groups, strict=True))
        found = np.empty(len(sizes), dtype=np.int64)
        for each, rows in zip(likelier, groups, strict=True):  # over all users, items are as frequent as they should be
            found[rows] = _drawn_by(self.items * each / mean, random, len(rows))
        return found


def _drawn_by(weights: np.ndarray, random: np.random.Generator, number: int) -> np.ndarray:
    """This number of places, each with a chance in proportion to its weight."""
    ends = np.cumsum(weights)
    return np.minimum(np.searchsorted(ends, ends[-1] * random.random(number), side="right"), len(ends) - 1)


#: A population, and the share of the belief in it among others.
Believed = tuple[Population, float]
