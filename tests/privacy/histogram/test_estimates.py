"""Audits of estimated histograms: all stages on neighbours, over the same course of what was released. Exact, no false alarms.

A course is what one run has released: choices, names, noisy counts. The stages are run again on a neighbour with just that
released, and what reaches each draw is compared: tables of choices, sums before noise, which items get noise at all, and how
items are grouped. So everything that the account counts on is measured, stage by stage. Each of the known bugs breaks it:

    totals over all items in place of the named ones   a user of no named item changes what is drawn
    groups cut by true sums                            neighbours are grouped otherwise
    a norm taken from the data                         neighbours have noise of another scale
    counts only for items with a positive sum          neighbours have noise on other items
    stages that share lanes                            a word is read twice
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.calibration import NoisePlan
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import gaussian_rate
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import MOST_COUNT, Shard, one_shard
from headcount.mechanisms.bound_choice.kept import KeptChoice
from headcount.mechanisms.choice import run as choice_run
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting import sums as counting_sums
from headcount.mechanisms.histogram import estimates as module
from headcount.mechanisms.histogram.estimates import EstimatesMechanism, Grouped, group_rows
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.stages import Stages
from headcount.mechanisms.partitions import select
from tests.privacy.independence import Words

BUDGET = Budget(20, 1e-3)
User = dict[str, int]

COMMON, EDGE, HEAVY = ([f"{kind}{n}" for n in range(12)] for kind in ("common", "edge", "heavy"))
DOMAIN = sorted(COMMON + HEAVY + ["nobody's"])


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
    """One draw of noise: its sums by item in units of the noise's grid, for all items that get noise."""

    label: str
    plan: NoisePlan
    sums: dict[Any, int]


@dataclasses.dataclass
class Seen:
    """What has reached the draws of one run."""

    stages: list[Stage] = dataclasses.field(default_factory=list)
    tables: list[tuple[str, Any, list[int]]] = dataclasses.field(default_factory=list)
    groups: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)


