"""Releases of a data set protect the same users: told apart by one column, and by one column of times in one zone.

They run on SQLite here, and all of them on PostgreSQL in tests/postgres.
"""

import json

import pytest

import headcount
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import book
from headcount.pipelines.ledger.records import GIVEN_BACK, RESERVED, Change, Users, make_dataset
from tests.pipelines.ledger.accounts import FRAME, promise, request, states
from tests.pipelines.refusals import refused

#: One user has ten sessions: what protects each session hides a tenth of the user.
SESSIONS = FRAME | {"session": [f"s{k}" for k in range(4000)]}
TIMES = FRAME | {"at": ["2026-05-01T20:00:00"] * 4000, "until": ["2026-05-01T21:00:00"] * 4000}


def test_the_first_release_says_who_is_protected(call, ledger):
    call(SESSIONS)
    with pytest.raises(ParameterError) as error:
        call(SESSIONS, user="session")
    assert "protects each user of the column 'user', and this release each of the column 'session'" in str(error.value)
    assert "another dataset" in str(error.value) and len(ledger.entries()) == 1
    assert ledger.entries()[0].request.users == Users("user")


def test_one_that_published_nothing_says_nothing(ledger):
    first = ledger.reserve(request("a", user_column="session"))
    with pytest.raises(ParameterError, match="the column 'session'"):
        ledger.reserve(request("b"))
    assert ledger.settle(book.Settled(first, Change(GIVEN_BACK)))
    assert ledger.reserve(request("b")).state == RESERVED


def test_the_same_for_a_job(job, ledger, tmp_path):
    assert job("out")[0] == 0
    (tmp_path / "events.csv").write_text("user,item,session.id\nu,a,s\n")
    refused(job("more", user="session.id"), "the column 'user'", "the column 'session.id'", "or another --dataset")
    assert not (tmp_path / "more").exists() and len(ledger.entries()) == 1


@pytest.fixture
def days(url, ledger, key):
    """A histogram of days of users, on an account of such."""
    ledger.create(make_dataset("days", "user-day", "add-remove", 9.0, 1e-6, None))
    given = {"item": "item", "domain": ["a", "b"], "epsilon": 1.0, "protect": "user-day"}
    given |= {"ledger": url, "dataset": "days", "key_file": key, "method": "one-stage", "bound": 2}

    def made(**more):
        return headcount.histogram(TIMES, **given | {"user": "user", "time": "at"} | more)

    return made


def test_windows_have_one_column_of_times_and_one_zone(days, ledger):
    """A user's day in Tokyo is a part of two in UTC."""
    days()
    days(time_zone="UTC")
    for other in ({"time_zone": "Asia/Tokyo"}, {"time": "until"}):
        with pytest.raises(ParameterError, match="and by the times in 'at' in UTC, and this release each of"):
            days(**other)
    assert len(ledger.entries("days")) == 2


def test_the_zone_of_items_is_no_matter_of_users(call):
    call()
    call(time_zone="Asia/Tokyo")


def test_create_says_who_is_protected(run, url, ledger, tmp_path):
    words = ["ledger", "create", "--limit-epsilon", 9, "--limit-delta", 0, "--ledger", url]
    assert run(*words, "by-user", "--user", "user.id")[0] == 0
    with pytest.raises(ParameterError, match="the column 'user.id', and this release each of the column 'user'"):
        ledger.reserve(request("a", dataset="by-user"))
    assert ledger.reserve(request("b", dataset="by-user", user_column="user.id")).state == RESERVED
    zone = ["--time", "at", "--time-zone", "Asia/Tokyo"]
    assert run(*words, "by-day", "--unit", "user-day", "--user", "user", *zone)[0] == 0
    day = {"dataset": "by-day", "guarantee": promise(unit="user-day"), "time_column": "at"}
    with pytest.raises(ParameterError, match="in Asia/Tokyo, and this release .* in UTC"):
        ledger.reserve(request("c", **day, time_zone="UTC"))
    assert ledger.reserve(request("c", **day, time_zone="Asia/Tokyo")).state == RESERVED
    status, out, _ = run("ledger", "show", "by-day", "--ledger", url)
    assert status == 0 and "told apart by the column 'user' and by the times in 'at' in Asia/Tokyo" in out
    refused(run(*words, "x", "--unit", "user-day", "--user", "user"), "--unit user-day needs", "--time")
    refused(run(*words, "x", "--user", "user", "--time", "at"), "--unit user has no --time")
    refused(run(*words, "x", "--unit", "user-day", "--time", "at"), "give --user")
    refused(run(*words, "x", "--unit", "user-day", "--user", "u", "--time", "at", "--time-zone", "Mars"), "Mars")


def test_entries_tell_who_is_protected(days, ledger, run, url):
    days()
    status, out, _ = run("ledger", "export", "days", "--ledger", url)
    entry = json.loads(out)
    assert (entry["user_column"], entry["time_column"], entry["time_zone"]) == ("user", "at", "UTC")
    assert "'user' and by the times in 'at' in UTC" in run("ledger", "show", "days", "--ledger", url)[1]
    assert states(ledger) == ["committed"]
