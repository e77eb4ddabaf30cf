"""The two digests of a job: other words move that of its report alone, and recording them records no other rows."""

from __future__ import annotations

import json

import pytest

from tests.golden.digests import DIGESTS, after, told
from tests.golden.test_transforms import TRANSFORMS
from tests.runners.jobs import JOBS

ROWS = [["counts.csv", ["item", "count"], [{"item": "a", "count": 3}]]]
OTHER_ROWS = [["counts.csv", ["item", "count"], [{"item": "a", "count": 4}]]]
REPORT = {"headcount": "1", "promise": "epsilon = 1"}
OTHER_REPORT = {"headcount": "1", "promise": "epsilon is 1"}


def recorded():
    return after({}, "job", {"rows": ROWS, "report": told(REPORT)}, "rows")[0]


def test_other_words_change_the_report_alone():
    assert after(recorded(), "job", {"rows": ROWS, "report": told(REPORT)}, None)[1] == []
    assert after(recorded(), "job", {"rows": ROWS, "report": told(OTHER_REPORT)}, None)[1] == ["report"]
    assert after(recorded(), "job", {"rows": OTHER_ROWS, "report": told(REPORT)}, None)[1] == ["rows"]
    assert told(REPORT) == told(REPORT | {"headcount": "2"}), "another version alone is no other report"


@pytest.mark.parametrize("rows", [ROWS, OTHER_ROWS])
def test_a_report_is_recorded_without_its_rows(rows):
    written, changed = after(recorded(), "job", {"rows": rows, "report": told(OTHER_REPORT)}, "report")
    assert changed == ([] if rows is ROWS else ["rows"])
    assert written["job"]["rows"] == recorded()["job"]["rows"]
    assert written["job"]["report"] != recorded()["job"]["report"]
    assert after({}, "new", {"rows": rows, "report": told(REPORT)}, "report")[1] == ["rows"], (
        "nor are rows of a new job"
    )
    assert after(recorded(), "job", {"rows": rows, "report": told(OTHER_REPORT)}, "rows")[1] == []


def test_what_has_no_line_is_no_longer_kept():
    known = json.loads(DIGESTS.read_text())
    jobs = {f"command: {job}": {"rows", "report"} for job in JOBS}
    alone = [*(f"transform: {name}" for name in TRANSFORMS), "command: generate tail", "command: generate spread"]
    assert {name: {*parts} for name, parts in known.items()} == jobs | {name: {"rows"} for name in alone}