class Course:
    """Runs with what the first of them has released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released: dict[str, Any] = {}
        self.seen = Seen()
        real_counts, real_decide, real_rows = noisy.noisy_counts, choice_run.decide, module.group_rows

        def counts(batches: Any, plan: NoisePlan, release: Any, label: str, named: Any = None, **more: Any) -> Any:
            batches, sums = list(batches), Counter()
            for batch in batches:
                for item, count in zip(*(batch.column(name).to_pylist() for name in ("item", "count")), strict=True):
                    sums[item] += count << (plan.grid - plan.bound.grid)
            for item in () if named is None else named.to_pylist():
                sums[item] += 0
            self.seen.stages.append(Stage(label, plan, dict(sums)))
            return self.once(label, lambda: real_counts(batches, plan, release, label, named=named, **more))

        def decide(choice: Any, table: list[int], subkey: bytes) -> Any:
            self.seen.tables.append((choice.name, choice, table))
            return self.once(choice.name, lambda: real_decide(choice, table, subkey))

        def rows(shard: Shard, grouped: Grouped, once: bool) -> Shard:
            self.seen.groups.append((grouped.items.to_pylist(), grouped.group.tolist()))
            return real_rows(shard, grouped, once)

        monkeypatch.setattr(module, "noisy_counts", counts)
        monkeypatch.setattr(select, "noisy_counts", counts)
        monkeypatch.setattr(choice_run, "decide", decide)
        monkeypatch.setattr(module, "group_rows", rows)
        monkeypatch.setattr(module, "estimate", lambda *_: (None, None))  # what follows the last draw

    def once(self, label: str, make: Callable[[], Any]) -> Any:
        if label not in self.released:
            self.released[label] = make()
        return self.released[label]

    def run(self, mechanism: EstimatesMechanism, users: list[User], release: Any) -> Seen:
        self.seen = Seen()
        mechanism.run(batch_of(users), release)
        return self.seen


@dataclasses.dataclass
class Spent:
    """What two neighbours cost over one course: squares of Gaussian parts, epsilons of Laplace parts, chances that own items
    show, and ranges of choices; infinite where they are told apart for sure."""

    gaussian: Counter = dataclasses.field(default_factory=Counter)
    laplace: Counter = dataclasses.field(default_factory=Counter)
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
            rates[side] += sum(rate_of(plan, own)) if own and plan.threshold is not None else 0.0
        if plan.kind == "gaussian":
            spent.gaussian[kind] += sum(step**2 for step in moved) / float(plan.scale) ** 2
        else:
            spent.laplace[kind] += sum(map(abs, moved)) / float(plan.scale)
    spent.shown = -math.expm1(-max(rates))
    for (name, choice, table), (_, _, their_table) in zip(one.tables, other.tables, strict=True):
        spent.choices |= {f"{name} {part}": size for part, size in ranges(choice, table, their_table).items()}
    return spent


def rate_of(plan: NoisePlan, own: list[int]) -> np.ndarray:
    """-ln of the chance that items of these sums stay hidden. The threshold of continuous noise is half a step lower."""
    sums, threshold, scale = np.array(own, float), float(plan.threshold), float(plan.scale)
    if plan.kind == "gaussian":
        return gaussian_rate(sums, scale, threshold - 0.5)
    return -np.log1p(-np.exp((sums - threshold) / scale) / (1 + math.exp(-1 / scale)))


def ranges(choice: Any, one: list[int], other: list[int]) -> dict[str, float]:
    """The range of the log-ratios of all chances, in units of the epsilon that the account has for it."""
    if isinstance(choice, KeptChoice):
        parts = {"totals": (choice.totals_exponents, choice.totals_budget)} if choice.norms else {}
        if choice.counts_budget is not None and one[-1] > 0:
            parts["counts"] = (choice.counts_exponents, choice.counts_budget)
    else:
        parts = {"names": (choice.exponents, choice.budget)}
    found = {}
    for name, (exponents, budget) in parts.items():
        logs = [np.array([-float(x) for x in exponents(table)]) for table in (one, other)]
        found[name] = float(np.ptp(logs[0] - logs[1])) / budget.epsilon
    return found


def fits(spent: Spent, mechanism: EstimatesMechanism) -> bool:
    """Whether all of it is within the account, whose composition is the promise."""
    account = mechanism.stages.account
    squares = {"NamedItems": account.names_mu, "Counts": account.counts_mu, "Totals": account.totals_mu}
    pures = {"NamedItems": account.pure_counts, "Counts": account.pure_counts, "Totals": account.pure_totals}
    hiding = account.pure_hiding if spent.laplace else account.hiding
    return (
        not spent.apart
        and all(size <= squares[kind] ** 2 * (1 + 1e-9) for kind, size in spent.gaussian.items())
        and all(size <= pures[kind] * (1 + 1e-9) for kind, size in spent.laplace.items())
        and not (spent.gaussian and spent.laplace)  # the account has one way or the other
        and spent.shown <= hiding * (1 + 1e-9)
        and all(size <= 1 + 1e-9 for size in spent.choices.values())
    )


MECHANISMS: dict[str, dict[str, Any]] = {
    "auto": {},
    "gaussian": {"noise": "gaussian"},
    "laplace": {"noise": "laplace"},
    "users": {"of": "users"},
    "given bound": {"bound": 20, "max_per_item": 4},
    "without totals": {"calibrate": "none"},
    "domain": {"domain": DOMAIN},
    "domain, laplace": {"domain": DOMAIN, "noise": "laplace"},
}


@functools.cache
def mechanism_of(name: str, relation: Relation = Relation.ADD_REMOVE) -> EstimatesMechanism:
    return estimates(BUDGET, **MECHANISMS[name], relation=relation)


def audited(
    mechanism: EstimatesMechanism, one: list[User], other: list[User], release: Any, monkeypatch: pytest.MonkeyPatch
) -> Spent:
    """Neighbours over the course of the first of them."""
    with monkeypatch.context() as context:
        course = Course(context)
        return compared(course.run(mechanism, one, release), course.run(mechanism, other, release))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_user_more_or_less_costs_what_the_account_says(name, target, make_release, monkeypatch):
    mechanism, without = mechanism_of(name), crowd()
    with_target = [*without, TARGETS[target]]
    for number, (one, other) in enumerate(((without, with_target), (with_target, without))):
        spent = audited(mechanism, one, other, make_release(f"{target}-{number}"), monkeypatch)
        assert fits(spent, mechanism), spent


@pytest.mark.parametrize("name", ["gaussian", "laplace", "domain"])
def test_a_replaced_user_costs_what_the_account_says(name, make_release, monkeypatch):
    mechanism = mechanism_of(name, Relation.REPLACE)
    for one, other in itertools.combinations(TARGETS, 2):
        neighbours = ([*crowd(), TARGETS[one]], [*crowd(), TARGETS[other]])
        spent = audited(mechanism, *neighbours, make_release(f"{one}-{other}"), monkeypatch)
        assert fits(spent, mechanism), (one, other, spent)


def test_the_audit_is_sharp(make_release, monkeypatch):
    """The user who has everything uses up all of the counts' and totals' part, and much of what hides own items; for added
    users' noise where one is replaced it is too much."""
    mechanism = mechanism_of("gaussian")
    account, neighbours = mechanism.stages.account, (crowd(), [*crowd(), TARGETS["all"]])
    spent = audited(mechanism, *neighbours, make_release(), monkeypatch)
    assert spent.gaussian["Counts"] > 0.98 * account.counts_mu**2
    assert spent.gaussian["Totals"] > 0.98 * account.totals_mu**2
    assert spent.shown > 0.01 * account.hiding
    spent = audited(mechanism, crowd(), [*crowd(), TARGETS["once"]], make_release(), monkeypatch)
    assert max(spent.choices.values()) > 0.2, spent.choices
    swapped = ([*crowd(), TARGETS["group"]], [*crowd(), TARGETS["events"]])
    assert not fits(audited(mechanism, *swapped, make_release(), monkeypatch), mechanism)


