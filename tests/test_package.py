"""What is installed: every folder of modules, and nothing that a checkout alone has."""

import runpy
from pathlib import Path

import pytest
import setuptools

TOP = Path(__file__).resolve().parents[1]
TOPS = ("headcount", "mechanisms", "transforms", "pipelines")


@pytest.fixture
def given(monkeypatch):
    """What setup.py gives to setuptools."""
    found = {}
    monkeypatch.setattr(setuptools, "setup", found.update)
    monkeypatch.chdir(TOP)
    runpy.run_path(str(TOP / "setup.py"))
    return found


def test_every_folder_of_modules_is_installed(given):
    folders = {path.parent for top in TOPS for path in (TOP / top).rglob("*.py")}
    assert {TOP / path for path in given["package_dir"].values()} == folders, "one of them has no __init__.py"
    assert sorted(given["packages"]) == sorted(given["package_dir"])
    for package, path in given["package_dir"].items():
        assert package.removeprefix("headcount.") == path.replace("/", ".").removeprefix("headcount.")


def test_all_other_files_are_installed_too(given):
    kept = {TOP / given["package_dir"][name] / file for name, files in given["package_data"].items() for file in files}
    inside = (
        path for top in TOPS for path in (TOP / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    assert {path for path in inside if path.suffix != ".py"} == {path for path in kept if path.exists()}
