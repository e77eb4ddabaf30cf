"""What makes a release: the version that a tree has, and the notes of a tag."""

from __future__ import annotations

import os
import runpy
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import setuptools
import setuptools_scm
from packaging.version import Version

TOP = Path(__file__).resolve().parents[2]
NOTES = runpy.run_path(str(TOP / "deploy" / "release" / "notes.py"))
CHANGELOG = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2027-01-05

### Added

- A thing ([docs/thing.md](docs/thing.md)), as [others](https://example.org/) have it.

## [0.1.0] - 2026-12-01

The first.
"""
CITATION = "cff-version: 1.2.0\nversion: 0.2.0\n"


# Versions


@pytest.fixture
def version(monkeypatch):
    """version.of(folder): that of a tree, as setup.py lets setuptools-scm make it; version.no_tags: where it finds none."""
    found = {}
    with monkeypatch.context() as patched:
        patched.setattr(setuptools, "setup", found.update)
        patched.chdir(TOP)
        names = runpy.run_path(str(TOP / "setup.py"))
    monkeypatch.delenv("SETUPTOOLS_SCM_PRETEND_VERSION_FOR_HEADCOUNT", raising=False)

    def of(folder: Path) -> str:
        return setuptools_scm.get_version(root=str(folder), dist_name="headcount", **found["use_scm_version"])

    return SimpleNamespace(of=of, no_tags=names["NO_TAGS"])


@pytest.fixture
def tree(tmp_path):
    """A repository with the files that tell a version, and git(*words) in it."""
    folder = tmp_path / "tree"
    folder.mkdir()
    for name in (".gitattributes", ".git_archival.txt"):
        (folder / name).write_bytes((TOP / name).read_bytes())
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    own |= {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*words: object, into: Path = folder) -> None:
        subprocess.run(["git", *map(str, words)], cwd=into, env=kept | own, check=True, capture_output=True)

    def commit() -> None:
        git("add", "--all")
        git("commit", "--allow-empty", "--message", "more")

    git("init", "--initial-branch", "main")
    commit()
    return SimpleNamespace(folder=folder, git=git, commit=commit)


def test_a_tag_is_a_version_and_a_commit_is_none(tree, version):
    assert version.of(tree.folder) == version.no_tags
    tree.commit()
    assert version.of(tree.folder) == version.no_tags, "a clone without tags has one version, whatever its commit"
    tree.git("tag", "v0.3.0")
    assert version.of(tree.folder) == "0.3.0"
    for _ in range(3):
        tree.commit()
        assert version.of(tree.folder) == "0.3.1.dev0", "one for all commits after a tag"
    tree.git("tag", "v0.4.0rc1")
    assert version.of(tree.folder) == "0.4.0rc1"
    (tree.folder / ".gitattributes").write_text("")
    assert version.of(tree.folder) == "0.4.0rc2.dev0", "what is changed and not committed is no release"


@pytest.mark.filterwarnings("ignore:.*shallow")
def test_a_shallow_clone_has_a_version(tree, version, tmp_path):
    tree.git("tag", "v0.3.0")
    tree.commit()
    tree.git("clone", "--depth", "1", f"file://{tree.folder}", tmp_path / "shallow", into=tmp_path)
    assert version.of(tmp_path / "shallow") == version.no_tags
    tree.git("tag", "v0.3.1")
    tree.git("clone", "--depth", "1", "--branch", "v0.3.1", f"file://{tree.folder}", tmp_path / "tagged", into=tmp_path)
    assert version.of(tmp_path / "tagged") == "0.3.1"


@pytest.mark.parametrize(
    ("tagged", "after", "expected"), [(False, 0, None), (True, 0, "0.3.0"), (True, 2, "0.3.1.dev0")]
)
def test_an_archive_has_the_version_of_its_tree(tree, version, tmp_path, tagged, after, expected):
    if tagged:
        tree.git("tag", "v0.3.0")
    for _ in range(after):
        tree.commit()
    tree.git("archive", "--prefix", "unpacked/", "--output", tmp_path / "it.tar", "HEAD")
    with tarfile.open(tmp_path / "it.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    assert version.of(tmp_path / "unpacked") == (expected or version.no_tags)


def test_an_sdist_and_a_copy_have_a_version(version, tmp_path, monkeypatch):
    assert version.of(tmp_path) == version.no_tags
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: headcount\nVersion: 0.3.0\n")
    assert version.of(tmp_path) == "0.3.0"
    monkeypatch.setenv("SETUPTOOLS_SCM_PRETEND_VERSION_FOR_HEADCOUNT", "0.5.0")
    assert version.of(tmp_path) == "0.5.0", "an image is told its version"


def test_without_tags_the_version_is_above_the_last_one_released(version):
    released = [*NOTES["sections"]((TOP / "CHANGELOG.md").read_text())][1:]
    assert all(Version(version.no_tags) > Version(number) for number in released)
    assert Version(version.no_tags).dev == 0


# Notes


def test_the_notes_are_the_section_of_the_tag():
    notes = NOTES["notes"]
    assert notes("v0.2.0", CHANGELOG, CITATION).startswith(
        "### Added\n\n- A thing ([docs/thing.md](docs/thing.md)), as"
    )
    linked = notes("v0.2.0", CHANGELOG, CITATION, "https://example.org/tree/v0.2.0")
    assert "(https://example.org/tree/v0.2.0/docs/thing.md)" in linked and "[others](https://example.org/)" in linked
    assert notes("v0.1.0", CHANGELOG, "version: 0.1.0") == "The first."
    assert notes("v0.2.0rc1", CHANGELOG, CITATION) == notes("v0.2.0", CHANGELOG, CITATION)


@pytest.mark.parametrize(
    ("tag", "changelog", "citation", "said"),
    [
        ("0.2.0", CHANGELOG, CITATION, "must be like v0.1.0"),
        ("v0.3.0", CHANGELOG, CITATION, r"no section '## \[0.3.0\]"),
        ("v0.2.0", CHANGELOG.replace(" - 2027-01-05", ""), CITATION, r"no section '## \[0.2.0\]"),
        ("v0.2.0", CHANGELOG.replace("ed]\n", "ed]\n\n- More.\n"), CITATION, "entries under Unreleased"),
        ("v0.2.0", CHANGELOG, CITATION.replace("0.2.0", "0.1.0"), "'version: 0.2.0', got 0.1.0"),
    ],
)
def test_a_tag_on_which_the_files_do_not_agree_is_refused(tag, changelog, citation, said):
    with pytest.raises(ValueError, match=said):
        NOTES["notes"](tag, changelog, citation)


def test_the_script_says_what_is_wrong(capsys):
    assert NOTES["main"](["nonsense"]) == 2
    assert capsys.readouterr().err == "notes.py: the tag must be like v0.1.0 or v0.1.0rc1, got 'nonsense'\n"
    assert NOTES["main"]([]) == 2
