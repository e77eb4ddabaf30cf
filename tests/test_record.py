"""The record of tests has one line for each, in which its setup, call and teardown are, and why it ran twice if it did."""

from __future__ import annotations

import json

import pytest

from tests.record import RERUN, Record


def part(test: str, when: str, seconds: float, *properties: tuple[str, str]) -> pytest.TestReport:
    return pytest.TestReport(test, ("", 0, ""), {}, "passed", None, when, duration=seconds, user_properties=properties)


def test_a_line_for_each_test_when_its_last_part_is_there(tmp_path):
    record = Record(str(tmp_path / "record"))
    for when, seconds in (("setup", 1), ("call", 2.5)):
        record.pytest_runtest_logreport(part("a", when, seconds))
        record.pytest_runtest_logreport(part("b", when, 1, (RERUN, "it died")))
    assert not (tmp_path / "record").exists()
    record.pytest_runtest_logreport(part("b", "teardown", 0.25, (RERUN, "it died")))
    record.pytest_runtest_logreport(part("a", "teardown", 0.5))
    assert [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()] == [
        {"test": "b", "seconds": 2.25, "rerun": "it died"},
        {"test": "a", "seconds": 4, "rerun": None},
    ]
