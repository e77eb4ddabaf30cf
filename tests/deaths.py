"""What dies inside a runner, by a message that is the runner's own, runs once more, and the record tells it.

A wrong row, or an error of ours, never does: a test that fails of these fails at once.
"""

from __future__ import annotations

import re

import pytest
from _pytest.runner import runtestprotocol

from tests.record import RERUN

# Prism dies of a Flatten or a GroupByKey on a busy machine (tests/runners/prism-dies.md). What runs then ends in Beam's worker
# for Python, by the number of its bundle.
_PRISM = re.compile(
    r"panic in stage\.Execute bundle processing goroutine: runtime error: invalid memory address or nil pointer dereference"
    r"|KeyError: 'inst\d+'$",
    re.MULTILINE,
)
_ON_A_WORKER = re.compile(r"failed: ?Traceback .*", re.DOTALL)  # as Prism tells it
_OURS = re.compile(r'File "[^"]*/(mechanisms|transforms|pipelines|headcount)/[^"]*", line ')


def death(message: str) -> str | None:
    """What a runner died of, by the message that a test failed with; None if it is not the runner that failed."""
    found, worker = _PRISM.search(message), _ON_A_WORKER.search(message)
    return None if not found or (worker and _OURS.search(worker[0])) else found[0]


def run(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """All parts of a test, as pytest runs them; and where a runner died in one and nothing else failed, all of them again."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = [getattr(report.longrepr, "reprcrash", None) for report in reports if report.failed]
    causes = [death(crash.message) if crash else None for crash in failed]
    if causes and all(causes):
        item.user_properties.append((RERUN, causes[0]))
        item._initrequest()  # as new
        before, reports = reports, runtestprotocol(item, nextitem=nextitem, log=False)
        reports[0].duration += sum(report.duration for report in before)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
