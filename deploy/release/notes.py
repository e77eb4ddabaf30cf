"""The notes of a release: prints the changelog's section of a tag, once the project's files agree that this is the release.

    python deploy/release/notes.py v0.1.0

It refuses a tag that is no version, that has no section with a date, or that CITATION.cff does not name, and one that leaves
entries under Unreleased.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
TAG = re.compile(r"v(\d+\.\d+\.\d+(?:rc\d+)?)")
HEADING = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)
CITED = re.compile(r"^version: (\S+)$", re.MULTILINE)
RELATIVE = re.compile(r"\]\((?!https?://|#)([^)]+)\)")


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """{version: (date, text)} of a changelog, in its order; that of what is not released yet is "Unreleased"."""
    found = [*HEADING.finditer(changelog)]
    ends = [match.start() for match in found[1:]] + [len(changelog)]
    return {match[1]: (match[2], changelog[match.end() : end].strip()) for match, end in zip(found, ends, strict=True)}


def notes(tag: str, changelog: str, citation: str, home: str | None = None) -> str:
    """The text of the tag's section. With `home`, the address of the tree at the tag, its links work elsewhere, too."""
    matched = TAG.fullmatch(tag)
    if not matched:
        raise ValueError(f"the tag must be like v0.1.0 or v0.1.0rc1, got {tag!r}")
    version = matched[1].partition("rc")[0]
    found = sections(changelog)
    date, text = found.get(version, (None, ""))
    if not date or not text:
        raise ValueError(
            f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' with a text: cut it from Unreleased"
        )
    if found.get("Unreleased", (None, ""))[1]:
        raise ValueError(
            f"CHANGELOG.md has entries under Unreleased: they belong to {version}, or to a commit after it"
        )
    cited = CITED.search(citation)
    if not cited or cited[1] != version:
        raise ValueError(f"CITATION.cff must have 'version: {version}', got {cited[1] if cited else 'none'}")
    return RELATIVE.sub(lambda link: f"]({home}/{link[1]})", text) if home else text


def main(words: list[str]) -> int:
    """Print the notes of the tag given, or say why there are none."""
    if not 1 <= len(words) <= 2:
        print("usage: notes.py TAG [ADDRESS OF THE TREE]", file=sys.stderr)
        return 2
    try:
        print(notes(words[0], (TOP / "CHANGELOG.md").read_text(), (TOP / "CITATION.cff").read_text(), *words[1:]))
    except ValueError as error:
        print(f"notes.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
