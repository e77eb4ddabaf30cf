"""Puts the page of a release beside it, from the process that waited for the job: workers make none.

A page is made from what is released already, and an output is complete without it. So whatever goes wrong with it is one line
on standard error, and never the end of a job.
"""

from __future__ import annotations

import dataclasses
import sys
import uuid

from headcount.pipelines.reports.outcome import Outcome
from headcount.pipelines.sinks import output
from headcount.pipelines.storage import stores


def with_page(outcome: Outcome) -> Outcome:
    """The outcome of a job that has ended, once its page lies beside its files."""
    try:
        from headcount.pipelines.pages.release import release_page

        page = put_page(stores.normal(outcome.output), outcome.release_id, release_page(outcome))
        return dataclasses.replace(outcome, page=page)
    except Exception as error:  # of storages, of the machine, or ours: the output is there and complete
        print(f"headcount: {output.PAGE} was not made, all else is there: {stores.reason(error)}", file=sys.stderr)
        return outcome


def put_page(directory: str, release_id: str, content: bytes) -> str:
    """Put the page of a complete output in its place, whole or not at all; returns where that is."""
    place, temporary, name = (
        stores.join(directory, output.PAGE),
        f"{directory}.tmp-{release_id}",
        f"page.{uuid.uuid4().hex}.html",
    )
    try:
        stores.write(stores.join(temporary, name), content)
        stores.move(stores.join(temporary, name), place)
    finally:
        stores.remove_files(temporary, [name])
    return place
