"""What bash completes by the script that `headcount completion bash` prints, in a real bash."""

from __future__ import annotations

import subprocess

import pytest

from headcount.pipelines.command import COMMANDS
from headcount.pipelines.commands.tools.completion import script

_ASK = """
for line in "$@"; do
    IFS=' ' read -r -a COMP_WORDS <<< "$line"
    [ "${line% }" != "$line" ] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _headcount
    echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def completed():
    def ask(*lines: str) -> list[list[str]]:
        program = f"{script('bash')}\n{_ASK}"
        done = subprocess.run(["bash", "-c", program, "ask", *lines], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return [line.split() for line in done.stdout.splitlines()]

    return ask


def test_commands_flags_values_and_parts(completed):
    commands, histogram, flag, values, parts, part, of_part = completed(
        "headcount ",
        "headcount hist",
        "headcount histogram --input a.csv --noi",
        "headcount histogram --noise ",
        "headcount ledger ",
        "headcount ledger tot",
        "headcount ledger export --format c",
    )
    assert commands == [*COMMANDS]
    assert histogram == ["histogram"] and flag == ["--noise"]
    assert values == ["auto", "laplace", "gaussian"]
    assert parts == ["create", "approve", "withdraw", "show", "total", "export", "resolve"] and part == ["total"]
    assert of_part == ["csv"]


def test_files_are_left_to_the_shell(completed):
    assert completed("headcount histogram --input ", "headcount show o", "headcount ledger total vis") == [[], [], []]


def test_hidden_flags_are_not_told_and_zsh_reads_the_same(completed):
    (flags,) = completed("headcount ledger total --")
    assert "--ledger" in flags and "--verbose" not in flags
    first, *same = script("zsh").splitlines()
    assert first.startswith("# zsh") and script("bash").splitlines()[1:] == same[2:]
