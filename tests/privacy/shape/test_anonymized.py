"""Anonymized histograms are as private as stated: noise on every cell, of the right scale, and no trace of how many there are.

Audits run the mechanism on very many independent cells, or on small data very often; each is shown to catch the bug that it
is for. Keys are fixed; the false-alarm rates are those of a fresh key: each bound fails with probability below 1e-7.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.shape import anonymized, hashed
from headcount.mechanisms.shape.anonymized import anonymized_histogram, noise_parameter, noise_plan
from headcount.mechanisms.shape.hashed import HashedHistogram, hashed_histogram
from headcount.mechanisms.shape.isotonic import cumulative_runs
from headcount.mechanisms.shape.tallies import Tally, make_tally, of_cells
from headcount.mechanisms.shape.tally_noise import noisy_positions, noisy_tally

KEY = bytes(range(32))


def cells(values: list[int], numbers: list[int]) -> Tally:
    return Tally(np.array(values, dtype=np.int64), np.array(numbers, dtype=np.int64))


def joined(*tallies: Tally) -> Tally:
    return make_tally(np.concatenate([t.values for t in tallies]), np.concatenate([t.cells for t in tallies]))


# T6: the numbers of cells with at least r have no bias.

RUNS = 2000


def biased(noisy: Tally, p: float, noises: int = 1, shift: int = 0) -> bool:
    """Whether the mean over 2000 runs of 500 cells with 3 users and 500 without is off by more than 5.5 standard errors.

    As cells are independent, the runs are drawn as one with 2000 times as many cells. Power: a bias of 0.003 a cell is seen
    with probability above 0.99.
    """
    runs = cumulative_runs(noisy, p, noises)
    at = np.searchsorted(runs.last, np.arange(1, 7))
    estimate, stddev = runs.estimate[at] / RUNS, np.sqrt(runs.variance[at]) / RUNS
    truth = np.where(np.arange(1, 7) + shift <= 3, 500, 0)
    return bool((np.abs(estimate - truth) > 5.5 * stddev + 1e-9).any())


def test_the_estimate_has_no_bias_and_each_wrong_version_has():
    plan = noise_plan(Budget(1), 1, Relation.REPLACE)
    p, scale = noise_parameter(plan), plan.scale
    data = cells([0, 3], [500 * RUNS, 500 * RUNS])
    noisy = noisy_tally(data, scale, KEY)
    assert not biased(noisy, p)
    held = noisy_tally(cells([3], [500 * RUNS]), scale, KEY)
    assert biased(joined(held, cells([0], [500 * RUNS])), p), "no noise on empty cells"
    assert biased(noisy, math.exp(-1)), "the parameter of the other relation"
    assert biased(noisy, p, shift=1), "r off by one"
    twice = noisy_tally(noisy, scale, KEY[::-1])
    assert biased(twice, p), "the deconvolution of one noise on two"
    assert not biased(twice, p, noises=2)


# T7: one user moves the probability of {the cell shows 1 or more} by the factor e^epsilon and no more.

MANY = 1_000_000


def shares(draw, scale: Fraction) -> tuple[float, float]:
    """How often a cell shows 1 or more, without and with one user."""
    noisy = draw(cells([0, 1000], [MANY, MANY]), scale, KEY)
    low, high = (noisy.values, noisy.cells) if isinstance(noisy, Tally) else (noisy, np.ones(len(noisy)))
    near = low < 500
    return high[near & (low >= 1)].sum() / MANY, high[~near & (low - 1000 + 1 >= 1)].sum() / MANY


@pytest.mark.parametrize("draw", [noisy_tally, noisy_positions])
@pytest.mark.parametrize("relation", list(Relation))
def test_a_cell_with_one_user_shows_as_often_as_epsilon_allows(draw, relation):
    """The shares are p/(1+p) and 1/(1+p), within 5.5 standard errors of a million cells; their ratio is 1/p."""
    plan = noise_plan(Budget(1), 1, relation)
    p = noise_parameter(plan)
    assert p == pytest.approx(math.exp(-1 / relation.users))
    without, with_one = shares(draw, plan.scale)
    error = 5.5 * math.sqrt(0.25 / MANY)
    assert abs(without - p / (1 + p)) < error and abs(with_one - 1 / (1 + p)) < error
    wrong = shares(draw, plan.scale / 2)
    assert math.log(wrong[1] / wrong[0]) > 1.9 / relation.users, "half the scale costs twice epsilon"


# T7b, end to end: a domain of one item that nobody or one user holds, and the event {something is shown}.

WORLDS = 700


@pytest.fixture
def without_errors(monkeypatch):
    """The column error is computed from what is released already, and takes most of the time."""
    for module in (anonymized, hashed):
        monkeypatch.setattr(module, "rehearsed_errors", lambda shape, *_, **__: np.zeros(len(shape.values)))


def log_ratio(mode: str, epsilon: float, relation: Relation = Relation.ADD_REMOVE, worlds: int = WORLDS) -> float:
    histogram = anonymized_histogram(Budget(epsilon), domain_size=1, mode=mode, relation=relation)
    shown = [
        sum(histogram.shape(make_tally(np.array(counts, dtype=np.int64)), k.to_bytes(32, "little")).num_rows > 0
            for k in range(worlds))
        for counts in ([1], [])
    ]  # fmt: skip
    return math.inf if shown[1] == 0 else math.log(shown[0] / shown[1])


@pytest.mark.parametrize("mode", ["l1", "central"])
@pytest.mark.usefixtures("without_errors")
def test_an_item_of_one_user_cannot_be_told_from_none_and_without_noise_on_empty_cells_it_can(mode, monkeypatch):
    """epsilon = 1: the estimate of the log-ratio has a standard error of 0.067, so that 1.37 refutes 1 at 1e-7; twice the
    epsilon gives 2 +- 0.15, and no noise where nobody is gives infinity."""
    assert log_ratio(mode, 1.0) < 1.37
    assert log_ratio(mode, 2.0, worlds=400) > 1.37
    monkeypatch.setattr(anonymized, "of_cells", lambda tally, size: tally)
    assert log_ratio(mode, 1.0, worlds=50) == math.inf


def noisy_cells(monkeypatch, histogram: HashedHistogram, tally: Tally) -> list[int]:
    """To how many cells each call of the noise is applied, in one release of a hashed histogram."""
    seen: list[int] = []

    def drawn(cells: Tally, scale: Fraction, key: bytes) -> Tally:
        seen.append(int(cells.cells.sum()))
        return noisy_tally(cells, scale, key)

    with monkeypatch.context() as patched:
        patched.setattr(hashed, "noisy_tally", drawn)
        histogram.shape(tally, tally, KEY, KEY[::-1])
    return seen


@pytest.mark.parametrize("mode", ["l1", "l2"])
@pytest.mark.usefixtures("without_errors")
def test_every_bucket_and_every_rank_has_noise_whether_or_not_somebody_is_there(mode, monkeypatch):
    """5 users: 20 buckets and, in mode l2, 25 ranks, for every tally. Without the empty ones there are as many as items, and
    what one user alone holds shows by a release that has no rows without it."""
    histogram = hashed_histogram(Budget(1), users=5, mode=mode)
    every = [20] if mode == "l1" else [20, 25]
    nobody, one, four = (cells([1] * bool(n), [n] * bool(n)) for n in (0, 1, 4))
    assert all(noisy_cells(monkeypatch, histogram, tally) == every for tally in (nobody, one, four))
    monkeypatch.setattr(hashed, "of_cells", lambda tally, size: tally)
    assert noisy_cells(monkeypatch, histogram, four) == [4] * len(every) != every


def test_the_number_of_distinct_items_is_hidden_by_noise_on_every_position():
    """40 items of one user each, or 41, in 1000 positions. With noise on the counts above zero only, all positions beyond are
    zero: the number of items can be read off."""

    def beyond(noisy: np.ndarray, items: int) -> bool:
        return bool((noisy[items:] == 0).all())

    for items in (40, 41):
        held = cells([1], [items])
        noisy = noisy_positions(of_cells(held, 1000), Fraction(1), KEY)
        assert not beyond(noisy, 41)
        only_held = np.append(noisy_positions(held, Fraction(1), KEY), np.zeros(1000 - items, dtype=np.int64))
        assert beyond(only_held, items) and beyond(only_held, items - 1) == (only_held[items - 1] == 0)


# One user moves the cells by as much as the noise is made for, whatever the public size.


def written_out(counts: np.ndarray, size: int) -> np.ndarray:
    whole = of_cells(make_tally(counts[counts > 0]), size)
    return np.repeat(whole.values, whole.cells)[::-1]


def test_sorted_counts_of_neighbours_differ_by_the_items_of_one_user_even_if_there_are_too_many():
    """Random histograms, one user more with k items, and a size below, at and above the number of items. Had the cells beyond
    the size been chosen by name, they could differ by as much as a count."""
    rng = np.random.default_rng(0)
    for _ in range(500):
        counts = rng.integers(0, 4, 12)
        k = int(rng.integers(1, 4))
        more = counts + np.isin(np.arange(12), rng.choice(12, k, replace=False))
        for size in (1, 3, 8, 12, 20):
            one, other = written_out(counts, size), written_out(more, size)
            assert len(one) == len(other) == size
            assert np.abs(one - other).sum() <= k
    by_name = np.array([0, 9, 1]), np.array([1, 9, 1])  # the first two items that somebody holds
    kept = [counts[counts > 0][:2] for counts in by_name]
    assert np.abs(kept[0] - kept[1]).sum() > 1


def test_more_items_than_the_domain_has_do_not_fail_the_job():
    for mode in ("l1", "l2", "central"):
        for items in (10, 11, 500):
            rows = anonymized_histogram(Budget(1), domain_size=10, mode=mode).shape(cells([3], [items]), KEY)
            assert np.asarray(rows.column("items")).sum() <= 10


def test_noise_of_neighbours_is_independent():
    """One id used on two inputs: the noisy cells of unchanged values must not cancel out. Of 400 values with one cell each,
    independent noise of scale 20 is equal in 1 of 80: above 40 of 400 with probability below 1e-20."""
    values = np.arange(1, 401) * 10_000
    one = Tally(values, np.ones(400, dtype=np.int64))
    other = make_tally(np.append(values, 5), np.ones(401, dtype=np.int64))
    first, second = (noisy_tally(t, Fraction(20), KEY).values for t in (one, other))
    assert len(np.intersect1d(first, second)) < 40
    first, second = (noisy_positions(t, Fraction(20), KEY)[:400] for t in (one, other))
    assert (first == second).sum() < 40


def test_the_false_alarm_rates_are_those_stated():
    assert 6 * 2 * stats.norm.sf(5.5) < 1e-6 and stats.norm.sf(0.37 / 0.067) < 1e-7
