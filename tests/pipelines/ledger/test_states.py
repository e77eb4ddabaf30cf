"""What was published counts, whoever dies, is cut off or says something else; what cannot have been is given back.

They run on SQLite here, and all of them on PostgreSQL in tests/postgres.
"""

import os
import shutil

import pytest
import sqlalchemy as sa

from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines.jobs.direct import Direct
from headcount.pipelines.ledger import book, database, spending, tables
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import (
    COMMITTED,
    GIVEN_BACK,
    LEFT,
    PUBLISHING,
    RESERVED,
    SPENT,
    Change,
    make_dataset,
)
from headcount.pipelines.ledger.resolve import decide
from headcount.pipelines.sinks import output
from tests.pipelines.ledger.accounts import dead, files, promise, request, states
from tests.pipelines.ledger.runners import Alone
from tests.pipelines.refusals import refused

AWAY = ParameterError("--ledger x cannot be used: the server is gone")


def broken(*_):
    raise AWAY


def counted(ledger):
    return len([entry for entry in ledger.entries("visits") if entry.state in SPENT])


def history(ledger):
    (entry,) = ledger.entries()
    return [change.state for change in entry.changes]


def as_if_dead(monkeypatch):
    """The process of these tests has made the entries: from now on it counts as ended."""
    monkeypatch.setattr("headcount.pipelines.ledger.records.is_over", lambda process: True)


def test_a_job_says_that_it_publishes_before_it_does(job, ledger, monkeypatch):
    seen = []
    genuine = output._put

    def put(target, name, place, digest):
        (entry,) = ledger.entries()
        seen.append((entry.state, entry.made is not None))
        return genuine(target, name, place, digest)

    monkeypatch.setattr(output, "_put", put)
    assert job("out")[0] == 0
    assert set(seen) == {(PUBLISHING, True)} and history(ledger) == [RESERVED, PUBLISHING, COMMITTED]
    assert len({change.release_sha256 for change in ledger.entries()[0].changes[1:]}) == 1


def test_nothing_is_published_while_the_ledger_is_away(job, ledger, monkeypatch, run, url, tmp_path):
    with monkeypatch.context() as patch:
        for name in ("publish", "settle", "leave", "commit"):
            patch.setattr(book.Ledger, name, broken)
        status, out, err = job("out")
    assert status == 2 and "the server is gone" in err[-1] and not (tmp_path / "out").exists()
    assert history(ledger) == [RESERVED]
    as_if_dead(monkeypatch)  # and nothing was published, as it would have been said
    assert "given back" in run("ledger", "resolve", "--ledger", url)[1] and states(ledger) == [GIVEN_BACK]


def test_what_is_published_is_not_refunded_when_the_ledger_was_away(job, ledger, monkeypatch, run, url, tmp_path):
    """Another exit status says so; that the output is gone later is no proof that nobody has it."""
    with monkeypatch.context() as patch:
        patch.setattr(book.Ledger, "commit", broken)
        status, out, err = job("out", "--release-id", "r1")
    assert status == 3 and "this release is in the ledger" not in out
    assert "published, but not yet committed" in err[-1] and "headcount ledger resolve visits" in err[-1]
    assert history(ledger) == [RESERVED, PUBLISHING]
    shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    as_if_dead(monkeypatch)
    for _ in range(2):
        status, out, _ = run("ledger", "resolve", "visits", "--ledger", url)
        assert status == 0 and "stays reserved" in out and "no proof" in out and "--published" in out
    assert counted(ledger) == 1
    status, out, _ = run("ledger", "resolve", "--release-id", "r1", "--published", "--ledger", url)
    assert "committed: you say that it was published" in out and states(ledger) == [COMMITTED]
    assert job("again", "--release-id", "r1")[0] == 0  # the same bytes, at no cost
    assert counted(ledger) == 1
    names = [name for name in os.listdir(tmp_path / "again") if name.endswith(".csv")]
    again, before = files(tmp_path / "again"), files(tmp_path / "elsewhere")
    assert names and all(again[name] == before[name] for name in names)


def test_resolve_finds_what_the_ledger_was_not_told(job, ledger, monkeypatch, run, url):
    with monkeypatch.context() as patch:
        patch.setattr(book.Ledger, "commit", broken)
        assert job("out")[0] == 3
    assert "is complete" in run("ledger", "resolve", "--ledger", url)[1] and states(ledger) == [COMMITTED]


