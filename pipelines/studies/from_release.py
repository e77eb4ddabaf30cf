"""Populations like those of an earlier release: what its rows and its report tell of items and users.

All of it is released: reading it again costs nothing. How much is known depends on what was released. Estimates tell of counts,
of their noise and of what the bound left out, and what was chosen tells of users. A bounded count tells of what was left alone:
then users are assumed to do about as much as the bound that was taken, and less is sure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.bounding.clipping import limit_per_item
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.stages import StagePlan, Stages
from headcount.mechanisms.partitions.select import ChosenStrategy
from headcount.pipelines.command import load
from headcount.pipelines.flags.options import as_flag
from headcount.pipelines.parser import make_parser
from headcount.pipelines.studies.from_levels import LevelsRelease, read_levels
from headcount.pipelines.studies.methods import Method, Promised, method_of
from headcount.pipelines.studies.populations.assumed import users_of
from headcount.pipelines.studies.populations.item_model import (
    FittedItems,
    NoisyCounts,
    fit_items,
    low_items,
)
from headcount.pipelines.studies.populations.models import Believed, Population, UserModel
from headcount.pipelines.studies.populations.user_model import UserEvidence, fit_users

#: The number of populations that are looked at; and fewer rows than these tell too little.
POPULATIONS, LEAST_ROWS = 4, 10

# Whether those who do much have other items than those who do little cannot be told: a quarter of the belief is in that.
_APART = {0.0: 0.75, 0.4: 0.25}

_SEED = 1
_NOISY = ("bounded_count", "noise_stddev")
_SAMPLE = 100_000

# The flags of a command that a report has as parameters, and in which a release like it is to be made again.
_FLAGS = {
    "histogram": (
        *("of", "method", "calibrate", "bound", "max_per_item", "max_items", "noise"),
        *("objective", "bound_method", "bound_share", "home"),
    ),
    "plume": ("max_items", "max_counted_items", "alpha", "selection"),
    "count-release": ("relative_error", "k_bar", "max_per_item", "noise_reduction"),
}
_USUAL = {"calibrate": "totals"}  # what stands in a report for a flag that was not given
_LEFT_OUT = ("max_relative_error", "suppress_below", "top")

ASSUMED = (
    "these counts do not tell what the bound left out: users are assumed to do about as much as it, in four ways that are "
    "very different"
)


@dataclasses.dataclass(frozen=True, eq=False)
class PublishedRelease:
    """A release that may be made again otherwise: its method and promise, its report, and the columns of its rows."""

    method: Method
    promised: Promised
    report: Mapping[str, Any]
    counts: np.ndarray | None
    bounded: np.ndarray
    stddev: np.ndarray
    public: np.ndarray | None = (
        None  # how often each public value occurs, where keys are partly public: counts are of all
    )

    def description(self) -> str:
        """What it has, in words."""
        return f"{len(self.bounded):,} items" + (
            f", each with {len(self.public):,} public values" if self.public is not None else ""
        )

    def populations(self) -> tuple[list[Believed], list[str]]:
        """Populations that would give such a release, with beliefs that add up to 1; and what is assumed, in words."""
        random = np.random.default_rng(_SEED)
        made = self.method.mechanism(self.promised, str)
        if not isinstance(made, EstimatesMechanism) or self.counts is None:
            return self._bounded_only(random), [ASSUMED]
        values = 1 if self.public is None else len(self.public)
        plan = _plan(made.stages, self.report["details"]["chosen"], len(self.bounded) * values)
        noise = plan.counts
        if noise is None:
            assert plan.names is not None
            noise = plan.names.rounds[0].plan
        low = low_items(self.bounded)
        kept = min(1.0, max(float(self.bounded[low].sum()), 1.0) / max(float(self.counts[low].sum()), 1.0))
        reached = noise.threshold_in_counts
        stddev = noise.stddev * math.sqrt(values)
        noisy = NoisyCounts(self.bounded, stddev, kept, None if reached is None else float(reached))
        items = fit_items(noisy, random, POPULATIONS)
        groups, left_out = self.report["details"]["groups"], self.report.get("share_left_out")
        events = float(self.counts.sum())
        evidence = UserEvidence(made.stages, plan, len(self.bounded), groups, left_out, events, self.public)
        believed = _mixed(items, fit_users(evidence, items.best, _SEED))
        return [
            (dataclasses.replace(population, apart=apart, public=self.public), belief * share)
            for apart, share in _APART.items()
            for population, belief in believed
        ], []

    def _bounded_only(self, random: np.random.Generator) -> list[Believed]:
        """Populations whose bounded counts are these, for users of very different kinds."""
        details = self.report["details"]
        chosen, given = details.get("chosen", {}), details["parameters"]
        by_users = self.method.question == "users"
        name = "bound" if self.method.command[0] == "histogram" else "max_items"
        limit = chosen.get(name, given.get(name))
        limit = limit if isinstance(limit, int) else None
        cap = chosen.get("max_per_item", given.get("max_per_item"))
        reached = self.report.get("users_needed") if self.method.command[0] == "histogram" else None
        noisy = NoisyCounts(self.bounded, float(np.median(self.stddev)), 1.0, reached)
        items = fit_items(noisy, random, POPULATIONS)
        users = users_of(10.0 if limit is None else float(limit))
        found = []
        for model, counts in zip(users, (items.best, *items.others), strict=False):
            frequency = counts.counts()
            sample = Population(frequency, model).drawn(random, _SAMPLE)
            found.append((Population(frequency / _kept_share(sample, limit, cap, by_users), model), 1 / len(users)))
        return found


def read_release(report: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> PublishedRelease | LevelsRelease:
    """The release with this report and these rows; refuses one that does not tell enough."""
    command, given = report["command"], report["details"]["parameters"]
    if command not in _FLAGS:
        raise InputError(
            f"--like must be a release of {', '.join(_FLAGS)}, with counts of items, got one of {command}: state what you "
            "assume by --users, --events-per-user, --items and --skew"
        )
    if given.get("public_domain"):
        raise InputError(
            "--like must be a release of items that come from the data: of a public list all are always shown"
        )
    for name in _LEFT_OUT:
        if given.get(name) is not None:
            raise InputError(
                f"--like must be a release of all items that were named, got one that left some out by {as_flag(name)}"
            )
    words, usual = [command], {action.dest: action.default for action in make_parser(load(command))._actions}
    for name in _FLAGS[command]:
        if given.get(name) not in (None, usual[name], _USUAL.get(name)):
            words += [as_flag(name), *([] if given[name] is True else [str(given[name])])]
    promise = report["details"]["guarantee"]
    promised = Promised(promise["epsilon"], promise["delta"], given["relation"])
    if given.get("levels"):
        words += ["--levels", ",".join(given["levels"])]
        return read_levels(method_of(tuple(words)), promised, report, list(rows))
    public = None
    if given.get("public_columns"):
        columns, public = _by_item(rows, report["keys"], [each.partition("=")[0] for each in given["public_columns"]])
        words += ["--item", "key", "--item", "public", "--domain", f"public=1..{len(public)}"]
    else:
        columns = {name: np.array(values) for name, values in _numbers(rows).items()}
    if len(columns["bounded_count"]) < LEAST_ROWS:
        raise InputError(
            f"--like must be a release of at least {LEAST_ROWS} items, to tell of those that it does not show, got "
            f"{len(columns['bounded_count'])}: state what you assume by --users, --events-per-user, --items and --skew"
        )
    return PublishedRelease(
        method_of(tuple(words)),
        promised,
        report,
        columns.get("count"),
        columns["bounded_count"],
        columns["noise_stddev"],
        public,
    )


def _numbers(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The columns of numbers that tell of counts."""
    found: dict[str, list[float]] = {name: [] for name in _NOISY}
    for row in rows:
        for name in ("count", *_NOISY):
            if name in row:
                found.setdefault(name, []).append(float(row[name]))
    return found


