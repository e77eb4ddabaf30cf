"""Audits of estimated histograms: all stages on neighbours, over the same course of what was released. Exact, no false alarms.

A course is what one run has released: choices, names, noisy counts. The stages are run again on a neighbour with just that
released, and what reaches each draw is compared: tables of choices, sums before noise, which items get noise at all, and how
items are grouped. So everything that the account counts on is measured, stage by stage. Each of the known bugs breaks it:

    totals over all items in place of the named ones   a user of no named item changes what is drawn
    groups cut by true sums                            neighbours are grouped otherwise
    a norm taken from the data                         neighbours have noise of another scale
    counts only for items with a positive sum          neighbours have noise on other items
    items apart that count often after the norm        a user is above the norm that the noise is for
    stages that share lanes                            a word is read twice
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.bound_choice.clip_choice import PARTS, ClipChoice
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting import sums as counting_sums
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram import estimates as module
from headcount.mechanisms.histogram.estimates import EstimatesMechanism, Grouped, group_rows
from headcount.mechanisms.histogram.factory import estimates
from headcount.mechanisms.histogram.stages import Stages
from headcount.mechanisms.partitions.limited import LimitedChoice
from headcount.mechanisms.partitions.select import ChosenStrategy
from tests.privacy.histogram.courses import (
    BUDGET,
    COMMON,
    DOMAIN,
    EDGE,
    HEAVY,
    MECHANISMS,
    TARGETS,
    Course,
    Spent,
    audited,
    batch_of,
    crowd,
    fits,
)
from tests.privacy.independence import Words


@functools.cache
def mechanism_of(name: str, relation: Relation = Relation.ADD_REMOVE) -> EstimatesMechanism:
    return estimates(BUDGET, **{"of": "events"} | MECHANISMS[name], relation=relation)


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
    both = account.counts_mu**2 + account.totals_mu**2  # of which each has its share, by what was chosen
    assert sum(spent.gaussian.values()) > 0.98 * both and min(spent.gaussian.values()) > 0.15 * both
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


def test_a_limit_of_names_that_counts_items_in_place_of_users_is_caught(make_release, monkeypatch):
    """The known bug of the first draw: one user moves it as far as it has items."""
    mechanism, neighbours = mechanism_of("gaussian"), (crowd(), [*crowd(), TARGETS["all"]])
    spent = audited(mechanism, *neighbours, make_release(), monkeypatch)
    assert 0.9 < spent.choices["limited partitions limit of names"] <= 1 + 1e-9

    def by_items(self: LimitedChoice, shard: Shard) -> list[int]:
        items = shard.rows_per_user()
        above = [int(np.maximum(items - limit, 0).sum()) for limit in self.limits]
        return [*self.scored.user_table(shard), *above]

    monkeypatch.setattr(LimitedChoice, "user_table", by_items)
    assert not fits(audited(mechanism, *neighbours, make_release("mutated"), monkeypatch), mechanism)


def test_a_cap_by_pairs_of_which_a_user_has_many_is_caught(make_release, monkeypatch):
    """Each user's items have a weight of one together. If each had that, the user of most items would move the draw of the cap
    by all of them."""
    mechanism, neighbours = mechanism_of("gaussian"), (crowd(), [*crowd(), dict.fromkeys(HEAVY, 3)])
    spent = audited(mechanism, *neighbours, make_release(), monkeypatch)
    assert 0.9 < spent.choices["kept cap"] <= 1 + 1e-9

    def by_pairs(self: ClipChoice, whole: Shard, users: Any) -> list[int]:
        stands = np.ones(len(whole.users), np.int64) if users is None else users
        above = [np.repeat(stands, whole.rows_per_user())[whole.count > cap].sum() for cap in self.caps]
        return [int(each) * PARTS for each in above]

    monkeypatch.setattr(ClipChoice, "_cap_losses", by_pairs)
    assert not fits(audited(mechanism, *neighbours, make_release("mutated"), monkeypatch), mechanism)


def test_more_steps_of_the_cap_than_the_proof_has_are_refused():
    choice = mechanism_of("gaussian").stages.clip_choice
    with pytest.raises(ParameterError, match="too many"):
        dataclasses.replace(choice, caps=tuple(range(1, 200)))


def test_a_user_of_no_named_item_changes_nothing_behind_the_names(make_release, monkeypatch):
    for name in ("gaussian", "laplace", "domain", "users"):
        spent = audited(
            mechanism_of(name), crowd(), [*crowd(), TARGETS["unnamed"]], make_release(f"unnamed-{name}"), monkeypatch
        )
        later = [spent.gaussian[kind] + spent.laplace[kind] for kind in ("Counts", "Totals")]
        assert later == [0, 0] and not spent.apart
        assert {size for part, size in spent.choices.items() if part.startswith(("kept", "alone or kept"))} == {0.0}


# Mutations.


def over_all_items(current: list[Shard]) -> Callable[..., Any]:
    """Totals of all rows of a user: those of other items go to the first group."""

    def rows(shard: Shard, grouped: Grouped) -> Shard:
        everything = current[-1]
        others = [item for item in everything.items.to_pylist() if item not in set(grouped.items.to_pylist())]
        items = pa.array(grouped.items.to_pylist() + others)
        group = np.append(grouped.group, np.zeros(len(others), dtype=np.int64))
        return group_rows(everything, dataclasses.replace(grouped, items=items, group=group))

    return rows


def recording(current: list[Shard]) -> Callable[..., Any]:
    def made(batches: Any) -> Any:
        current.append(one_shard(batches))
        return Parts.of(current[-1])

    return made


def test_totals_over_all_items_are_caught(make_release, monkeypatch):
    """They stay within the norm, and so within the promise, but read what was never named."""
    current: list[Shard] = []
    monkeypatch.setattr(module, "users_of", recording(current))
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

    monkeypatch.setattr(module, "users_of", recording(current))
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
    monkeypatch.setattr(module, "users_of", recording(current))
    monkeypatch.setattr(Stages, "plan", plan)
    spent = audited(mechanism, crowd(), [*crowd(), TARGETS["events"]], make_release(), monkeypatch)
    assert f"noise of {stage}" in spent.apart


def test_items_of_a_user_that_name_taken_from_the_data_are_caught(make_release, monkeypatch):
    """Given, they cost nothing, since they are the same for every input: the most that a user has would not be."""
    current: list[Shard] = []
    mechanism, neighbours = mechanism_of("way given"), (crowd(), [*crowd(), TARGETS["all"]])
    assert fits(audited(mechanism, *neighbours, make_release(), monkeypatch), mechanism)

    def most_there_are(self: Stages) -> ChosenStrategy:
        return ChosenStrategy("law", int(current[-1].rows_per_user().max()), 2)

    monkeypatch.setattr(module, "users_of", recording(current))
    monkeypatch.setattr(Stages, "named_by", property(most_there_are))
    assert "noise of NamedItems" in audited(mechanism, *neighbours, make_release("mutated"), monkeypatch).apart


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


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_totals_of_items_apart_that_count_several_times_after_the_norm_are_caught(noise, make_release, monkeypatch):
    """Counted several times before it, a user who has everything uses up the totals' part and no more; after it, what no norm
    was for is refused where sums meet."""
    monkeypatch.setattr(tuning, "ALONE_KEYS", 0)  # counts that stand alone have no totals
    popular, others = [f"popular{n}" for n in range(3)], [f"other{n}" for n in range(60)]
    everything, many = dict.fromkeys(popular + others, 1), [dict.fromkeys(popular, 1)] * 400
    mechanism, seen = estimates(BUDGET, domain=sorted(everything), of="users", noise=noise), []
    neighbours = ([*many, *[everything] * 6], [*many, *[everything] * 7])

    def totals(spent: Spent) -> float:
        account = mechanism.stages.account
        if noise == "gaussian":
            return spent.gaussian["Totals"] / account.totals_mu**2
        return spent.laplace["Totals"] / account.pure_totals

    real_rows, real_bounded = module.group_rows, module.bounded_users
    release = make_release(f"{noise}-of-totals")
    # Without a split by what was chosen, the totals have the part that the account says.
    monkeypatch.setattr(Stages, "split", lambda self, kept, norm: (self.account.counts_mu, self.account.totals_mu))
    assert fits(spent := audited(mechanism, *neighbours, release, monkeypatch), mechanism)
    assert 0.9 < totals(spent) <= 1 + 1e-9

    def once(shard: Shard, grouped: Grouped) -> Shard:
        seen.append(grouped)
        return real_rows(shard, dataclasses.replace(grouped, times=1))

    def times(users: Any, steps: Any, release: Any, label: str) -> Parts[pa.RecordBatch]:
        batches = real_bounded(users, steps, release, label)
        if "/Totals" not in label:
            return batches
        place = batches[0].schema.get_field_index("count")
        count = np.asarray(batches[0].column("count")) * seen[-1].weights[np.asarray(batches[0].column("item"))]
        return Parts.of(batches[0].set_column(place, batches[0].schema.field("count"), pa.array(count)))

    monkeypatch.setattr(module, "group_rows", once)
    monkeypatch.setattr(module, "bounded_users", times)
    assert not fits(audited(mechanism, *neighbours, release, monkeypatch), mechanism)
    assert seen[-1].apart > 0 and seen[-1].times > 1


# Lanes.

RICH = Budget(50, 1e-2)


@pytest.mark.parametrize("name", ["auto", "gaussian", "laplace", "domain"])
def test_no_two_stages_share_a_word_and_shared_lanes_are_caught(name, make_release, monkeypatch):
    """Noise of all stages from one key and by the place of an item alone: words of the names serve the counts again."""
    words = Words(monkeypatch)
    domain = {"domain": DOMAIN} if name == "domain" else {}
    mechanism = estimates(RICH, of="events", noise=name if name in ("gaussian", "laplace") else "auto", **domain)
    mechanism.run(batch_of(crowd()), make_release())
    assert words.all > 0 and words.twice == 0
    real = counting_sums.item_lane_ids
    places = lambda key, items, sums: real(bytes(32), pa.array(np.arange(len(items))), np.zeros(len(sums), np.int64))  # noqa: E731
    monkeypatch.setattr(counting_sums, "item_lane_ids", places)
    monkeypatch.setattr(noisy, "noise_subkey", lambda *_: bytes(32))
    monkeypatch.setattr(noisy, "block_key", lambda *_: bytes(32))
    mechanism.run(batch_of(crowd()), make_release())
    assert words.twice > 0
