"""Courses of estimated histograms: runs on neighbours with what one of them has released, and what they cost.

What noise costs follows from the scale that its sampler was given in the first of the runs, and what a choice costs from what
was published of it: where the counts' bound is, it was drawn.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.thresholds import gaussian_rate
from headcount.mechanisms.aggregate.choice import KeysChoice
from headcount.mechanisms.aggregate.ranges import RangeChoice
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import MOST_COUNT, Shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.bound_choice.alone_choice import AloneChoice
from headcount.mechanisms.bound_choice.clip_choice import ClipChoice
from headcount.mechanisms.calibration.noise import curve_chance
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice import run as choice_run
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.histogram import estimates as module
from headcount.mechanisms.histogram.estimates import Grouped
from headcount.mechanisms.partitions import select
from tests.privacy.draws import Draws, Noise

BUDGET = Budget(20, 1e-3)
User = dict[str, int]
COMMON, EDGE, HEAVY = ([f"{kind}{n}" for n in range(12)] for kind in ("common", "edge", "heavy"))
DOMAIN = sorted(COMMON + HEAVY + ["nobody's"])

MECHANISMS: dict[str, dict[str, Any]] = {
    "auto": {},
    "gaussian": {"noise": "gaussian"},
    "laplace": {"noise": "laplace"},
    "users": {"of": "users"},
    "way given": {"max_items": 12},
    "one item given": {"of": "users", "max_items": 1},
    "given bound": {"bound": 20, "max_per_item": 4},
    "without totals": {"calibrate": "none"},
    "domain": {"domain": DOMAIN},
    "domain, laplace": {"domain": DOMAIN, "noise": "laplace"},
}


def crowd() -> list[User]:
    """Users of six common items each, with some that have an item at the edge of naming, and heavy ones."""
    users = []
    for u in range(300):
        items = Counter({COMMON[(u + k) % 12]: 1 + (u + k) % 3 for k in range(6)})
        items[HEAVY[u % 12]] += 1
        items[HEAVY[(u + 1) % 12]] += 1
        for n in range(12):
            items[EDGE[n]] += u % 100 <= n // 3
        users.append(dict(+items))
    return users


# (a) owns items at the edge of naming, and its own; (b) has nearly all of a group; (c) has 10^6 events on one named item;
# (d) is in no named item; more of everything than anybody has; and everything once, which no cap makes less of.
TARGETS: dict[str, User] = {
    "edge": {**dict.fromkeys(EDGE, 1), **{f"own{n}": 1 for n in range(20)}},
    "group": dict.fromkeys(HEAVY, 5000),
    "events": {COMMON[0]: 10**6},
    "unnamed": {f"alone{n}": 7 for n in range(3)},
    "all": {item: MOST_COUNT for item in COMMON + EDGE + HEAVY + [f"own{n}" for n in range(2000)]},
    "once": dict.fromkeys(COMMON + EDGE + HEAVY, 1),
}


def batch_of(users: list[User]) -> list[pa.RecordBatch]:
    rows = [(f"u{number}", item, count) for number, user in enumerate(users) for item, count in user.items()]
    user, item, count = (list(column) for column in zip(*rows, strict=True))
    return [contribution_batch(pa.array(user), pa.array(item), pa.array(count, pa.int64()))]


@dataclasses.dataclass(frozen=True)
class Stage:
    """One draw of noise: its sums by item in units of the noise's grid, for all items that get noise; and what was drawn, if
    any item did."""

    label: str
    plan: NoisePlan
    sums: dict[Any, int]
    noise: Noise | None


@dataclasses.dataclass
class Seen:
    """What has reached the draws of one run."""

    stages: list[Stage] = dataclasses.field(default_factory=list)
    tables: list[tuple[str, Any, list[int], Any]] = dataclasses.field(default_factory=list)  # with what was decided
    groups: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)


class Course:
    """Runs with what the first of them has released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released: dict[str, Any] = {}
        self.seen, self.draws = Seen(), Draws(monkeypatch)
        real_counts, real_decide, real_rows = noisy.noisy_counts, choice_run.decide, module.group_rows

        def counts(batches: Any, plan: NoisePlan, release: Any, label: str, named: Any = None, **more: Any) -> Any:
            batches, sums = Parts.of(*batches), Counter()
            for batch in batches:
                for item, count in zip(*(batch.column(name).to_pylist() for name in ("item", "count")), strict=True):
                    sums[item] += count << (plan.grid - plan.bound.grid)
            for item in () if named is None else named.to_pylist():
                sums[item] += 0
            made, noise = self.drawn(label, lambda: real_counts(batches, plan, release, label, named=named, **more))
            self.seen.stages.append(Stage(label, plan, dict(sums), noise[0] if noise else None))
            return made

        def decide(choice: Any, table: list[int], subkey: bytes) -> Any:
            decided = self.once(choice.name, lambda: real_decide(choice, table, subkey))
            self.seen.tables.append((choice.name, choice, table, decided))
            return decided

        def rows(shard: Shard, grouped: Grouped) -> Shard:
            self.seen.groups.append((grouped.items.to_pylist(), grouped.group.tolist()))
            return real_rows(shard, grouped)

        self.counts, self.rows = counts, rows
        monkeypatch.setattr(module, "noisy_counts", counts)
        monkeypatch.setattr(select, "noisy_counts", counts)
        monkeypatch.setattr(choice_run, "decide", decide)
        monkeypatch.setattr(module, "group_rows", rows)
        monkeypatch.setattr(module, "estimate", lambda *_: (None, None))  # what follows the last draw

    def drawn(self, label: str, make: Callable[[], Any]) -> tuple[Any, list[Noise]]:
        """What the first run has released, and all noise that was drawn for it."""

        def made() -> tuple[Any, list[Noise]]:
            self.draws.forget()
            return make(), list(self.draws.noise)

        return self.once(label, made)

    def once(self, label: str, make: Callable[[], Any]) -> Any:
        if label not in self.released:
            self.released[label] = make()
        return self.released[label]

    def run(self, mechanism: Any, users: list[User], release: Any) -> Seen:
        self.seen = Seen()
        mechanism.run(self.batches(users), release)
        return self.seen

    def batches(self, users: list[User]) -> list[pa.RecordBatch]:
        """The users' contributions."""
        return batch_of(users)


