"""Noise depends on how rows are read: under one id, no two ways to read them give equal rows, by which one could tell that no
row makes a difference. And all ways in read them alike."""

from __future__ import annotations

import itertools

import apache_beam as beam
import pyarrow as pa
import pytest

import headcount
from headcount.mechanisms.randomness.keys import KeyFile, Release, RowsKey
from headcount.transforms import Budget, Contributions, Histogram, NoisyCounts, RandClip
from tests.fixed_key import write_fixed_key

# Columns that are equal, none of which has a null or a long name: all of these ways read the same rows.
USERS = [f"u{n}" for n in range(3000)]
ITEMS = [f"i{n % 5}" for n in range(3000)]
FRAME = pa.table({"user": USERS, "visitor": USERS, "item": ITEMS, "page": ITEMS, "times": [1] * 3000})
WAYS = {
    "plain": {},
    "other users": {"user": "visitor"},
    "other items": {"item": "page"},
    "nulls are left out": {"drop_null": True},
    "long names are left out": {"max_item_bytes": 100},
    "counts": {"count": "times"},
}


@pytest.fixture
def key(tmp_path):
    write_fixed_key(tmp_path / "key")
    return str(tmp_path / "key")


def released(key: str, **said) -> list[dict]:
    said = {"user": "user", "item": "item"} | said
    result = headcount.histogram(
        FRAME, **said, of="events", epsilon=1, delta=1e-6, bound=1, method="one-stage", key_file=key, release_id="r"
    )
    return result.table.rename_columns(["item", *result.table.column_names[1:]]).to_pylist()


def different(key: str) -> bool:
    """Whether all ways to read the same rows have other noise."""
    rows = [released(key, **way) for way in WAYS.values()]
    assert all([row["item"] for row in each] == ["i0", "i1", "i2", "i3", "i4"] for each in rows)
    return all(one != other for one, other in itertools.combinations(rows, 2))


def test_each_way_to_read_the_same_rows_has_other_noise(key, monkeypatch):
    """Equal by chance: five noisy counts of 15 pairs, below 1e-6 for a noise whose values have a chance of .5 at most; the key
    is fixed."""
    assert different(key)
    monkeypatch.setattr(Release, "of_rows", lambda self, reading: self)  # the bug
    assert not different(key)


@pytest.mark.parametrize("way", ["plain", "other users", "nulls are left out"])
def test_a_transform_draws_what_the_call_does(key, collect, way):
    said = {"user": "user", "item": "item"} | WAYS[way]
    histogram = Histogram(
        Budget(1, 1e-6), of="events", bound=1, method="one-stage", release=Release(KeyFile(key), "r"), output_files=1
    )

    def build(pipeline):
        return pipeline | beam.Create([FRAME]) | Contributions(**said) | "Histogram" >> histogram

    ((_, batch),) = collect(build)
    assert batch.to_pylist() == released(key, **said)


def test_steps_put_together_by_hand_depend_on_it_too(key, collect):
    def counts(**said):
        def build(pipeline):
            release = Release(KeyFile(key), "r")
            clip = RandClip(1, release=release)
            noisy = NoisyCounts(Budget(1, 1e-6), clip.bound, release=release)
            return pipeline | beam.Create([FRAME]) | Contributions(**said) | "Clip" >> clip | "Noisy" >> noisy

        return sorted(collect(build))

    plain = counts()
    assert plain == counts() and plain != counts(drop_null=True)


def test_the_key_for_a_reading_follows_from_the_owners_and_travels_without_it(key):
    release = Release(KeyFile(key), "r")
    read = release.of_rows('{"user":"visitor"}')
    assert read.id == "r" and read.key_source == RowsKey(KeyFile(key), '{"user":"visitor"}')
    assert read.key_source.fetch() != release.key_source.fetch()
    assert read.of_rows("{}") is read and release.of_rows("") is release
