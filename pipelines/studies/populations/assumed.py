"""Populations by assumption: from numbers that somebody states, or from a released shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.mechanisms.errors import InputError
from headcount.pipelines.studies.populations.models import MOST_EVENTS, Believed, Population, UserModel
from headcount.pipelines.studies.populations.trees import grown, usual_sizes

#: Kinds of users: spread, habit, and whether the most active follow a power law. Which one it is nobody can know beforehand.
KINDS = ((1.0, 0.3, False), (0.5, 0.0, False), (1.5, 0.6, False), (0.7, 0.3, True))


#: What to say of them.
WORDS = "each range is over four kinds of users: alike, more or less active, very unequal, and a few who do most"


# The chance that a favourite of a user lies in one node with its home, right above the items, for users of each kind; of the
# first and the last kind it is not the same, as these two are looked at where populations are large.
STAYING = (0.9, 0.0, 0.9, 0.0)


#: What to say of trees.
TREE_WORDS = (
    "in levels, users of two of the kinds stay: 9 of 10 of the leaves of a user lie in one node right above them; those of the "
    "other two are anywhere"
)


def users_of(mean: float) -> list[UserModel]:
    """One model of each kind, with this number of events of a user on average."""
    return [with_mean(mean, *kind) for kind in KINDS]


def from_numbers(users: float, events_per_user: float, items: int, skew: float) -> list[Believed]:
    """This number of users, and items of which the r-th occurs as r^-skew."""
    frequency = np.arange(1.0, items + 1) ** -skew
    counts = frequency / frequency.sum() * users * events_per_user
    models = users_of(events_per_user)
    return [(Population(counts, model), 1 / len(models)) for model in models]


def from_shape(report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], events_per_user: float) -> list[Believed]:
    """As many users of each item as a released shape tells, of users of whom it counted some items each."""
    if not rows or not {"count", "items"} <= set(rows[0]):
        raise InputError(
            "--shape must be a release of headcount shape with the rows count and items: take --mode and --property as "
            "they are by default"
        )
    counts = np.repeat(*(np.array([float(row[name]) for row in rows]).astype(int) for name in ("count", "items")))
    counts = np.sort(counts[counts > 0])[::-1].astype(float)
    most = int(report["details"]["parameters"].get("max_items", 1))
    found = []
    for model in users_of(events_per_user):
        sample = Population(counts, model).drawn(np.random.default_rng(1), 100_000)
        taken = np.minimum(sample.rows_per_user(), most).mean()  # of each user's items
        size = counts.sum() / taken
        found.append((Population(counts / counts.sum() * size * model.mean, model), 1 / len(KINDS)))
    return found


def in_trees(believed: Sequence[Believed], depth: int, sizes: Sequence[int], skew: float) -> list[Believed]:
    """The same populations, with items that are the leaves of a tree: of so many nodes at each level above, if these are
    given."""
    found = []
    for number, (population, belief) in enumerate(believed):
        above = sizes or usual_sizes(len(population.items), depth)
        tree = grown(above, len(population.items), skew, STAYING[number % len(STAYING)])
        found.append((dataclasses.replace(population, tree=tree), belief))
    return found


def with_mean(mean: float, spread: float, habit: float, heavy: bool) -> UserModel:
    """The model of a kind with this number of events of a user on average."""
    low, high = -20.0, float(np.log(MOST_EVENTS))
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if UserModel(middle, spread, habit, heavy).mean < mean else (low, middle)
    return UserModel(high, spread, habit, heavy)
