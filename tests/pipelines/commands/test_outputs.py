"""`headcount show` and `headcount verify`: an output again, as its job told it, and whether it is still the same."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines.commands.outputs.complete import read_complete
from headcount.pipelines.commands.outputs.show import describe
from headcount.pipelines.commands.shape.release import plot
from headcount.pipelines.flags.groups import FORMATS
from headcount.pipelines.sinks.finished import SHOWN, sealed
from tests.fixed_key import write_fixed_key
from tests.pipelines.refusals import refused

HOURS = [datetime.datetime(2026, 11, 1, hour, tzinfo=datetime.UTC) for hour in range(24)]
EVENTS = {
    "user": [f"u{k % 500}" for k in range(4000)],
    "the.page": [f"p{k % 30}" for k in range(4000)],  # a name that Avro has not
    "code": [k % 12 for k in range(4000)],
    "new": [k % 60 < 30 for k in range(4000)],
    "at": [HOURS[k % 24] for k in range(4000)],
}
GIVEN = {"user": "user", "epsilon": 5, "delta": 1e-5}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """120 items of some 33 events each; nearly all of them come out."""
    key, item = tmp_path_factory.mktemp("key") / "key", ["the.page", "code", "new", "at:hour"]
    write_fixed_key(key)
    release = {"key_file": key, "release_id": "r1"}
    return headcount.histogram(EVENTS, item=item, **GIVEN, **release, label="visits", period="2030-01")


@pytest.fixture
def out(result, tmp_path):
    """An output of two files."""
    result.save(tmp_path / "out", format="csv", output_files=2)
    return tmp_path / "out"


def bare(text):
    """What is shown, without bars."""
    return re.sub(r"  #+$", "", text, flags=re.MULTILINE)


def changed(out, **parts):
    """Puts other parts into the report of an output."""
    report = json.loads((out / "report.json").read_text())
    (out / "report.json").write_text(json.dumps(report | parts))
    return out


@pytest.mark.parametrize("format", FORMATS)
def test_a_release_is_shown_again(result, run, tmp_path, format):
    result.save(tmp_path / "out", format=format, output_files=3)
    status, text, err = run("show", tmp_path / "out")
    assert (status, err) == (0, [])
    head, *said, promise = text.rstrip("\n").split("\n\n")
    assert head.splitlines()[0].endswith(f" of headcount histogram in {tmp_path / 'out'}")
    today = datetime.datetime.now(datetime.UTC).date()
    assert head.splitlines()[1:3] == ["label: visits", "period: 2030-01"]
    assert head.splitlines()[3:] in ([f"date: {day}"] for day in (today, today - datetime.timedelta(days=1)))
    assert bare("\n\n".join(said)) == repr(result), "as the job told it"
    bars = re.findall(r"  (#+)$", text, re.MULTILINE)
    counts = [row["count"] for row in result.report["shown"]]
    assert [len(bar) for bar in bars] == [max(1, round(24 * count / counts[0])) for count in counts]
    assert promise == result.report["promise"]


@pytest.mark.parametrize("format", FORMATS)
def test_more_rows_are_listed_in_the_order_of_the_report(result, tmp_path, format):
    """Whatever the format: the first rows are those of the report, to the letter, and all rows are there."""
    result.save(tmp_path / "out", format=format, output_files=3)
    found, number = read_complete(str(tmp_path / "out")), result.table.num_rows
    assert number > SHOWN + 1
    assert describe(found, SHOWN) == describe(found)
    more = describe(found, SHOWN + 1)
    assert f"{number:,} items came out; the {SHOWN + 1} largest, with 95 % intervals:" in more
    every, first = describe(found, 10**6), describe(found).splitlines()
    assert f"{number:,} items came out, with 95 % intervals:" in every
    lines = every.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("  the.page"))
    assert [line.split() for line in lines[at : at + SHOWN]] == [line.split() for line in first[at : at + SHOWN]]
    assert len([line for line in lines if line.startswith("  p")]) == number


def test_a_job_says_what_is_shown(run, tmp_path):
    pq.write_table(pa.table({"user": EVENTS["user"], "page": EVENTS["the.page"]}), tmp_path / "events.parquet")
    flags = ["--input", tmp_path / "events.parquet", "--user", "user", "--item", "page", "--epsilon", "1"]
    write_fixed_key(tmp_path / "key")
    flags += ["--key-file", tmp_path / "key", "--release-id", "r1"]
    status, told, _ = run("sampled", *flags, "--delta", "1e-5", "--output", tmp_path / "out")
    shown = run("show", tmp_path / "out")
    assert status == shown[0] == 0
    said, _, where = told.partition(f"wrote {tmp_path / 'out'}")
    assert said in bare(shown[1]) and "to look at: " in where
    first, last = said.splitlines()[0], said.splitlines()[-1]
    assert first.startswith("counts of users by page: ") and " items came out" in first
    assert last.startswith("chosen: "), "what was chosen comes last"


def test_a_release_that_is_written_again_keeps_its_date(run, tmp_path):
    """A year later, as far as the output tells: all bytes are as they were. Another release is of its own day."""
    write_fixed_key(tmp_path / "key")
    pq.write_table(pa.table({"user": EVENTS["user"], "page": EVENTS["the.page"]}), tmp_path / "events.parquet")
    words = [
        "--input",
        tmp_path / "events.parquet",
        "--user",
        "user",
        "--item",
        "page",
        "--epsilon",
        1,
        "--delta",
        1e-5,
    ]
    words = ["partitions", *words, "--key-file", tmp_path / "key", "--output", tmp_path / "out"]
    assert run(*words, "--release-id", "r1")[0] == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (tmp_path / "out" / "report.json").write_bytes(sealed(report | {"date": "2020-02-29"}))
    assert run("show", tmp_path / "out", "--html")[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert b"2020-02-29" in before["report.json"] and b"2020-02-29" in before["report.html"]
    assert run(*words, "--release-id", "r1", "--overwrite")[0] == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert run(*words, "--release-id", "r2", "--overwrite")[0] == 0
    assert json.loads((tmp_path / "out" / "report.json").read_text())["date"] >= report["date"]


def test_what_draws_its_rows_does_so_again(run, tmp_path):
    shape = headcount.shape(EVENTS, user="user", item="the.page", epsilon=1, domain_size=100)
    shape.save(tmp_path / "shape")
    drawn = run("show", tmp_path / "shape")[1]
    assert "items by the number of their users" in drawn and plot(shape.report["details"]) in drawn
    assert run("show", tmp_path / "shape", "--rows", 3)[1] == drawn, "they are no list"
    pages = [f"p{k}" for k in range(30)]
    learnt = headcount.distribution(EVENTS, item="the.page", domain=pages, **GIVEN)
    learnt.save(tmp_path / "learnt", format="avro")
    assert repr(learnt).partition("\n")[2] in run("show", tmp_path / "learnt")[1]
    assert "the 3 largest" in run("show", tmp_path / "learnt", "--rows", 3)[1]


def test_a_terminal_obeys_no_report(run, out):
    status, text, _ = run("show", changed(out, label="a\x1b[31m", command="another"))
    assert status == 0 and "\x1b" not in text and "of headcount another" in text and "the 10 largest" in text


def test_a_changed_report_is_called_changed(run, out):
    """Whoever looks at it is told: in the terminal and on the page; without a digest of its own, that nothing is known."""
    mark = "changed: report.json is not as its job wrote it"
    assert mark not in run("show", out)[1]
    changed(out, rows=121)
    assert mark in run("show", out)[1]
    assert run("show", out, "--html")[0] == 0 and mark.capitalize() in (out / "report.html").read_text()
    (out / "report.html").unlink()
    report = json.loads((out / "report.json").read_text())
    del report["content_sha256"]
    (out / "report.json").write_text(json.dumps(report))
    for command in ("show", "verify"):
        assert "an earlier version of Headcount wrote it, or it was changed" in run(command, out)[1]
    assert "or it was changed" in run("statement", out)[2][0]


def test_an_unchanged_output(result, run, out):
    release = result.report["release_id"]
    line = f"complete and unchanged: 2 files, {result.table.num_rows:,} rows, release {release}\n"
    (out / "README.txt").write_text("a note beside")
    assert run("verify", f"{out}/") == (0, line, [])
    total = headcount.total(EVENTS, user="user", epsilon=1, delta=1e-5)
    total.save(out.parent / "total")
    assert run("verify", out.parent / "total")[1].startswith("complete and unchanged: 1 file, ")


def test_each_change_is_found(run, out):
    first, second = sorted(out.glob("*.csv"))
    content = second.read_bytes()
    for other in (content[:-1], content + b"\n", content.replace(b"1", b"2", 1), first.read_bytes(), b""):
        second.write_bytes(other)
        refused(run("verify", out), "changed: ", second.name)
    second.unlink()
    refused(run("verify", out), "incomplete: ", second.name, "is not there")
    refused(run("show", out, "--rows", "3"), "cannot read", "headcount verify")
    assert run("show", out)[0] == 0, "the report has all that it shows"
    second.write_bytes(content)
    beside = out / "counts-00002-of-00003.csv"
    beside.write_bytes(content)
    refused(run("verify", out), "not of this release: ", beside.name)
    beside.unlink()
    assert run("verify", out)[0] == 0


@pytest.mark.parametrize("command", ["show", "verify"])
def test_what_is_no_output_of_ours(run, out, tmp_path, command):
    refused(run(command, tmp_path / "none"), "none", "no complete output", "report.json")
    refused(run(command, out / "report.json"), "no complete output")
    refused(run(command, "bigquery://project.set.table"), "must be a folder", "description")
    refused(run(command), "missing OUT")
    for content in ("{}", "[]", "no JSON", '{"rows": 5}'):
        (tmp_path / "report.json").write_text(content)
        refused(run(command, tmp_path), "no output of Headcount", "report.json")


@pytest.mark.parametrize("command", ["show", "verify"])
@pytest.mark.parametrize(
    "parts",
    [
        {"files": 5},
        {"files": []},
        {"files": [{"name": "counts-00000-of-00001.csv"}]},
        {"files": [{"name": "../secret", "sha256": "0" * 64}]},
        {"rows": "5"},
        {"columns": None},
    ],
)
def test_a_report_that_no_job_wrote(run, out, command, parts):
    refused(run(command, changed(out, **parts)), "report.json", "not as a job wrote it")


@pytest.mark.parametrize("command", ["show", "verify"])
def test_nothing_of_beam_is_imported(out, command):
    code = (
        f"import sys; from headcount.pipelines.main import main; status = main([{command!r}, {str(out)!r}]); "
        "sys.exit(status or 'apache_beam' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_same_for_a_program(run, out):
    report = json.loads((out / "report.json").read_text())
    status, told, err = run("show", out, "--json")
    assert (status, err, json.loads(told)) == (0, [], {"report": report, "rows": report["shown"]})
    rows = json.loads(run("show", out, "--json", "--rows", 40)[1])["rows"]
    assert len(rows) == 40 and rows[: len(report["shown"])] == report["shown"]
    refused(run("show", out, "--json", "--html"), "--json is for the terminal")
