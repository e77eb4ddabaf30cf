"""The examples of README and docs: which blocks there are, and how each is run as a reader would run it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headcount.pipelines.main import main

TOP = Path(__file__).resolve().parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w])")
_COMMAND = re.compile(r"^headcount ", re.MULTILINE)
_BAR = re.compile(r"#+")
_NEAR, _SMALL = 0.35, 12  # how far a number may be from the one on the page: noise, and changes of mechanisms


@dataclass(frozen=True)
class Block:
    """A block of a page: where it begins, what it is (shell, python, yaml or text), and why it is not run, if it is not."""

    line: int
    kind: str
    text: str
    not_run: str | None


def blocks(page: Path) -> list[Block]:
    """The examples of a page in order, and the blocks of text, which show what comes out."""
    return [block for block in _all_blocks(page.read_text(encoding="utf-8").splitlines()) if block.kind]


def _all_blocks(lines: list[str]) -> Iterator[Block]:
    at, reason = 0, None
    while at < len(lines):
        line = lines[at]
        found = NOT_RUN.fullmatch(line)
        end = at + 1
        if found:
            reason = found[1]
        elif line.startswith("```"):
            while not lines[end].startswith("```"):
                end += 1
            text = "\n".join(lines[at + 1 : end])
            yield Block(at + 1, _kind(line[3:].strip(), text), text, reason)
            end, reason = end + 1, None
        elif line.startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = "\n".join(part[4:] for part in lines[at:end]).rstrip()
            yield Block(at + 1, _kind("", text), text, reason)
            reason = None
        elif line.strip():
            reason = None
        at = end


def _kind(language: str, text: str) -> str:
    if language in ("python", "yaml", "text"):
        return language
    return "shell" if _COMMAND.search(text) and language in ("", "shell", "console") else ""


def commands(text: str) -> list[str]:
    """The lines of a shell block, those that go on joined."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def words(line: str) -> list[str]:
    """A command line as the shell gives it to a program."""
    return [os.path.expanduser(word) for word in shlex.split(line, comments=True)]


def run(block: Block, names: dict[str, Any]) -> str:
    """Run a block in the current directory and return what it printed; fail with that if it fails."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        if block.kind == "python":
            exec(compile(block.text, f"line {block.line}", "exec"), names)
        elif block.kind == "yaml":
            run_yaml(block.text)
        else:
            for line in commands(block.text):
                if line.startswith("headcount generate ") and Path(words(line)[-1]).exists():
                    continue  # the data that all examples share was made by this very line
                if line.startswith("headcount "):
                    status = main(words(line)[1:])
                    assert status == 0, f"{line}\n{printed.getvalue()}"
                else:
                    subprocess.run(["bash", "-c", line], check=True, timeout=60)
    return printed.getvalue()


def run_yaml(text: str) -> None:
    """Run a pipeline of Beam YAML; a report is kept for the commands that run it."""
    from apache_beam.yaml.main import run as run_pipeline

    if "releases" in yaml.safe_load(text):
        Path("report.yaml").write_text(text)
        return
    assert set(yaml.safe_load(text)) >= {"pipeline"}, "an example is a whole pipeline or report"
    Path("pipeline.yaml").write_text(text)
    run_pipeline(["--yaml_pipeline_file=pipeline.yaml", "--runner=FnApiRunner"])


def differs(shown: str, printed: str) -> str | None:
    """The first line that a page shows and a run does not print: words alike, numbers about so, `...` for any lines."""
    lines = printed.splitlines()  # in any order: rows of a pipeline have none
    wanted = [line for line in shown.splitlines() if line.strip() not in ("", "...")]
    return next((line for line in wanted if not any(_alike(line, other) for other in lines)), None)


def _alike(shown: str, printed: str) -> bool:
    """Whether two lines have the same words and numbers that are close; `...` at the end of a line stands for its rest."""
    cut = shown.rstrip().endswith("...")
    these, those = shown.rstrip().removesuffix("...").split(), printed.split()
    if cut:
        those = those[: len(these)]
    return len(these) == len(those) and all(map(_close, these, those))


def _close(one: str, other: str) -> bool:
    one, other = (_BAR.sub(lambda bar: str(len(bar[0])), word) for word in (one, other))  # a bar is its length
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(_about(*(float(number.replace(",", "")) for number in pair)) for pair in pairs)


def _about(one: float, other: float) -> bool:
    return abs(one - other) <= max(_NEAR * max(abs(one), abs(other)), _SMALL if one == int(one) else 0.5)
