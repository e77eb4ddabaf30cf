"""The scripts of the checks: what is run follows from what has changed, what it took is told, and installing needs no uv."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
RUN = runpy.run_path(str(TOP / ".ci" / "checks.py"))
# A server that its command leaves alone, as a cluster's are, and that works for a second of the processor.
MAKEFILE = """\
good:
	@({python} -c "import time; [0 for _ in iter(lambda: time.process_time() < 1, False)]" & echo $$! > server)
	@echo '{{"test": "tests/test_a.py::test_b", "seconds": 61.5, "rerun": "the runner died"}}' >> $$HEADCOUNT_CI_RECORD
	@echo $(EVERYTHING) > everything; while kill -0 `cat server` 2> /dev/null; do sleep 0.1; done
bad:
	@exit 3
never:
	@touch never
"""


@pytest.fixture(autouse=True)
def no_make_above(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `make` was told that runs these tests is not for those that they run."""
    monkeypatch.delenv("MAKEFLAGS", raising=False)


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., None]:
    """git(*words), in a tree of its own that has the scripts."""

    def call(*words: str) -> None:
        named = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True)

    shutil.copytree(TOP / ".ci", tmp_path / ".ci")
    (tmp_path / ".ci" / "everything").unlink(missing_ok=True)
    call("init")
    return call


def commit(git: Callable[..., None], *paths: Path) -> None:
    """One commit that changes these files."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("more\n")
    git("add", "--all")
    git("commit", "--allow-empty", "--message", "a commit")


def says(tree: Path, script: str, *words: str) -> str:
    return subprocess.run(
        [tree / ".ci" / script, *words], cwd=tree, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["docs/total.md", "README.md", "mkdocs.yml"], "docs"),
        ([".github/PULL_REQUEST_TEMPLATE.md"], "docs"),
        (["docs/total.md", "setup.py"], "some"),
        ([".github/workflows/checks.yml"], "some"),
        (["tests/docs/test_examples.py", "pipelines/commands/top.py"], "some"),
        (["docs/total.md", "requirements.txt"], "engines"),
        (["transforms/core/noise.py"], "engines"),
        (["pipelines/sinks/commit.py", "mechanisms/choice/run.py"], "engines"),
    ],
)
def test_what_a_change_needs_follows_from_its_files(tmp_path, git, paths, expected):
    commit(git)
    git("tag", "before")
    commit(git, *(tmp_path / path for path in paths))
    assert says(tmp_path, "changed", "before") == expected


def test_engines_are_run_until_everything_has_passed_on_their_trees(tmp_path, git):
    noise, record = tmp_path / "transforms" / "noise.py", tmp_path / ".ci" / "everything"
    commit(git, noise, tmp_path / "docs" / "a.md")
    assert says(tmp_path, "changed") == "engines", "nothing is recorded"
    record.write_text(says(tmp_path, "changed", "--now") + "\n")
    assert says(tmp_path, "changed") == "some"
    commit(git, tmp_path / "docs" / "a.md")
    assert says(tmp_path, "changed") == "some"
    noise.write_text("another")
    assert (says(tmp_path, "changed"), says(tmp_path, "changed", "--now")) == ("engines", ""), "not committed"
    commit(git)
    assert says(tmp_path, "changed") == "engines"
    record.write_text(says(tmp_path, "changed", "--now") + "\n")
    commit(git, tmp_path / "mechanisms" / "counting" / "new.py")
    assert says(tmp_path, "changed") == "engines", "a room that was not there"


def test_every_room_that_decides_is_there():
    listed = (TOP / ".ci" / "changed").read_text().partition("engines=(")[2].partition("\n)")[0]
    words = subprocess.run(["bash", "-c", f"echo {' '.join(listed.split())}"], capture_output=True, text=True).stdout
    assert len(words.split()) > 10 and all((TOP / word).exists() for word in words.split())


@pytest.mark.seconds
def test_what_the_checks_took_is_told_even_if_they_fail(tmp_path, git):
    (tmp_path / "Makefile").write_text(MAKEFILE.format(python=sys.executable))
    commit(git)
    words = ["bash", tmp_path / ".ci" / "run", "good", "bad", "never"]  # by its name, or given to a shell
    done = subprocess.run(words, capture_output=True, text=True)
    told = done.stdout.partition("\nSeconds of this run (engines):\n")[2].splitlines()
    assert done.returncode == 1 and not (tmp_path / "never").exists(), done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in told[1:3]}
    assert rows.keys() == {"good", "bad"} and rows["bad"][2] == "FAILED"
    clock, processor = map(int, rows["good"])
    assert clock >= 1 and processor >= 1, "the time of what the target left alone is known"
    assert "    61.5 tests/test_a.py::test_b" in told and "  tests/test_a.py::test_b: the runner died" in told
    assert (tmp_path / "everything").read_text() == "\n", "engines are asked for, and this target needs none"


def test_the_slowest_tests_are_told_and_who_ran_twice():
    tests = [{"test": f"test_{number}", "seconds": number / 8, "rerun": None} for number in range(30)]
    spent = [RUN["Spent"]("lint", 12.4, 8.1, True), RUN["Spent"]("unit", 301, 555, False)]
    lines = RUN["table"](spent, tests, 313.4).splitlines()
    assert lines[1:4] == [
        "lint                           12          8",
        "unit                          301        555   FAILED",
        "in all                        313        563",
    ]
    assert [line.split() for line in lines[6:16]] == [[f"{n / 8:.1f}", f"test_{n}"] for n in range(29, 19, -1)]
    assert lines[-1] == "No test ran twice."


@pytest.mark.parametrize(("mode", "whole"), [("some", set()), ("engines", {"test-flink"}), ("everything", None)])
def test_how_much_is_run(mode, whole):
    targets = {target for step in RUN["STEPS"] for target in step}
    assert {target for target in targets if "EVERYTHING=yes" in RUN["command"](target, mode)} == (
        targets if whole is None else whole
    )


def wheel(folder: Path) -> Path:
    """One module, to be installed without an index."""
    path = folder / "planted-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("planted.py", "here = True\n")
        made.writestr("planted-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        made.writestr("planted-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("planted-1.0.dist-info/RECORD", "planted.py,,\n")
    return path


@pytest.mark.seconds
def test_an_environment_is_made_with_uv_and_without(tmp_path):
    """By the Makefile's own rule, where pip finds no uv; and where uv fails, as if pip alone knew the index."""
    for name in ("Makefile", ".ci", "deploy/release"):
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy
        copy(TOP / name, tmp_path / name)
    settings = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}

    def run(*words: object) -> str:
        done = subprocess.run(
            [*map(str, words)], cwd=tmp_path, env=settings, check=True, stderr=subprocess.PIPE, text=True
        )
        return done.stderr

    assert "uv cannot be had here" in run("make", f"PYTHON={sys.executable}", ".venv/uv")
    tool, packed = tmp_path / ".venv" / "bin" / "uv", wheel(tmp_path)
    assert not tool.exists()

    def installs(name: str) -> str:
        said = run(tmp_path / ".ci" / "environment", name, packed)
        run(tmp_path / name / "bin" / "python", "-c", "import planted")
        return said

    assert installs("without") == ""
    tool.write_text("#!/bin/sh\nexit 2\n")
    tool.chmod(0o755)
    assert "pip tries" in installs("in vain")
    if real := shutil.which("uv", path=Path(sys.executable).parent):
        tool.unlink()
        tool.symlink_to(real)
        shutil.rmtree(tmp_path / ".venv" / "lib")  # with pip
        assert installs("with") == ""
