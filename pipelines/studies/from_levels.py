"""Populations like those of an earlier release in levels: what its rows tell of the tree, of its leaves and of users.

All of it is released: reading it again costs nothing. Named leaves tell how often leaves occur, and what is other under a node
tells how much lies in those without a name. Where users are counted, the number of all users is known, and so is of how many
nodes a user is at each level. Of events, the norm that was chosen tells about how much users do, and less is sure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headcount.mechanisms.errors import InputError
from headcount.pipelines.studies.methods import Method, Promised
from headcount.pipelines.studies.populations.assumed import KINDS, STAYING, TREE_WORDS, users_of, with_mean
from headcount.pipelines.studies.populations.item_model import NoisyCounts, fit_items
from headcount.pipelines.studies.populations.models import Believed, Population, UserModel
from headcount.pipelines.studies.populations.trees import ItemTree

_SEED, _SAMPLE, _LEAST_LEAVES, _MOST_HIDDEN = 1, 40_000, 10, 500_000
_ROUNDS, _HALVINGS = 2, 7  # of a search for what users are like
_MOST_MEAN = 1_000.0

ASSUMED = (
    "these counts do not tell how many users there are: they are assumed to do about as much as the norm that was chosen, in "
    "four ways that are very different"
)
HIDDEN = "what is other is taken for leaves below those with a name, as many as their counts tell of"

Prefix = tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class LevelsRelease:
    """A release in levels that may be made again otherwise: its method and promise, its report, and its rows by their nodes."""

    method: Method
    promised: Promised
    report: Mapping[str, Any]
    counts: Mapping[Prefix, float]  # of named nodes; the root is the empty prefix
    others: Mapping[Prefix, float]  # of what is other under a node
    leaves: Mapping[Prefix, tuple[float, float]]  # of named leaves: the bounded count, and the noise of the count

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.report["keys"])

    def description(self) -> str:
        """What it has, in words."""
        sizes = [f"{sum(len(each) == level for each in self.counts):,}" for level in range(1, self.depth + 1)]
        return f"{', '.join(sizes)} named nodes of its levels"

    def populations(self) -> tuple[list[Believed], list[str]]:
        """Populations that would give such a release, with beliefs that add up to 1; and what is assumed, in words."""
        random = np.random.default_rng(_SEED)
        named = sorted(self.leaves, key=lambda each: -self.counts[each])
        bounded, noise = np.array([self.leaves[each] for each in named]).T
        counts = np.array([self.counts[each] for each in named])
        kept = min(1.0, max(float(bounded.sum()), 1.0) / max(float(counts.sum()), 1.0))
        noisy = NoisyCounts(bounded, float(np.median(noise)) * kept, kept, None)
        fitted = fit_items(noisy, random, len(KINDS) - 1)
        found: list[Believed] = []
        for number, model in enumerate((fitted.best, *fitted.others)):
            frequency, nodes = self._leaves(named, model.counts(), random)
            population = Population(frequency, users_of(1.0)[1], tree=ItemTree(nodes, (0.0,) * (self.depth - 1)))
            found.append((self._with_users(population, number), 1 / len(KINDS)))
        if self.method.question == "events":
            return found, [HIDDEN, ASSUMED, TREE_WORDS]
        return found, [HIDDEN]

    def _leaves(
        self, named: Sequence[Prefix], counts: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """How often each leaf occurs, the named ones first, and the number of the node above each at every level."""
        shown = counts[: len(named)] if len(counts) >= len(named) else np.array([self.counts[each] for each in named])
        hidden = _as_much_as(counts[len(named) :], sum(self.others.values()), float(shown.min()) / 4)
        ids: list[dict[Prefix, int]] = [{} for _ in range(self.depth - 1)]
        for prefix in self.counts:
            for level in range(min(len(prefix), self.depth - 1)):
                ids[level].setdefault(prefix[: level + 1], len(ids[level]))
        rows = [np.array([known[each[: level + 1]] for each in named]) for level, known in enumerate(ids)]
        above = np.full((self.depth - 1, len(hidden)), -1, dtype=np.int64)
        cells = [each for each, count in self.others.items() if count > 0]
        if len(hidden):
            mass = np.array([self.others[each] for each in cells])
            place = random.choice(len(cells), len(hidden), p=mass / mass.sum())
            last = [len(known) for known in ids]
            for number, cell in enumerate(cells):
                mine = np.flatnonzero(place == number)
                for level, known in enumerate(ids):
                    if level < len(cell):
                        above[level, mine] = known[cell[: level + 1]]
                parts = 1
                for level in range(len(cell), self.depth - 1):  # nodes that have no name either
                    parts *= self._parts(level, len(mine) / parts, mass[number] / parts, len(named) + len(hidden))
                    above[level, mine] = last[level] + np.arange(len(mine)) % parts
                    last[level] += parts
        return np.append(shown, hidden), np.array([np.append(*pair) for pair in zip(rows, above, strict=True)])

    def _parts(self, level: int, leaves: float, mass: float, all_leaves: int) -> int:
        """How many nodes of a level so many leaves without names lie in: with as many leaves as those with a name have, and
        none of them as large as these."""
        known = [self.counts[each] for each in self.counts if len(each) == level + 1] or [mass]
        return max(1, round(leaves * len(known) / max(all_leaves, 1)), int(np.ceil(mass / max(min(known), 1.0))))

    def _with_users(self, population: Population, kind: int) -> Population:
        """The population with users of a kind: as many as there are, and in as many nodes of each level as they are."""
        users = self.counts[()]
        if self.method.question == "events":
            mean = float(self.report["details"]["chosen"]["bound"])
            assert population.tree is not None
            tree = dataclasses.replace(population.tree, staying=(STAYING[kind],) * (self.depth - 1))
            model = users_of(max(mean, 1.0))[kind]
            return dataclasses.replace(population, users=model, tree=tree, items=_of_sum(population.items, users))
        if "--home" in self.method.command:  # one leaf of each user is all that counts
            return dataclasses.replace(
                population, users=UserModel(0.0, 0.0, 0.0), items=_of_sum(population.items, users)
            )
        wanted = [self._nodes_per_user(level) for level in range(1, self.depth + 1)]
        return _fitted(population, kind, users, wanted)

    def _nodes_per_user(self, level: int) -> float:
        """Of how many nodes of a level a user is, on average; what is other counts as one."""
        named = sum(count for prefix, count in self.counts.items() if len(prefix) == level)
        others = sum(count for prefix, count in self.others.items() if len(prefix) < level)
        return max(1.0, (named + others) / max(self.counts[()], 1.0))


def read_levels(
    method: Method, promised: Promised, report: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> LevelsRelease:
    """The release with this report and these rows; refuses one that does not tell enough."""
    keys = report["keys"]
    counts: dict[Prefix, float] = {}
    others: dict[Prefix, float] = {}
    leaves: dict[Prefix, tuple[float, float]] = {}
    for row in rows:
        level = 0 if row["level"] == "all" else 1 + keys.index(row["level"])
        other = row["other"] in (True, "true")
        prefix = tuple(str(row[name]) for name in keys[: level - other])
        (others if other else counts)[prefix] = float(row["count"])
        if level == len(keys) and not other:
            leaves[prefix] = float(row["bounded_count"]), float(row["noise_stddev"])
    if len(leaves) < _LEAST_LEAVES:
        raise InputError(
            f"--like must be a release with at least {_LEAST_LEAVES} nodes of its last level, to tell of those that it does "
            f"not show, got {len(leaves)}: state what you assume by --users, --events-per-user, --items and --skew"
        )
    return LevelsRelease(method, promised, report, counts, others, leaves)


def _as_much_as(counts: np.ndarray, mass: float, least: float) -> np.ndarray:
    """The largest of these counts that come to a sum, and if all are too little, more of the least."""
    whole = np.cumsum(counts)
    if len(counts) and whole[-1] >= mass:
        return counts[: int(np.searchsorted(whole, mass))]
    each = max(1.0, min(least, float(counts[-1]) if len(counts) else least))
    missing = int((mass - (whole[-1] if len(counts) else 0.0)) / each)
    return np.append(counts, np.full(min(max(missing, 0), _MOST_HIDDEN), each))


def _of_sum(values: np.ndarray, total: float) -> np.ndarray:
    return values * (total / values.sum())


def _fitted(population: Population, kind: int, users: float, wanted: Sequence[float]) -> Population:
    """The population with so many users of a kind, who are in as many nodes of each level on average as is wanted."""
    mean, staying = 1.0, [0.0] * (len(wanted) - 1)

    def nodes(level: int, events: float, chances: Sequence[float]) -> float:
        return _nodes(_made(population, kind, users, events, chances), level)

    def chances(level: int, chance: float) -> list[float]:
        return [*staying[:level], *[chance] * (len(staying) - level)]

    def chance_at(level: int, events: float) -> float:
        most = staying[level - 1] if level else 1.0
        return _searched(lambda chance: nodes(level, events, chances(level, chance)), wanted[level], most, 0.0)

    def events_at() -> float:
        last, most = len(staying), float(np.log(_MOST_MEAN))
        return float(np.exp(_searched(lambda log: nodes(last, float(np.exp(log)), staying), wanted[-1], 0.0, most)))

    for _ in range(_ROUNDS):
        for level in range(len(staying)):
            staying = chances(level, chance_at(level, mean))
        mean = events_at()
    return _made(population, kind, users, mean, staying)


def _made(population: Population, kind: int, users: float, mean: float, staying: Sequence[float]) -> Population:
    assert population.tree is not None
    model = with_mean(mean, *KINDS[kind])
    tree = dataclasses.replace(population.tree, staying=tuple(staying))
    return dataclasses.replace(population, users=model, tree=tree, items=_of_sum(population.items, users * model.mean))


def _nodes(population: Population, level: int) -> float:
    """Of how many nodes of a level (from 0 on, the last one that of items) users of a sample are, on average."""
    sample = population.drawn(np.random.default_rng(_SEED), _SAMPLE)
    rows = sample.rows_per_user()
    if population.tree is None or level == len(population.tree.nodes):
        return float(rows.mean())
    user = np.repeat(np.arange(len(sample.users)), rows)
    node = population.tree.nodes[level][np.asarray(sample.items)[sample.item]]
    return len(np.unique(user << 32 | node)) / len(sample.users)


def _searched(value: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a value that rises from `low` to `high` is what is wanted, or the end that is nearest."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return (low + high) / 2
