"""A job in this process without Beam: the mechanism itself on the rows of files, as a call in Python runs it.

The rows are those of the pipeline, byte for byte. All rows wait in memory, so that it is for inputs of which that has room on
any machine; those of larger ones may wait on disk, in a pipeline.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pyarrow as pa

from headcount.mechanisms.domains.given_domain import GivenDomain
from headcount.mechanisms.mechanism import Mechanism
from headcount.pipelines import progress
from headcount.pipelines.flags import options
from headcount.pipelines.jobs.job import Job, Looked
from headcount.pipelines.jobs.signals import Signals
from headcount.pipelines.reports.released import Kept, released
from headcount.pipelines.reports.report import make_report
from headcount.pipelines.sinks.output import write_file
from headcount.pipelines.sinks.publish import publish
from headcount.pipelines.sources.domain import domain_of

# Of input without compression, which may be codes of names; and of contributions.
_MOST_BYTES, _MOST_ROWS = 256 << 20, 16_000_000

_READ = progress.Step("read", (progress.READING,))
_COUNT = progress.Step("count", ("Count",), reads=frozenset({"group:UserShards"}))


def fits(looked: Looked) -> bool:
    """Whether a job is run so."""
    source = looked.source
    runs = isinstance(looked.made.mechanism, Mechanism) and source.batches() is not None
    return runs and source.size <= _MOST_BYTES and source.contributions() <= _MOST_ROWS


class Direct:
    """Runs a job in this process."""

    options = runner = None
    here = True

    def make(self, args: argparse.Namespace, looked: Looked, memory_limit: int | None) -> None:
        """Make the mechanism, with the names of a domain."""
        keys, self._mechanism = looked.source.keys, looked.made.mechanism
        if getattr(args, "domain", None) is not None:
            self._mechanism = looked.made.of_domain(GivenDomain(domain_of(args)).named(keys))
        self._keys, self._kept = options.shown_keys(args, keys), Kept.of(args)

    def run(self, job: Job, signals: Signals) -> bool:
        """Run the job to its end."""
        progress.planned([_READ, _COUNT])
        job.starts()
        made = released(
            self._mechanism,
            job.plan,
            _watched(job),
            job.release,
            job.about.command,
            self._keys,
            self._kept,
            bool(job.digested),
        )
        guarantee = job.plan.guarantee if made.decision is None else made.decision.guarantee
        content = make_report(job.about, guarantee, made.decision, made.input_digest)
        written = [write_file(job.target, k, rows) for k, rows in enumerate(made.files(job.target.files))]
        publish(job.target, written, content, job.commit)
        return True


def _watched(job: Job) -> Iterator[pa.RecordBatch]:
    """The rows of a job, which tell the operator how far they are read."""
    progress.begins(_READ.name, None, lambda: None)
    yield from job.source.batches() or ()
    progress.ends()
    progress.begins(_COUNT.name, None, lambda: None)
