"""The lines that schedulers run, as docs/schedulers.md has them: each is a command line of ours, with the week that it says."""

from __future__ import annotations

import ast
import datetime
import re
import shlex
import subprocess

from headcount.pipelines import parser
from headcount.pipelines.command import load
from tests.docs.pages import TOP

TEXT = (TOP / "docs" / "schedulers.md").read_text(encoding="utf-8")


def parsed(words: list[str]):
    assert words[0] == "headcount"
    return parser.parse(load(words[1]), words[2:])[0]


def test_the_line_of_cron_gives_the_week_before(tmp_path):
    """The shell runs the line, with a `headcount` that prints what it is given."""
    (line,) = re.findall(r"^0 6 \* \* 1  (.+)$", TEXT, re.MULTILINE)
    told = tmp_path / "headcount"
    told.write_text('#!/bin/sh\nprintf "%s\\n" headcount "$@"\n')
    told.chmod(0o755)
    line = line.replace("\\%", "%").replace("/srv/report", shlex.quote(str(tmp_path)))
    done = subprocess.run(["sh", "-c", f"PATH={tmp_path}:$PATH; {line}"], capture_output=True, text=True, check=True)
    args = parsed(done.stdout.split("\n")[:-1])
    weeks = {(datetime.date.today() - datetime.timedelta(days=days)).strftime("%G-W%V") for days in (6, 7, 8)}
    assert args.file == "report.yaml" and args.period in weeks


def test_the_lines_of_python_are_ours():
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert blocks
    lists = [
        [part.value if isinstance(part, ast.Constant) else "2026-W46" for part in node.elts]
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.List) and node.elts and getattr(node.elts[0], "value", None) == "headcount"
    ]
    lines = [shlex.split(re.sub(r"{{.*?}}", "2026-W46", line)) for line in re.findall(r'"(headcount run [^"]+)"', TEXT)]
    assert lists
    for words in [*lists, *lines]:
        args = parsed(words)
        assert (args.file, args.period) == ("report.yaml", "2026-W46")


def test_the_line_behind_dbt_is_ours():
    (line,) = re.findall(r"^dbt run .+ && (headcount run .+)$", TEXT, re.MULTILINE)
    args = parsed(shlex.split(line.replace("$week", "2026-W46")))
    assert (args.file, args.period) == ("report.yaml", "2026-W46")


def test_the_line_of_changes_is_ours():
    (line,) = re.findall(r"^headcount series .+$", TEXT, re.MULTILINE)
    assert parsed(shlex.split(line)).output == "series/"
