"""`headcount series` and `headcount diff` on released files: what they read, refuse, print and write."""

from __future__ import annotations

import csv
import json

import pytest

import headcount
from headcount.pipelines.sinks.finished import sealed
from tests.fixed_key import write_fixed_key
from tests.pipelines.refusals import refused

EVENTS = {
    "user": [k // 2 for k in range(4000)],
    "page": [f"p{k % 5}" for k in range(4000)],
    "day": [f"2026-11-0{1 + k % 3}" for k in range(4000)],
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A folder with releases of three weeks, and others beside them."""
    place = tmp_path_factory.mktemp("reports")
    write_fixed_key(place / "key")
    shared = {"user": "user", "epsilon": 1, "delta": 1e-6, "key_file": str(place / "key")}
    for week in ("2026-W44", "2026-W45", "2026-W46"):
        made = headcount.histogram(EVENTS, item="page", release_id=week, **shared)
        made.save(place / week / "pages", format={"2026-W45": "csv"}.get(week, "parquet"))
    headcount.histogram(EVENTS, item="day", release_id="d", **shared).save(place / "days")
    headcount.histogram(EVENTS, item="page", where="day != '2026-11-01'", release_id="w", **shared).save(
        place / "where"
    )
    headcount.top(EVENTS, item="page", k=2, release_id="t", **shared).save(place / "top")
    headcount.total(EVENTS, user="user", epsilon=1, release_id="t2", key_file=shared["key_file"]).save(place / "total")
    return place


def weeks(reports):
    return sorted(reports.glob("2026-*/pages"))


def test_a_series_of_files(run, reports, tmp_path):
    status, out, err = run("series", *weeks(reports), "--output", tmp_path / "series")
    assert status == 0, err
    assert out.startswith("counts of users by page: 3 releases, 2026-W44 to 2026-W46, of 5 rows\n")
    assert "of 15 that were tested" in out and "tested are all releases that follow each other" in out
    assert out.endswith(f"wrote {tmp_path}/series/changes.html\n")
    rows = list(csv.DictReader((tmp_path / "series" / "rows.csv").open()))
    assert len(rows) == 15 and rows[0].keys() == {"page", "number", "release", "value", "low", "high"}
    changes = list(csv.DictReader((tmp_path / "series" / "changes.csv").open()))
    assert len(changes) == 15 and {row["verdict"] for row in changes} == {"within the noise"}
    refused(run("series", *weeks(reports), "--output", tmp_path / "series"), "has a changes.csv already")
    pattern = reports / "2026-*" / "pages"
    assert run("series", pattern, "--output", tmp_path / "series", "--overwrite")[1] == out
    refused(run("series", reports / "2027-*"), "no folder matches")


def test_a_diff_of_files_is_that_of_calls(run, reports):
    before, after = weeks(reports)[:2]
    status, out, _ = run("diff", before, after)
    assert status == 0 and out == f"{headcount.diff(before, str(after))}\n"
    assert sum(line.endswith("within the noise") for line in out.splitlines()) == 5
    status, out, _ = run("diff", before, after, "--json", "--false-alarms", "0.01")
    told = json.loads(out)
    assert status == 0 and told["false_alarms"] == 0.01 and told["tested"] == 5
    assert [release["name"] for release in told["releases"]] == ["2026-W44", "2026-W45"]


def test_what_is_not_of_one_kind_is_refused(run, reports):
    first = weeks(reports)[0]
    refused(
        run("diff", first, reports / "days"), "not of one kind", "the key is page in the first and day in the second"
    )
    refused(run("diff", first, reports / "total"), "the command is histogram in the first and total in the second")
    refused(run("diff", reports / "top", first), "headcount top", "no intervals for a test")
    refused(run("series", first, *weeks(reports)), "have one release id")
    refused(run("series", first), "two releases or more are needed to see a change, got 1")
    refused(run("diff", first, reports), "is no complete output")
    refused(run("diff", first, weeks(reports)[1], "--metric", "users"), "--metric must be one of count, got 'users'")
    for rate in ("0", "0.6", "-1"):
        refused(run("diff", first, weeks(reports)[1], "--false-alarms", rate), "--false-alarms must be")


def test_other_rows_of_one_log_may_be_put_side_by_side_and_it_is_told(run, reports):
    status, out, _ = run("diff", weeks(reports)[0], reports / "where")
    assert status == 0 and "releases differ: --where is not given, day != 2026-11-01" in out
    assert out.startswith("counts of users by page: 2 releases")


def test_calls_refuse_by_keyword(reports):
    with pytest.raises(headcount.ParameterError, match="releases must be several folders or results"):
        headcount.series(str(weeks(reports)[0]))
    with pytest.raises(headcount.ParameterError, match="^false_alarms must be above 0"):
        headcount.series([*map(str, weeks(reports))], false_alarms=0.7)
    with pytest.raises(TypeError, match="did you mean 'false_alarms'"):
        headcount.series([], false_alarm=0.1)


def test_changed_files_are_refused(run, reports, tmp_path):
    first, second = weeks(reports)[0], tmp_path / "changed"
    made = headcount.histogram(EVENTS, user="user", item="page", epsilon=1, delta=1e-6)
    made.save(second)
    report = json.loads((second / "report.json").read_text())
    (second / "report.json").write_text(json.dumps(report | {"period": "other"}))
    refused(run("diff", first, second), "changed: report.json is not as its job wrote it")
    made.save(second, overwrite=True)
    (data,) = second.glob("counts-*")
    data.write_bytes(data.read_bytes() + b" ")
    refused(run("diff", first, second), "changed: ", "has the SHA-256 digest")


@pytest.mark.parametrize(
    "part", [{"details": []}, {"details": {"chosen": [1]}}, {"details": {"guarantee": 7}}, {"columns": {}}]
)
def test_a_report_that_anybody_wrote_is_refused_in_one_line(run, reports, tmp_path, part):
    first, second = weeks(reports)[0], tmp_path / "odd"
    headcount.histogram(EVENTS, user="user", item="page", epsilon=1, delta=1e-6).save(second)
    report = json.loads((second / "report.json").read_text())
    (second / "report.json").write_bytes(sealed(report | part))
    refused(run("diff", second, first), "report" if part != {"columns": {}} else "columns")


def test_what_was_called_compare(run):
    refused(run("compare", "a", "b"), "did you mean rehearse (methods on your data) or diff (two releases)?")
