"""What a call gives: the released rows with the report on them, as the command would write and show them."""

from __future__ import annotations

import dataclasses
import json
import os
from functools import cached_property
from typing import Any

import pyarrow as pa

from headcount.keywords import in_keywords, spelled
from headcount.mechanisms.checks import check_whole, wrong
from headcount.mechanisms.errors import HeadcountError
from headcount.pipelines.flags.groups import FORMATS, MOST_FILES
from headcount.pipelines.pages.written import with_page
from headcount.pipelines.reports import report
from headcount.pipelines.reports.outcome import Outcome, said
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.reports.released import Released
from headcount.pipelines.reports.series import summary_of
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.formats import times_as_text
from headcount.pipelines.sinks.repeated import refuse_another


class Shown:
    """Released rows, and the report on them. All of it is what the guarantee in the report is about, and may be published.

    Printed, it shows what the command line would: the largest rows, what they do not hold, and what was chosen. In a notebook
    it shows itself as its page does, as bars with their intervals or as the picture of its kind, with the same cautions.
    """

    table: pa.Table
    report: dict[str, Any]
    _show: Any = None

    def to_pandas(self) -> Any:
        """All rows, as a pandas frame; it needs pandas."""
        return self.table.to_pandas()

    def __repr__(self) -> str:
        if self._show is None:
            shown = summary_of(self.report, lambda: times_as_text(self.table))
        else:
            shown = self._show(self.report, self.table.to_pylist())
        return in_keywords(said(self.report, shown)) or str(self.table)

    def _repr_html_(self) -> str:
        from headcount.pipelines.pages.release import release_fragment

        return release_fragment(self.report, self.table, in_keywords)


class Result(Shown):
    """What a call gives: released rows in memory, and the report on them, which `save` writes as the command would."""

    def __init__(
        self,
        released: Released,
        about: report.About,
        plan: Plan,
        show: Any,
    ) -> None:
        self._released, self._about, self._plan, self._show = released, about, plan, show

    @cached_property
    def table(self) -> pa.Table:
        """All rows, as an Arrow table."""
        return pa.Table.from_batches(self._released.files(1)).replace_schema_metadata(None)

    @cached_property
    def report(self) -> dict[str, Any]:  # type: ignore[override]
        """What report.json would hold: the promise in words and numbers, what the columns mean, and every public parameter."""
        found: dict[str, Any] = json.loads(self.checked())
        return found

    def checked(self, expected: str | None = None) -> bytes:
        """The content of report.json, for one file of Parquet; refuses a release of another digest than is expected, if one
        is."""
        target = self._target("result", "parquet", False, 1)
        (rows,) = self._released.files(1)
        _, written = output.encoded(target, 0, rows)
        finished = self._finished(target, [written])
        refuse_another(expected, finished, target.release_id)
        return finished

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        format: str = "parquet",
        overwrite: bool = False,
        output_files: int = 1,
    ) -> None:
        """Write the files that the command would write: the rows, and report.json, which is there once all are complete.
        report.html is written beside it, a page to look at.

        `format` is "parquet", "avro", "csv" or "jsonl", and `output_files` the number of files with rows. A folder that holds
        anything but an earlier output of Headcount is refused, and so is an earlier output, unless it is this very one, or
        `overwrite`.
        """
        try:
            if format not in FORMATS:
                raise wrong("format", f"must be one of {', '.join(map(repr, FORMATS))}", format)
            check_whole("output_files", output_files, 1, MOST_FILES)
            target = self._target(os.fspath(folder), format, overwrite, output_files)
            output.prepare(target)
            try:
                parts = enumerate(self._released.files(output_files))
                written = [output.write_file(target, k, rows) for k, rows in parts]
                finished = self._finished(target, written)
                output.commit(target, written, finished)
            except BaseException:
                output.abandon(target)
                raise
            with_page(
                Outcome(
                    target.directory,
                    target.release_id,
                    output.COMPLETE,
                    json.loads(finished),
                    output.written(target),
                    format,
                )
            )
        except HeadcountError as error:
            raise spelled(error) from None

    def _target(self, folder: str, format: str, overwrite: bool, files: int) -> output.Target:
        name = self._about.release_id
        target = output.make_target(folder, name, files, format, overwrite, self._plan.files, None)
        return target.of_keys(self._released.keys)

    def _finished(self, target: output.Target, written: list[output.Written]) -> bytes:
        """The content of report.json for these files."""
        given = {**self._about.parameters, "format": target.format, "output_files": target.files}
        about = dataclasses.replace(self._about, parameters=given)
        decision = self._released.decision
        guarantee = self._plan.guarantee if decision is None else decision.guarantee
        return target.finished(report.make_report(about, guarantee, decision, self._released.input_digest), written)
