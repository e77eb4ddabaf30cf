"""A driver that is killed (-9) leaves no output or the whole one, never a part; and the next job clears up after it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fixed_key import write_fixed_key

DYING = Path(__file__).with_name("dying.py")
FILES = ["counts-00000-of-00002.csv", "counts-00001-of-00002.csv", "report.html", "report.json"]


class Driver:
    """Jobs of one input and one output directory, in processes that can be killed."""

    def __init__(self, directory: Path) -> None:
        random = np.random.default_rng(3)
        rows = [f"u{u},i{i}\n" for u, i in zip(random.integers(0, 400, 4000), random.integers(0, 9, 4000), strict=True)]
        (directory / "events.csv").write_text("user,item\n" + "".join(rows))
        write_fixed_key(directory / "key")
        self.around = directory / "around"
        self.around.mkdir()
        self.out = self.around / "out"
        self._words = ["histogram", "--input", directory / "events.csv", "--user", "user", "--item", "item"]
        self._words += ["--epsilon", 1, "--delta", 1e-6]
        self._words += ["--method", "one-stage", "--bound", 5]  # the job of the fewest steps
        self._words += ["--format", "csv", "--output-files", 2]
        self._words += ["--key-file", directory / "key", "--output", self.out]
        self._process = subprocess.Popen(
            [sys.executable, DYING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, id, *words, change=None, seconds=None, database=False):
        """How a job ended: its status, or less than nothing if it was killed."""
        words = [str(word) for word in (*self._words, "--release-id", id, *words)]
        request = {"words": words, "under": str(self.out), "change": change, "seconds": seconds, "database": database}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def files(self):
        """The output, if it is one: None without report.json."""
        if not (self.out / "report.json").exists():
            return None
        return {path.name: path.read_bytes() for path in sorted(self.out.iterdir())}

    def put(self, files):
        """Begin with this output, or with none, and nothing beside it."""
        shutil.rmtree(self.around)
        self.around.mkdir()
        if files is not None:
            self.out.mkdir()
            for name, content in files.items():
                (self.out / name).write_bytes(content)

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(60) == 0


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with contextlib.closing(Driver(tmp_path_factory.mktemp("killed"))) as made:
        yield made


@pytest.fixture(scope="module")
def outputs(driver):
    """What a release makes if nobody kills it, for two releases of different rows."""
    found = {}
    for id in ("old", "new"):
        driver.put(None)
        assert driver.run(id) == 0
        found[id] = driver.files()
        assert list(found[id]) == FILES
    assert found["old"] != found["new"]
    return found


def without_page(files):
    """An output that is complete, and whose page is not made yet."""
    return {name: content for name, content in files.items() if name != "report.html"}


def is_whole(files, outputs):
    """Whether this is the old output, the new one or none; an output may lack its page, and never has another one's."""
    return files in (*outputs.values(), *map(without_page, outputs.values()), None)


def check_and_run_again(driver, outputs):
    """After a kill: the old output, the new one or none; the next job makes the new one, and nothing else is left."""
    assert is_whole(driver.files(), outputs)
    overwrite = [] if driver.files() is None else ["--overwrite"]
    assert driver.run("new", *overwrite) == 0
    assert driver.files() == outputs["new"]
    assert os.listdir(driver.around) == ["out"]


@pytest.mark.slow("kills")
def test_killed_before_any_change_of_a_file(driver, outputs):
    """Before the n-th change that it makes to files, for every n until it gets through; an old output is to be replaced."""
    seen = []
    for change in range(1, 60):
        driver.put(outputs["old"])
        status = driver.run("new", "--overwrite", change=change)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        seen.append(driver.files())
        check_and_run_again(driver, outputs)
    assert status == 0 and driver.files() == outputs["new"]
    # It did die before, in the middle of, and after the commit.
    states = (outputs["old"], without_page(outputs["old"]), None, without_page(outputs["new"]), outputs["new"])
    assert all(state in seen for state in states)


@pytest.mark.slow("kills")
def test_killed_at_any_moment(driver, outputs):
    """At moments that are spread over the life of a job, a little beyond its end; each finds what the one before left."""
    driver.put(None)
    start = time.monotonic()
    assert driver.run("old") == 0
    life = time.monotonic() - start
    for moment in (np.arange(8) + np.random.default_rng(5).random(8)) / 7:
        assert driver.run("new", "--overwrite", seconds=moment * life) in (0, -signal.SIGKILL)
        assert is_whole(driver.files(), outputs)
    check_and_run_again(driver, outputs)
