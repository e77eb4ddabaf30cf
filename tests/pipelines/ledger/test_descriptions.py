"""What a ledger says on a terminal: nothing that the terminal obeys, and nothing of a password."""

import json

import pytest

import headcount
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import make_dataset
from tests.pipelines.refusals import refused


@pytest.mark.parametrize("secret", ["hunter@2two", "@hunter@2two", "hunter@2/two", "hunter@2?two", "hunter@[2two"])
def test_a_password_with_an_at_sign_is_told_in_no_part(run, secret):
    """By the first of two, all that comes behind it would be a host or a database, which messages name."""
    result = run("ledger", "show", "--ledger", f"postgresql://counter:{secret}@127.0.0.1:1/privacy")
    assert not any(part in "".join(result[2]) for part in ("hunter", "two"))
    refused(result, "--ledger has more than one @: write those of a user, a password or an option as %40")


def test_labels_do_not_reach_the_terminal_as_they_are(run, url):
    """Whoever may write to a ledger writes to the screens of all who look: no letter of it moves, colours or forges a line."""
    given = {"user": "user", "item": "item", "domain": ["a"], "method": "one-stage", "bound": 1, "epsilon": 1.0}
    open_ledger(url).create(make_dataset("visits", "user", "add-remove", 2.5, 1e-6, None))
    given |= {"ledger": url, "dataset": "visits"}
    headcount.histogram(
        {"user": ["u"], "item": ["a"]}, **given, label="a\x1b[2J\x9b31m\u202eb", period="2026\r\nforged  committed"
    )
    for words in (["show"], ["show", "visits"], ["total", "visits"], ["export"], ["export", "--format", "csv"]):
        status, out, err = run("ledger", *words, "--ledger", url)
        assert status == 0 and err == [] and not set("\x1b\x9b\u202e\r") & set(out)
        if words[0] == "show":
            (line,) = [line for line in out.splitlines() if "forged" in line]
            assert "a [2J 31m b, 2026  forged  committed" in line
        if words == ["export"]:
            assert json.loads(out)["label"] == "a\x1b[2J\x9b31m\u202eb", "programs get it as it was given"


def test_a_total_for_a_program(run, url):
    """The numbers that people read, and of a new ledger none."""
    open_ledger(url).create(make_dataset("visits", "user", "add-remove", 2.5, 1e-6, "year"))
    total = ["ledger", "total", "visits", "--json", "--ledger", url]
    told = json.loads(run(*total)[1])
    assert told["spent"]["releases"] == 0 and told["left"]["epsilon"] == 2.5 and told["more_like_the_last"] is None
    given = {"user": "user", "item": "item", "domain": ["a"], "method": "one-stage", "bound": 1, "epsilon": 1.0}
    headcount.histogram({"user": ["u"], "item": ["a"]}, **given, ledger=url, dataset="visits")
    status, out, err = run(*total)
    told = json.loads(out)
    assert (status, err) == (0, [])
    assert told["limit"] == {"epsilon": 2.5, "delta": 1e-6, "per": "year"}
    assert told["spent"] | {"span": None} == told["ever"] and told["earlier"] == []
    assert told["spent"]["added_up"] == {"epsilon": 1.0, "delta": 0.0} and 0.99 <= told["spent"]["epsilon"] <= 1
    assert told["left"] == {"epsilon": pytest.approx(1.5, rel=1e-3), "delta": 0.0} and told["more_like_the_last"] == 1


def test_an_account_in_python_is_what_the_command_tells(run, url):
    open_ledger(url).create(make_dataset("visits", "user", "add-remove", 2.5, 1e-6, None))
    assert headcount.ledger("visits", ledger=url).table.num_rows == 0, "a new one has columns, too"
    given = {"user": "user", "item": "item", "domain": ["a"], "method": "one-stage", "bound": 1, "epsilon": 1.0}
    headcount.histogram({"user": ["u"], "item": ["a"]}, **given, ledger=url, dataset="visits", period="2026-W46")
    found = headcount.ledger("visits", ledger=url)
    assert repr(found) == run("ledger", "total", "visits", "--ledger", url)[1].rstrip("\n")
    assert found.told == json.loads(run("ledger", "total", "visits", "--json", "--ledger", url)[1])
    ((row,), (exported,)) = (
        found.table.to_pylist(),
        map(json.loads, run("ledger", "export", "--ledger", url)[1].splitlines()),
    )
    assert row["epsilon"] == 1.0 and row["period"] == "2026-W46" and row["state"] == "committed"
    assert {name: row[name] for name in ("release_id", "command", "label", "output")}.items() <= exported.items()
    with pytest.raises(headcount.ParameterError, match="other"):
        headcount.ledger("other", ledger=url)
    with pytest.raises(headcount.ParameterError, match="^ledger must be a URL such as"):
        headcount.ledger("visits", ledger="ledger.db")