def _by_item(
    rows: Iterable[Mapping[str, Any]], keys: Sequence[str], public: Sequence[str]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The same columns of numbers for each item over all public values, and how often each of these occurs."""
    private = [name for name in keys if name not in public]
    held = list(rows)
    item, value = (
        np.unique([repr([row[name] for name in names]) for row in held], return_inverse=True)[1]
        if held
        else np.zeros(0, int)
        for names in (private, [*public])
    )
    numbers = {name: np.array(values) for name, values in _numbers(held).items()}
    found = {name: np.bincount(item, numbers[name]) for name in numbers if name != "noise_stddev"}
    found["noise_stddev"] = np.sqrt(np.bincount(item, numbers["noise_stddev"] ** 2))
    weights = np.bincount(value, np.maximum(numbers.get("count", numbers["bounded_count"]), 0))
    return found, np.maximum(weights, 1.0)


def _plan(stages: Stages, chosen: Mapping[str, Any], items: int) -> StagePlan:
    """All numbers of a release of this number of items, from what its report says was chosen."""
    named = stages.names_plan(ChosenStrategy(chosen["strategy"], chosen["max_items"], chosen.get("rounds", 0)))
    bounds = ClipBound(
        chosen.get("bound", 0),
        chosen.get("max_per_item", 0),
        chosen.get("noise", ""),
        chosen["totals_bound"],
        items,
    )
    return stages.plan(named, bounds)


def _mixed(items: FittedItems, users: list[tuple[UserModel, float]]) -> list[Believed]:
    """Every believed model of users with the likeliest one of items, then others with those of items that may be as well."""
    models = [*users, *users * POPULATIONS][: max(POPULATIONS, len(users))]
    share = {model: belief / [each for each, _ in models].count(model) for model, belief in users}
    counts = [items.best.counts()] * len(users) + [model.counts() for model in items.others]
    return [(Population(each, model), share[model]) for each, (model, _) in zip(counts, models, strict=False)]


def _kept_share(sample: Shard, limit: int | None, cap: int | None, by_users: bool) -> float:
    """What a bound leaves of the events of these users, as it counts them."""
    events = sample.totals()
    held = limit_per_item(sample, 1) if by_users else sample if not cap else limit_per_item(sample, cap)
    left = held.totals()
    return float((left if limit is None else np.minimum(left, limit)).sum() / events.sum())
