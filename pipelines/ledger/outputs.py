"""Looking at the outputs of entries: whether one is complete, and whose it is; and taking away what a dead job left of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from headcount.pipelines.ledger.records import Request
from headcount.pipelines.sinks import output as sink
from headcount.pipelines.storage import stores


class Found(NamedTuple):
    """A complete output: its report, and the id of its release."""

    report: bytes
    release_id: str


def look(place: str) -> Found | None:
    """The complete output at a place; None if there is none."""
    if stores.scheme_of(place) == "bigquery":
        content = _of_table(place)
    else:
        path = stores.join(place, sink.REPORT)
        content = stores.read(path) if stores.exists(path) else None
    if content is None or sink.listed_files(content) is None:
        return None
    report = json.loads(content)
    release_id = report.get("release_id") if isinstance(report, Mapping) else None
    return Found(content, release_id) if isinstance(release_id, str) else None


def abandon(request: Request) -> None:
    """Remove what a job left that was not complete; an attempt of it that still runs finds its files gone, and fails."""
    if request.output is None:
        return
    if stores.scheme_of(request.output) == "bigquery":
        from headcount.pipelines.sinks.bigquery import abandon_dead

        abandon_dead(request.output, request.release_id)
    else:
        sink.abandon(sink.Target(request.output, request.release_id, 1, "parquet", False, request.files))


def _of_table(place: str) -> bytes | None:
    """The description of a table, which is the report if the output is complete."""
    from headcount.pipelines.storage import bigquery

    table = bigquery.parse(place)
    from google.api_core.exceptions import NotFound

    try:
        found = bigquery.client(table.project).get_table(str(table)).description
    except NotFound:
        return None
    return found.encode() if found else None
