"""Which tests run when: a slow test says what it repeats, and what nobody waits for runs with --everything alone."""

from __future__ import annotations

import pytest

# What a slow test may repeat, of what `make test` shows once.
REPEATS = {
    "accuracy": "errors and intervals, measured over many releases",
    "cuts": "the same rows, however they are cut, ordered, stored or computed",
    "jobs": "what one job, method or law of data shows, of all others",
    "kills": "a run that is killed, fails or is tried again, at every moment",
    "races": "attempts at once",
    "ranges": "what holds for some numbers, over all of a range",
    "services": "clouds, tables and other ways to start a job, whole",
    "sizes": "very much data",
}


def repeats(marker: pytest.Mark) -> str:
    """What a slow test repeats; a marker that does not say it is an error."""
    if len(marker.args) != 1 or marker.args[0] not in REPEATS or marker.kwargs:
        words = ", ".join(REPEATS)
        raise pytest.UsageError(f"mark.slow says in one word what the test repeats: {words}")
    return marker.args[0]


def waits(item: pytest.Item) -> bool:
    """Whether a test runs with --everything alone: it is marked so, or it measures accuracy."""
    words = {repeats(marker) for marker in item.iter_markers("slow")}
    return "accuracy" in words or item.get_closest_marker("everything") is not None
