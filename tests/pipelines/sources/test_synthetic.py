"""Synthetic logs: their laws, that a seed repeats them, and what is refused."""

import collections
import csv

import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sources.synthetic import default_items, default_users, generate


def make(directory, law="tail", rows=200_000, users=None, items=None, seed=1, name="log.parquet"):
    path = directory / name
    generate(law, rows, users, items, seed, path)
    return path


def read(path):
    table = pq.read_table(path)
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def share_of_top(counts, size):
    """The share of all rows that the `size` most frequent have."""
    return sum(sorted(counts.values(), reverse=True)[:size]) / sum(counts.values())


@pytest.mark.seconds
def test_tail_has_heavy_users_who_repeat_themselves(tmp_path):
    rows = read(make(tmp_path))
    users, items = (collections.Counter(column) for column in zip(*rows, strict=True))
    assert 0.3 < len(set(rows)) / len(rows) < 0.4  # distinct pairs
    assert 0.4 < share_of_top(users, 200) < 0.6  # a hundredth of the 20,000 users
    assert share_of_top(users, 1) < 0.02
    assert 0.05 < share_of_top(items, 1) < 0.15 and share_of_top(items, 20) > 0.3  # Zipf
    # Frequent names are not the first ones of the alphabet.
    assert not {name for name, _ in users.most_common(5)} & set(sorted(users)[:5])


def test_spread_has_new_pairs_and_users_alike(tmp_path):
    rows = read(make(tmp_path, law="spread"))
    users, items = (collections.Counter(column) for column in zip(*rows, strict=True))
    assert len(set(rows)) / len(rows) > 0.95
    assert share_of_top(users, 200) < 0.03
    assert 1.2 < items.most_common(200)[-1][1] / (len(rows) / len(items)) < 4  # skewed, but mildly


@pytest.mark.parametrize("rows", [1, 10, 100, 5000])
def test_small_spread_logs_are_spread_too(tmp_path, rows):
    assert len(set(read(make(tmp_path, law="spread", rows=rows)))) >= 0.95 * rows - 1


@pytest.mark.parametrize("law", ["tail", "spread"])
def test_a_seed_repeats_the_log(tmp_path, law):
    first, again, other = (
        make(tmp_path, law, 5000, 50, 7000, seed, f"{name}.parquet") for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first.read_bytes() == again.read_bytes()
    assert set(read(first)) != set(read(other))


def test_tastes_do_not_change_from_chunk_to_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.pipelines.sources.synthetic.ROWS_PER_CHUNK", 20_000)
    path = make(tmp_path, rows=50_000)
    assert [pq.read_metadata(path).row_group(i).num_rows for i in range(3)] == [20_000, 20_000, 10_000]
    assert 0.3 < len(set(read(path))) / 50_000 < 0.4


def test_names_and_columns(tmp_path):
    path = make(tmp_path, rows=1000, users=200, items=30)
    rows = read(path)
    assert {user for user, _ in rows} <= {f"u{i:08d}" for i in range(200)}
    assert {item for _, item in rows} <= {f"i{i:07d}" for i in range(30)}
    assert pq.read_schema(path).names == ["user", "item"]
    assert "RLE_DICTIONARY" in pq.read_metadata(path).row_group(0).column(0).encodings


def test_csv_holds_the_same_rows(tmp_path):
    with open(make(tmp_path, rows=1000, name="log.csv"), newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["user", "item"]
    assert [tuple(row) for row in rows] == read(make(tmp_path, rows=1000))


def test_no_rows(tmp_path):
    assert read(make(tmp_path, rows=0)) == []
    assert read(make(tmp_path, law="spread", rows=0, name="spread.parquet")) == []


def test_defaults():
    assert default_users(10_000_000) == 1_000_000 and default_users(3) == 1
    assert default_items("tail", 10_000_000, 1_000_000) == 100_000
    assert default_items("tail", 3, 1) == 1
    assert default_items("spread", 10_000_000, 1_000_000) == 100_000
    assert default_items("spread", 1000, 100) == 200


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"law": "pareto"}, "tail, spread, visits, got 'pareto'"),
        ({"rows": -1}, "rows must be an integer of at least 0, got -1"),
        ({"rows": 1.5}, "rows must be an integer of at least 0, got 1.5"),
        ({"rows": True}, "got True"),
        ({"users": 0}, "users must be an integer of at least 1, got 0"),
        ({"items": 0}, "items must be an integer of at least 1, got 0"),
        ({"seed": -5}, "seed must be an integer of at least 0, got -5"),
        ({"law": "spread", "rows": 100, "users": 10, "items": 10}, "10 users times 10 items for 100 rows"),
        ({"name": "log.txt"}, r"must end in .parquet or .csv, got '.*log\.txt'"),
        ({"name": "missing/log.csv"}, "cannot be written: No such file or directory"),
    ],
)
def test_refusals(tmp_path, arguments, words):
    with pytest.raises(ParameterError, match=words):
        make(tmp_path, **{"rows": 10, **arguments})
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_left_alone(tmp_path):
    path = make(tmp_path, rows=10)
    before = path.read_bytes()
    with pytest.raises(ParameterError, match="exists"):
        make(tmp_path, rows=20)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_visits_are_a_log_with_columns_of_several_types(tmp_path):
    log = pq.read_table(make(tmp_path, law="visits", rows=20_000))
    assert log.schema.names == "user_id country device age page query viewed_at seconds price".split()
    assert log.num_rows == 20_000
    rows = log.to_pylist()
    assert len({(row["user_id"], row["country"], row["device"], row["age"]) for row in rows}) == len(
        {row["user_id"] for row in rows}
    ), "country, device and age belong to the user"
    pages = collections.Counter(row["page"] for row in rows)
    assert pages.most_common(1)[0][0] == "/"
    assert {row["viewed_at"].date().isoformat() for row in rows} >= {"2026-11-02", "2026-11-15"}
    assert all(0 <= row["price"] < 1000 and 0 <= row["seconds"] <= 3600 and 16 <= row["age"] < 80 for row in rows)


def test_a_user_of_visits_is_the_same_in_every_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.pipelines.sources.synthetic.ROWS_PER_CHUNK", 1000)
    rows = pq.read_table(make(tmp_path, law="visits", rows=5000, users=100)).to_pylist()
    assert len({(row["user_id"], row["country"], row["age"]) for row in rows}) == len({row["user_id"] for row in rows})
