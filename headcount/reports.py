"""A whole report in one call: the releases of its file by their names, as they were written."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headcount.functions import suggesting
from headcount.result import Shown

if TYPE_CHECKING:
    import pyarrow as pa

    from headcount.functions import Path
    from headcount.pipelines.commands.report.plan import Costs
    from headcount.pipelines.report_file.run import Made


class Written(Shown):
    """A release that a report wrote: its rows, its report, and the folder in which both are."""

    def __init__(self, made: Made) -> None:
        self.folder, self._outcome, self._show = made.job.output, made.outcome, made.job.command.show

    @cached_property
    def table(self) -> pa.Table:
        """All rows, as an Arrow table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from headcount.pipelines.storage import stores

        if self._outcome.format != "parquet":
            return self._outcome.table()
        tables = [pq.read_table(io.BytesIO(stores.read(path))) for path in self._outcome.files]
        return pa.concat_tables(tables).replace_schema_metadata(None)

    @cached_property
    def report(self) -> dict[str, Any]:  # type: ignore[override]
        """What report.json holds."""
        return dict(self._outcome.report or {})


@dataclasses.dataclass(frozen=True)
class Report(Mapping[str, Written]):
    """The releases of a report by their names; `page` is where the page over all of them lies."""

    releases: Mapping[str, Written]
    page: str | None

    def __getitem__(self, name: str) -> Written:
        return self.releases[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def __repr__(self) -> str:
        return "\n\n".join(f"{name}:\n{each!r}" for name, each in self.releases.items())

    def _repr_html_(self) -> str:
        return "\n".join(each._repr_html_() for each in self.releases.values())


@suggesting
def run(file: str | os.PathLike[str], *, period: str | None = None, beam_flags: Sequence[str] = ()) -> Report:
    """All releases of a report from one file, as the command makes them.

    Guarantee: that of each release, as its report says in words; with a promise, that of all runs together.

        week = headcount.run("report.yaml", period="2026-W46")
        week["pages"].table

    Parameters:
        file: the report, a file of YAML.
        period: what stands for {period} in it, such as "2026-W46" (default: None).
        beam_flags: flags of Beam for every release, such as ["--runner=FlinkRunner"] (default: none).

    The result has each release by its name, with `table`, `report`, `to_pandas()` and the `folder` that it was written to; and
    `page`, the page over all. Small local files are counted in this process, and others on Beam, as the command does.
    """
    from headcount.keywords import spelled
    from headcount.mechanisms.errors import HeadcountError
    from headcount.pipelines.report_file.run import run_report

    try:
        made, page = run_report(os.fspath(file), period, list(beam_flags), lambda each: None)
    except HeadcountError as error:
        raise spelled(error) from None
    return Report({each.job.name: Written(each) for each in made}, page)


@suggesting
def plan(file: Path, *, period: str | None = None) -> Costs:
    """What a report costs, in each run and in all, and what it will show, before anything is spent.

    Guarantee: it costs nothing, as it reads the file and its ledger alone, and no row.

        headcount.plan("report.yaml").to_pandas()

    Parameters:
        file: the report, a file of YAML.
        period: what stands for {period} in it, such as "2026-W46" (default: None, an example).

    The result has `rows`, the epsilon and delta of each release, `table` and `to_pandas()` of them, and `told`, all that the
    command prints with --json: what each run costs, what all runs cost, and whether that fits into the ledger's limit.
    """
    from headcount.keywords import namespace, spelled
    from headcount.mechanisms.errors import HeadcountError
    from headcount.pipelines.commands.report import plan as command

    try:
        args = namespace(command.COMMAND, {"file": file, "period": period})
        return command.costs(args.file, args.period)
    except HeadcountError as error:
        raise spelled(error) from None