def test_a_job_that_died_while_it_published_is_made_again_at_no_cost(job, ledger, monkeypatch, tmp_path):
    """But not of other data: what it may have published is known by its digest."""
    with monkeypatch.context() as patch:
        patch.setattr(book.Ledger, "commit", broken)
        assert job("out", "--release-id", "r1")[0] == 3
    shutil.rmtree(tmp_path / "out")
    refused(job("out", "--release-id", "r1"), "is being made by")  # its process is there
    as_if_dead(monkeypatch)
    events = (tmp_path / "events.csv").read_text()
    (tmp_path / "events.csv").write_text(events + "new,a\n")
    refused(job("out", "--release-id", "r1"), "so nothing is published")
    (tmp_path / "events.csv").write_text(events)
    assert job("out", "--release-id", "r1")[0] == 0 and states(ledger) == [COMMITTED]


def test_an_entry_follows_the_process_that_works(ledger, run, url):
    """The bug: what died while it was published was made again by many at once, and given up while one of them worked."""
    made = Change(PUBLISHING, "0" * 64, "0" * 64, "0" * 64)
    ledger.publish(ledger.reserve(request("r1", process=dead())), made)
    gave_up = ["ledger", "resolve", "--release-id", "r1", "--gave-up", "--ledger", url]
    again = ledger.reserve(request("r1"))
    assert again.made.release_sha256 == made.release_sha256
    with pytest.raises(ParameterError, match="is being made by"):
        ledger.reserve(request("r1"))
    refused(run(*gave_up), f"process {os.getpid()} on", "is still there", "stop it first")
    ledger.leave(again, "it failed")
    ledger.reserve(request("r1", process=dead()))
    elsewhere = ledger.reserve(request("r1", process=dead(), runner="FlinkRunner"))  # which may run without its process
    with pytest.raises(ParameterError, match="is being made by"):
        ledger.reserve(request("r1"))
    assert elsewhere.is_over() is None and history(ledger)[-2:] == [PUBLISHING] * 2
    assert run(*gave_up)[0] == 0 and states(ledger) == [GIVEN_BACK]


def test_a_retry_that_fails_leaves_the_entry_to_the_next(call, ledger, monkeypatch):
    """In one process, as in a notebook."""
    ledger.publish(
        ledger.reserve(request("r1", process=dead(), parameters_sha256=_parameters(call, ledger))),
        Change(PUBLISHING, "0" * 64, "0" * 64, "0" * 64),
    )
    for _ in range(2):
        with pytest.raises(HeadcountError, match="so nothing is published"):
            call(release_id="r1")
    assert history(ledger) == [RESERVED, PUBLISHING, PUBLISHING, LEFT, PUBLISHING, LEFT]


def _parameters(call, ledger):
    """The digest of the parameters of a call, in a ledger that forgets it."""
    call(release_id="r0")
    (entry,) = ledger.entries()
    with ledger._database.writing() as connection:
        for table in (tables.changes, tables.entries):
            connection.execute(table.delete())
    return entry.request.parameters_sha256


def test_a_commit_that_fails_may_have_published(job, ledger, monkeypatch, run, url):
    def fails(*_):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(output, "discard", lambda target: None)
        patch.setattr(output, "_holds", fails)
        status, _, err = job("out", "--release-id", "r1")
    assert status == 1 and any("may have published" in line for line in err)
    assert history(ledger) == [RESERVED, PUBLISHING, LEFT] and counted(ledger) == 1
    assert "stays reserved" in run("ledger", "resolve", "--ledger", url)[1]
    status, out, _ = run("ledger", "resolve", "--release-id", "r1", "--gave-up", "--ledger", url)
    assert "given back: its job was given up" in out and counted(ledger) == 0


def test_nobody_gives_up_for_a_process_that_is_there(ledger, run, url, tmp_path):
    ledger.reserve(request("r1", output=str(tmp_path / "out")))
    words = ["ledger", "resolve", "--release-id", "r1", "--gave-up", "--ledger", url]
    refused(run(*words), "is still there", "stop it first")
    assert history(ledger) == [RESERVED]
    ledger.reserve(request("r2", output=str(tmp_path / "two"), process={**dead(), "space": "another machine"}))
    assert run(*words[:3], "r2", *words[4:])[0] == 0 and states(ledger) == [RESERVED, GIVEN_BACK]


def give_back(ledger):
    """As somebody does who can write to the ledger, whatever is running."""
    (entry,) = ledger.entries()
    assert ledger.settle(book.Settled(entry, Change(GIVEN_BACK)))


def test_a_job_here_that_was_given_up_publishes_nothing(job, ledger, monkeypatch, tmp_path):
    genuine = Direct.run

    def given_up_meanwhile(*given):
        give_back(ledger)
        return genuine(*given)

    monkeypatch.setattr(Direct, "run", given_up_meanwhile)
    refused(job("out"), "was given up while it was made, so nothing of it is published")
    assert not (tmp_path / "out").exists() and history(ledger) == [RESERVED, GIVEN_BACK]


