"""The largest of released rows, in all or of each group: what brute force keeps, however rows are cut into files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.keys import Keys, resolve
from headcount.mechanisms.counting.largest import ALL_ROWS, Largest
from headcount.mechanisms.counting.quality import Quality, left_out
from headcount.mechanisms.errors import ParameterError

KEYS = resolve(
    parse_columns(["country", "at:day", "page"]), {"country": pa.string(), "at": pa.date32(), "page": pa.string()}
)


def rows(seed, number=60, size="count"):
    """Released rows of few countries and days, many of whose counts are equal."""
    rng = np.random.default_rng(seed)
    keys = {(rng.choice(["at", "de", "fr"]), int(rng.integers(3)), f"p{rng.integers(30)}") for _ in range(number)}
    country, day, page = zip(*sorted(keys), strict=True)
    names = KEYS.name_values([pa.array(country), pa.array(day, pa.int64()), pa.array(page)])
    counts = rng.integers(-2, 6, len(keys)).astype(float)
    return pa.record_batch({"item": names, size: counts, "noise_stddev": np.ones(len(keys))})


def kept_by_force(batch, top, places):
    size = "count" if "count" in batch.schema.names else "bounded_count"
    columns = (*KEYS.decode(batch["item"]), batch[size])
    groups = {}
    for row in zip(*(column.to_pylist() for column in columns), strict=True):
        groups.setdefault(tuple(row[place] for place in places), []).append(row)
    return {row[:3] for group in groups.values() for row in sorted(group, key=lambda row: (-row[3], row[:3]))[:top]}


@pytest.mark.parametrize("per", [(), ("country",), ("at_day",), ("page", "country")])
@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_the_largest_of_each_group_are_kept_ties_by_their_keys(seed, files, per):
    batch = rows(seed, size=["count", "bounded_count"][seed % 2])
    places = [KEYS.names.index(name) for name in per]
    which = np.random.default_rng(seed).integers(files, size=batch.num_rows)
    parts = [batch.filter(pa.array(which == file)) for file in range(files)]
    largest = Largest(2, per)
    found = largest.keep(parts, KEYS)
    names = pa.concat_arrays([part["item"] for part in found])
    kept = set(zip(*(column.to_pylist() for column in KEYS.decode(names)), strict=True))
    assert kept == kept_by_force(batch, 2, places) and len(found) == files
    assert [part["item"].to_pylist() for part in found] == [sorted(part["item"].to_pylist()) for part in found]
    gone = [left_out(part)[largest.why] for part in found]
    assert gone == [before.num_rows - after.num_rows for before, after in zip(parts, found, strict=True)]


def test_rows_of_poor_quality_are_left_out_first_and_both_are_told():
    batch = rows(1)
    good = Quality(suppress_below=2).keep(batch)
    (found,) = Largest(1, ("country",)).keep([good], KEYS)
    told = left_out(found)
    assert [*told] == ["their count is below 2", "they are not among the 1 largest of their country"]
    assert sum(told.values()) + found.num_rows == batch.num_rows and found.num_rows == 3


def test_one_column_alone_and_no_rows_at_all():
    plain = Keys.plain(int)
    batch = pa.record_batch({"item": pa.array([3, 1, 2]), "count": [1.0, 5.0, 5.0]})
    (found,) = Largest(1).keep([batch], plain)
    assert found["item"].to_pylist() == [1] and left_out(found) == {"they are not among the 1 largest": 2}
    (empty,) = Largest(3, ("country",)).keep([rows(1).slice(0, 0)], KEYS)
    assert empty.num_rows == 0 and left_out(empty) == {"they are not among the 3 largest of their country": 0}
    assert ALL_ROWS.keep([batch], plain) == [batch]


def test_groups_that_are_none_are_refused_with_what_to_do():
    with pytest.raises(ParameterError, match="say how many by top"):
        Largest(None, ("country",))
    with pytest.raises(ParameterError, match="top must be"):
        Largest(0)
    with pytest.raises(
        ParameterError, match="per 'nope' is no column of the key: give one of 'country', 'at_day', 'page'"
    ):
        Largest(2, ("nope",)).check_columns(KEYS)
    with pytest.raises(ParameterError, match="has all columns of the key"):
        Largest(2, ("page", "at_day", "country")).check_columns(KEYS)