def test_the_course_has_all_that_the_audit_is_for(make_release, monkeypatch):
    """Edge items are named in some courses and not in others, own ones in none, heavy ones have groups of their own."""
    mechanism, users, named = mechanism_of("gaussian"), [*crowd(), TARGETS["group"]], Counter()
    for number in range(12):
        with monkeypatch.context() as context:
            course = Course(context)
            seen = course.run(mechanism, users, make_release(str(number)))
        items, groups = seen.groups[0]
        named.update(items)
        assert set(COMMON) <= set(items) and not [item for item in items if item.startswith("own")]
        assert max(groups) > 0
    assert 0 < sum(named[item] for item in EDGE) < 12 * 12


def test_a_user_of_no_named_item_changes_nothing_behind_the_names(make_release, monkeypatch):
    for name in ("gaussian", "laplace", "domain", "users"):
        spent = audited(
            mechanism_of(name), crowd(), [*crowd(), TARGETS["unnamed"]], make_release(f"unnamed-{name}"), monkeypatch
        )
        later = [spent.gaussian[kind] + spent.laplace[kind] for kind in ("Counts", "Totals")]
        assert later == [0, 0] and not spent.apart
        assert {size for part, size in spent.choices.items() if part.startswith("kept")} == {0.0}


# Mutations.


def over_all_items(current: list[Shard]) -> Callable[..., Any]:
    """Totals of all rows of a user: those of other items go to the first group."""

    def rows(shard: Shard, grouped: Grouped, once: bool) -> Shard:
        everything = current[-1]
        others = [item for item in everything.items.to_pylist() if item not in set(grouped.items.to_pylist())]
        items = pa.array(grouped.items.to_pylist() + others)
        group = np.append(grouped.group, np.zeros(len(others), dtype=np.int64))
        return group_rows(everything, dataclasses.replace(grouped, items=items, group=group), once)

    return rows


def recording(current: list[Shard]) -> Callable[..., Any]:
    def made(batches: Any) -> Any:
        current.append(one_shard(batches))
        return current[-1]

    return made


def test_totals_over_all_items_are_caught(make_release, monkeypatch):
    """They stay within the norm, and so within the promise, but read what was never named."""
    current: list[Shard] = []
    monkeypatch.setattr(module, "one_shard", recording(current))
    monkeypatch.setattr(module, "group_rows", over_all_items(current))
    neighbours = (crowd(), [*crowd(), TARGETS["unnamed"]])
    spent = audited(mechanism_of("gaussian"), *neighbours, make_release(), monkeypatch)
    assert spent.gaussian["Totals"] > 0