def test_a_job_elsewhere_that_publishes_is_committed_whatever_was_said(job, ledger, monkeypatch):
    """It has published, and so it counts, also beyond the limit."""

    class Waited:
        def wait_until_finish(self):
            give_back(ledger)
            for number in range(2):
                ledger.reserve(request(f"other{number}"))
            return Alone.run()

    monkeypatch.setattr("tests.pipelines.ledger.runners._Submitted", Waited)
    status, out, err = job("out", "--runner", "tests.pipelines.ledger.runners.Alone")
    assert status == 0 and any("had been given up, and is published" in line for line in err), err
    assert counted(ledger) == 3
    assert [change.state for change in ledger.entries()[0].changes] == [RESERVED, GIVEN_BACK, COMMITTED]


def test_resolve_sees_what_was_published_after_it_was_given_up(job, ledger, run, url):
    alone = ["--runner", "tests.pipelines.ledger.runners.Alone", "--no_wait_until_finish", "--release-id", "r1"]
    assert job("out", *alone)[0] == 0
    assert run("ledger", "resolve", "--release-id", "r1", "--gave-up", "--ledger", url)[0] == 0
    assert run("ledger", "resolve", "--ledger", url)[1] == "no entry is reserved\n" and counted(ledger) == 0
    Alone.run()
    assert "release r1 of data set visits: committed" in run("ledger", "resolve", "--ledger", url)[1]
    assert counted(ledger) == 1


def test_what_was_ever_committed_counts(call, ledger, run, url):
    """Whatever somebody adds who may add: the state is that of the whole history."""
    call(), call()
    with ledger._database.writing() as connection:
        for entry in ledger.entries():
            told = {"state": GIVEN_BACK, "at": "2100-01-01T00:00:00.000000+00:00", "who": "somebody"}
            connection.execute(tables.changes.insert().values(entry=entry.id, **told))
    assert states(ledger) == [COMMITTED] * 2 and not ledger.entries(states=[GIVEN_BACK])
    with pytest.raises(ParameterError, match="epsilon = 2 of it is spent"):
        call()
    assert "2 releases: epsilon = 2" in run("ledger", "total", "visits", "--ledger", url)[1]


def test_what_nobody_knows_is_not_made_again(job, ledger, run, url, call):
    ledger.reserve(request("r1", process=dead(), runner="FlinkRunner", output="/nowhere"))
    assert run("ledger", "resolve", "--release-id", "r1", "--published", "--ledger", url)[0] == 0
    with pytest.raises(ParameterError, match="with other parameters"):
        call(release_id="r1")
    (entry,) = ledger.entries()
    with pytest.raises(ParameterError, match="is not known here, so that it cannot be made again"):
        ledger.reserve(request("r1"))
    assert entry.state == COMMITTED and decide(ledger.entries()[0]).settled is None


@pytest.mark.parametrize("per", ["month", "year"])
def test_a_clock_that_is_set_back_opens_no_earlier_limit(ledger, monkeypatch, per):
    def at(time):
        monkeypatch.setattr(book, "now", lambda: f"{time}.000000+00:00")

    at("2025-12-01T00:00:00")
    ledger.create(make_dataset("timed", "user", "add-remove", 1.0, 0.0, per))
    at("2026-01-01T00:01:00")
    first = ledger.reserve(request("a", dataset="timed"))
    at("2025-07-01T00:00:00")
    with pytest.raises(
        ParameterError, match="clock of this machine says 2025-07-01T00:00:00.*entry of 2026-01-01T00:01:00"
    ):
        ledger.reserve(request("b", dataset="timed"))
    at("2025-12-31T23:59:00")  # clocks of two machines differ a little: it is of the newer year all the same
    with pytest.raises(ParameterError, match=f"in {first.span} epsilon = 1 of it is spent"):
        ledger.reserve(request("b", dataset="timed"))
    ledger.settle(book.Settled(first, Change(GIVEN_BACK)))  # which opens nothing, as nothing of that year counts
    assert ledger.reserve(request("b", dataset="timed")).span == ledger.dataset("timed").span("2025-12-31T23:59:00")


