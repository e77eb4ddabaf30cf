"""`headcount show --html`: the page of an output again, whatever became of the one that its job made."""

from __future__ import annotations

import hashlib
import os
import sys
import webbrowser

import pytest

import headcount
from headcount.pipelines.pages import release
from headcount.pipelines.sinks import output
from headcount.pipelines.storage import stores
from tests.pipelines.refusals import refused

EVENTS = {"user": [f"u{k % 500}" for k in range(4000)], "page": [f"p{k % 30}" for k in range(4000)]}
GIVEN = {"user": "user", "item": "page", "epsilon": 5, "delta": 1e-5}


@pytest.fixture(scope="module")
def result():
    return headcount.histogram(EVENTS, **GIVEN)


@pytest.fixture
def out(result, tmp_path):
    result.save(tmp_path / "out")
    return tmp_path / "out"


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_page_is_written_again_to_the_same_bytes(run, out):
    before = digests(out)
    assert run("show", out, "--html") == (0, f"to look at: {out / 'report.html'}\n", [])
    assert digests(out) == before and os.listdir(out.parent) == ["out"]
    (out / "report.html").unlink()
    assert run("verify", out)[0] == 0, "an output is complete without it"
    assert run("show", f"{out}/", "--html")[0] == 0 and digests(out) == before
    assert run("verify", out)[0] == 0


def test_a_page_is_the_same_whatever_the_format(result, run, tmp_path):
    """But for the names of the files and their digests."""
    pages = []
    for format in ("parquet", "avro", "csv", "jsonl"):
        result.save(tmp_path / format, format=format, output_files=2)
        text = (tmp_path / format / "report.html").read_text()
        pages.append(text[: text.index("For those who check")])
    assert len(set(pages)) == 1


def test_a_page_of_another_release_never_stays(result, out, monkeypatch):
    """An old page goes with its report, also where nobody makes a new one, and where a listing lags behind."""
    headcount.histogram(EVENTS, **GIVEN, label="another").save(out, overwrite=True)
    assert "another" in (out / "report.html").read_text()
    target, listed = result._target(str(out), "parquet", True, 1), stores.names
    monkeypatch.setattr(stores, "names", lambda place: [name for name in listed(place) if name != "report.html"])
    written = [output.write_file(target, k, rows) for k, rows in enumerate(result._released.files(1))]
    output.commit(target, written, result._finished(target, written))
    assert sorted(os.listdir(out)) == ["counts-00000-of-00001.parquet", "report.json"]


def test_a_foreign_page_is_never_touched(result, tmp_path):
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(headcount.ParameterError, match=r"holds other files \('report.html'\)"):
        result.save(tmp_path, overwrite=True)
    assert (tmp_path / "report.html").read_text() == "mine"


def test_a_page_that_cannot_be_made_takes_nothing_with_it(result, tmp_path, monkeypatch, capsys):
    def failed(outcome):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(release, "release_page", failed)
    result.save(tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["counts-00000-of-00001.parquet", "report.json"]
    line = "headcount: report.html was not made, all else is there: ZeroDivisionError: by nothing\n"
    assert capsys.readouterr() == ("", line)
    monkeypatch.undo()
    real = stores.move

    def refusing(source, target):
        if target.endswith(".html"):
            raise PermissionError(13, "Permission denied")
        real(source, target)

    monkeypatch.setattr(stores, "move", refusing)
    result.save(tmp_path / "out", overwrite=True)
    assert "Permission denied" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path / "out")) == ["counts-00000-of-00001.parquet", "report.json"]
    assert os.listdir(tmp_path) == ["out"], "and leaves nothing beside"


def test_what_is_refused(run, out, monkeypatch):
    refused(run("show", out, "--html", "--rows", "3"), "--rows 3 is for the terminal")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(stores, "write", full)
        refused(run("show", out, "--html"), "cannot write report.html", "No space left on device")
    (out / "counts-00000-of-00001.parquet").unlink()
    refused(run("show", out, "--html"), "cannot read", "headcount verify")


def test_a_browser_is_opened_for_whoever_sits_there(run, out, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    run("show", out, "--html")
    assert opened == [], "what is printed goes to another program"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    run("show", out, "--html")
    assert opened == [(out / "report.html").as_uri()]
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    run("show", out, "--html")
    assert len(opened) == 1
