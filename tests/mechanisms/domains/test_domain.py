"""Public domains in files and lists: every key once, by its canonical name, wherever it is held."""

import datetime
import decimal
import pickle
import re
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches import domain as batches_domain
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import Domain, StoredDomain, in_shard, only_domain, public_domain
from headcount.mechanisms.batches.names import hash64, shard_of
from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.keys import Keys, resolve
from headcount.mechanisms.domains import domain_files
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.domains.given_domain import GivenDomain
from headcount.mechanisms.errors import InputError, ParameterError

DAY = datetime.date(2026, 11, 2)  # a Monday
HOUR = datetime.datetime(2026, 11, 2, 13, tzinfo=datetime.UTC)
UUID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")

# A spec, the type found in the data, values as the data has them, and the same as texts of a domain.
TYPES = {
    "text": ("x", pa.string(), ["a", "\x1f", "\x1b1", "é"], ["a", "\x1f", "\x1b1", "é"]),
    "int64": ("x", pa.int64(), [-1, 0, 7], ["-1", "0", "7"]),
    "uint64": ("x", pa.uint64(), [0, 2**64 - 1], ["0", str(2**64 - 1)]),
    "bool": ("x", pa.bool_(), [False, True], ["false", "true"]),
    "date": ("x", pa.date32(), [DAY], ["2026-11-02"]),
    "time": ("x", pa.timestamp("us", "UTC"), [HOUR], ["2026-11-02T13:00:00Z"]),
    "decimal": ("x", pa.decimal128(9, 2), [decimal.Decimal("1.50")], ["1.5"]),
    "uuid": ("x", pa.uuid(), [UUID.bytes], [str(UUID).upper()]),
    "hour": ("x:hour", pa.timestamp("us", "UTC"), [HOUR.replace(minute=5)], ["2026-11-02T13:00:00Z"]),
    "day": ("x:day", pa.timestamp("us", "UTC"), [HOUR], ["2026-11-02"]),
    "week": ("x:week", pa.date32(), [DAY + datetime.timedelta(3)], ["2026-11-02"]),
    "month": ("x:month", pa.date32(), [DAY], ["2026-11-01"]),
    "year": ("x:year", pa.date32(), [DAY], ["2026"]),
    "texts of numbers": ("x:int", pa.string(), ["7"], ["7"]),
    "bins": ("x:0,18", pa.float64(), [-1.0, 5.0, 18.0], ["< 0", "[0, 18)", ">= 18"]),
}


def keys_of(*columns):
    """Keys of (spec, type)."""
    parsed = parse_columns([spec for spec, _ in columns])
    return resolve(parsed, {column.source: found for column, (_, found) in zip(parsed, columns, strict=True)})


def held(files, keys, path="d.csv", most=4096):
    return DomainFile(path, most, lambda path: files[path] if isinstance(files, dict) else files).domain(keys)


