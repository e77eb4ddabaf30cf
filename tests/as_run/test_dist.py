"""The sdist and the wheel that `make dist` made: what is in them, and that the wheel is what is run here."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
TOPS = ("headcount", "mechanisms", "transforms", "pipelines")


def one(pattern: str) -> Path:
    """The only file in dist of this kind."""
    [found] = (TOP / "dist").glob(pattern)
    return found


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def wheel() -> dict[str, str]:
    """{path: digest} of the files in the wheel, without what tells of them."""
    with zipfile.ZipFile(one("*.whl")) as opened:
        return {name: digest(opened.read(name)) for name in opened.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_the_files_of_the_four_folders_and_nothing_else(wheel):
    """It was made of the sdist, and so shows that the sdist has them, too: templates, types and schema among them."""
    here = {
        path for top in TOPS for path in (TOP / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    inside = {path: str(path.relative_to(TOP)) for path in here}
    expected = {
        name if name.startswith("headcount/") else f"headcount/{name}": digest(path.read_bytes())
        for path, name in inside.items()
    }
    assert wheel == expected
    assert {f"headcount/{room}py.typed" for room in ("", "mechanisms/", "transforms/", "pipelines/")} <= {*wheel}


def test_the_sdist_has_every_file_of_the_tree():
    """Tests and docs, too: who packages it can run them."""
    if not (TOP / ".git").exists() or not shutil.which("git"):
        pytest.skip("this is no clone")
    listed = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True).stdout.split("\n")
    with tarfile.open(one("*.tar.gz")) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    assert {name for name in listed if name} <= inside


def test_the_metadata_is_that_of_the_project():
    with zipfile.ZipFile(one("*.whl")) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        text = opened.read(name).decode()
        assert any(name.endswith("/licenses/LICENSE") for name in opened.namelist())
    assert "\nLicense-Expression: Apache-2.0\n" in text and "\nRequires-Python: <3.15,>=3.11\n" in text


def test_the_version_is_that_of_the_wheel_and_of_a_release_or_the_next_one(run):
    version = one("*.whl").name.split("-")[1]
    assert re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?(\.dev0)?", version)
    assert one("*.tar.gz").name == f"headcount-{version}.tar.gz"
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"headcount {version}\n"), done.stderr


def test_uvx_runs_the_checkout(tmp_path):
    """`uvx --from . headcount demo` for people who have uv: in an environment that is gone afterwards."""
    uvx = TOP / ".venv" / "bin" / "uvx"
    words = [uvx, "--from", TOP, "headcount", "demo", "--rows", "20000"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "histogram" / "report.html").exists()
