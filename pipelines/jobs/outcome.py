"""What came of a job: its report and its rows, for whoever shows them; nobody else looks for an output of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.pipelines.jobs.told import told
from headcount.pipelines.sinks.formats import decode
from headcount.pipelines.storage import stores


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A complete output; or one that is only submitted, which has no report and no files yet.

    A `note` is what a reader must know of the numbers. `files` are the paths of those that hold the rows, none for a table, and
    `complete` says by what one knows a complete output. `page` is where its report.html lies, if it has one, and `charged` what
    the ledger says of it, if there is one. `unsettled` is what is wrong if it is published and the ledger could not be told.
    `again` is a release that was made once more, and was there already.
    """

    output: str
    release_id: str
    complete: str
    report: Mapping[str, Any] | None = None
    note: str | None = None
    files: Sequence[str] = ()
    format: str = "parquet"
    page: str | None = None
    charged: str | None = None
    unsettled: str | None = None
    again: bool = False

    def words(self) -> str:
        """What was decided, what must be known of the numbers, and where they are."""
        if self.report is None:
            told = f"submitted; {self.output} is complete when {self.complete} (release {self.release_id})"
            return "\n".join(filter(None, (told, self.charged)))
        done = "already there, the same bytes:" if self.again else "wrote"
        return "\n".join(filter(None, (self.said(), f"{done} {self.output} (release {self.release_id})", self.charged)))

    def said(self) -> str:
        """What was decided, and what must be known of the numbers; of a job that has ended."""
        report = self.report or {}
        return "\n".join(filter(None, (report.get("decision"), report.get("protected"), self.note)))

    def told(self) -> str:
        """How many rows came out, the largest of them, and what is missing; of a job that has ended."""
        return "" if self.report is None else told(self.report)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows of the files in their order, with texts for numbers in CSV."""
        for path in self.files:
            yield from decode(stores.read(path), self.format)