@pytest.mark.parametrize(("per", "year_of_pause", "days"), [("month", "2026-06-01", 100), ("year", "2027-06-01", 400)])
def test_a_clock_that_is_set_ahead_keeps_nobody_out(ledger, monkeypatch, per, year_of_pause, days):
    """The bug: one job of 2031 kept a data set from all jobs until then, even if it was given back."""

    def at(day):
        monkeypatch.setattr(book, "now", lambda: f"{day}T12:00:00.000000+00:00")

    at("2026-01-01")
    ledger.create(make_dataset("timed", "user", "add-remove", 9.0, 0.0, per))
    ledger.reserve(request("a", dataset="timed"))
    at("2031-01-01")
    with pytest.raises(ParameterError, match=f"entry of 2026-01-01.* more than {days} days before.*--clock-checked"):
        ledger.reserve(request("b", dataset="timed"))
    checked = ledger.reserve(request("b", dataset="timed", clock_checked=True))  # and it was wrong all the same
    ledger.leave(ledger.entries("timed")[0], "on a clock set ahead")
    at("2026-01-02")
    with pytest.raises(ParameterError, match="has an entry of 2031-01-01"):
        ledger.reserve(request("c", dataset="timed"))
    given_back = book.Settled(checked, Change(GIVEN_BACK))
    assert ledger.reserve(request("c", dataset="timed"), [given_back]).changes[0].at[:10] == "2026-01-02"
    at(year_of_pause)
    with pytest.raises(ParameterError, match="--clock-checked"):
        ledger.reserve(request("d", dataset="timed"))
    assert ledger.reserve(request("d", dataset="timed", clock_checked=True)).changes[0].at[:10] == year_of_pause


def test_a_clock_is_checked_by_whoever_runs_a_job(job, call, ledger, monkeypatch):
    ledger.create(make_dataset("timed", "user", "add-remove", 9.0, 0.0, "year"))
    with monkeypatch.context() as patch:
        patch.setattr(book, "now", lambda: "2031-01-01T12:00:00.000000+00:00")
        refused(job("out", dataset="timed"), "--clock-checked")
        with pytest.raises(ParameterError, match="by clock_checked"):
            call(dataset="timed")
        assert job("out", "--clock-checked", dataset="timed")[0] == 0
        call(dataset="timed", clock_checked=True)
    assert len(ledger.entries("timed")) == 2


def test_a_second_start_leaves_the_first_alone(job, ledger, monkeypatch, tmp_path):
    """It is refused by the ledger before it takes the files of the first for what a dead one left."""
    genuine, second = Direct.run, []

    def another_starts(*given):
        monkeypatch.setattr(Direct, "run", genuine)
        (tmp_path / "out.tmp-r1").mkdir(exist_ok=True)
        mine = tmp_path / "out.tmp-r1" / f"counts-00000-of-00001.{'0' * 32}.csv"
        mine.write_text("of the first\n")
        second.append(job("out", "--release-id", "r1"))
        assert mine.read_text() == "of the first\n"
        return genuine(*given)

    monkeypatch.setattr(Direct, "run", another_starts)
    assert job("out", "--release-id", "r1")[0] == 0
    refused(second[0], "is being made by")
    assert states(ledger) == [COMMITTED] and (tmp_path / "out" / "report.json").exists()


def test_a_job_that_cannot_write_is_given_back(job, ledger, monkeypatch):
    def no_room(target):
        raise OSError("no space left")

    monkeypatch.setattr(output, "_probe", no_room)
    refused(job("out"), "cannot write to --output", "no space left")
    assert states(ledger) == [GIVEN_BACK]


def test_nobody_waits_while_the_limit_is_checked(ledger, url, monkeypatch):
    """What releases cost together is computed before the ledger is locked."""
    monkeypatch.setattr(database, "_WAIT", 1)
    genuine, others = spending.refuse_above, []

    def checked(*given):
        others.append(open_ledger(url).create(make_dataset(f"d{len(others)}", "user", "add-remove", 1.0, 0.0, None)))
        return genuine(*given)

    monkeypatch.setattr(spending, "refuse_above", checked)
    ledger.reserve(request("a"))
    assert len(others) == 1


def test_what_comes_meanwhile_is_counted(ledger, url, monkeypatch):
    """Others take the room between the look and the lock, again and again: the limit holds."""
    genuine, others = spending.refuse_above, []

    def overtaken(dataset, span, spent, more):
        genuine(dataset, span, spent, more)
        if len(others) < 2:
            others.append(None)
            with monkeypatch.context() as patch:
                patch.setattr(spending, "refuse_above", genuine)
                open_ledger(url).reserve(request(f"other{len(others)}"))

    monkeypatch.setattr(spending, "refuse_above", overtaken)
    with pytest.raises(ParameterError, match="epsilon = 2 of it is spent"):
        ledger.reserve(request("a"))
    assert counted(ledger) == 2
    small = [ledger.reserve(request(f"small{k}", guarantee=promise(0.1))) for k in range(5)]
    assert len(small) == 5


def test_a_ledger_of_another_version_is_refused(ledger, run, url):
    with ledger._database.writing() as connection:
        connection.execute(sa.update(tables.ledger).values(version=1))
    for words in (["show"], ["create", "more", "--limit-epsilon", 1, "--limit-delta", 0]):
        refused(run("ledger", *words, "--ledger", url), "has tables of version 1, and this is for version 3")
