"""The end of a job, in whatever way it ran: its report is finished, told to whoever must know first, and committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from headcount.pipelines.sinks.output import Target, Written
from headcount.pipelines.sinks.repeated import refuse_another

Commit = Callable[[Any, Iterable[Written], bytes], None]

# Who wants to know, in this process, before a release is published: by its id, as a step of a pipeline can hold no ledger.
_announced_first: dict[str, Callable[[bytes], None]] = {}


@contextmanager
def announced_first(release_id: str, tell: Callable[[bytes], None]) -> Iterator[None]:
    """While its block runs, `tell` gets the report of a release before any of it is published, if that is done in this process.

    If it raises, nothing is published.
    """
    _announced_first[release_id] = tell
    try:
        yield
    finally:
        del _announced_first[release_id]


def publish(target: Target, written: Iterable[Written], report: bytes, commit: Commit) -> None:
    """Commit all files of an output with their report; refuses one that is another than the release that it repeats."""
    files = target.checked(written)
    finished = target.finished(report, files)
    refuse_another(target.expected, finished, target.release_id)
    if target.release_id in _announced_first:
        _announced_first[target.release_id](finished)
    commit(target, files, finished)
