"""Names are told apart by themselves, whatever their hashes, and come in an order that depends on them alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.batches import distinct as module
from headcount.mechanisms.batches import names as hashing
from headcount.mechanisms.batches.distinct import distinct, hash_order, sorting
from headcount.mechanisms.batches.names import canonical_order, hash64
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user

columns = st.one_of(
    st.lists(st.text(max_size=20), max_size=40).map(lambda names: pa.array(names, pa.string())),
    st.lists(st.text(alphabet="ab", min_size=9, max_size=9), max_size=40).map(
        lambda names: pa.array(names, pa.string())
    ),
    st.lists(st.integers(-(2**63), -(2**63) + 5), max_size=40).map(lambda names: pa.array(names, pa.int64())),
    st.lists(st.sampled_from(["x" * 300, "x" * 299 + "y"]), max_size=5).map(lambda names: pa.array(names, pa.string())),
)


@pytest.mark.seconds
@given(columns, st.integers(0, 3))
@settings(deadline=None, max_examples=200)
def test_each_name_is_found_once_in_canonical_order(column, start):
    column = column[start:]
    names, codes = distinct(column)
    assert names.take(pa.array(codes)).to_pylist() == column.to_pylist()
    assert len({*names.to_pylist()}) == len(names) and codes.dtype == np.int32
    assert canonical_order(names, hash64(names)).tolist() == list(range(len(names)))


def _other_word(term: int, factor: int) -> int:
    """The word whose term in a hash is this one."""
    return (term ^ term >> 29 ^ term >> 58) * pow(factor, -1, 2**64) % 2**64


def _term(word: int, factor: int) -> int:
    term = word * factor % 2**64
    return term ^ term >> 29


def _sharing(name: bytes) -> str:
    """A name of 16 letters that shares the hash of another name, of 16 letters or of 8."""
    first, second = int(hashing._ODD[0]), int(hashing._ODD[1])
    words = [int.from_bytes(name[k : k + 8], "little") for k in range(0, len(name), 8)]
    whole = sum(map(_term, words, (first, second))) + (len(name) - 16) * int(hashing._K1)
    for number in range(10**5):  # one of 256 is made of ASCII letters
        begin = f"{number:08d}".encode()
        end = _other_word((whole - _term(int.from_bytes(begin, "little"), first)) % 2**64, second).to_bytes(8, "little")
        if end.isascii() and begin + end != name:
            return (begin + end).decode()
    raise AssertionError("none was found")


@pytest.mark.parametrize("others", [[], ["and others", "with names of any size"]], ids=["alone", "among others"])
@pytest.mark.parametrize("name", ["a user's own name", "a name more"], ids=["one size", "two sizes"])
def test_users_who_share_a_hash_stay_two_users(name, others, monkeypatch):
    name = name[:16] if len(name) > 16 else name[:8]
    names = [name, _sharing(name.encode())]
    hashes = hash64(pa.array(names))
    assert hashes[0] == hashes[1] and names[0] != names[1]
    users = [names[k] for k in (1, 0, 1, 0, 0, 1, 1, 0, 0)]
    users[7:] = others or users[7:]
    batch = pa.RecordBatch.from_pydict({"user": pa.array(users), "item": pa.array(list("xxyxyxxxz"))})
    found = _rows(batch)
    assert found == {(users[k], batch["item"][k].as_py()) for k in range(len(users))}
    monkeypatch.setattr(module, "_told_apart", lambda names, order, first: True)  # what must not be believed
    assert _rows(batch) != found


def _rows(batch: pa.RecordBatch) -> set[tuple[str, str]]:
    [(_, chunk)] = split_by_user(batch, 1)
    shard = gather([chunk, chunk])
    user = np.repeat(np.arange(len(shard.users)), shard.rows_per_user())
    named = zip(user.tolist(), shard.item.tolist(), strict=True)
    return {(shard.users[u].as_py(), shard.items[i].as_py()) for u, i in named}


@given(st.lists(st.integers(0, 2**64 - 1).map(lambda n: n if n % 3 else n % 7), max_size=50))
@settings(deadline=None)
def test_hashes_with_the_same_first_bits_are_sorted_by_the_others(numbers):
    hashes = np.array(numbers, dtype=np.uint64)
    order, ranked = hash_order(hashes)
    assert order.tolist() == np.argsort(hashes, kind="stable").tolist()
    assert ranked.tolist() == sorted(numbers)


@given(st.lists(st.integers(0, 9), max_size=50), st.sampled_from([10, 2**40, 2**62]))
@settings(deadline=None)
def test_equal_keys_stay_in_their_order(keys, most):
    keys = np.array(keys, dtype=np.int64)
    assert sorting(keys, most).tolist() == np.argsort(keys, kind="stable").tolist()
