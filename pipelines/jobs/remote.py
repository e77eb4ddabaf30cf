"""What an operator sees of a job on another runner: where to look at it, and its states as they change, one line each.

The states are Beam's own words. All of it is the runner's account of the run, for the operator, and goes to standard error.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
)

from headcount.pipelines.progress import minutes

_INTERVAL = 1.0  # seconds between two looks
_PATIENCE = 3.0  # seconds for an answer of a cluster, which nothing depends on
_UNKNOWN = ("UNKNOWN", "UNSPECIFIED")


class States:
    """The states of a job as they come, each told once."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._since = 0.0

    def line(self, state: object, elapsed: float) -> str | None:
        """The line on a state, seen after this number of seconds; None if it is not new, or says nothing."""
        if not isinstance(state, str) or state in _UNKNOWN or state == self._last:
            return None
        before = "" if self._last is None else f", {self._last} for {minutes(elapsed - self._since)}"
        self._last, self._since = state, elapsed
        return f"{state} after {minutes(elapsed)}{before}"


def seen_state(result: Any) -> object:
    """The last state that a result has heard of.

    Not its `state`: to ask the runner for it writes the answer into what `wait_until_finish` decides by, and an old answer
    would turn a job that has ended well into one that failed.
    """
    look = getattr(result, "_get_job_state", None)  # of Dataflow, whose result asks by itself while one waits for it
    return look() if callable(look) else getattr(result, "_state", None)


def job_of(result: Any) -> str | None:
    """The id that the runner gave to a job; None if it tells none."""
    found = getattr(result, "job_id", None)
    with suppress(Exception):  # nothing depends on it, and Dataflow's result raises where no job was made
        found = found() if callable(found) else getattr(result, "_job_id", None)
    return found if isinstance(found, str) and found else None


def where(runner: str, job: str | None, options: PipelineOptions) -> str | None:
    """Where a job can be looked at, in one line; None if neither its id nor a page is known."""
    link = _dataflow_page(job, options) if "dataflow" in runner.lower() else _flink_page(options)
    if not (job or link):
        return None
    named = f"job {job}" if job else "a job"
    return f"{named} on {runner}{f': {link}' if link else ''}"


def _dataflow_page(job: str | None, options: PipelineOptions) -> str | None:
    cloud = options.view_as(GoogleCloudOptions)
    if not (job and cloud.project and cloud.region):
        return None
    return f"https://console.cloud.google.com/dataflow/jobs/{cloud.region}/{job}?project={cloud.project}"


def _flink_page(options: PipelineOptions) -> str | None:
    """The page of a job on the Flink cluster that the flags name, or of the cluster while it does not know the job."""
    master = options.view_as(FlinkRunnerOptions).flink_master
    if not master or master.startswith("["):
        return None
    address = (master if "://" in master else f"http://{master}").rstrip("/")
    name = options.view_as(GoogleCloudOptions).job_name
    with suppress(Exception):  # whatever a cluster answers, the job goes on
        with urllib.request.urlopen(f"{address}/jobs/overview", timeout=_PATIENCE) as answer:
            jobs = json.load(answer)["jobs"]
        jid = next(job["jid"] for job in jobs if name and job["name"] == name)
        return f"{address}/#/job/{jid}/overview"
    return address


@contextmanager
def watched(result: Any, tell: Callable[[str], None]) -> Iterator[None]:
    """Tells the states of a job while its block waits for it, and the last one."""
    states, began, end = States(), time.monotonic(), threading.Event()

    def look() -> None:
        with suppress(Exception):  # a look never fails a job
            line = states.line(seen_state(result), time.monotonic() - began)
            if line is not None:
                tell(line)

    def watch() -> None:
        while not end.wait(_INTERVAL):
            look()

    thread = threading.Thread(target=watch, name="headcount-states", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        look()