def test_rows_that_are_not_cut_to_the_named_items_are_caught(make_release, monkeypatch):
    monkeypatch.setattr(Shard, "with_items", lambda self, names: self)
    neighbours = (crowd(), [*crowd(), TARGETS["unnamed"]])
    with pytest.raises(RuntimeError, match="not named"):
        audited(mechanism_of("gaussian"), *neighbours, make_release(), monkeypatch)


def test_groups_by_true_sums_are_caught(make_release, monkeypatch):
    current: list[Shard] = []
    real = module.group_items

    def by_true_sums(counts: pa.RecordBatch, plan: Any) -> Grouped:
        shard = current[-1]
        sums = np.bincount(shard.item, shard.count, minlength=len(shard.items))
        true = dict(zip(shard.items.to_pylist(), sums.tolist(), strict=True))
        column = pa.array([float(true[item]) for item in counts.column("item").to_pylist()])
        return real(counts.set_column(1, "bounded_count", column), plan)

    monkeypatch.setattr(module, "one_shard", recording(current))
    monkeypatch.setattr(module, "group_items", by_true_sums)
    neighbours = (crowd(), [*crowd(), TARGETS["group"]])
    assert "groups" in audited(mechanism_of("gaussian"), *neighbours, make_release(), monkeypatch).apart


@pytest.mark.parametrize(("field", "stage"), [("totals_bound", "Totals"), ("bound", "Counts")])
def test_a_norm_taken_from_the_data_is_caught(field, stage, make_release, monkeypatch):
    current: list[Shard] = []
    real = Stages.plan

    def plan(self: Stages, named: Any, kept: Any) -> Any:
        return real(self, named, kept._replace(**{field: min(10**6, int(current[-1].totals().max()))}))

    mechanism = mechanism_of("gaussian")
    monkeypatch.setattr(module, "one_shard", recording(current))
    monkeypatch.setattr(Stages, "plan", plan)
    spent = audited(mechanism, crowd(), [*crowd(), TARGETS["events"]], make_release(), monkeypatch)
    assert f"noise of {stage}" in spent.apart


def test_counts_only_for_items_with_a_positive_sum_are_caught(make_release, monkeypatch):
    """The only user of a public item: with the user it would have a count, and without none. It is refused where sums meet."""
    real = module._noisy

    def only_positive(shard: Any, steps: Any, plan: Any, named: Any, *more: Any) -> Any:
        return real(shard, steps, plan, named[:0], *more)

    neighbours, mechanism = (crowd(), [*crowd(), {"nobody's": 3}]), mechanism_of("domain")
    assert fits(audited(mechanism, *neighbours, make_release(), monkeypatch), mechanism)
    monkeypatch.setattr(module, "_noisy", only_positive)
    with pytest.raises(RuntimeError, match="not named"):
        audited(mechanism, *neighbours, make_release(), monkeypatch)


# Lanes.

RICH = Budget(50, 1e-2)


@pytest.mark.parametrize("name", ["auto", "gaussian", "laplace", "domain"])
def test_no_two_stages_share_a_word_and_shared_lanes_are_caught(name, make_release, monkeypatch):
    """Noise of all stages from one key and by the place of an item alone: words of the names serve the counts again."""
    words = Words(monkeypatch)
    domain = {"domain": DOMAIN} if name == "domain" else {}
    mechanism = estimates(RICH, noise=name if name in ("gaussian", "laplace") else "auto", **domain)
    mechanism.run(batch_of(crowd()), make_release())
    assert words.all > 0 and words.twice == 0
    real = counting_sums.item_lane_ids
    places = lambda key, items, sums: real(bytes(32), pa.array(np.arange(len(items))), np.zeros(len(sums), np.int64))  # noqa: E731
    monkeypatch.setattr(counting_sums, "item_lane_ids", places)
    monkeypatch.setattr(noisy, "noise_subkey", lambda *_: bytes(32))
    monkeypatch.setattr(noisy, "block_key", lambda *_: bytes(32))
    mechanism.run(batch_of(crowd()), make_release())
    assert words.twice > 0
