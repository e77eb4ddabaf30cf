"""Audits of noise of which one draw is shared by all items of a public domain, and of its known bugs.

Keys are fixed; the stated false-alarm rates are those of a fresh key.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting import gaussian
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.noisy import add_noise
from headcount.mechanisms.counting.sums import merge_sums
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.histogram.fixed import bounded_histogram
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian
from tests.privacy.independence import Words

SUBKEY = bytes(range(32))
BUDGET = Budget(1.0, 1e-6)


def _plan(items: int, budget: Budget = BUDGET) -> NoisePlan:
    """For users who may have each of the items, once."""
    return calibrate_public_domain(budget, Bound(l0=items, linf=1), "add-remove", "gaussian", items)


# Exact divergence.


def _law(scale: Fraction, reach: int) -> np.ndarray:
    weight = np.exp(-0.5 * (np.arange(-reach, reach + 1) / float(scale)) ** 2)
    return weight / weight.sum()


def _delta(own: Fraction, shared: Fraction | None, user: tuple[int, ...], epsilon: float) -> float:
    """The exact divergence of what is released with and without a user, in the worse direction: sums over the whole grid."""
    reach = math.ceil(4.5 * math.hypot(own, shared or 0)) + max(user)
    far = 0 if shared is None else math.ceil(5 * shared)
    draws = np.ones(1) if shared is None else _law(shared, far)
    middle = reach + far + max(user)
    law, grid = _law(own, middle), np.arange(-reach, reach + 1)
    without, added = np.zeros((2, *(len(grid),) * len(user)))
    for draw, chance in zip(range(-far, far + 1), draws, strict=True):
        without += chance * functools.reduce(np.multiply.outer, [law[grid - draw + middle]] * len(user))
        added += chance * functools.reduce(np.multiply.outer, [law[grid - draw - count + middle] for count in user])
    factor = math.exp(epsilon)
    return max(float(np.maximum(p - factor * q, 0).sum()) for p, q in ((without, added), (added, without)))


@pytest.mark.parametrize(("items", "steps"), [(2, 8), (3, 3)])
def test_the_exact_divergence_keeps_delta_and_that_of_each_bug_does_not(items, steps, monkeypatch):
    """All of the law is summed up, on grids far coarser than the 1,024 steps that are used: there a grid matters most. Users of
    any number of the items, and of half of one, keep delta. Some break it if the draw is not there, if each item has one of its
    own, if it is too small, or if it has a part of the items' own noise."""
    monkeypatch.setattr(gaussian, "STEPS", steps)
    budget = Budget(1.0, 0.05)
    plan = _plan(items, budget)
    assert plan.shared is not None
    own, shared, one = plan.scale, plan.shared.scale, 1 << plan.grid
    users = [(0,) * (items - k) + (one,) * k for k in range(1, items + 1)] + [(0,) * (items - 1) + (one // 2,)]

    def worst(own: Fraction, shared: Fraction | None) -> float:
        return max(_delta(own, shared, user, budget.epsilon) for user in users)

    stated = float(gaussian.gaussian_delta(budget.epsilon, math.sqrt(2 * _rho(plan)), 1.0))
    assert 0.85 * stated < worst(own, shared) <= stated <= budget.delta
    assert worst(own, None) > 2 * budget.delta, "not there"
    assert worst(Fraction(math.ceil(math.hypot(own, shared))), None) > 1.2 * stated, "one of its own for each item"
    assert worst(own, shared / 2) > 1.5 * stated, "too small"
    less = Fraction(math.isqrt(int(own**2 - shared**2 / 2)))
    assert worst(less, shared * 5 / 4) > 1.05 * stated, "a part of the items' own noise"


def _rho(plan: NoisePlan) -> float:
    losses = plan.losses()
    return losses.rho if losses.rho > 0 else losses.mu**2 / 2


# What is drawn.


def _rows(items: int) -> tuple[pa.RecordBatch, int]:
    """Sums 0, 1, ... of so many items with their lanes, and the digest."""
    chunk = pack({"item": pa.array([f"i{k}" for k in range(items)]), "sum": pa.array(np.arange(items))})
    return merge_sums([chunk], SUBKEY, str)


def _errors(plan: NoisePlan, items: int, releases: int) -> np.ndarray:
    """The errors of so many independent releases, a row for each, in counts."""
    rows, _ = _rows(items)
    order = [int(name[1:]) for name in rows.column("item").to_pylist()]
    noisy_rows = np.array(
        [
            np.asarray(add_noise(rows, plan, SUBKEY, Evidence.of([k], [])).column("bounded_count"))
            for k in range(releases)
        ]
    )
    return noisy_rows - np.array(order)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What many releases tell of the noise: variances as parts of the stated ones."""

    own: float
    shared: float


def _seen(plan: NoisePlan, items: int, releases: int) -> Seen:
    errors = _errors(plan, items, releases)
    mean = errors.mean(axis=1)
    alone = errors - mean[:, None]
    own = plan.stddev**2 - plan.shared_stddev**2
    together = mean - mean.mean()
    return Seen(
        float((alone**2).sum() / (releases * (items - 1)) / own),
        float((together**2).sum() / (releases - 1) / (plan.shared_stddev**2 + own / items)),
    )


def _each_its_own(plan, key, drawn):
    """A draw from lanes that differ from item to item."""
    return discrete_gaussian(Lanes(drawn, np.arange(2 * ITEMS, dtype=np.uint64).reshape(-1, 2)), plan.shared.scale)


def _none(plan, key, drawn):
    return 0


def _one_for_all_releases(plan, key, drawn):
    return int(discrete_gaussian(Lanes(SUBKEY, np.zeros((1, 2), np.uint64)), plan.shared.scale)[0])


def _twice(plan, key, drawn):
    """The right draw, in the wrong unit."""
    return 2 * _drawn(plan, key, drawn)


_drawn = noisy.shared_draw
ITEMS, RELEASES = 40, 100
BUGS = [_each_its_own, _none, _one_for_all_releases, _twice]


def _as_stated(seen: Seen) -> bool:
    """Both at a false-alarm rate below 1e-8."""
    low, high = stats.chi2.ppf([1e-9, 1 - 1e-9], RELEASES - 1) / (RELEASES - 1)
    return low < seen.shared < high and abs(seen.own - 1) < 6 * math.sqrt(2 / RELEASES / ITEMS)


def test_the_covariance_is_what_is_stated_and_each_bug_is_caught(monkeypatch):
    """40 items, 100 releases. A draw that each item has for itself, that is missing or always the same leaves a sixth of the
    variance that releases share, and one that is doubled has 3.6 times of it: each is caught with power above 1 - 1e-6."""
    plan = _plan(ITEMS)
    assert _as_stated(_seen(plan, ITEMS, RELEASES))
    for bug in BUGS:
        monkeypatch.setattr(noisy, "shared_draw", bug)
        assert not _as_stated(_seen(plan, ITEMS, RELEASES)), bug.__name__


def _that_of_an_item(plan, key, drawn):
    """A draw from the lane of an item's own noise."""
    rows, _ = _rows(1)
    ids = np.stack([np.asarray(rows.column("lane_hi")), np.asarray(rows.column("lane_lo"))], axis=1)
    return int(discrete_gaussian(Lanes(drawn, ids), plan.shared.scale)[0])


def test_no_word_of_the_shared_draw_is_one_of_an_item_and_that_bug_is_caught(monkeypatch):
    """Exact: no word is read twice. (Reused words would hardly show in a covariance.)"""
    words, (rows, digest) = Words(monkeypatch), _rows(ITEMS)
    add_noise(rows, _plan(ITEMS), SUBKEY, Evidence.of([digest], []))
    assert words.twice == 0 < words.all
    words.forget()
    monkeypatch.setattr(noisy, "shared_draw", _that_of_an_item)
    add_noise(rows, _plan(ITEMS), SUBKEY, Evidence.of([digest], []))
    assert words.twice > 0


@pytest.mark.parametrize(("items", "releases"), [(10, 300), (100, 100), (1000, 60)])
def test_the_standard_deviation_is_half_of_that_of_independent_noise(items, releases):
    """(sqrt(d) + 1) / 2 within 1 % or, where draws are few, 6 standard deviations, for own noise as it is drawn and the shared
    draw as it is planned, of which a release has but one. By chance that fails below 2e-9."""
    plan = _plan(items)
    own = _seen(plan, items, releases).own * (plan.stddev**2 - plan.shared_stddev**2)
    together = math.sqrt(own + plan.shared_stddev**2) / gaussian.gaussian_sigma(1.0, 0.999e-6)
    assert together == pytest.approx((math.sqrt(items) + 1) / 2, rel=max(0.01, 6 / math.sqrt(2 * releases * items)))


# All workers agree.


def test_every_part_of_the_items_gets_the_same_draw_and_another_input_another_one():
    """However items are cut, the rows are those of the whole; other sums, or another key, have another shared draw."""
    plan = _plan(8)
    assert plan.shared is not None
    rows, digest = _rows(8)
    whole = add_noise(rows, plan, SUBKEY, Evidence.of([digest], []))
    for cut in (1, 3, 5):
        parts = [rows.slice(start, cut) for start in range(0, 8, cut)]
        drawn = [add_noise(part, plan, SUBKEY, Evidence.of([digest], [])) for part in parts]
        assert pa.Table.from_batches(drawn).combine_chunks().to_batches() == [whole]
    draws = {
        noisy.shared_draw(plan, key, bytes([other]) * 32)
        for key, other in itertools.product((SUBKEY, bytes(32)), (1, 2))
    }
    assert len(draws) == 4


@pytest.mark.parametrize("method", ["one-stage", "estimates"])
def test_the_histogram_of_a_domain_takes_it_and_says_so(method, make_release):
    """Users who may have most of the items: noise is less than without it, and the guarantee is that which was asked for."""
    domain = [f"i{k}" for k in range(30)]
    asked = {"domain": domain, "of": "users", "noise": "gaussian", "method": method, "bound": 5}
    made = histogram(Budget(1.0, 1e-6), **asked, calibrate="none")
    alone = histogram(Budget(1.0, 1e-6), **asked, calibrate="none", relation=Relation.REPLACE)
    user = np.repeat(np.arange(200), 20)
    batch = contribution_batch(pa.array(user), pa.array([f"i{k % 30}" for k in range(len(user))]))
    rows, more = (each.run([batch], make_release()) for each in (made, alone))
    noise, without = (float(each.column("noise_stddev")[0].as_py()) for each in (rows, more))
    assert rows.num_rows == 30 and noise < 0.75 * without / math.sqrt(2)
    assert made.guarantee().epsilon == 1.0 and made.guarantee().delta == 1e-6
    assert noise == made.run([batch], make_release()).column("noise_stddev")[0].as_py()


def test_more_items_than_it_is_for_are_refused(make_release):
    """A plan of ten items does not serve eleven, nor items that are not public."""
    ten, eleven = ([f"i{k}" for k in range(number)] for number in (10, 11))
    made = bounded_histogram(Budget(1, 1e-6), ten, bound=3, noise="gaussian", max_per_item=1)
    assert made.plan.shared is not None
    batch = contribution_batch(pa.array(["u"]), pa.array(["i1"]))
    other = bounded_histogram(Budget(1, 1e-6), eleven, bound=3, noise="gaussian", max_per_item=1)
    for domain in (other.domain, None):
        wrong = dataclasses.replace(made, domain=domain)
        with pytest.raises(RuntimeError, match="other items"):
            wrong.run([batch], make_release())
