"""`WriteWindows`: the results of windows as the last steps of a pipeline, a folder of files and report for each window."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.counting.input_digest import NOTHING, InputDigest, add_up
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.reports.report import About, decided_report, make_report
from headcount.pipelines.sinks.output import Written, write_file
from headcount.pipelines.streams import folders
from headcount.pipelines.streams.folders import Folders, Staged
from headcount.transforms.core.windows import in_window, window_keys

_LOG = logging.getLogger(__name__)
_FILE, _REPORT, _SUM = range(3)  # what a part of a window's output is
Part = tuple[int, tuple[int, int, str, bytes, str]]  # (0, (what it is, number, name or text, digest, summary))


class WriteWindows(beam.PTransform):
    """Write the results of each public window of a release to a folder of its own, with its report: rows as files, as a job
    of the window's rows alone writes them. A window is published once, and what comes for it later is thrown away.

    The input are (k, rows) for k in 0..files-1 in every window, as transforms with `output_files` give them. Of a transform
    `with_decision()` they are its `counts`, and its `decision` goes into the reports.

        histogram = Histogram(budget, method="one-stage", bound=5, release=release, output_files=1)
        rows | histogram | WriteWindows("releases/", release, histogram.guarantee(), "histogram", {"of": "users"})

    `command` and `parameters` are what the reports say of it: of a histogram at least what it is `of`.
    No ledger is told: only a process that waits can do that, as `headcount stream` does.
    """

    def __init__(
        self,
        output_folder: str,
        release: Release,
        guarantee: Guarantee,
        command: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        decision: beam.PCollection | None = None,
        files: int = 1,
        format: str = "parquet",
    ) -> None:
        super().__init__()
        if release.windows is None:
            raise ParameterError("the release has no windows: give Release(key, id, windows=Windows(...))")
        if command == "histogram" and "of" not in (parameters or {}):
            raise ParameterError(
                'a report of a histogram says what is counted: give parameters={"of": "users"} or "events"'
            )
        prefix = {"partitions": "items", "total": "totals"}.get(command, "counts")
        target = folders.make_target(output_folder, release.id, files, format, False, prefix, None)
        about = About(command, release.id, parameters or {})
        self._parts = WindowParts(Folders(target, release.windows), about, guarantee, decision, aside=False)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return rows | self._parts


class WindowParts(beam.PTransform):
    """The same for the process of a stream, which publishes what is left `aside` for it.

    Windows that are `published` already are passed over. With `sums` of the input of each window (`SumsOfInput`), the reports
    hold its digest.
    """

    def __init__(
        self,
        places: Folders,
        about: About,
        guarantee: Guarantee,
        decision: beam.PCollection | None,
        *,
        aside: bool,
        published: frozenset[int] = frozenset(),
        sums: beam.PCollection | None = None,
        release: Release | None = None,
    ) -> None:
        super().__init__()
        self._places, self._about, self._guarantee, self._decision = places, about, guarantee, decision
        self._aside, self._published, self._sums, self._release = aside, published, sums, release

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        parts = [rows | "Write" >> beam.ParDo(_Write(self._places, self._published))]
        if self._decision is not None:
            parts.append(self._decision | "Report" >> beam.ParDo(_Report(self._places, self._about)))
        if self._sums is not None:
            parts.append(self._sums)
        # All by one shuffle, and nothing by a side input: runners hold windows for those.
        together = (parts | "Parts" >> beam.Flatten()) if len(parts) > 1 else parts[0]
        report = (self._about, self._guarantee) if self._decision is None else None
        digest = self._release if self._sums is not None else None
        return (
            together
            | "Gather" >> beam.GroupByKey()
            | "Finish" >> beam.ParDo(_Finish(self._places, report, digest, self._aside, self._published))
        )


class SumsOfInput(beam.PTransform):
    """Batches of rows in windows -> parts of the windows' outputs, by which their reports get the digests of their input."""

    def __init__(self, release: Release) -> None:
        super().__init__()
        self._release = release

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | "Sums" >> beam.ParDo(_Sums(self._release))


def _end(window: BoundedWindow) -> int:
    return int(window.end)


@beam.typehints.with_output_types(Part)
class _Write(beam.DoFn):
    def __init__(self, places: Folders, published: frozenset[int]) -> None:
        self._places, self._published = places, published

    def process(
        self, file: tuple[int, pa.RecordBatch], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[Part]:
        if _end(window) not in self._published:
            written = write_file(self._places.of(_end(window)), *file)
            yield 0, (_FILE, written.k, written.name, written.digest, written.summary)


@beam.typehints.with_output_types(Part)
class _Report(beam.DoFn):
    def __init__(self, places: Folders, about: About) -> None:
        self._places, self._about = places, about

    def process(self, decision: Any, window: BoundedWindow = beam.DoFn.WindowParam) -> Iterator[Part]:
        report = decided_report(decision, self._places.about(self._about, _end(window)))
        yield 0, (_REPORT, 0, report.decode(), b"", "")


@beam.typehints.with_output_types(Part)
class _Sums(beam.DoFn):
    def __init__(self, release: Release) -> None:
        self._release = release

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def start_bundle(self) -> None:
        self._sums: dict[BoundedWindow, bytes] = {}
        self._digests: dict[BoundedWindow, InputDigest] = {}

    def process(self, batch: pa.RecordBatch, window: BoundedWindow = beam.DoFn.WindowParam) -> None:
        if window not in self._sums:
            self._sums[window], self._digests[window] = NOTHING, InputDigest(*self._keys(window))
        self._sums[window] = add_up([self._sums[window], self._digests[window].of(batch)])

    def finish_bundle(self) -> Iterator[Any]:
        for window, found in self._sums.items():
            yield in_window((0, (_SUM, 0, "", found, "")), window)


class _Finish(beam.DoFn):
    def __init__(
        self,
        places: Folders,
        report: tuple[About, Guarantee] | None,
        digest: Release | None,
        aside: bool,
        published: frozenset[int],
    ) -> None:
        self._places, self._report, self._digest = places, report, digest
        self._aside, self._published = aside, published

    def process(
        self,
        parts: tuple[int, Iterable[tuple[int, int, str, bytes, str]]],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> None:
        end = _end(window)
        if end in self._published:
            return
        found = list(parts[1])
        target = self._places.of(end)
        files = target.checked(Written(*part[1:]) for part in found if part[0] == _FILE)
        report = folders.with_input_digest(self._report_of(found, end), self._digest_of(found, window))
        if self._aside:
            folders.stage(target, Staged(report, tuple(files)))
        elif not folders.publish_at_once(target, report, files, datetime.datetime.now(datetime.UTC).date().isoformat()):
            _LOG.warning("window %s was published before, and stays as it is", self._places.name(end))

    def _report_of(self, parts: list[tuple[int, int, str, bytes, str]], end: int) -> bytes:
        if self._report is not None:
            about, guarantee = self._report
            return make_report(self._places.about(about, end), guarantee)
        (text,) = [part[2] for part in parts if part[0] == _REPORT]
        return text.encode()

    def _digest_of(self, parts: list[tuple[int, int, str, bytes, str]], window: BoundedWindow) -> str | None:
        if self._digest is None:
            return None
        digest = InputDigest(*window_keys(self._digest)(window))
        return digest.whole([NOTHING, *(part[3] for part in parts if part[0] == _SUM)])
