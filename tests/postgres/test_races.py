"""Whatever races or dies, on both databases: no limit is exceeded, nothing is published without an entry, none is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import COMMITTED, PUBLISHING, RESERVED, SPENT, make_dataset
from headcount.pipelines.main import main
from tests.pipelines.jobs.test_killed import Driver

RACING = Path(__file__).with_name("racing.py")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Where a new ledger may be made, on each database."""
    return f"sqlite:///{tmp_path}/ledger.db" if request.param == "sqlite" else request.getfixturevalue("database")


def test_many_processes_race_for_a_limit(url, tmp_path):
    """200 releases of epsilon 0.1 for a limit of 2: exactly 20 of them are made."""
    ledger = open_ledger(url)
    for name in ("visits", "warm"):
        ledger.create(make_dataset(name, "user", "add-remove", 2.0, 0.0, None))
    words = [sys.executable, RACING, url, tmp_path / "out", 200]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert json.loads(done.stdout) == {"0": 20, "2": 180}, done.stderr
    reports = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*/report.json")]
    entries = ledger.entries("visits")
    assert len(entries) == len(reports) == 20 and {entry.state for entry in entries} == {COMMITTED}
    assert {entry.request.release_id for entry in entries} == {report["release_id"] for report in reports}


def rows(files):
    """The files of an output that hold its rows, if it is one; the page comes after the report, or not at all."""
    return None if files is None else {name: content for name, content in files.items() if name.endswith(".csv")}


class Killed:
    """Jobs on an account with room for one release, killed at some step, with one input and one output."""

    def __init__(self, driver: Driver, url: str) -> None:
        self._driver, self._url = driver, url
        self.ledger = open_ledger(url)

    def run(self, name, *words, change=None):
        flags = ["--ledger", self._url, "--dataset", name, *words]
        return self._driver.run("id-" + name, *flags, change=change, database=True)

    def entries(self, name):
        return self.ledger.entries(name)

    def resolve(self, name):
        assert main(["ledger", "resolve", name, "--ledger", self._url]) == 0


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with contextlib.closing(Driver(tmp_path_factory.mktemp("ledger"))) as made:
        yield made


def test_killed_at_every_step(url, driver):
    """Before each statement and commit of the ledger and each change of files, until a job gets through.

    Its entry is there before any file is, and tells in the end what is there: by `resolve`, or, every other time, by the next
    attempt, for which there is room though the limit has room for one. One that was about to be published, and is not there,
    stays spent, and the next attempt writes it at no further cost.
    """
    killed, seen = Killed(driver, url), set()
    for change in range(1, 90):
        name = f"d{change}"
        killed.ledger.create(make_dataset(name, "user", "add-remove", 1.0, 1e-6, None))
        driver.put(None)
        status = killed.run(name, change=change)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        entries, files = killed.entries(name), driver.files()
        assert len(entries) <= 1 and all(entry.state in SPENT for entry in entries)
        if entries or driver.out.exists() or os.listdir(driver.around):
            seen.add((entries[0].state if entries else None, files is not None))
        assert files is None or len(entries) == 1
        if change % 2:
            killed.resolve(name)
            (state,) = [entry.state for entry in killed.entries(name)] or [None]
            assert state != RESERVED and (state == COMMITTED) == (files is not None)
            assert files == driver.files()
            if state != PUBLISHING:
                assert files is not None or not driver.out.exists() or not os.listdir(driver.out)
                continue
        assert killed.run(name, *([] if files is None else ["--overwrite"])) == 0
        (entry,) = [entry for entry in killed.entries(name) if entry.state in SPENT]
        assert entry.state == COMMITTED and rows(driver.files()) == (rows(files) or rows(driver.files()))
        assert not entries or entries[0].state == RESERVED or entry.id == entries[0].id
    assert status == 0 and change > 20
    # It did die with nothing, with an entry alone, while and after it published, and after the commit of both.
    assert {(RESERVED, False), (PUBLISHING, False), (PUBLISHING, True), (COMMITTED, True)} <= seen
    assert (RESERVED, True) not in seen
