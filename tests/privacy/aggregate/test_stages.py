"""Audits of whole aggregates: all stages on neighbours, over the same course of what was released. Exact, no false alarms.

As for estimated histograms (`tests.privacy.histogram.courses`): what one run has released is given to a neighbour, and what
reaches each draw is compared with what the account counts on. Each of the known bugs breaks it:

    bounding on all keys, and names afterwards     a user of no named key changes what is drawn
    totals over all keys                           the same
    noise only for keys that somebody has          it is refused where sums meet
    measures, or names and sums, that share lanes  a word is read twice
    totals that get precision which sums keep      both together are above what the account has
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate import release as module
from headcount.mechanisms.aggregate import sums, totals
from headcount.mechanisms.aggregate.choice import KeysChoice
from headcount.mechanisms.aggregate.metrics import Metric, Metrics, parse_metric, parse_metrics
from headcount.mechanisms.aggregate.release import AggregateMechanism, aggregate
from headcount.mechanisms.aggregate.trees import BRANCHING, LEAVES, LEVELS
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.calibration.noise import make_plan
from headcount.mechanisms.columns.value_ranges import value_columns
from headcount.mechanisms.histogram.account import Account
from tests.privacy.histogram.courses import BUDGET, DOMAIN, TARGETS, Course, Spent, Stage, User, compared, crowd, fits
from tests.privacy.independence import Words

METRICS = [
    Metric("users"),
    Metric("events"),
    *(parse_metric(kind, "price:0:100") for kind in ("sum", "mean", "variance")),
]
ASKED = [*METRICS, *parse_metrics("quantile", "0.5,0.9:price:0:100")]
MECHANISMS: dict[str, dict[str, Any]] = {
    "auto": {},
    "given": {"max_items": 4, "max_per_item": 3},
    "without totals": {"calibrate": "none"},
    "domain": {"domain": DOMAIN},
    "domain, given": {"domain": DOMAIN, "max_items": 4, "max_per_item": 3, "calibrate": "none"},
}
PRICES = {"low end": [0.0], "high end": [100.0], "far beyond": [-1e9, 1e9]}


@functools.cache
def mechanism_of(name: str, relation: Relation = Relation.ADD_REMOVE) -> AggregateMechanism:
    return aggregate(BUDGET, ASKED, **MECHANISMS[name], relation=relation)


class AggregateCourse(Course):
    """The course of an aggregate: the prices of the last user are given, those of the crowd are its own."""

    values = Metrics.of(METRICS).values

    def __init__(self, monkeypatch: pytest.MonkeyPatch, prices: list[float]) -> None:
        super().__init__(monkeypatch)
        self.prices = prices
        real = sums.noisy_measures

        def noisy_measures(merged: pa.RecordBatch, plan: Any, subkeys: Any, evidence: Any, metrics: Any) -> Any:
            items = merged.column("item").to_pylist()
            made, noise = self.drawn("sums", lambda: real(merged, plan, subkeys, evidence, metrics))
            own = iter(noise[: sum(each.kind != "tree" for each in plan.measures)])  # trees are drawn after all others
            trees = noise[sum(each.kind != "tree" for each in plan.measures) :]
            for each in plan.measures:
                meant = make_plan(each.noise, each.grid, each.sigma, None, BUDGET, plan.relation, plan.bound)
                if each.kind == "tree":
                    self.seen.stages += [
                        Stage(f"Aggregate/Sums/{each.name}/{level}", meant, nodes(merged, each, level), least)
                        for least in [min(trees, key=lambda part: part.scale)]
                        for level in range(LEVELS)
                    ]
                    continue
                moved = (np.asarray(merged.column(each.name)) << (each.grid - each.bits)).tolist()
                self.seen.stages.append(
                    Stage(f"Aggregate/Sums/{each.name}", meant, dict(zip(items, moved, strict=True)), next(own))
                )
            return made

        monkeypatch.setattr(module, "noisy_measures", noisy_measures)
        monkeypatch.setattr(module, "noisy_counts", self.counts)
        monkeypatch.setattr(totals, "group_rows", self.rows)
        monkeypatch.setattr(module, "released", lambda *_: (None, None))  # what follows the last draw

    def batches(self, users: list[User]) -> list[pa.RecordBatch]:
        size = len(crowd())
        rows = []
        for number, user in enumerate(users):
            prices = self.prices if number >= size else [7.0 * (number % 11)]
            for item, count in user.items():
                for k, price in enumerate(prices):
                    often = count // len(prices) + (k < count % len(prices))
                    rows += [(f"u{number}", item, often, price)] if often else []
        user, item, often, price = (list(column) for column in zip(*rows, strict=True))
        values = value_columns(self.values, {"price": pa.array(price)})
        return [contribution_batch(pa.array(user), pa.array(item), pa.array(often, pa.int64()), values=values)]


def nodes(merged: pa.RecordBatch, measure: Any, level: int) -> dict[tuple[str, int], int]:
    """The rows in all nodes of a level that any price here is in, for all keys, in units of the noise's grid."""
    leaves = {min(LEAVES - 1, int(price * LEAVES / 100)) for price in (*range(0, 77, 7), 100)}
    items = merged.column("item").to_pylist()
    found = {(item, leaf // BRANCHING**level): 0 for item in items for leaf in leaves}
    columns = (merged.column(measure.name + part).to_pylist() for part in ("", "/often"))
    for item, some, rows in zip(items, *columns, strict=True):
        for leaf, count in zip(some, rows, strict=True):
            node = item, leaf // BRANCHING**level
            found[node] = found.get(node, 0) + (count << measure.grid)
    return found


def audited(
    mechanism: AggregateMechanism,
    one: list[User],
    other: list[User],
    release: Any,
    monkeypatch: pytest.MonkeyPatch,
    prices: tuple[str, str] = ("high end", "high end"),
) -> Spent:
    """Neighbours over the course of the first of them."""
    with monkeypatch.context() as context:
        course = AggregateCourse(context, PRICES[prices[0]])
        first = course.run(mechanism, one, release)
        course.prices = PRICES[prices[1]]
        return compared(first, course.run(mechanism, other, release))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_user_more_or_less_costs_what_the_account_says(name, target, make_release, monkeypatch):
    mechanism, without = mechanism_of(name), crowd()
    with_target = [*without, TARGETS[target]]
    for prices, (one, other) in (
        ("far beyond", (without, with_target)),
        ("high end", (with_target, without)),
    ):
        spent = audited(mechanism, one, other, make_release(f"{target}-1"), monkeypatch, (prices, prices))
        assert fits(spent, mechanism), (prices, spent)


@pytest.mark.parametrize("name", ["auto", "domain, given"])
def test_a_replaced_user_costs_what_the_account_says(name, make_release, monkeypatch):
    mechanism = mechanism_of(name, Relation.REPLACE)
    for one, other in itertools.combinations_with_replacement(("edge", "unnamed", "all", "once"), 2):
        neighbours = ([*crowd(), TARGETS[one]], [*crowd(), TARGETS[other]])
        prices = ("low end", "high end")
        spent = audited(mechanism, *neighbours, make_release(f"{one}-{other}"), monkeypatch, prices)
        assert fits(spent, mechanism), (one, other, spent)


def test_the_audit_is_sharp(make_release, monkeypatch):
    """The user who has everything uses up all of the part of the sums; a replaced one is too much for added users' noise."""
    mechanism = mechanism_of("given")
    spent = audited(mechanism, crowd(), [*crowd(), TARGETS["all"]], make_release(), monkeypatch)
    assert spent.gaussian["Sums"] > 0.98 * mechanism.stages.account.counts_mu**2
    assert spent.gaussian["Totals"] > 0.98 * mechanism.stages.account.totals_mu**2
    swapped = ([*crowd(), TARGETS["all"]], [*crowd(), TARGETS["once"]])
    assert not fits(audited(mechanism, *swapped, make_release(), monkeypatch, ("low end", "high end")), mechanism)


def test_precision_that_totals_get_and_sums_keep_is_caught(make_release, monkeypatch):
    """Totals get more of it by what was chosen: what they get, the sums must give."""
    neighbours, release = (crowd(), [*crowd(), TARGETS["all"]]), make_release("all-1")
    assert fits(audited(mechanism_of("auto"), *neighbours, release, monkeypatch), mechanism_of("auto"))
    monkeypatch.setattr(
        Account, "split", lambda self, share: (self.counts_mu, math.hypot(self.counts_mu, self.totals_mu))
    )
    assert not fits(audited(mechanism_of("auto"), *neighbours, release, monkeypatch), mechanism_of("auto"))


def test_a_bound_of_users_that_is_drawn_with_more_than_its_part_is_caught(make_release, monkeypatch):
    mechanism, neighbours = mechanism_of("auto"), (crowd(), [*crowd(), TARGETS["all"]])
    spent = audited(mechanism, *neighbours, make_release("all-1"), monkeypatch)
    assert 0.9 < spent.choices["keys users"] <= 1 + 1e-9
    real = KeysChoice.users_exponents
    monkeypatch.setattr(KeysChoice, "users_exponents", lambda self, table: [2 * each for each in real(self, table)])
    assert not fits(audited(mechanism, *neighbours, make_release("all-1"), monkeypatch), mechanism)


def test_a_user_of_no_named_key_changes_nothing_behind_the_names(make_release, monkeypatch):
    neighbours = crowd(), [*crowd(), TARGETS["unnamed"]]
    for number, name in enumerate(MECHANISMS):
        spent = audited(mechanism_of(name), *neighbours, make_release(f"unnamed-{number}"), monkeypatch)
        assert spent.gaussian["Sums"] == spent.gaussian["Totals"] == 0 and not spent.apart
        assert {size for part, size in spent.choices.items() if part.startswith("keys")} <= {0.0}


def test_bounding_on_all_keys_is_caught(make_release, monkeypatch):
    """Rows of keys that were not named reach the sums: a check refuses them there, where they would have got noise."""
    monkeypatch.setattr(ValueShard, "with_items", lambda self, names: self)
    with pytest.raises(RuntimeError, match="not named"):
        audited(mechanism_of("given"), crowd(), [*crowd(), TARGETS["edge"]], make_release(), monkeypatch)


def test_every_named_key_has_noise_on_every_measure(make_release):
    """4,000 keys of a domain that nobody has: their noisy sums are the noise itself. Kolmogorov and Smirnov's test of each
    measure at a false-alarm rate of 1e-8; noise of half the size has p-values below 1e-60."""
    keys = [f"k{n:04}" for n in range(4000)]
    made = aggregate(Budget(1, 1e-6), METRICS, domain=keys, max_items=2, max_per_item=3, calibrate="none")
    plan = made.stages.plan(None, None).measures
    noisy = made._sums(Parts.of(), made.stages.plan(None, None), pa.array(keys), make_release(), "label")
    for measure in plan.measures:
        drawn = np.asarray(noisy.column(measure.name))
        assert stats.kstest(drawn, stats.norm(0, measure.stddev).cdf).pvalue > 1e-8, measure
        assert stats.kstest(drawn, stats.norm(0, measure.stddev / 2).cdf).pvalue < 1e-8, measure
    columns = [np.asarray(noisy.column(measure.name)) for measure in plan.measures]
    for one, other in itertools.combinations(columns, 2):
        # The correlation of 4,000 independent pairs is normal with a standard deviation of 1/63: beyond six of them, 2e-9.
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / 63


@pytest.mark.parametrize("name", MECHANISMS)
def test_no_two_stages_share_a_word(name, make_release, monkeypatch):
    words = Words(monkeypatch)
    course = AggregateCourse.__new__(AggregateCourse)
    course.prices = [100.0]
    mechanism_of(name).run(course.batches(crowd()), make_release())
    assert words.all > 0 and words.twice == 0


def test_measures_that_share_lanes_are_caught(make_release, monkeypatch):
    """One subkey for all: keys that nobody has have equal sums of 0, and so equal lanes."""
    real = sums.subkey

    def same(key: bytes, release_id: str, label: str, parameters: Any) -> bytes:
        return real(key, release_id, label, parameters | {"measure": ""})

    monkeypatch.setattr(sums, "subkey", same)
    words = Words(monkeypatch)
    made = aggregate(BUDGET, METRICS, domain=["a", "b"], max_items=1, max_per_item=2, calibrate="none")
    made.run([], make_release())
    assert words.twice > 0
