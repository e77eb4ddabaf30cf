"""The files that the console script is run on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.as_run import files as made


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files."""
    folder = tmp_path_factory.mktemp("files")
    made.write_all(folder)
    return folder


@pytest.fixture
def run(installed: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """run(*words): the script that `--headcount` names, in a folder of its own."""
    return installed