@dataclasses.dataclass
class Spent:
    """What two neighbours cost over one course: squares of Gaussian parts, epsilons of Laplace parts, chances of coins on both
    sides, chances that own items show, and ranges of choices; infinite where they are told apart for sure."""

    gaussian: Counter = dataclasses.field(default_factory=Counter)
    laplace: Counter = dataclasses.field(default_factory=Counter)
    coins: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    shown: float = 0.0
    choices: dict[str, float] = dataclasses.field(default_factory=dict)
    apart: list[str] = dataclasses.field(default_factory=list)


def compared(one: Seen, other: Seen) -> Spent:
    spent, rates = Spent(), [0.0, 0.0]
    if [s.label for s in one.stages] != [s.label for s in other.stages] or len(one.tables) != len(other.tables):
        spent.apart.append("other stages")
        return spent
    if one.groups != other.groups:
        spent.apart.append("groups")
    for mine, theirs in zip(one.stages, other.stages, strict=True):
        plan, kind = mine.plan, mine.label.split("/")[1]
        if mine.plan != theirs.plan:
            spent.apart.append(f"noise of {kind}")
            continue
        if plan.threshold is None and mine.sums.keys() != theirs.sums.keys():
            spent.apart.append(f"items of {kind}")
        moved = [mine.sums[item] - theirs.sums[item] for item in mine.sums.keys() & theirs.sums.keys()]
        for side, (first, second) in enumerate(((mine.sums, theirs.sums), (theirs.sums, mine.sums))):
            own = [first[item] for item in first.keys() - second.keys()]
            rates[side] += sum(rate_of(mine, own)) if own and plan.threshold is not None else 0.0
        if plan.kind == "law":
            shared = mine.sums.keys() & theirs.sums.keys()
            spent.coins += [(chance_of(plan, mine.sums[item]), chance_of(plan, theirs.sums[item])) for item in shared]
        elif any(moved) and mine.noise is None:
            spent.apart.append(f"no noise of {kind}")
        elif mine.noise is not None and mine.noise.kind == "discrete_gaussian":
            own, shared = float(mine.noise.scale) ** 2, 0.0 if plan.shared is None else float(plan.shared.scale) ** 2
            of_shared = shared * sum(moved) ** 2 / (own + shared * len(mine.sums))  # by the inverse of their covariance
            spent.gaussian[kind] += (sum(step**2 for step in moved) - of_shared) / own
        elif mine.noise is not None:
            spent.laplace[kind] += sum(map(abs, moved)) / float(mine.noise.scale)
    spent.shown = -math.expm1(-max(rates))
    for (name, choice, table, decided), (_, _, their_table, _) in zip(one.tables, other.tables, strict=True):
        spent.choices |= {f"{name} {part}": size for part, size in ranges(choice, table, their_table, decided).items()}
    return spent


def audited(mechanism: Any, one: list[User], other: list[User], release: Any, monkeypatch: pytest.MonkeyPatch) -> Spent:
    """Neighbours over the course of the first of them."""
    with monkeypatch.context() as context:
        course = Course(context)
        return compared(course.run(mechanism, one, release), course.run(mechanism, other, release))


