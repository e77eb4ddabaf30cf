"""What came of a job: its report and its rows, for whoever shows them; nobody else looks for an output of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headcount.pipelines.reports.series import summary_of
from headcount.pipelines.reports.summary import is_list, rows_counted, summarize
from headcount.pipelines.sinks.formats import decode, decode_parquet, typed
from headcount.pipelines.storage import stores


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A complete output; or one that is only submitted, which has no report and no files yet.

    `files` are the paths of those that hold the rows, none for a table, and
    `complete` says by what one knows a complete output. `page` is where its report.html lies, if it has one, and `charged` what
    the ledger says of it, if there is one. `unsettled` is what is wrong if it is published and the ledger could not be told.
    `again` is a release that was made once more, and was there already.
    """

    output: str
    release_id: str
    complete: str
    report: Mapping[str, Any] | None = None
    files: Sequence[str] = ()
    format: str = "parquet"
    page: str | None = None
    charged: str | None = None
    unsettled: str | None = None
    again: bool = False

    def description(self, shown: str) -> str:
        """All that is said of a job: what came out, as `shown`, what must be known of it, what was chosen, and where it is."""
        if self.report is None:
            told = f"submitted; {self.output} is complete when {self.complete} (release {self.release_id})"
            return "\n".join(filter(None, (told, self.charged)))
        done = "already there, the same bytes:" if self.again else "wrote"
        where = f"{done} {self.output} (release {self.release_id})"
        page = None if self.page is None else f"to look at: {self.page}"
        return "\n".join(filter(None, (said(self.report, shown), where, self.charged, page)))

    def summary(self, bars: bool = False) -> str:
        """How many rows came out, the largest of them, and what is missing; of a job that has ended."""
        if self.report is None:
            return ""
        return summary_of(self.report, self.table, bars) if self.files else summarize(self.report, bars)

    def table(self) -> pa.Table:
        """All rows of the files, with texts for dates and times."""
        shown = () if self.report is None else self.report["shown"]
        found = []
        for path in self.files:
            content = stores.read(path)
            parquet = self.format == "parquet"
            found.append(
                decode_parquet(content)
                if parquet
                else pa.Table.from_pylist([*typed(decode(content, self.format), shown)])
            )
        return pa.concat_tables([each for each in found if each.num_rows], promote_options="permissive")

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows of the files in their order, with texts for numbers in CSV."""
        for path in self.files:
            yield from decode(stores.read(path), self.format)


def said(report: Mapping[str, Any], shown: str) -> str:
    """What came out, as `shown`; then what must be known of it, and what was chosen. An answer of one line goes first."""
    decision, listed, rows = report.get("decision"), is_list(report), rows_counted(report)
    beside = (
        None if rows in shown else rows,
        report.get("protected"),
        report.get("note"),
        decision if listed else None,
    )
    parts = (None if listed else decision, shown, "\n".join(filter(None, beside)))
    return ("\n\n" if shown else "\n").join(filter(None, parts))
