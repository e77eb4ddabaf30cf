"""Frames: the top of the items, their digest, the threshold and the draws."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.count_release.frames import (
    draw_excess,
    make_frame,
    on_grid,
    sum_users,
    threshold,
    top_rows,
)
from headcount.mechanisms.errors import InputError
from tests.mechanisms.count_release.made_frames import KEY, frame


def random_rows(seed, users=300, rows=3000, items=80):
    random = np.random.default_rng(seed)
    user, item = random.integers(0, users, rows), random.geometric(0.05, rows) % items
    pairs = sorted({(f"u{u}", f"i{i}") for u, i in zip(user, item, strict=True)})
    return pairs, dict(zip(pairs, random.integers(1, 4, len(pairs)).tolist(), strict=True))


@pytest.mark.seconds
@pytest.mark.parametrize("k_bar", [1, 7, 40, 79, 80, 500])
def test_a_frame_is_the_top_however_the_rows_are_cut(k_bar):
    pairs, counts = random_rows(1)
    exact, sums = {}, {}
    for pair in pairs:
        exact[pair[1]] = exact.get(pair[1], 0) + 1
        sums[pair[1]] = sums.get(pair[1], 0) + counts[pair]
    ranked = sorted(exact.values(), reverse=True)
    frames = []
    for shards, parts, fan in ((1, 1, 1), (5, 3, 2), (16, 11, 4)):
        chunks: dict[int, list[bytes]] = {}
        for part in range(parts):
            mine = pairs[part::parts]
            rows = {"user": [u for u, _ in mine], "item": [i for _, i in mine], "count": [counts[p] for p in mine]}
            for shard, chunk in sum_users(pa.RecordBatch.from_pydict(rows), shards):
                chunks.setdefault(shard, []).append(chunk)
        tops = [top_rows(held, k_bar + 1, str) for held in chunks.values()]
        tops = [top_rows(tops[start::fan], k_bar + 1, str) for start in range(fan)]
        frames.append(make_frame(tops, k_bar, str))
    first = frames[0]
    assert first.users.tolist() == ranked[:k_bar]
    assert first.base == (ranked[k_bar] if len(ranked) > k_bar else 0)
    assert dict(zip(first.items.to_pylist(), first.users.tolist(), strict=True)).items() <= exact.items()
    assert dict(zip(first.items.to_pylist(), first.values.tolist(), strict=True)).items() <= sums.items()
    for other in frames[1:]:
        assert other.items == first.items and other.base == first.base
        assert (other.users == first.users).all() and (other.values == first.values).all()
        assert other.digest(KEY) == first.digest(KEY)


def test_a_digest_depends_on_all_of_the_frame_and_on_the_key():
    one = frame([5, 3], 2, [9, 4])
    others = [
        frame([5, 2], 2, [9, 4]),
        frame([5, 3], 1, [9, 4]),
        frame([5, 3], 2, [9, 3]),
        one._replace(items=pa.array(["i0", "i2"])),
        frame([5, 3, 1], 2, [9, 4, 1]),
    ]
    assert len({other.digest(KEY) for other in [one, *others]} | {one.digest(bytes(32))}) == 7


def test_items_of_another_type_and_no_items():
    empty = make_frame([], 5, int)
    assert (len(empty.items), empty.items.type, empty.base) == (0, pa.int64(), 0)
    ((_, chunk),) = sum_users(pa.RecordBatch.from_pydict({"user": ["u"], "item": ["i"], "count": [1]}), 1)
    with pytest.raises(InputError, match="items are of type string, not int64; set item_type"):
        make_frame([chunk], 5, int)


@pytest.mark.seconds
@settings(max_examples=200, deadline=None)
@given(st.fractions(Fraction(1, 10**7), 100).filter(bool))
def test_an_epsilon_is_rounded_down_to_few_digits(epsilon):
    rounded = on_grid(epsilon)
    assert epsilon * (1 - Fraction(1, 2**18)) < rounded <= epsilon
    assert rounded.numerator < 2**21 or rounded.denominator == 1
    assert on_grid(rounded) == rounded


@settings(max_examples=100, deadline=None)
@given(
    st.floats(1e-6, 10).map(lambda e: on_grid(Fraction(repr(e)))),
    st.integers(1, 10**6),
    st.fractions(Fraction(1, 10**30), Fraction(1, 2)),
    st.sampled_from(Relation),
)
def test_the_threshold_is_never_below_the_real_one(epsilon, k_bar, delta, relation):
    """By e^(epsilon (T - u)) >= k_bar / delta, in a hundred digits; and one step of the grid less would be."""
    import decimal

    with decimal.localcontext(prec=100):
        log = (decimal.Decimal(k_bar) * delta.denominator / delta.numerator).ln()
        far = threshold(epsilon, k_bar, delta, relation)
        real = relation.users + log * epsilon.denominator / epsilon.numerator
        assert decimal.Decimal(far.numerator) / far.denominator >= real
        slack = 1 / decimal.Decimal(1024) + decimal.Decimal(2) ** -35 * epsilon.denominator / epsilon.numerator
        assert decimal.Decimal(far.numerator) / far.denominator <= real + slack


@pytest.mark.parametrize("epsilon", [Fraction(1, 2000), Fraction(1, 3 * 10**9), Fraction(7), Fraction(1, 2**45)])
def test_the_exponents_of_a_draw_are_exact(epsilon):
    """Up to a cut beyond which nothing is ever drawn, also where they need more than 64 bits."""
    epsilon = on_grid(epsilon)
    users, base, far = np.array([10**9, 10**6, 3, 3, 1]), 2, Fraction(12345, 1024)
    excess, denominator = draw_excess(users, base, epsilon, far)
    scores = [*map(Fraction, users.tolist()), base + far]
    for found, score in zip(excess, scores, strict=True):
        exact = epsilon * (max(scores) - score)
        assert Fraction(int(found), denominator) == exact or min(Fraction(int(found), denominator), exact) > 4096
