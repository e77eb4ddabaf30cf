"""What .ci/run tells of tests at its end: a line of JSON for each, in the file that HEADCOUNT_CI_RECORD names."""

from __future__ import annotations

import json

import pytest

RERUN = "rerun"  # the property of a test that ran again: why it did


class Record:
    """Gathers the parts of each test, and appends its line when the last is there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0) + report.duration
        if report.when == "teardown":
            seconds = round(self._seconds.pop(report.nodeid), 3)
            line = {"test": report.nodeid, "seconds": seconds, RERUN: dict(report.user_properties).get(RERUN)}
            with open(self._path, "a") as file:
                file.write(json.dumps(line) + "\n")
