"""Lane ids: equal to a slow twin that spells out the encoding, for every layout of the arrays."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness import lane_ids
from headcount.mechanisms.randomness.lane_ids import item_lane_ids, lane_sum, user_lane_ids

KEY = bytes(range(32))


def plain_digest(key, purpose, message):
    """Slow twin of the protected counter sum, for one message."""

    def encrypted(use, block):
        own = hashlib.blake2b(use, key=key, digest_size=32, person=purpose).digest()
        done = Cipher(algorithms.AES(own), modes.ECB()).encryptor().update(block)
        return [int.from_bytes(done[:8], "little"), int.from_bytes(done[8:], "little")]

    message += b"\0" * (-len(message) % 8)
    parts = [encrypted(b"words", pack(j) + message[8 * j : 8 * j + 8]) for j in range(len(message) // 8)]
    sums = [sum(halves) % 2**64 for halves in zip(*parts, strict=True)]
    return encrypted(b"sums", b"".join(half.to_bytes(8, "little") for half in sums))


def plain_item_id(key, item, total):
    """Slow twin of item_lane_ids for one item."""
    number = isinstance(item, int)
    text = b"" if number else item.encode()
    head = (b"i" if number else b"s").ljust(8, b"\0") + pack(item if number else len(text), total)
    return plain_digest(key, b"headcount.items", head + text)


def pack(*numbers):
    return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)


def plain_user_id(key, user, items, counts, item_kind):
    """Slow twin of user_lane_ids for one user."""

    def split(value):
        return (value, b"") if isinstance(value, int) else (len(value.encode()), value.encode())

    number, text = split(user)
    kinds = (b"i" if isinstance(user, int) else b"s", b"i" if item_kind == pa.int64() else b"s")
    message = b"".join(kind.ljust(4, b"\0") for kind in kinds)
    message += pack(number, len(items)) + text
    for item, count in zip(items, counts, strict=True):
        message += pack(split(item)[0], count)
    message += b"".join(split(item)[1] for item in items)
    return plain_digest(key, b"headcount.users", message)


int64s = st.integers(-(2**63), 2**63 - 1)
columns = st.one_of(
    st.lists(st.text(max_size=6), max_size=20).map(lambda values: (values, pa.string())),
    st.lists(st.text(max_size=6), max_size=20).map(lambda values: (values, pa.large_string())),
    st.lists(int64s, max_size=20).map(lambda values: (values, pa.int64())),
)


@pytest.mark.seconds
@settings(max_examples=100, deadline=None)
@given(columns, st.data())
def test_item_lane_ids_equal_their_slow_twin(column, data):
    values, kind = column
    sums = np.array([data.draw(int64s) for _ in values], dtype=np.int64)
    array = pa.array(values, kind)
    begin = data.draw(st.integers(0, len(values)))
    length = data.draw(st.integers(0, len(values) - begin))
    sliced = array.slice(begin, length)
    expected = [plain_item_id(KEY, values[i], int(sums[i])) for i in range(begin, begin + length)]
    assert item_lane_ids(KEY, sliced, sums[begin : begin + length]).tolist() == expected


@pytest.mark.seconds
@settings(max_examples=100, deadline=None)
@given(columns, columns, st.data())
def test_user_lane_ids_equal_their_slow_twin(user_column, item_column, data):
    (users, user_kind), (items, item_kind) = user_column, item_column
    counts = np.array([data.draw(int64s) for _ in items], dtype=np.int64)
    cuts = st.integers(0, len(items))
    offsets = sorted(data.draw(st.lists(cuts, min_size=len(users) + 1, max_size=len(users) + 1)))
    # Surrounding the arrays by other values and slicing them out must change nothing.
    more_users, more_items = pa.array(users + users[:1], user_kind), pa.array(items[:1] + items, item_kind)
    found = user_lane_ids(
        KEY,
        more_users.slice(0, len(users)),
        np.array(offsets),
        more_items.slice(len(items[:1]), len(items)),
        counts,
    )
    expected = [
        plain_user_id(KEY, user, items[a:b], counts[a:b].tolist(), item_kind)
        for user, a, b in zip(users, offsets, offsets[1:], strict=False)
    ]
    assert found.tolist() == expected


def test_lane_ids_do_not_depend_on_batches(monkeypatch):
    items = pa.array([f"item {i}" for i in range(10)])
    sums, offsets = np.arange(10), np.arange(11)
    before = item_lane_ids(KEY, items, sums), user_lane_ids(KEY, items, offsets, items, sums)
    monkeypatch.setattr(lane_ids, "_BATCH", 3)
    after = item_lane_ids(KEY, items, sums), user_lane_ids(KEY, items, offsets, items, sums)
    assert np.array_equal(before, after)


def test_lane_ids_tell_apart_what_differs():
    def items(values, sums, key=KEY):
        return [tuple(row) for row in item_lane_ids(key, pa.array(values), np.array(sums)).tolist()]

    def user(user, rows, counts):
        ids = user_lane_ids(KEY, pa.array([user]), np.array([0, len(rows)]), pa.array(rows), np.array(counts))
        return [tuple(ids[0].tolist())]

    seen = [
        *items(["1", "1", "1", "", "1\0"], [1, 0, -1, 1, 1]),
        *items([1, 1, 1, 0], [1, 0, -1, 1]),
        *items(["1"], [1], key=KEY[::-1]),
        *user("u", ["ab", "c"], [1, 1]),
        *user("u", ["a", "bc"], [1, 1]),
        *user("ua", ["b", "c"], [1, 1]),
        *user("u", ["ab", "c"], [1, 2]),
        *user("u", ["c", "ab"], [1, 1]),
        *user("u", ["abc"], [1]),
        # The same words in another order, which only their places tell apart.
        *user("a user's", ["a name..", "another."], [1, 1]),
        *user("a user's", ["another.", "a name.."], [1, 1]),
        *user("u", [1, 2], [1, 1]),
        *user(7, [1, 2], [1, 1]),
        *user(7, ["ab", "c"], [1, 1]),
    ]
    assert len(set(seen)) == len(seen)


def test_lane_ids_refuse_nulls_other_types_and_lengths_that_disagree():
    texts, one = pa.array(["a"]), np.array([1])
    for bad in (pa.array(["a", None])[1:], pa.array([1.5]), pa.array(["a"]).dictionary_encode()):
        with pytest.raises(ParameterError):
            item_lane_ids(KEY, bad, one)
    with pytest.raises(ParameterError, match="1 items and 2 sums"):
        item_lane_ids(KEY, texts, np.array([1, 2]))
    for offsets, counts in (([0], [1]), ([0, 1], [1, 1]), ([0, 2], [1]), ([-1, 1], [1]), ([1, 0], [1])):
        with pytest.raises(ParameterError):
            user_lane_ids(KEY, texts, np.array(offsets), texts, np.array(counts))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=20), st.randoms())
def test_lane_sum_is_the_sum_in_any_order_and_sharding(pairs, random):
    expected = sum((high << 64) + low for high, low in pairs) % 2**128
    random.shuffle(pairs)
    ids = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    cut = random.randint(0, len(ids))
    assert lane_sum(ids) == expected == (lane_sum(ids[:cut]) + lane_sum(ids[cut:])) % 2**128