def parquet(**columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def stored(monkeypatch):
    """Domains of any size are held by reference, and nothing is loaded yet."""
    monkeypatch.setattr(domain_files, "TRAVELS_BYTES", -1)
    monkeypatch.setattr(batches_domain, "_loaded", {})


@pytest.mark.parametrize("case", TYPES)
def test_a_key_has_one_name_in_the_data_in_every_kind_of_file_and_in_python(case):
    spec, found, values, texts = TYPES[case]
    column = pa.array(values, found)
    one, two = keys_of((spec, found)), keys_of((spec, found), ("b", pa.string()))
    other = pa.array(["z"] * len(values))
    names, name = sorted(set(one.encode({"x": column}).to_pylist())), one.names[0]
    both = sorted(set(two.encode({"x": column, "b": other}).to_pylist()))
    shown = one.decode(public_domain(names, one.item_type).names)[0]
    assert list(held("\n".join(texts).encode(), one, "d.txt")) == names
    assert list(held("\n".join([name, *(f'"{text}"' for text in texts)]).encode(), one)) == names
    assert list(held(parquet(**{name: shown}), one, "d.parquet")) == names
    assert list(held(parquet(**{name: shown, "b": other}), two, "d.parquet")) == both
    assert list(GivenDomain(pa.table({name: shown, "b": other})).named(two)) == both
    assert list(GivenDomain(zip(shown.to_pylist(), other.to_pylist(), strict=True)).named(two)) == both
    assert list(GivenDomain(shown.to_pylist()).named(one)) == names
    lists = DomainFile({name: "x.txt", "b": "b.txt"}, read={"x.txt": "\n".join(texts).encode(), "b.txt": b"z"}.get)
    assert list(lists.domain(two)) == both and len(lists.unnamed()) == len(both)


TWO = keys_of(("country", pa.string()), ("age:0,18", pa.int64()))
WEEK = keys_of(("x:week", pa.date32()))


@pytest.mark.parametrize(
    ("path", "content", "keys", "words"),
    [
        ("d.csv", b"country,age\nDE,< 0\nFR,\n", TWO, "domain 'd.csv': row 2 in column 'age' is empty"),
        ("d.csv", b"country,age\nDE,< 0\nFR,9\n", TWO, "row 2 in column 'age' is not a bin like '[0, 18)'"),
        ("d.csv", b"country,age\nDE,< 0\nFR,< 0\nDE,< 0\n", TWO, "domain 'd.csv': row 3 repeats row 1"),
        ("d.csv", b"country,years\nDE,< 0\n", TWO, "domain 'd.csv' has no column 'age'"),
        ("d.csv", b"country,age,age\nDE,< 0,< 0\n", TWO, "domain 'd.csv' has more than one column 'age'"),
        ("d.csv", b"country,age\n", TWO, "domain 'd.csv' is empty"),
        ("d.csv", b"", TWO, "domain 'd.csv' has no column 'country'"),
        ("d.csv", b"country,age\nDE,< 0,1\n", TWO, "row 1 has 3 fields, but the header has 2"),
        ("d.csv", b"DE\nFR\n", Keys.plain(str, "country"), "a list without a header is a text file"),
        ("d.csv", b"country,age\n" + b"D" * 30 + b",< 0\n", TWO, "row 1 is longer than 20 bytes"),
        ("d.txt", b"DE\n", TWO, "has one value per line, but a key has the columns 'country', 'age'"),
        ("d.txt", b"2026-11-02\n2026-11-03\n", WEEK, "line 2 is not a date like 2026-11-01, the first day of a week"),
        ("d.txt", b"2026-11-02\nMonday\n", WEEK, "line 2 is not a date"),
        ("d.parquet", b"no", TWO, "domain 'd.parquet' is no Parquet file"),
        ("d.parquet", parquet(country=["DE"], age=[5]), TWO, "has int64 in column 'age', which holds bins"),
        ("d.parquet", parquet(country=[1], age=["< 0"]), TWO, "has int64 in column 'country', which holds string"),
        ("d.parquet", parquet(x=[1.0]), Keys.plain(int, "x"), "has double in column 'x', which holds int64"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_file_and_row(path, content, keys, words):
    with pytest.raises(ParameterError, match=f"{re.escape(words)}") as error:
        held(content, keys, path, most=20)
    assert error.value.parameter == "domain" and "\n" not in str(error.value)


def test_lists_for_columns_must_be_those_of_the_key_and_not_too_many():
    files = {"c": b"DE\nFR\n", "a": b"< 0\n>= 18\n", "n": "\n".join(map(str, range(4000))).encode()}
    with pytest.raises(ParameterError, match="a list for 'country', 'city': the key columns are 'country', 'age'"):
        held(files, TWO, {"country": "c", "city": "c"})
    with pytest.raises(ParameterError, match="domain 'c': line 3 repeats line 1"):
        held(files | {"c": b"DE\nFR\nDE\n"}, TWO, {"country": "c", "age": "a"})
    large = keys_of(("x", pa.string()), ("y", pa.string()))
    with pytest.raises(ParameterError, match="4,000 x 4,000 = 16,000,000 keys: give 10,000,000 at most"):
        held(files, large, {"x": "n", "y": "n"})
    with pytest.raises(ParameterError, match="key 2 is no tuple of a value for each of 'country', 'age'"):
        GivenDomain([("DE", "< 0"), "FR"]).named(TWO)


def test_only_a_reference_travels_and_it_is_the_same_domain(stored, tmp_path):
    keys = keys_of(("a", pa.string()), ("b", pa.int64()))
    path = tmp_path / "d.parquet"
    path.write_bytes(parquet(a=[f"é{k % 7}" for k in range(10_000)], b=list(range(10_000))))
    domain = DomainFile(str(path)).domain(keys)
    assert isinstance(domain, StoredDomain)
    in_memory = public_domain(list(domain), str)
    assert domain == in_memory and domain.digest == in_memory.digest and len(domain) == 10_000
    state = pickle.dumps(domain)
    assert len(state) < 5_000 < len(pickle.dumps(in_memory))
    batches_domain._loaded.clear()  # as in another process
    loaded = pickle.loads(state)
    assert loaded.sorted_names.equals(in_memory.names)
    assert pickle.loads(state).held is loaded.held  # once in a process
    for shard in range(5):
        here = in_shard(loaded, shard, 5)
        expected = in_memory.names.filter(pa.array(shard_of(hash64(in_memory.names), 5) == shard))
        assert sorted(here.to_pylist()) == sorted(expected.to_pylist()) and in_shard(in_memory, shard, 5).equals(
            expected
        )


def test_a_file_that_has_changed_or_gone_is_refused(stored, tmp_path):
    path = tmp_path / "d.txt"
    path.write_text("a\nb\n")
    state = pickle.dumps(DomainFile(str(path)).domain(Keys.plain(str)))
    path.write_text("a\nc\n")
    batches_domain._loaded.clear()
    with pytest.raises(InputError, match="d.txt' has changed since the job began: run the job again"):
        pickle.loads(state).names  # noqa: B018
    path.unlink()
    with pytest.raises(InputError, match="cannot be read by a worker"):
        pickle.loads(state).names  # noqa: B018


@pytest.mark.parametrize("kind", [str, int])
def test_only_domain_takes_names_and_not_their_hashes(kind, monkeypatch):
    """Also where all names share a few hashes, which a filter by hashes alone would let through."""
    rng = np.random.default_rng(5)
    domain = public_domain(sorted({kind(k) for k in rng.integers(0, 500, 200).tolist()}), kind)
    items = pa.array([kind(k) for k in rng.integers(0, 1000, 3000).tolist()])
    expected = items.filter(pc.is_in(items, value_set=domain.names))
    users = pa.array(np.arange(len(items)))
    for column in (items, items.dictionary_encode()):
        assert only_domain(contribution_batch(users, column), domain).column("item").cast(items.type).equals(expected)
    with monkeypatch.context() as patch:
        patch.setattr(batches_domain, "hash64", lambda names: hash64(names) % np.uint64(3) << np.uint64(62))
        clashing = Domain(domain.names)
        assert only_domain(contribution_batch(users, items), clashing).column("item").equals(expected)
        # The known bug: a name that shares its hash with one of the domain would come out, though it is not public.
        known = pa.array(batches_domain.hash64(domain.names))
        patch.setattr(
            clashing.held, "holds", lambda each: pc.is_in(pa.array(batches_domain.hash64(each)), value_set=known)
        )
        assert not only_domain(contribution_batch(users, items), clashing).column("item").equals(expected)
    empty = contribution_batch(users[:0], items[:0])
    assert only_domain(empty, domain).num_rows == 0