def rate_of(stage: Stage, own: list[int]) -> np.ndarray:
    """-ln of the chance that items of these sums stay hidden. The threshold of continuous noise is half a step lower."""
    plan = stage.plan
    if plan.kind == "law":
        return -np.log1p([-chance_of(plan, each) for each in own])
    noise = stage.noise or Noise("discrete_laplace", plan.scale, np.zeros(0))  # of a run in which nobody had any item
    sums, threshold, scale = np.array(own, float), float(plan.threshold), float(noise.scale)
    if noise.kind == "discrete_gaussian":
        return gaussian_rate(sums, scale, threshold - 0.5)
    return -np.log1p(-np.exp((sums - threshold) / scale) / (1 + math.exp(-1 / scale)))


def chance_of(plan: NoisePlan, total: int) -> float:
    """The chance by which a law names an item of this sum; beyond its last state it stays."""
    return curve_chance(plan.law, min(total, len(plan.law) // 16 - 1))


def coins_cost(coins: list[tuple[float, float]], order: float) -> float:
    """The Renyi divergence of all coins together, in the worse direction."""
    q, p = np.array(coins).T
    both = [(x**order * y ** (1 - order) + (1 - x) ** order * (1 - y) ** (1 - order)) for x, y in ((q, p), (p, q))]
    return max(float(np.log(each).sum()) for each in both) / (order - 1)


def ranges(choice: Any, one: list[int], other: list[int], decided: Any) -> dict[str, float]:
    """The range of the log-ratios of all chances, in units of the epsilon that the choice has for it."""
    if isinstance(choice, ClipChoice):
        parts = {} if choice.cap_budget is None else {"cap": (choice.cap_exponents, choice.cap_budget)}
        for place, cap in enumerate(choice.caps):  # the other draws know the cap
            if choice.norms:
                made = functools.partial(choice.totals_exponents, place=place)
                parts[f"totals up to {cap}"] = (made, choice.totals_budget)
            if decided.bound:
                alike = choice.candidates if choice.cap_budget is None else choice.under(cap)
                made = functools.partial(choice.counts_exponents, candidates=choice.ended(alike, one[-1]))
                parts[f"counts up to {cap}"] = (made, choice.counts_budget)
            if isinstance(choice, AloneChoice):
                made = functools.partial(choice.alone_exponents, place=place)
                parts[f"alone up to {cap}"] = (made, choice.alone_budget)
        if isinstance(choice, KeysChoice) and choice.users_budget is not None:
            parts["users"] = (choice.users_exponents, choice.users_budget)
    elif isinstance(choice, RangeChoice):
        parts = {
            f"{number}": (lambda table, number=number: choice.exponents(table)[number], part)
            for number, part in enumerate(choice.budgets)
        }
    else:  # two draws, of which the second knows the first
        parts = {"limit of names": (choice.limit_exponents, choice.limit)}
        parts |= {
            f"names up to {limit}": (lambda table, limit=limit: choice.exponents(table, limit), choice.scored.budget)
            for limit in choice.limits
        }
    found = {}
    for name, (exponents, budget) in parts.items():
        logs = [np.array([-float(x) for x in exponents(table)]) for table in (one, other)]
        found[name] = float(np.ptp(logs[0] - logs[1])) / budget.epsilon
    return found


def fits(spent: Spent, mechanism: Any) -> bool:
    """Whether all of it is within the account, whose composition is the promise."""
    account = mechanism.stages.account
    # Counts, or sums, and totals share one precision, by what was released before.
    both = sum(spent.gaussian[kind] for kind in ("Counts", "Sums", "Totals"))
    pures = dict.fromkeys(("NamedItems", "Counts", "Sums"), account.pure_counts) | {"Totals": account.pure_totals}
    if account.pure_alone and "Totals" not in spent.laplace:
        pures["Counts"] = account.pure_alone
    hiding = account.pure_hiding if spent.laplace else account.hiding
    return (
        not spent.apart
        and spent.gaussian["NamedItems"] <= account.names_mu**2 * (1 + 1e-9)
        and both <= (account.counts_mu**2 + account.totals_mu**2) * (1 + 1e-9)
        and all(size <= pures[kind] * (1 + 1e-9) for kind, size in spent.laplace.items())
        and not (spent.gaussian and spent.laplace)  # the account has one way or the other
        # Where one step names and counts, nobody pays for a bound of the counts.
        and not ("NamedItems" in spent.laplace and any("kept counts" in part for part in spent.choices))
        and (not spent.coins or coins_cost(spent.coins, account.law.order) <= account.law.cost * (1 + 1e-9))
        and spent.shown <= hiding * (1 + 1e-9)
        and all(size <= 1 + 1e-9 for size in spent.choices.values())
    )
