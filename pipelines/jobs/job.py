"""A job on its way: what a command makes of its flags, what was looked at, and what is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.jobs.source import Source
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.reports.report import About
from headcount.pipelines.sinks.publish import Commit

if TYPE_CHECKING:
    import apache_beam as beam


class Made(NamedTuple):
    """What a command makes of its flags and the type of its items: its plan and its mechanism, that for a domain that has
    names, and its transform for a release and a number of shards."""

    plan: Plan
    mechanism: Any
    of_domain: Callable[[Any], Any]
    make_transform: Callable[[Release, int], beam.PTransform]


class Looked(NamedTuple):
    """A job of which everything was refused that can be before it runs: no row was read, and nothing is written or reserved.

    `there` says that an earlier output is replaced, or that this very release is there already.
    """

    source: Source
    release: Release
    plan: Plan
    sink: Any
    target: Any
    there: bool
    made: Made


@dataclasses.dataclass(frozen=True)
class Job:
    """What is run, in whatever way: `starts` is told just before, and `digested` says whether the digest of the input is asked
    for: with the key of the release or without one, or None for no digest."""

    source: Source
    release: Release
    plan: Plan
    target: Any
    commit: Commit
    about: About
    digested: bool | None
    starts: Callable[[], None]
