"""Fast ways to draw the same: marks on units against sorted draws, bounds by lane against bounds by draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.bounding import clipping
from headcount.mechanisms.randomness import lanes as randomness
from headcount.mechanisms.randomness.lanes import Lanes

KEY = bytes(range(32))


def _lanes(number):
    return Lanes(KEY, np.arange(2 * number, dtype=np.uint64).reshape(-1, 2))


units_of_lanes = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), min_size=1, max_size=12)


@pytest.mark.seconds
@given(units_of_lanes, st.integers(1, 6))
@settings(deadline=None, max_examples=200)
def test_marks_take_the_units_that_sorting_takes(units, wanted):
    units = [[*each, wanted] for each in units if sum(each)]  # so that each has more units than wanted
    if not units:
        return
    offsets = np.append(0, np.cumsum([len(each) for each in units]))
    flat = np.concatenate([np.array(each, dtype=np.int64) for each in units])
    ends = np.cumsum(flat)
    start = np.append(0, ends)[offsets]
    for need in (np.full(len(units), wanted), np.diff(start) - wanted, np.arange(len(units)) % wanted):
        need = np.minimum(need, np.diff(start))
        one, other = (way(_lanes(len(units)), ends, start, need) for way in (clipping._marked, clipping._sorted))
        assert one.tolist() == other.tolist()
        assert np.add.reduceat(one, offsets[:-1]).tolist() == need.tolist()
        assert (one <= flat).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_is_the_same_on_both_sides_of_the_limit(monkeypatch, seed):
    random = np.random.default_rng(seed)
    rows = random.integers(12, 60, 300)
    offsets = np.append(0, np.cumsum(rows))
    units = np.ones(offsets[-1], dtype=np.int64) if seed % 2 else random.geometric(0.4, offsets[-1])
    kept = clipping.sample_units(_lanes(300), units, offsets, 10)
    monkeypatch.setattr(clipping, "_MOST_MARKS", 0)
    assert kept.tolist() == clipping.sample_units(_lanes(300), units, offsets, 10).tolist()
    assert set(np.add.reduceat(kept, offsets[:-1]).tolist()) == {10}


def _one_by_one(lanes, bounds, index, each):
    """What `uniform_below_each` draws, word for word: all words of all lanes, then those again that were too large."""
    owner = np.repeat(np.arange(len(index)), each)
    last = [2**64 - 1 - 2**64 % bound for bound in bounds]
    words, again = np.zeros(len(owner), dtype=object), np.arange(len(owner))
    while len(again):
        words[again] = lanes.words_each(index, np.bincount(owner[again], minlength=len(index))).astype(object)
        again = np.array([k for k in again if words[k] > last[owner[k]]], dtype=np.intp)
    return [int(word) % bounds[lane] for word, lane in zip(words, owner, strict=True)]


@given(st.lists(st.tuples(st.integers(1, 2**62), st.integers(0, 4)), min_size=1, max_size=20))
@settings(deadline=None, max_examples=100)
def test_draws_by_the_bounds_of_lanes_are_exact(pairs):
    bounds, each = [[bound for bound, _ in pairs], np.array([many for _, many in pairs])]
    bounds[0] = 3 << 60  # a sixteenth of the words is too large
    each[0] = 40
    index = np.arange(len(pairs))
    drawn = _lanes(len(pairs)).uniform_below_each(np.array(bounds), index, each)
    assert drawn.tolist() == _one_by_one(_lanes(len(pairs)), bounds, index, each)
    same = _lanes(len(pairs)).uniform_below_each(bounds[0], index, each)
    assert same.tolist() == _one_by_one(_lanes(len(pairs)), [bounds[0]] * len(pairs), index, each)


def test_a_word_that_is_too_large_is_drawn_again(monkeypatch):
    """The test above would see it if none were: the remainders of such words favour small numbers."""
    bounds, each = np.array([3 << 60]), np.array([400])
    drawn = _lanes(1).uniform_below_each(bounds, [0], each)
    monkeypatch.setattr(
        randomness, "_bounds", lambda bound: (np.asarray(bound, np.uint64), np.array([2**64 - 1], np.uint64))
    )
    assert drawn.tolist() != _lanes(1).uniform_below_each(bounds, [0], each).tolist()
