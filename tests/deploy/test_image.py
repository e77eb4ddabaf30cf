"""The image of the command, by its parts: what is copied is there, what is installed is what is tested, and nobody runs it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

TOP = Path(__file__).resolve().parents[2]
IMAGE = TOP / "deploy" / "image"
CONTAINERFILES = sorted((TOP / "deploy").glob("*/Containerfile"))


def pins(path: Path) -> dict[str, str]:
    """{name: version} of a list, in small letters."""
    found = re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text(), re.MULTILINE)
    return {name.lower(): version for name, version in found}


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.parent.name)
def test_what_is_copied_is_there_and_not_ignored(path):
    ignored, *kept = [line for line in (TOP / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == "*"
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", path.read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (TOP / name).exists() and f"!{name.split('/')[0]}" in kept, name


def test_every_part_is_pinned_with_its_digests():
    """Closed: whatever a part needs on Linux is there. So nothing is chosen when the image is built."""
    tested, image = pins(TOP / "requirements.txt"), pins(IMAGE / "requirements.txt")
    assert {name: image.get(name) for name in tested} == tested
    blocks = re.split(r"\n(?=\w)", (IMAGE / "requirements.txt").read_text())[1:]
    assert len(blocks) == len(image) and all("--hash=sha256:" in block for block in blocks)
    canonical = {re.sub("[-_.]+", "-", name) for name in image}
    for name, version in image.items():
        if metadata.version(name) != version:  # which needs other things, maybe
            continue
        for needed in map(Requirement, metadata.requires(name) or []):
            if not needed.marker or needed.marker.evaluate({"extra": "", "python_version": "3.11"}):
                assert re.sub("[-_.]+", "-", needed.name.lower()) in canonical, f"{name} needs {needed.name}"


def test_nobody_runs_it_and_it_is_installed_as_tested():
    text = (IMAGE / "Containerfile").read_text()
    last = text.split("\nFROM ")[-1]
    assert "\nUSER 65534:65534\n" in last and 'ENTRYPOINT ["headcount"]' in last
    assert "--require-hashes" in text and "pip --python /opt/headcount/bin/python check" in text
    assert "RUN" not in last, "what builds is not in the image"
