"""The digest of an input: the same for the same rows, however they come, and another for any other rows."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.counting.input_digest import NOTHING, InputDigest, add_up
from headcount.mechanisms.errors import ParameterError

KEY = bytes(range(32))
USERS = ["u", "a user with a long name", "", "ü" * 7, "u\0"]
ITEMS = ["x", "8 bytes.", "12345678 9", "x", "y"]


def batch(users, items, count=None, values=()):
    columns = [pa.array(each) for each in values]
    count = None if count is None else pa.array(count)
    return contribution_batch(pa.array(users), pa.array(items), count, values=columns)


def digest(*batches, key=KEY, id="r"):
    made = InputDigest(key, id)
    return made.whole([made.of(each) for each in batches])


def test_it_is_the_same_however_rows_come():
    whole = digest(batch(USERS, ITEMS))
    order = [3, 1, 4, 0, 2]
    turned = batch([USERS[k] for k in order], [ITEMS[k] for k in order])
    coded = pa.RecordBatch.from_pydict({name: turned.column(name).dictionary_encode() for name in ("user", "item")})
    parts = [batch(USERS, ITEMS).slice(k, 1) for k in order]
    for other in ([turned], [coded], parts, [batch(USERS[:2], ITEMS[:2]), batch(USERS[2:], ITEMS[2:])]):
        assert digest(*other) == whole
    repeated = batch([*USERS, "u", "u"], [*ITEMS, "x", "x"])
    assert digest(repeated) == digest(batch(USERS, ITEMS, [3, 1, 1, 1, 1])) != whole


def test_many_rows_are_as_their_parts():
    random = np.random.default_rng(7)
    users, items = random.integers(0, 99, 30_000), [f"item {k}" for k in random.geometric(0.01, 30_000)]
    rows = batch(users, items)
    made = InputDigest(KEY, "r")
    sums = [made.of(rows.slice(start, 7_001)) for start in range(0, 30_000, 7_001)]
    assert made.whole(sums) == made.whole([add_up(reversed(sums))]) == digest(rows)


def test_any_other_input_has_another():
    """So has every other key, id and kind; and none tells that there was nothing."""
    inputs = {
        "whole": batch(USERS, ITEMS),
        "one less": batch(USERS[:-1], ITEMS[:-1]),
        "one more": batch([*USERS, "v"], [*ITEMS, "y"]),
        "another user": batch(["v", *USERS[1:]], ITEMS),
        "another item": batch(USERS, ["z", *ITEMS[1:]]),
        "a zero at the end": batch(["u\0", *USERS[1:]], ITEMS),
        "user for item": batch(ITEMS, USERS),
        "counted twice": batch(USERS, ITEMS, [2, 1, 1, 1, 1]),
        "crosswise": batch([USERS[1], USERS[0], *USERS[2:]], ITEMS),
        "nothing": batch([], []),
        "numbers": batch([1, 2], [3, 4]),
        "texts": batch(["1", "2"], ["3", "4"]),
        "other numbers": batch([1, 2], [4, 3]),
        "with values": batch([1, 2], [3, 4], values=[[5, 6]]),
        "other values": batch([1, 2], [3, 4], values=[[6, 5]]),
    }
    found = {name: digest(each) for name, each in inputs.items()}
    found["another key"] = digest(inputs["whole"], key=KEY[::-1])
    found["another id"] = digest(inputs["whole"], id="s")
    found["no key"] = digest(inputs["whole"], key=None)
    found["a key of zeros"] = digest(inputs["whole"], key=bytes(32))
    same = [pair for pair in itertools.combinations(found, 2) if found[pair[0]] == found[pair[1]]]
    assert same == [] and digest() == found["nothing"] == InputDigest(KEY, "r").whole([NOTHING])
    assert all(len(each) == 32 for each in found.values())


def test_other_columns_are_refused():
    with pytest.raises(ParameterError, match="texts and integers, got double"):
        digest(pa.RecordBatch.from_pydict({"x": [0.5]}))
