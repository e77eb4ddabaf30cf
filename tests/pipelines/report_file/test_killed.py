"""Runs of four releases that are killed (-9), or race: never an output without its entry, never beyond the limit."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import COMMITTED, SPENT, make_dataset
from tests.fixed_key import write_fixed_key
from tests.pipelines.jobs.test_killed import DYING

RACING = Path(__file__).with_name("racing.py")
NAMES = ("items", "all", "often", "way")
REPORT = """
data: {{input: {folder}/events.csv, user: user}}
key_file: {folder}/key
ledger: sqlite:///{folder}/ledger.db
dataset: visits
output: {folder}/out/{{period}}
defaults: {{epsilon: 0.1, format: csv}}
releases:
  items: {{command: histogram, item: item, domain: {folder}/domain.txt, method: one-stage, bound: 2}}
  all: {{command: total, of: users}}
  often: {{command: activity, bins: "1,2,3"}}
  way: {{command: funnel, time: at, step: [item=a, item=b]}}
"""


class Report:
    """A report of four releases on an account, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.out = folder, folder / "report.yaml", folder / "out"
        days = ((user, item, day) for user in range(60) for day, item in enumerate("abcd"[: 1 + user % 4], 1))
        rows = "".join(f"u{user},{item},2026-11-0{day}T00:00:00\n" for user, item, day in days)
        (folder / "events.csv").write_text("user,item,at\n" + rows)
        (folder / "domain.txt").write_text("a\nb\nc\n")
        write_fixed_key(folder / "key")
        self.path.write_text(REPORT.format(folder=folder))
        self.url = f"sqlite:///{folder}/ledger.db"

    def begin(self, limit: float) -> None:
        """With an account with this limit, and no output."""
        for path in self.folder.glob("ledger.db*"):
            path.unlink()
        shutil.rmtree(self.out, ignore_errors=True)
        open_ledger(self.url).create(make_dataset("visits", "user", "add-remove", limit, 0.0, None))

    def spent(self):
        """The entries that count."""
        return open_ledger(self.url).entries("visits", None, SPENT)

    def outputs(self) -> dict[str, dict[str, bytes]]:
        """The files of each complete output with its id, but for pages."""
        found = {}
        for path in self.out.glob("*/*/report.json"):
            files = {each.name: each.read_bytes() for each in path.parent.iterdir() if each.suffix == ".csv"}
            found[json.loads(path.read_text())["release_id"]] = files
        return found


class Driver:
    """Runs in processes that are killed before a step; see `dying`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._process = subprocess.Popen(
            [sys.executable, DYING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, change: int | None = None) -> int:
        """How a run ended."""
        words = ["run", str(self._report.path), "--period", "2026-W46"]
        request = {"words": words, "under": str(self._report.out), "change": change, "seconds": None, "database": True}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        assert self._process.wait(60) == 0


@pytest.mark.parametrize("step", [pytest.param(19, marks=pytest.mark.slow("kills")), 90])
def test_killed_at_steps_of_a_run(tmp_path, step):
    """Before each 19th or 90th statement and commit of the ledger and change of files, until it gets through. (Before every one
    takes an hour.)

    What is complete has its entry. The next run goes on, though the limit has room for one run: what was made costs nothing,
    and all bytes are those of a run that nobody killed.
    """
    report = Report(tmp_path)
    driver = Driver(report)
    report.begin(0.4)
    assert driver.run() == 0
    whole = report.outputs()
    assert len(whole) == len(NAMES)
    seen, change = set(), step

    def killed() -> bool:
        """Whether a run is killed before this change; if it is, the next one ends as if it had not been."""
        report.begin(0.4)
        status = driver.run(change)
        if status == 0:
            return False
        assert status == -signal.SIGKILL
        ids, outputs = [entry.request.release_id for entry in report.spent()], report.outputs()
        assert len({*ids}) == len(ids) <= len(NAMES) and {*outputs} <= {*ids}
        assert all(whole[id] == files for id, files in outputs.items())
        seen.add(len(outputs))
        assert driver.run() == 0
        assert report.outputs() == whole and (report.out / "2026-W46" / "index.html").exists()
        assert [entry.state for entry in report.spent()] == [COMMITTED] * len(NAMES)
        return True

    while killed():
        change += step
    while not killed():  # what follows the last release is a few changes
        change -= 5
    driver.close()
    assert report.outputs() == whole and change > 100
    assert seen == {0, 1, 2, 3, 4} if step == 19 else len(seen) > 1


@pytest.mark.parametrize("runs", [pytest.param(40, marks=pytest.mark.slow("races")), 3])
def test_runs_race_for_one_limit(tmp_path, runs):
    """Runs of different periods, all at once, for a limit of half of them: as many releases are made as it has room for."""
    report = Report(tmp_path)
    room = runs // 2 * len(NAMES)
    report.begin(round(room * 0.1, 1))
    words = [sys.executable, RACING, report.path, runs]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=os.environ)
    statuses = json.loads(done.stdout)
    assert {*statuses} <= {"0", "2"} and sum(statuses.values()) == runs and statuses["2"] >= runs - runs // 2, (
        done.stderr
    )
    entries, outputs = report.spent(), report.outputs()
    assert {entry.state for entry in entries} == {COMMITTED}
    assert {entry.request.release_id for entry in entries} == {*outputs} and len(entries) == len(outputs) == room
