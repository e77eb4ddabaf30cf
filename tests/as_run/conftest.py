"""The console script of an installation that has nothing but the product: `--headcount PATH`, and the files it is run on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.as_run import files as made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--headcount", help="the console script that is run")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files."""
    folder = tmp_path_factory.mktemp("files")
    made.write_all(folder)
    return folder


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """run(*words): the script in a process, a folder and an environment of its own."""
    script = request.config.getoption("--headcount")
    assert script, "give --headcount PATH, the script of an installation: see make test-as-run"
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [os.path.abspath(script), *words], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=300
        )

    return run
