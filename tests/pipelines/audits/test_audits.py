"""Cases are neighbours of every command, bugs are in only while they are put in, and audits see them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.randomness.keys import KeyFile
from headcount.pipelines.audits import bugs, run
from headcount.pipelines.audits.cases import CASES
from headcount.pipelines.audits.neighbours import Neighbours
from headcount.pipelines.audits.public_data import of_public_data
from headcount.pipelines.command import COMMANDS, JobCommand, load
from headcount.pipelines.main import main
from tests.fixed_key import write_fixed_key

# Bugs whose outcomes differ so much that few releases show them. The others take some thousand.
CERTAIN = ["raw-data-used", "redefined-column", "types-of-rows", "free-bound", "norm-of-a-tree"]


@pytest.fixture
def key(tmp_path) -> KeyFile:
    write_fixed_key(tmp_path / "key")
    return KeyFile(tmp_path / "key")


def test_every_command_that_counts_is_audited():
    jobs = {name for name in COMMANDS if isinstance(load(name), JobCommand)}
    assert jobs <= {case.command for case in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_cases_are_neighbours_that_promise_the_same(name, key):
    case = CASES[name]
    without, with_one = case.prepared(False), case.prepared(True)
    assert without.stated() == with_one.stated()
    assert without.claim() == with_one.claim()
    stated = without.stated()
    assert 0 < without.claim().most <= 1.05 * (stated.delta if case.by == "delta" else stated.epsilon)
    assert case.most == 1 or case.why
    for made in (without, with_one):
        assert np.isfinite(made.score(key, "one"))
        assert made.score(key, "one") == made.score(key, "one")
    if isinstance(case, Neighbours):
        users = {*case.one.column("user").to_pylist()}
        assert len(users) == 1
        assert not users & {*case.others.column("user").to_pylist()}


@pytest.mark.parametrize("name", CERTAIN)
def test_a_bug_is_seen_and_gone_afterwards(name, key):
    """With a fixed key. With a fresh one, right code would fail once in a hundred times, and a bug be missed as seldom."""
    (asked,) = run.of_bugs([name])
    (with_bug,) = run.audit([asked], 80, 0.99, key, processes=1)
    assert with_bug.exceeds
    (without,) = run.audit([run.Asked(asked.name, asked.case)], 40, 0.99, key, processes=1)
    assert not without.exceeds


def test_every_bug_names_a_case():
    assert {bug.case for bug in bugs.BUGS.values()} <= {*CASES}


@pytest.mark.parametrize("name", ["users in all", "users of a public list", "the top page"])
def test_a_tight_case_shows_most_of_what_it_states(name, key):
    """With a fixed key; with a fresh one, more than is stated would be shown once in a million times."""
    (audited,) = run.audit([run.Asked(name, CASES[name])], 500, 1 - 1e-6, key, processes=1)
    assert not audited.exceeds
    assert 0.4 < audited.share <= 1


def test_a_mechanism_with_half_the_noise_is_refuted(key, monkeypatch):
    """The same case, if twice the epsilon were drawn with as is stated."""
    stated = CASES["users in all"].prepared(False).claim()
    case = dataclasses.replace(CASES["users in all"], line="total --user user --of users --epsilon 4")
    monkeypatch.setattr("headcount.pipelines.audits.neighbours.Repeated.claim", lambda self: stated)
    (audited,) = run.audit([run.Asked("half", case)], 200, 0.99, key, processes=1)
    assert audited.exceeds


def test_gaussian_noise_of_a_smaller_scale_is_refuted(key, monkeypatch):
    """The account of the noise is refuted by guesses, at half of the scale that it states."""
    real = CASES["users of a public list, Gaussian"]
    stated = real.prepared(False).claim()
    case = dataclasses.replace(real, line=real.line.replace("--epsilon 2", "--epsilon 5"))
    monkeypatch.setattr("headcount.pipelines.audits.neighbours.Repeated.claim", lambda self: stated)
    (audited,) = run.audit([run.Asked("small", case)], 200, 0.99, key, processes=1)
    assert audited.exceeds


def test_processes_give_the_same_as_one(key):
    asked = [run.Asked("users in all", CASES["users in all"])]
    assert run.audit(asked, 150, 0.99, key, processes=2) == run.audit(asked, 150, 0.99, key, processes=1)


def test_public_data_loses_its_largest_user():
    table = pa.table({"who": ["a", "b", "b", "c"], "page": ["x", "x", "y", "z"]})
    found = of_public_data("histogram --user who --item page --epsilon 1 --delta 1e-3", table)
    assert found.one.column("who").to_pylist() == ["b", "b"]
    assert found.others.column("who").to_pylist() == ["a", "c"]
    assert found.watched.rows == {"item": ["x", "y"]}


def test_the_command_tells_what_is_stated_and_found(key, capsys):
    assert main(["audit", "total", "--runs", "100", "--processes", "1", "--key-file", str(key.path)]) == 0
    said = capsys.readouterr().out
    assert "users in all" in said
    assert "nothing was found above what is stated" in said
    assert main(["audit", "total", "--runs", "100", "--processes", "1", "--key-file", str(key.path), "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert [line["command"] for line in lines] == ["total", "total"]
    assert all(line["share"] <= 1 and not line["refuted"] for line in lines)


def test_the_command_shows_that_it_sees_a_bug(key, capsys):
    assert main(["audit", "--broken", "types-of-rows", "--runs", "120", "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert "types-of-rows" in said
    assert said.splitlines()[-3].endswith("  seen")
    assert "every bug was seen" in said
    flags = ["--runs", "40", "--processes", "1", "--key-file", str(key.path)]
    assert main(["audit", "--broken", "permute-and-flip", *flags]) == 2
    assert "not seen: permute-and-flip; raise --runs" in capsys.readouterr().err


def test_the_command_takes_public_data(key, tmp_path, capsys):
    path = tmp_path / "public.parquet"
    pq.write_table(pa.table({"user": [f"u{number}" for number in range(20)], "page": ["x"] * 20}), path)
    line = "histogram --user user --item page --epsilon 1 --delta 1e-3"
    flags = ["--runs", "40", "--processes", "1", "--key-file", str(key.path)]
    assert main(["audit", "--public-data", str(path), "--line", line, *flags]) == 0
    assert "histogram" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["histogramm"], "nothing is audited of 'histogramm'; did you mean histogram?"),
        (["--broken", "point-mas"], "did you mean point-mass?"),
        (["--line", "histogram"], "--public-data FILE and --line 'COMMAND ...' go together"),
        (["total", "--broken"], "give commands, --broken or --line: one of them"),
        (["--public-data", "nowhere.parquet", "--line", "total --user u"], "cannot be read as Parquet"),
        (["--confidence", "1"], "--confidence must lie between 0 and 1"),
    ],
)
def test_refusals(flags, told, capsys):
    assert main(["audit", *flags]) == 2
    assert told in capsys.readouterr().err


def test_the_list_has_all(capsys):
    assert main(["audit", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in [*CASES, *bugs.BUGS])
