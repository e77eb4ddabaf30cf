"""The joint law of noise: equal cells, branches, positions, two noises on one thing, and one id on two inputs.

Keys are fixed; over the choice of the key each test of independence fails with probability 1e-8, all of this file below 1e-6
(noise of the operating system is fresh in each run, and has that rate in each). Mutations share a lane, or leave the digest
out. Each makes two columns equal, or correlated by 0.3 over 3000 rows, and is seen with probability above 1 - 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.batches.user_shards import users_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting import sums as counting_sums
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.noisy import add_noise
from headcount.mechanisms.counting.sums import merge_sums, with_absent
from headcount.mechanisms.partitions import select
from headcount.mechanisms.partitions.rounds import rounds_of
from headcount.mechanisms.partitions.select import named_in_rounds
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.sampled import histogram as sampled_histogram
from headcount.mechanisms.sampled.histogram import sample_sums
from headcount.mechanisms.sampled.plan import SamplePlan
from headcount.mechanisms.shape import hashed
from headcount.mechanisms.shape import tally_noise as splitting
from headcount.mechanisms.shape.hashed import HashedHistogram, hashed_histogram
from headcount.mechanisms.shape.papers import pan_private
from headcount.mechanisms.shape.papers.pan_private import pan_private_counts
from headcount.mechanisms.shape.papers.shuffled import Shuffled, shuffled
from headcount.mechanisms.shape.tallies import Tally, make_tally
from headcount.mechanisms.shape.tally_noise import noisy_positions, noisy_tally
from tests.privacy.independence import ALARM, dependence, independent

KEY = bytes(range(32))
CELLS = 5000
HIGH = 10**6  # a sum far above all thresholds


def test_the_power_of_the_test_of_independence():
    """Pairs of normal numbers, 2000 a time: 100 of 100 pass as independent, and with a correlation of 0.3 none does."""
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(2, 100, 2000))
    assert all(dependence(x, y) > ALARM for x, y in zip(one, other, strict=True))
    assert all(dependence(x, 0.95 * y + 0.3 * x) < ALARM for x, y in zip(one, other, strict=True))


# The cells of a histogram.

PLANS = {
    "laplace": calibrate_unknown_domain(Budget(1, 1e-6), Bound(l0=3, l1=3, linf=3), Relation.ADD_REMOVE, "laplace"),
    "gaussian": calibrate_unknown_domain(Budget(1, 1e-6), Bound(l0=3, l1=3, linf=3), Relation.ADD_REMOVE, "gaussian"),
    "truncated-geometric": rounds_of(Budget(1, 1e-6), "truncated-geometric", 3, 3, Relation.ADD_REMOVE)[0].plan,
    "public": calibrate_public_domain(Budget(1), Bound(l1=3, grid=8), Relation.ADD_REMOVE, "laplace"),
}


def released(sums: np.ndarray, plan: NoisePlan, absent: int = 0) -> np.ndarray:
    """The released counts of items with these sums, in their order, and of so many that nobody has."""
    names = pa.array(np.arange(len(sums)))
    rows, digest = merge_sums([pack({"item": names, "sum": pa.array(sums)})], KEY, int)
    if absent:
        rows = with_absent(rows, pa.array(np.arange(len(sums) + absent)), KEY)
    counts = add_noise(rows, plan, KEY, Evidence.of([digest], []))
    assert counts.num_rows == len(sums) + absent
    return np.asarray(counts.column("bounded_count"))[np.argsort(np.asarray(counts.column("item")))]


def of_no_item(ids: Callable[..., Any] = counting_sums.item_lane_ids) -> Callable[..., Any]:
    """Lane ids that do not hold the item."""
    return lambda key, items, sums: ids(key, pa.array([0] * len(items)), sums)


@pytest.mark.parametrize("kind", PLANS)
def test_equal_cells_get_independent_noise_and_lanes_without_the_item_are_caught(kind, monkeypatch):
    """2500 pairs of items with the same sum, and as many that nobody has where the domain is public."""
    absent = CELLS if kind == "public" else 0
    sums = np.full(CELLS, HIGH)
    noisy = released(sums, PLANS[kind], absent)
    assert independent(noisy[:CELLS:2], noisy[1:CELLS:2])
    if absent:
        assert independent(noisy[CELLS::2], noisy[CELLS + 1 :: 2]) and independent(noisy[:CELLS], noisy[CELLS:])
    monkeypatch.setattr(counting_sums, "item_lane_ids", of_no_item())
    assert len(np.unique(released(sums, PLANS[kind]))) == 1


@pytest.mark.parametrize("mutated", [False, True])
def test_rounds_of_a_selection_draw_independent_noise_and_one_label_for_all_is_caught(
    mutated, monkeypatch, make_release
):
    """2500 items of one user each in two equal rounds, which name none of them."""
    drawn: list[np.ndarray] = []
    noise = noisy.noise_of

    def recorded(plan: NoisePlan, lanes: Lanes) -> np.ndarray:
        drawn.append(noise(plan, lanes))
        return drawn[-1]

    monkeypatch.setattr(noisy, "noise_of", recorded)
    if mutated:
        counts = select.noisy_counts
        monkeypatch.setattr(
            select,
            "noisy_counts",
            lambda batches, plan, release, label, **more: counts(batches, plan, release, "", **more),
        )
    names = pa.array(np.arange(2500))
    (each,) = rounds_of(Budget(1, 1e-9), "weighted-gaussian", 1, 3, Relation.ADD_REMOVE)
    users = users_of([contribution_batch(names, names)])
    assert len(named_in_rounds(users, (each, each), make_release(), "Rounds", int)) == 0
    assert independent(*drawn) != mutated


# The noise of a tally: the branches of a tree, and the positions of one value.

APART = 10**4


def spread(noisy: Tally, values: int) -> np.ndarray:
    """How many cells of each value, a row, have moved by -4 .. 4, a column."""
    home = (noisy.values + APART // 2) // APART
    moved = noisy.values - home * APART
    near = np.abs(moved) <= 4
    found = np.zeros((values, 9), dtype=np.int64)
    np.add.at(found, (home[near], moved[near] + 4), noisy.cells[near])
    return found


def shares(found: np.ndarray, one: int, other: int) -> np.ndarray:
    """By how much the share of the first among two kinds of cells is off, in standard deviations: free of their number."""
    both = found[:, one + 4] + found[:, other + 4]
    p = found[:, one + 4].sum() / both.sum()
    return (found[:, one + 4] - p * both) / np.sqrt(p * (1 - p) * np.maximum(both, 1))


def branches(lanes: type[Lanes], monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool]:
    """Whether up and down, and the branches of the second binary digit, pass as independent: 3000 values with 400 cells each.

    Sizes 1 and 2 share a node, as do 3 and 4; how each node splits is independent of how the other one does, and so are the
    nodes of -1 and -2.
    """
    monkeypatch.setattr(splitting, "Lanes", lanes)
    values = np.arange(3000) * APART
    found = spread(noisy_tally(Tally(values, np.full(3000, 400)), Fraction(2), KEY), 3000)
    return (
        independent(shares(found, 1, 2), shares(found, -1, -2)),
        independent(shares(found, 1, 2), shares(found, 3, 4)),
    )


def twins(first: bool) -> type[Lanes]:
    """Lanes whose children share one id in pairs: the branches of the first split, by sign, or those of all others."""
    made = []

    class Twins(Lanes):
        def __init__(self, key: bytes, ids: np.ndarray) -> None:
            super().__init__(key, ids)
            made.append(self)

        def words_each(self, index: Any, each: Any) -> Any:
            drawn = super().words_each(index, each)
            if len(drawn) and set(np.asarray(each).tolist()) == {4} and (len(made) == 1) == first:
                pairs = drawn.reshape(-1, 2, 2)
                pairs[:, 1] = pairs[:, 0]
            return drawn

    return Twins


def test_branches_of_a_tally_are_independent_and_up_and_down_from_one_lane_are_caught(monkeypatch):
    """Up and down from one lane would show both sides of a value alike: with few cells, where it was, at any epsilon."""
    assert branches(Lanes, monkeypatch) == (True, True)
    assert branches(twins(first=True), monkeypatch)[0] is False
    assert branches(twins(first=False), monkeypatch)[1] is False


def test_equal_values_of_a_tally_and_positions_of_one_value_are_independent_and_shared_lanes_are_caught(monkeypatch):
    """Values with as many cells each: how many stay, of 3000 values; and 5000 positions of one value, in pairs."""

    def kept() -> np.ndarray:
        tally = Tally(np.arange(3000) * APART, np.full(3000, 50))
        return spread(noisy_tally(tally, Fraction(2), KEY), 3000)[:, 4]

    def positions() -> np.ndarray:
        return noisy_positions(Tally(np.array([7]), np.array([CELLS])), Fraction(5), KEY)

    assert independent(kept()[::2], kept()[1::2]) and independent(positions()[::2], positions()[1::2])
    monkeypatch.setattr(splitting, "item_lane_ids", of_no_item())
    assert len(np.unique(kept())) == 1

    class Pairs(Lanes):
        def words_each(self, index: Any, each: Any) -> Any:
            drawn = super().words_each(index, each).reshape(-1, 2, 2)
            drawn[:, 1] = drawn[:, 0]
            return drawn.ravel()

    monkeypatch.setattr(splitting, "Lanes", Pairs)
    assert not independent(positions()[::2], positions()[1::2])


@pytest.mark.parametrize("mutated", [False, True])
def test_the_two_noises_of_a_hashed_shape_are_independent_and_one_key_for_both_is_caught(mutated, monkeypatch):
    """An equal tally for buckets and ranks, of 2000 values with 20 cells each: how many of these stay, by either noise."""
    kept: list[np.ndarray] = []

    def recorded(tally: Tally, scale: Fraction, key: bytes) -> Tally:
        kept.append(spread(noisy_tally(tally, scale, key), 2001)[1:, 4])
        return noisy_tally(tally, scale, key)

    monkeypatch.setattr(hashed, "noisy_tally", recorded)
    monkeypatch.setattr(hashed, "bucket_shape", lambda *_, **__: (make_tally(np.zeros(0, dtype=np.int64)), np.zeros(0)))
    if mutated:
        subkey = HashedHistogram.subkey
        monkeypatch.setattr(HashedHistogram, "subkey", lambda self, key, id, label: subkey(self, key, id, ""))
    shape = hashed_histogram(Budget(1), users=300, buckets=300**2, mode="l2")
    tally = Tally(np.arange(1, 2001) * APART, np.full(2000, 20))
    shape.released((tally, tally), KEY, "id", "Shape")
    assert independent(*kept) != mutated


# Noise of the operating system.


@pytest.mark.parametrize("mutated", [False, True])
def test_memory_and_output_of_pan_private_counters_have_noises_of_their_own_and_one_for_both_is_caught(
    mutated, monkeypatch
):
    """5000 counters: in memory, after an announced intrusion, and as they are put out. Noise that is kept and added again
    would let two views of the memory tell all counts between them."""
    if mutated:
        kept = pan_private.laplace(CELLS, Fraction(3))
        monkeypatch.setattr(pan_private, "laplace", lambda n, scale: kept[:n])
    seen: list[np.ndarray] = []

    def recorded(values: np.ndarray) -> Tally:
        seen.append(values)
        return make_tally(values)

    monkeypatch.setattr(pan_private, "make_tally", recorded)
    monkeypatch.setattr(pan_private, "summed_shape", lambda *_: None)  # of the noisy cells, which are seen above
    made = pan_private_counts(Budget(0.5), buckets=CELLS)
    state = made.start()
    memory = state.counters.copy()
    state.announce_intrusion()
    again = state.counters - memory
    made.shape(state)
    output = seen[0] - memory - again
    pairs = [(memory, again), (again, output), (memory, output)]
    assert [independent(*pair) for pair in pairs] == [not mutated] * 3
    assert independent(memory[::2], memory[1::2])


@pytest.mark.parametrize("mutated", [False, True])
def test_shares_of_a_report_are_independent_and_one_share_used_twice_is_caught(mutated, monkeypatch):
    """3000 buckets: messages +1, messages -1 and pairs of all users' noise, each against each other, and two users' reports.
    With one share for +1 and -1 the noise of the sum would be nothing at all."""
    shares: list[np.ndarray] = []
    share = Shuffled._share

    def recorded(self: Shuffled, users: int, shape: Fraction, q: Fraction) -> np.ndarray:
        if not mutated or shape != 1 or not shares:
            shares.append(share(self, users, shape, q))
        return shares[-1]

    monkeypatch.setattr(Shuffled, "_share", recorded)
    made = shuffled(Budget(1, 1e-2), users=20, buckets=3000)
    none = np.zeros(20, dtype=np.int64)
    made.report(none)
    counts = [np.bincount(each, minlength=3000) for each in shares]
    if mutated:
        assert len(counts) == 2
        counts = [counts[0], *counts]
    plus, minus, pairs = counts
    assert independent(plus, minus, classes=3) != mutated
    assert independent(plus, pairs, classes=3) and independent(minus, pairs, classes=3)
    shares.clear()
    monkeypatch.setattr(Shuffled, "_share", share)
    users = [made.sums(*made.report(none[:10])) for _ in range(2)]
    assert independent(users[0][1:], users[1][1:], classes=3)


# One id on two inputs: the noise of what did not change must change.


def histogram_noise(kind: str) -> Callable[[int], np.ndarray]:
    return lambda more: released(np.append(np.full(2500, HIGH), HIGH + more), PLANS[kind])[:-1]


def sampled_noise(more: int) -> np.ndarray:
    sums = np.append(np.full(2500, 200), 200 + more)
    rows, digest = merge_sums([pack({"item": pa.array(np.arange(2501)), "sum": pa.array(sums)})], KEY, int)
    plan = SamplePlan(Fraction(1, 3), 1, 1.0, 1e-3, Relation.ADD_REMOVE)
    shown = sample_sums(rows, plan, 1, KEY, Evidence.of([digest], []))
    return np.asarray(shown.column("sampled"))[np.argsort(np.asarray(shown.column("item")))][:-1]


def tally_noise(more: int) -> np.ndarray:
    values = np.append(np.arange(2500) * APART, 2500 * APART + more)
    noisy = noisy_tally(Tally(values, np.full(2501, 20)), Fraction(2), KEY)
    return spread(noisy, 2501)[:-1, 4]


def position_noise(more: int) -> np.ndarray:
    values = np.append(-1 - more, np.arange(2500) * APART)
    return (noisy_positions(Tally(values, np.ones(2501, dtype=np.int64)), Fraction(2), KEY)[::-1] - values)[1:]


INPUTS: dict[str, tuple[Callable[[int], np.ndarray], Any]] = {
    **{f"histogram, {kind}": (histogram_noise(kind), noisy) for kind in PLANS},
    "sampled histogram": (sampled_noise, sampled_histogram),
    "shape": (tally_noise, splitting),
    "shape, positions": (position_noise, splitting),
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_changed_input_changes_all_noise_and_keys_without_the_digest_are_caught(name, monkeypatch):
    """2500 unchanged cells and one that one user changes, under one key and id. Without the digest the unchanged ones get the
    noise that they had: the difference of two outputs shows which cell changed, and by how much."""
    noise, module = INPUTS[name]
    assert independent(noise(0), noise(1))
    key = module.block_key
    monkeypatch.setattr(module, "block_key", lambda subkey, digest=b"": key(subkey))
    assert np.array_equal(noise(0), noise(1))
