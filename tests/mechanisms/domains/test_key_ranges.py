"""Ranges of key values: which values they have, and what is refused."""

import datetime

import pyarrow as pa
import pytest

from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.domains.key_ranges import KeyRange, parse_range, range_of
from headcount.mechanisms.errors import ParameterError
from tests.mechanisms.domains.test_domain import keys_of

TIMES, DATES = pa.timestamp("us", "UTC"), pa.date32()


def shown(spec, found, given):
    """The one key column of a domain, as the output shows it."""
    keys = keys_of((spec, found))
    file = DomainFile({keys.names[0]: given})
    domain = file.domain(keys)
    assert len(domain) == len(file.unnamed()), "what is planned for is what is counted"
    return [str(each) for each in keys.decode(domain.sorted_names)[0].to_pylist()]


@pytest.mark.parametrize(
    ("spec", "found", "given", "values"),
    [
        ("x:day", TIMES, "2026-02-27..2026-03-01", ["2026-02-27", "2026-02-28", "2026-03-01"]),
        ("x:day", pa.string(), "1969-12-31..1970-01-01", ["1969-12-31", "1970-01-01"]),
        ("x", DATES, ("2024-02-28", "2024-02-29"), ["2024-02-28", "2024-02-29"]),
        ("x:day", DATES, (datetime.date(2026, 1, 1), datetime.date(2026, 1, 1)), ["2026-01-01"]),
        ("x:week", TIMES, "2026-11-01..2026-11-10", ["2026-10-26", "2026-11-02", "2026-11-09"]),
        ("x:month", TIMES, "2026-11-15..2027-01-01", ["2026-11-01", "2026-12-01", "2027-01-01"]),
        ("x:year", TIMES, "2024..2026", ["2024", "2025", "2026"]),
        ("x:hour", TIMES, "2026-11-01T22:00Z..2026-11-02T00:00Z",
         ["2026-11-01 22:00:00+00:00", "2026-11-01 23:00:00+00:00", "2026-11-02 00:00:00+00:00"]),
        ("x:hour", TIMES, "2026-11-01T23:00+01:00..2026-11-01 22:00", ["2026-11-01 22:00:00+00:00"]),
        ("x", pa.int8(), "-2..1", ["-2", "-1", "0", "1"]),
        ("x:int", pa.string(), (9, 11), ["9", "10", "11"]),
        ("x", pa.string(), ["b", "a"], ["a", "b"]),
        ("x:day", TIMES, ["2026-11-01"], ["2026-11-01"]),
    ],
)  # fmt: skip
def test_a_range_has_all_values_from_end_to_end(spec, found, given, values):
    assert shown(spec, found, given) == values


@pytest.mark.parametrize("text", ["d.txt", "../lists/d.txt", "a..b", "day=1..2/d.txt", "..", "x..y.csv", "./1..12"])
def test_what_is_no_range_is_a_file(text):
    assert parse_range(text) is None


@pytest.mark.parametrize(
    ("spec", "found", "given", "words"),
    [
        ("x:day", TIMES, "2026-11-01..30", "'2026-11-01..30' is no range"),
        ("x:day", TIMES, "2026-11-30..2026-11-01", "ends before it begins"),
        ("x:day", TIMES, "2026-02-30..2026-03-01", "2026-02-30 is no date"),
        ("x:day", TIMES, "1..12", "is a range of whole numbers, but column 'x_day' holds days"),
        ("x:hour", TIMES, "2026-11-01..2026-11-02", "is a range of days, but column 'x_hour' holds hours"),
        ("x:hour", TIMES, "2026-11-01T00:30Z..2026-11-01T02:30Z", "value 1 is not an hour like"),
        ("x_week", DATES, "2026-11-02..2026-11-09", "is a range of weeks, but column 'x_week' holds days"),
        ("x", pa.string(), "1..12", "column 'x' holds string: ranges are of whole numbers, dates"),
        ("x:0,18", pa.int64(), "1..12", "ranges are of whole numbers, dates, and times"),
        ("x", TIMES, "2026-11-01T00:00Z..2026-11-01T02:00Z", "ranges are of whole numbers, dates, and times"),
        ("x", pa.int8(), "1..1000", "domain '1..1000': value 128 is not int8"),
        ("x", pa.int64(), "0..99999999999", "has 100,000,000,000 values: give a range of 10,000,000 at most"),
        ("x", pa.int64(), (2**63 - 1, 2**63), "has numbers beyond 64 bits"),
        ("x", pa.string(), ("DE", "FR"), "'DE..FR' is no range: .*, or the values as a list or a file"),
        ("x", pa.int64(), (1, 2, 3), "a tuple that is no range"),
        ("x", pa.int64(), (False, True), "a tuple that is no range"),
        ("x", pa.int64(), [], "an empty list for column 'x'"),
        ("x", pa.int64(), [1, 1], "domain of column 'x': value 2 repeats value 1"),
        ("x", pa.int64(), 7, "must be a file, a range like .*, or a list of values, got a int"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(spec, found, given, words):
    with pytest.raises(ParameterError, match=words) as error:
        shown(spec, found, given)
    assert error.value.parameter == "domain"


def test_ends_are_told_as_they_were_given():
    assert range_of((datetime.date(2026, 11, 1), "2026-11-30")) == KeyRange("2026-11-01", "2026-11-30")
    assert DomainFile({"a": (1, 3), "b": ["x", "y"], "c": "c.txt"}).public == ["a=1..3", "b=2 values", "c=a list"]
