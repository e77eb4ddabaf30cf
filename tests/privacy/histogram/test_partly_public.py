"""Audits of keys partly public: all stages on neighbours, over the same course of what was released. Exact, no false alarms.

As for all estimated histograms (`courses`). Pages come from the data and days are public. Each of the known bugs breaks it:

    counts where a named page has rows, and else 0     neighbours have noise on other keys
    a page that is named once for each of its days     one user moves the coins of a page by all of its days
    counts bounded on pages and not on whole keys      a user of all days is refused where sums meet
    rows outside of the public days that name pages    a user outside of the list changes what is drawn
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.release import aggregate
from headcount.mechanisms.batches.distinct import distinct
from headcount.mechanisms.batches.shards import MOST_COUNT, Shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.histogram import estimates as module
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.factory import estimates
from tests.privacy.aggregate.test_stages import AggregateCourse
from tests.privacy.histogram.courses import (
    BUDGET,
    COMMON,
    EDGE,
    HEAVY,
    Course,
    Seen,
    User,
    audited,
    batch_of,
    compared,
    fits,
)
from tests.privacy.histogram.courses import crowd as crowd_of_items
from tests.privacy.independence import Words

DAYS, QUIET, OUTSIDE = [f"d{n}" for n in range(7)], "d6", "d9"  # on the quiet day the crowd does nothing
DOMAIN = PartlyPublic(pa.array(DAYS), 2, [1], ["day=d0..d6"])

MECHANISMS: dict[str, dict[str, Any]] = {
    "events": {"of": "events"},
    "users": {},
    "given bound": {"of": "events", "bound": 20, "max_per_item": 4},
    "without totals": {"of": "events", "calibrate": "none"},
}


def on(pages: list[str], days: list[str], count: int = 1) -> User:
    return {f"{page}\x1f{day}": count for page, day in itertools.product(pages, days)}


def crowd() -> list[User]:
    """The crowd of all audits, each of whose pages is on one day of the week but the quiet one."""
    return [
        {f"{page}\x1f{DAYS[(u + k) % 6]}": count for k, (page, count) in enumerate(user.items())}
        for u, user in enumerate(crowd_of_items())
    ]


# Pages at the edge of naming and of its own, each on all days; one page on all days, of the crowd or its own; all it can; pages
# that nobody else has; a page that everybody has, on a day on which it is alone; and rows on a day that is not on the list.
TARGETS: dict[str, User] = {
    "edge": on(EDGE, DAYS) | on([f"own{n}" for n in range(20)], DAYS),
    "days": on(COMMON[:1], DAYS),
    "own": on(["own"], DAYS),
    "all": on(COMMON + EDGE + HEAVY + [f"own{n}" for n in range(300)], DAYS, MOST_COUNT),
    "unnamed": on([f"alone{n}" for n in range(3)], DAYS, 7),
    "quiet": on(COMMON[:1], [QUIET], 3),
    "outside": on(COMMON + EDGE + [f"own{n}" for n in range(20)], [OUTSIDE], 5),
}


@functools.cache
def mechanism_of(name: str, relation: Relation = Relation.ADD_REMOVE) -> EstimatesMechanism:
    return estimates(BUDGET, domain=DOMAIN, **MECHANISMS[name], relation=relation)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_one_user_more_or_less_costs_what_the_account_says(name, target, make_release, monkeypatch):
    mechanism, without = mechanism_of(name), crowd()
    with_target = [*without, TARGETS[target]]
    for number, (one, other) in enumerate(((without, with_target), (with_target, without))):
        spent = audited(mechanism, one, other, make_release(f"{target}-{number}"), monkeypatch)
        assert fits(spent, mechanism), spent


def test_a_replaced_user_costs_what_the_account_says(make_release, monkeypatch):
    mechanism = mechanism_of("events", Relation.REPLACE)
    for one, other in itertools.combinations(TARGETS, 2):
        neighbours = ([*crowd(), TARGETS[one]], [*crowd(), TARGETS[other]])
        spent = audited(mechanism, *neighbours, make_release(f"{one}-{other}"), monkeypatch)
        assert fits(spent, mechanism), (one, other, spent)


@pytest.mark.parametrize("target", TARGETS)
def test_an_aggregate_costs_what_its_account_says(target, make_release, monkeypatch):
    mechanism = aggregate(BUDGET, ["users", "events", "sum:price:0:100", "mean:price:0:100"], domain=DOMAIN)
    neighbours = (crowd(), [*crowd(), TARGETS[target]])
    with monkeypatch.context() as context:
        course = AggregateCourse(context, [100.0])
        one, other = (course.run(mechanism, users, make_release(target)) for users in neighbours)
    spent = compared(one, other)
    assert fits(spent, mechanism), spent
    if target == "all":
        assert sum(spent.gaussian.values()) > 0.5 * mechanism.stages.account.counts_mu**2


def course_of(mechanism: Any, users: list[User], release: Any, monkeypatch: pytest.MonkeyPatch) -> Seen:
    with monkeypatch.context() as context:
        return Course(context).run(mechanism, users, release)


def test_the_audit_is_sharp_and_every_named_page_is_counted_on_every_day(make_release, monkeypatch):
    """The user of all pages on all days uses up the counts' and totals' part, with 84 keys of which it has 36 pages."""
    mechanism = mechanism_of("events")
    account = mechanism.stages.account
    spent = audited(mechanism, crowd(), [*crowd(), TARGETS["all"]], make_release(), monkeypatch)
    assert sum(spent.gaussian.values()) > 0.9 * (account.counts_mu**2 + account.totals_mu**2)
    assert spent.coins and spent.shown > 0
    seen = course_of(mechanism, crowd(), make_release(), monkeypatch)
    counted = next(stage.sums for stage in seen.stages if "/Counts/" in stage.label)
    pages = {key.split("\x1f")[0] for key in counted}
    assert set(COMMON + HEAVY) <= pages and counted.keys() == set(on(sorted(pages), DAYS))


def test_what_lies_outside_of_the_list_changes_nothing(make_release, monkeypatch):
    spent = audited(mechanism_of("events"), crowd(), [*crowd(), TARGETS["outside"]], make_release(), monkeypatch)
    assert not spent.apart and not spent.shown and {*spent.choices.values()} == {0.0}
    assert not any(spent.gaussian.values()) and all(one == other for one, other in spent.coins)


@pytest.mark.parametrize("name", ["events", "users"])
def test_no_two_stages_share_a_word(name, make_release, monkeypatch):
    words = Words(monkeypatch)
    mechanism_of(name).run(batch_of(crowd()), make_release())
    assert words.all > 0 and words.twice == 0


# Mutations.


def test_counts_only_where_a_named_page_has_rows_are_caught(make_release, monkeypatch):
    """Gaps that are filled by zeros: the only user of a page on a day makes a noisy number of a sure 0."""
    real, held = PartlyPublic.complete, []

    def where_rows_are(self: PartlyPublic, named: pa.Array) -> pa.Array:
        keys = real(self, named)
        return keys.filter(pa.array(np.isin(keys.to_pylist(), held[-1])))

    def projected(self: PartlyPublic, shard: Shard) -> Shard:
        held.append(shard.items.to_pylist())
        return real_projected(self, shard)

    real_projected = PartlyPublic.projected
    neighbours = (crowd(), [*crowd(), TARGETS["quiet"]])
    assert not audited(mechanism_of("events"), *neighbours, make_release(), monkeypatch).apart
    monkeypatch.setattr(PartlyPublic, "projected", projected)
    monkeypatch.setattr(PartlyPublic, "complete", where_rows_are)
    assert "items of Counts" in audited(mechanism_of("events"), *neighbours, make_release(), monkeypatch).apart


def test_a_page_that_counts_once_for_each_of_its_days_is_caught(make_release, monkeypatch):
    def for_each_day(self: PartlyPublic, shard: Shard) -> Shard:
        parts, place = distinct(self.private_parts(shard.items))
        return Shard(shard.users, parts, shard.offsets, place[shard.item].astype(np.int64), shard.count)

    mechanism, neighbours = mechanism_of("events"), (crowd(), [*crowd(), TARGETS["own"]])
    assert fits(audited(mechanism, *neighbours, make_release(), monkeypatch), mechanism)
    monkeypatch.setattr(PartlyPublic, "projected", for_each_day)
    assert not fits(audited(mechanism, *neighbours, make_release("mutated"), monkeypatch), mechanism)


def test_counts_that_are_bounded_on_pages_alone_are_caught(make_release, monkeypatch):
    """A user's pages are within the norm, and with all days of each it is above."""
    real = module.bounded_users

    def on_pages(users: Any, steps: Any, release: Any, label: str) -> Parts[pa.RecordBatch]:
        if "/Counts" not in label:
            return real(users, steps, release, label)
        (bounded,) = real(users.map(DOMAIN.projected), steps, release, label)
        rows = bounded.to_pylist()
        kept = [(row["user"], f"{row['item']}\x1f{day}", row["count"]) for row in rows for day in DAYS]
        user, item, count = (pa.array(list(column)) for column in zip(*kept, strict=True))
        columns = [user.dictionary_encode(), item.dictionary_encode(), count]
        return Parts.of(pa.RecordBatch.from_arrays(columns, schema=bounded.schema))

    mechanism, neighbours = mechanism_of("events"), (crowd(), [*crowd(), TARGETS["all"]])
    monkeypatch.setattr(module, "bounded_users", on_pages)
    assert not fits(audited(mechanism, *neighbours, make_release(), monkeypatch), mechanism)


def test_rows_outside_of_the_list_that_name_pages_are_caught(make_release, monkeypatch):
    """They are no neighbours of what was promised about the listed days alone: here the crowd itself is told apart."""
    monkeypatch.setattr(module, "only_domain", lambda batch, domain: batch)
    spent = audited(mechanism_of("events"), crowd(), [*crowd(), TARGETS["outside"]], make_release(), monkeypatch)
    assert any(one != other for one, other in spent.coins)
