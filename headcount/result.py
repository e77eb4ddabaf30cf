"""What a call gives: the released rows with the report on them, as the command would write and show them."""

from __future__ import annotations

import dataclasses
import hashlib
import html
import json
import os
from functools import cached_property
from typing import Any

import pyarrow as pa

from headcount.keywords import in_keywords, spelled
from headcount.mechanisms.checks import wrong
from headcount.mechanisms.errors import HeadcountError
from headcount.pipelines.jobs import report
from headcount.pipelines.jobs.plan import Plan
from headcount.pipelines.jobs.told import told
from headcount.pipelines.options import FORMATS
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.finished import summary
from headcount.pipelines.sinks.formats import encode


class Result:
    """Released rows, and the report on them. All of it is what the guarantee in the report is about, and may be published.

    Printed, it shows what the command line would: what was decided, and the largest rows. In a notebook it shows itself as a
    table.
    """

    def __init__(
        self, rows: pa.RecordBatch, about: report.About, plan: Plan, decision: report.Decision | None, show: Any
    ) -> None:
        self._rows, self._about, self._plan, self._decision, self._show = rows, about, plan, decision, show

    @cached_property
    def table(self) -> pa.Table:
        """All rows, as an Arrow table."""
        return pa.Table.from_batches([self._rows.replace_schema_metadata(None)])

    def to_pandas(self) -> Any:
        """All rows, as a pandas frame; it needs pandas."""
        return self.table.to_pandas()

    @cached_property
    def report(self) -> dict[str, Any]:
        """What report.json would hold: the promise in words and numbers, what the columns mean, and every public parameter."""
        target = self._target("result", "parquet", False)
        digest = hashlib.sha256(encode(self._rows, target.format)).digest()
        written = output.Written(0, "", digest, summary(self._rows))
        found: dict[str, Any] = json.loads(target.finished(self._unfinished(target.format), [written]))
        return found

    def save(self, folder: str | os.PathLike[str], *, format: str = "parquet", overwrite: bool = False) -> None:
        """Write the files that the command would write: the rows, and report.json, which is there once all are complete.

        `format` is "parquet", "avro", "csv" or "jsonl". A folder that holds anything but an earlier output of Headcount is
        refused, and so is an earlier output, unless `overwrite`.
        """
        try:
            if format not in FORMATS:
                raise wrong("format", f"must be one of {', '.join(map(repr, FORMATS))}", format)
            target = self._target(os.fspath(folder), format, overwrite)
            output.prepare(target)
            try:
                written = output.write_file(target, 0, self._rows)
                output.commit(target, [written], target.finished(self._unfinished(format), [written]))
            except BaseException:
                output.abandon(target)
                raise
        except HeadcountError as error:
            raise spelled(error) from None

    def _target(self, folder: str, format: str, overwrite: bool) -> output.Target:
        return output.make_target(folder, self._about.release_id, 1, format, overwrite, self._plan.files, None)

    def _unfinished(self, format: str) -> bytes:
        """The report without what the files tell."""
        about = dataclasses.replace(self._about, parameters={**self._about.parameters, "format": format})
        if self._decision is None:
            return report.make_report(about, self._plan.guarantee)
        return report.decided_report(self._decision, about)

    def __repr__(self) -> str:
        shown = told(self.report) if self._show is None else self._show(self.report, self.table.to_pylist())
        said = [self.report.get("decision"), self._about.note, shown]
        return in_keywords("\n".join(filter(None, said))) or str(self.table)

    def _repr_html_(self) -> str:
        names, rows = self.table.column_names, self.report["shown"]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(f"<tr>{''.join(f'<td>{_cell(row[name])}</td>' for name in names)}</tr>" for row in rows)
        number = self.report["rows"]
        caption = f"{number:,} rows" if number <= len(rows) else f"{len(rows)} of {number:,} rows"
        said = [self.report.get("decision"), self._about.note, self.report["promise"]]
        words = "".join(f"<p>{html.escape(in_keywords(each))}</p>" for each in said if each)
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{words}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"
    return html.escape("" if value is None else f"{value:,}" if isinstance(value, int) else str(value))
