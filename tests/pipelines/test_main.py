"""The entry of the command line: what it lists, exit statuses, and one line for what is refused."""

import os
import re
import shlex
import subprocess
import sys

import pyarrow.csv
import pytest

from headcount.pipelines import main as module
from headcount.pipelines.command import COMMANDS, load
from headcount.pipelines.parser import make_parser
from headcount.pipelines.questions import GROUPS, PAPER_FLAGS, PAPER_GROUPS, QUESTIONS
from tests.pipelines.refusals import refused


@pytest.mark.seconds
@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_a_reader_that_stops_reading_is_no_failure(flags):
    """As in `headcount ... | head`; but a connection of the job that breaks is one."""
    command = [sys.executable, *flags, "-m", "headcount.pipelines.main", "plume", "--rho", "1", "--delta", "1e-6"]
    out, end = os.pipe()
    os.close(out)
    done = subprocess.run([*command, "--explain"], stdout=end, stderr=subprocess.PIPE, text=True)
    os.close(end)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_connection_of_the_job_that_breaks_is_a_failure(run, monkeypatch):
    def broken(*arguments):
        raise BrokenPipeError

    monkeypatch.setattr("headcount.pipelines.parser.parse", broken)
    status, _, err = run("plume")
    assert status == 1 and "Traceback" in err[0]


def test_help_and_version(run):
    status, out, err = run("--help")
    assert (status, err) == (0, [])
    assert all(COMMANDS[name].help in out for names in GROUPS.values() for name in names.split())
    assert load("histogram").example in out and "headcount --help papers" in out
    assert run() == (status, out, err)
    for name in COMMANDS:
        status, out, err = run(name, "--help")
        assert (status, err) == (0, []) and load(name).example in out
        assert load(name).name == name and COMMANDS[name].help in " ".join(out.split())
    status, out, err = run("--version")
    assert (status, err) == (0, []) and out.startswith("headcount ")


def test_methods_of_the_papers_are_on_the_second_page(run):
    _, first, _ = run("--help")
    status, second, err = run("--help", "papers")
    assert (status, err) == (0, [])
    for name in " ".join(PAPER_GROUPS.values()).split():
        assert COMMANDS[name].help in second and COMMANDS[name].help not in first
    for line in PAPER_FLAGS:
        name, flag, value = line.split()
        parsed = make_parser(load(name))._option_string_actions[flag]
        assert value == "NAME" or value in (parsed.choices or ())
        assert line in second and line not in first


@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("histogrm", 2)])
def test_help_waits_for_no_library(word, status):
    """Nor does a word that is no command: both need the names of the commands, and import none of them."""
    code = (
        f"import sys; from headcount.pipelines.main import main; status = main([{word!r}]); "
        "print(*{'apache_beam', 'numpy', 'pyarrow'} & set(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == status and done.stderr.splitlines()[-1] == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["count"],
            "unknown command 'count'; did you mean histogram (users or events of each item) or total (how many users and "
            "events in all)?",
        ),
        (
            ["quantiles", "--item", "page"],
            "unknown flag '--item'; quantiles are of all rows; those of each item are of headcount aggregate: --item COLUMN "
            "--quantile 0.5:COLUMN:LOW:HIGH",
        ),
        (
            ["total", "--epsilon", "1", "--user", "u", "--protect", "user-day", "--explain"],
            "--time must name the column that says when a row was, as protect is 'user-day'",
        ),
        (
            ["total", "--epsilon", "1", "--user", "u", "--time", "at", "--explain"],
            "--time says when a row was, for a protect such as 'user-day'; with 'user' leave it out",
        ),
    ],
)
def test_refusals_lead_to_what_was_meant(run, words, said):
    assert run(*words)[::2] == (2, [f"headcount: {said}"])


def test_key_and_generate(run, tmp_path):
    assert run("key", tmp_path / "key")[0] == 0
    content = (tmp_path / "key").read_text()
    status, out, err = run("key", tmp_path / "key")
    assert status == 2 and content.strip() not in err[0] and (tmp_path / "key").read_text() == content
    words = ["generate", "--law", "tail", "--rows", "1000", "--users", "100", "--items", "50", "--seed", "7"]
    assert run(*words, "--output", tmp_path / "log.csv")[0] == 0
    assert pyarrow.csv.read_csv(tmp_path / "log.csv").num_rows == 1000
    refused(run(*words, "--output", tmp_path / "log.csv"), "log.csv")
    refused(run(*words, "--output", tmp_path / "log.txt"), "log.txt")
    refused(run("generate", "--law", "tail", "--output", tmp_path / "x.csv"), "--rows")


@pytest.mark.seconds
def test_demo(run, tmp_path):
    """Twice, as people do: the second run takes the log of the first and replaces its output."""
    words = ["demo", "--rows", "20000", "--output", tmp_path / "demo"]
    for again in range(2):
        status, out, err = run(*words)
        assert (status, len(err)) == (0, again) and all("a new release" in line for line in err)
        assert "true users" in out and "rows/s" in out and "User-level (epsilon = 1" in out
        assert str(tmp_path / "demo" / "histogram") in out


def test_a_message_is_one_printable_line(capsys):
    module._say("a\nb\x1b[31m\tc  d")
    assert capsys.readouterr().err == "headcount: a b [31m c d\n"


def test_the_questions_name_commands_and_the_groups_name_each_of_them_once():
    named = [name for names in (GROUPS | PAPER_GROUPS).values() for name in names.split()]
    assert sorted(named) == sorted(COMMANDS)
    assert {question.command.split()[0] for question in QUESTIONS} <= set(COMMANDS)


@pytest.mark.slow("jobs")
@pytest.mark.parametrize(
    "command", [each.command for each in QUESTIONS if not re.search(r"\.\.\.|FILE|NAME|OUT", each.command)]
)
def test_the_command_of_a_question_needs_no_more_than_the_page_says(run, command):
    """That is input, user, a promise and output: the plan is made without the data."""
    status, _, err = run(*shlex.split(command), "--epsilon", "1", "--delta", "1e-8", "--explain")
    assert (status, err) == (0, [])


def test_help_has_own_flags_first_and_rare_ones_only_with_help_all(run):
    _, out, _ = run("partitions", "--help")
    assert out.index("flags of headcount partitions:") < out.index("what to read:") < out.index("what to promise:")
    assert out.index("--strategy") < out.index("--input") and "--shards" not in out and "--rounds" not in out
    status, everything, err = run("partitions", "--help-all")
    assert (status, err) == (0, []) and "--shards" in everything and "--rounds" in everything
    _, metrics, _ = run("aggregate", "--help")
    assert metrics.index("--mean") < metrics.index("--input")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_all_has_every_flag(run, name):
    flags = [flag for flag in make_parser(load(name))._option_string_actions if flag.startswith("--")]
    _, out, _ = run(name, "--help-all")
    assert all(flag in out for flag in flags)
