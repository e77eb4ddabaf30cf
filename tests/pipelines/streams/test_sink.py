"""`WriteWindows` in a pipeline of one's own: a folder for each public window, once."""

import json

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.pipelines.streams.sink import WriteWindows
from headcount.transforms import Budget, Histogram, Windows
from tests.fixed_key import write_fixed_key

WINDOWS = Windows("2026-11-18T06:00", 3600, 3)
FOLDERS = ["2026-11-18T060000Z", "2026-11-18T070000Z", "2026-11-18T080000Z"]


def write(folder, release, users, decides):
    """Rows of the first and the last window, beside one beyond."""
    given = {"method": "one-stage"} | ({} if decides else {"bound": 2})
    histogram = Histogram(Budget(5, 1e-3), **given, release=release, output_files=1, shards=2)
    rows = [
        TimestampedValue((f"u{user}", "tea"), start + user % 60)
        for start in (WINDOWS.start, WINDOWS.start + 7200, WINDOWS.last)
        for user in range(users)
    ]
    with beam.Pipeline("FnApiRunner") as pipeline:
        made = (
            pipeline
            | beam.Create(rows, reshuffle=False).with_output_types(tuple[str, str])
            | beam.WindowInto(FixedWindows(3600))
            | "Histogram" >> (histogram.with_decision() if decides else histogram)
        )
        counts, decision = (made.counts, made.decision) if decides else (made, None)
        what = (str(folder), release, histogram.guarantee(), "histogram", {"of": "users"})
        _ = counts | WriteWindows(*what, decision=decision, format="csv")


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("decides", [False, True])
def test_each_window_has_its_folder_once(tmp_path, run, decides):
    write_fixed_key(tmp_path / "key")
    release = Release(KeyFile(tmp_path / "key"), "s", windows=WINDOWS)
    write(tmp_path / "out", release, 300, decides)
    found = files(tmp_path / "out")
    assert list(found) == [
        f"{name}/{file}" for name in FOLDERS for file in ("counts-00000-of-00001.csv", "report.json")
    ]
    reports = [json.loads(found[f"{name}/report.json"]) for name in FOLDERS]
    assert [report["rows"] for report in reports] == [1, 0, 1], "a window without users is there, too"
    assert [report["release_id"] for report in reports] == [f"s.20261118T{hour}0000Z" for hour in ("07", "08", "09")]
    assert [report["period"] for report in reports] == FOLDERS and all(report["date"] for report in reports)
    assert all(("decision" in report) == decides for report in reports)
    for name in FOLDERS:
        status, out, _ = run("verify", tmp_path / "out" / name)
        assert (status, out.split(":")[0]) == (0, "complete and unchanged")
    write(tmp_path / "out", release, 500, decides)
    assert files(tmp_path / "out") == found, "a second result is thrown away, though it differs"


def test_what_is_wrong_is_refused(tmp_path):
    write_fixed_key(tmp_path / "key")
    plain, windowed = (Release(KeyFile(tmp_path / "key"), "s", windows=each) for each in (None, WINDOWS))
    promise = Histogram(Budget(5, 1e-3), method="one-stage", bound=2).guarantee()
    with pytest.raises(ParameterError, match="the release has no windows"):
        WriteWindows("out", plain, promise, "histogram", {"of": "users"})
    with pytest.raises(ParameterError, match="says what is counted"):
        WriteWindows("out", windowed, promise, "histogram")
    with pytest.raises(ParameterError, match="--output of a stream is a folder"):
        WriteWindows("bigquery://p.d.t", windowed, promise, "total")
