"""What people run, on files that other programs wrote: rows come out, or one line says what to do."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.as_run.cases import CASES, ROWS


def words_of(text: str, files: Path) -> list[str]:
    """The words of a command; those between bars are one each, as a shell would have them in quotes."""
    parts = text.split("|")
    return [
        word.replace("{files}", str(files))
        for k, part in enumerate(parts)
        for word in ([part] if k % 2 else part.split())
    ]


@pytest.mark.parametrize("name", CASES)
def test_rows_come_out_or_one_line_says_what_to_do(name, files, run, tmp_path):
    case = CASES[name]
    done = run(*words_of(case.words, files), *case.budget.split(), "--format", "csv", "--output", "out")
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    if isinstance(case.found, str):
        assert done.returncode == 2, done.stdout + done.stderr
        lines = [
            line for line in done.stderr.splitlines() if "this promises little" not in line
        ]  # which is said before
        assert len(lines) == 1 and case.found in lines[0] and not (tmp_path / "out").exists()
        return
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.json").exists() and (tmp_path / "out" / "report.html").exists()
    rows = [row for path in sorted((tmp_path / "out").glob("*.csv")) for row in rows_of(path)]
    assert rows
    if case.found != ROWS:
        assert sorted({row[0] for row in rows}) == sorted(case.found)


def rows_of(path: Path) -> list[list[str]]:
    """The rows of a CSV file, as texts."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]
