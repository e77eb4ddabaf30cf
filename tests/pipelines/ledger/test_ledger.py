"""The ledger: limits that hold, retries that cost nothing, and entries that always tell what was published.

They run on SQLite here, and all of them on PostgreSQL in tests/postgres.
"""

import csv
import io
import json
import os

import pytest

from headcount.mechanisms import Budget, private_histogram
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import HeadcountError, InputError, ParameterError
from headcount.pipelines.ledger import book, processes, spending
from headcount.pipelines.ledger.records import COMMITTED, GIVEN_BACK, LEFT, RESERVED, Change, make_dataset
from headcount.pipelines.ledger.resolve import decide
from tests.pipelines.ledger.accounts import FRAME, dead, files, promise, request, states, write_csv
from tests.pipelines.refusals import refused


def test_a_call_is_charged_when_it_returns(call, ledger):
    result = call(label="shops", period="May")
    (entry,) = ledger.entries()
    assert (entry.state, entry.request.release_id) == (COMMITTED, result.report["release_id"])
    assert (entry.request.label, entry.request.period, entry.request.command) == ("shops", "May", "histogram")
    assert entry.request.guarantee.as_dict() == {
        name: part for name, part in result.report["details"]["guarantee"].items() if name != "words"
    }
    assert [change.state for change in entry.changes] == [RESERVED, COMMITTED]
    assert result.report["dataset"] == "visits" and len(entry.last.rows_sha256) == 64


def test_a_result_is_saved_at_no_further_cost(call, ledger, tmp_path):
    result = call()
    for format in ("parquet", "csv"):
        result.save(tmp_path / format, format=format)
    assert states(ledger) == [COMMITTED]
    assert json.loads((tmp_path / "csv" / "report.json").read_text())["dataset"] == "visits"


def test_what_exceeds_the_limit_is_refused_with_what_is_left(call, ledger):
    call(), call()
    words = r"epsilon = 2 of it is spent, and with this release \(epsilon = 1 and delta = 0\).* left: epsilon = 0\.5 for one"
    with pytest.raises(ParameterError, match=words):
        call()
    assert states(ledger) == [COMMITTED] * 2
    call(epsilon=0.5)  # which fits exactly
    with pytest.raises(
        ParameterError, match="left: epsilon = 0 for one release at delta = 0, or no release like the last one"
    ):
        call(epsilon=0.001)


def test_the_limit_holds_for_the_composed_total(ledger):
    """Eight Gaussian releases of epsilon 1 add up to 8, and compose to less: then more of them fit."""
    release = private_histogram(
        Budget(1, 1e-8), domain=["a"], method="one-stage", bound=1, noise="gaussian"
    ).guarantee()
    spent = [release] * 8
    dataset, adaptive = (make_dataset("d", "user", "add-remove", 8.0, 1e-6, None, each) for each in (False, True))
    composed, filtered = (spending.total(spent, each) for each in (dataset, adaptive))
    assert composed.sum_epsilon == 8 and composed.epsilon < filtered.epsilon < 4
    for most, each in ((61, dataset), (51, adaptive)):
        spending.refuse_above(each, "", [release] * (most - 1), release)
        with pytest.raises(spending.ExceededError) as error:
            spending.refuse_above(each, "", [release] * most, release)
        assert "it would be epsilon = 8" in str(error.value.refusal())


@pytest.mark.parametrize(
    ("guarantee", "words"),
    [
        (promise(unit="user-day"), ["unit user", "user-day", "--protect user"]),
        (promise(relation=Relation.REPLACE), ["relation add-remove", "replace", "--relation add-remove"]),
    ],
)
def test_another_kind_of_promise_is_refused(ledger, guarantee, words):
    with pytest.raises(ParameterError) as error:
        ledger.reserve(request(guarantee=guarantee))
    assert all(word in str(error.value) for word in words) and not ledger.entries()


def test_a_limit_of_each_month(url, ledger, run, monkeypatch):
    monkeypatch.setattr(book, "now", lambda: "2026-01-01T00:00:00.000000+00:00")
    ledger.create(make_dataset("monthly", "user", "add-remove", 1.0, 0.0, "month"))
    for at in ("2026-01-31T23:59:59", "2026-02-01T00:00:00", "2026-05-05T08:00:00"):
        monkeypatch.setattr(book, "now", lambda at=at: f"{at}.000000+00:00")
        entry = ledger.reserve(request(at.replace(":", "-"), dataset="monthly"))
        assert entry.span == at[:7]
        with pytest.raises(ParameterError, match=f"in each month; in {at[:7]} epsilon = 1 of it is spent"):
            ledger.reserve(request(f"{at[:7]}-more", dataset="monthly"))
    status, out, err = run("ledger", "total", "monthly", "--ledger", url)
    assert (status, err) == (0, []) and "in 2026-02: 1 release: epsilon = 1" in out
    assert "in all time, for which there is no limit: 3 releases: epsilon = 3" in out and "3 of these are only" in out


def test_the_same_call_again_costs_nothing(call, ledger):
    first, second = call(release_id="auto", period="w1"), call(release_id="auto", period="w1")
    assert first.table == second.table and first.report == second.report
    assert first.report["release_id"].startswith("auto-")
    (entry,) = ledger.entries()
    assert [change.state for change in entry.changes] == [RESERVED, COMMITTED, COMMITTED]
    other = call(release_id="auto", period="w2")
    assert other.report["release_id"] != first.report["release_id"] and len(ledger.entries()) == 2


def test_other_input_under_the_same_id_is_refused(call, ledger):
    """Other rows under an id that is paid for would be a second release for nothing: not one of them is returned."""
    call(release_id="r1")
    more = {"user": [*FRAME["user"], "new"], "item": [*FRAME["item"], "a"]}
    with pytest.raises(InputError, match="the input changed"):
        call(more, release_id="r1")
    with pytest.raises(ParameterError, match="other parameters"):
        call(release_id="r1", bound=3)
    ledger.create(make_dataset("others", "user", "add-remove", 9.0, 0.0, None))
    with pytest.raises(ParameterError, match="one of data set 'visits'"):
        call(release_id="r1", dataset="others")
    assert states(ledger) == [COMMITTED] and len(ledger.entries()[0].changes) == 2


def test_the_check_of_the_release_is_what_refuses_other_input(call, ledger, monkeypatch):
    """With the known mistake put in, that a retry is not checked, somebody has two releases and has paid for one."""
    first = call(release_id="r1").table
    more = {"user": [*FRAME["user"], "new"], "item": [*FRAME["item"], "a"]}
    monkeypatch.setattr("headcount.result.refuse_another", lambda *_: None)
    assert call(more, release_id="r1").table != first and len(ledger.entries()) == 1


def test_what_fails_is_given_back(call, ledger):
    with pytest.raises(InputError):
        call({"user": ["u", None], "item": ["a", "b"]})
    assert states(ledger) == [GIVEN_BACK]
    call(), call()
    assert states(ledger) == [GIVEN_BACK, COMMITTED, COMMITTED]


def test_a_result_whose_entry_cannot_be_written_is_not_returned(call, ledger, monkeypatch):
    def broken(*_):
        raise ParameterError("the ledger is gone")

    monkeypatch.setattr(book.Ledger, "commit", broken)
    monkeypatch.setattr(book.Ledger, "settle", broken)
    with pytest.raises(ParameterError, match="gone"):
        call()
    assert states(ledger) == [RESERVED]


def test_a_job_and_its_retry(job, ledger, tmp_path):
    """One more time, at no cost, the same bytes; for other events nothing, and the earlier output stays as it was."""
    status, out, err = job("out", "--release-id", "auto", "--period", "w1")
    assert (status, err) == (0, []) and "data set visits: this release is in the ledger" in out
    wrote = files(tmp_path / "out")
    (entry,) = ledger.entries()
    assert entry.request.output == str(tmp_path / "out") and entry.state == COMMITTED
    status, out, err = job("out", "--release-id", "auto", "--period", "w1", "--overwrite")
    assert (status, err) == (0, []) and "spends nothing" in out and files(tmp_path / "out") == wrote
    write_csv(tmp_path / "events.csv", {"user": [*FRAME["user"], "new"], "item": [*FRAME["item"], "a"]})
    again = job("out", "--release-id", "auto", "--period", "w1", "--overwrite")
    refused(again, "the input changed", "nothing is published")
    refused(job("other", "--release-id", "auto", "--period", "w1"), "the input changed")
    assert files(tmp_path / "out") == wrote and not (tmp_path / "other").exists()
    assert len(ledger.entries()) == 1


def test_a_job_that_fails_is_given_back_and_one_that_replaces_says_so(job, ledger, run, url, tmp_path):
    refused(job("out", "--drop-null", "--count", "nothing"), "nothing")  # before it is reserved
    (tmp_path / "events.csv").write_text("user,item\nu1,a\n,b\n")
    refused(job("out"), "null")
    assert states(ledger) == [GIVEN_BACK] and not (tmp_path / "out").exists()
    write_csv(tmp_path / "events.csv", FRAME)
    assert job("out")[0] == 0
    status, _, err = job("out", "--overwrite")
    assert status == 0 and len(err) == 1 and "a new release, which spends its budget again" in err[0]
    refused(job("more"), "epsilon = 2 of it is spent", "nothing was read; what is left: epsilon = 0.5 for one")
    status, out, _ = run("ledger", "show", "--ledger", url)
    assert status == 0 and out.count("committed") == 2 and out.count("given back") == 1
    status, out, _ = run("ledger", "total", "visits", "--ledger", url)
    assert "2 releases: epsilon = 2" in out and "left: epsilon = 0.5" in out


def test_jobs_on_other_machines(job, ledger, run, url, tmp_path):
    """What was submitted may publish whatever becomes of the driver: it stays reserved until somebody looks, or gives up."""
    status, out, err = job("lost", "--runner", "tests.pipelines.ledger.runners.Failing", "--release-id", "lost")
    assert status == 1 and any("stays reserved" in line and "ledger resolve" in line for line in err)
    alone = ["--runner", "tests.pipelines.ledger.runners.Alone", "--no_wait_until_finish"]
    status, out, err = job("alone", *alone, "--release-id", "alone")
    assert status == 0 and "stays reserved until `headcount ledger resolve visits`" in out
    refused(job("more"), "epsilon = 2 of it is spent")
    assert states(ledger) == [LEFT] * 2
    status, out, _ = run("ledger", "resolve", "--ledger", url)
    assert out.count("stays reserved") == 2 and "--gave-up" in out and states(ledger) == [LEFT] * 2
    refused(job("lost", "--release-id", "lost"), "is being made by", "headcount ledger resolve")
    from tests.pipelines.ledger.runners import Alone

    Alone.run()
    status, out, _ = run("ledger", "resolve", "visits", "--ledger", url)
    assert "release alone of data set visits: committed" in out and states(ledger) == [LEFT, COMMITTED]
    refused(run("ledger", "resolve", "--gave-up", "--ledger", url), "--release-id")
    status, out, _ = run("ledger", "resolve", "--release-id", "lost", "--gave-up", "--ledger", url)
    assert "given back: its job was given up" in out and states(ledger) == [GIVEN_BACK, COMMITTED]
    assert job("lost", "--release-id", "lost")[0] == 0  # for which there is room again
    assert run("ledger", "resolve", "--ledger", url)[1] == "no entry is reserved\n"


def test_processes_are_known_to_be_over_only_where_that_is_certain():
    here, gone = processes.this_process(), dead()
    assert processes.is_over(here) is False and processes.is_over(gone) is True
    assert processes.is_over({**here, "start": here["start"] - 1}) is True  # an earlier one of the same number
    assert processes.is_over({**gone, "space": "another machine"}) is None
    assert processes.is_over({**gone, "start": None}) is None
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    ended = {**here, "pid": child, "start": processes._look(child)[1]}
    assert processes.is_over(ended) is True  # though nobody has asked yet how
    os.waitpid(child, 0)


def test_reserved_entries_are_given_back_only_on_proof(ledger, tmp_path):
    gone, out = dead(), str(tmp_path / "out")
    for id, given in {
        "call": {"process": gone},
        "job": {"process": gone, "output": out},
        "alive": {"output": out},
        "elsewhere": {"process": {**gone, "space": "x"}, "output": out},
        "remote": {"process": gone, "output": out, "runner": "FlinkRunner"},
    }.items():
        decision = decide(ledger.reserve(request(id, guarantee=promise(0.1), **given)))
        if id in ("call", "job"):
            assert decision.settled.change.state == GIVEN_BACK and "has ended" in decision.description
        else:
            assert decision.settled is None and "stays reserved" in decision.description
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text('{"headcount": "1", "release_id": "other", "files": []}')
    late = ledger.reserve(request("late", guarantee=promise(0.1), process=gone, output=out))
    assert "may have replaced it" in decide(late).description
    over = ledger.reserve(request("over", guarantee=promise(0.1), process=gone, output=out, replaces="other"))
    assert decide(over).settled.change.state == GIVEN_BACK and (tmp_path / "out" / "report.json").exists()


def test_an_entry_changes_once_for_what_was_seen(ledger):
    entry = ledger.reserve(request())
    first, second = (book.Settled(entry, Change(state)) for state in (COMMITTED, GIVEN_BACK))
    assert ledger.settle(first) and not ledger.settle(second)
    (entry,) = ledger.entries()
    assert not ledger.settle(book.Settled(entry, Change(GIVEN_BACK)))  # whoever has seen that it is committed
    assert [change.state for change in ledger.entries()[0].changes] == [RESERVED, COMMITTED]


def test_a_dead_attempt_is_settled_by_the_next(call, ledger):
    """There is room for two: the dead one's place is given back and taken again in one step."""
    call()
    ledger.reserve(request("r1", process=dead(), parameters_sha256="x"))
    assert call(release_id="r1").report["release_id"] == "r1"
    assert states(ledger) == [COMMITTED, GIVEN_BACK, COMMITTED]


def test_exports_hold_guarantees_and_no_key(call, ledger, run, url, key):
    call(label="=1+1", period="a,b")
    status, out, err = run("ledger", "export", "visits", "--ledger", url)
    entry = json.loads(out)
    assert (status, err) == (0, []) and entry["guarantee"]["epsilon"] == 1 and len(entry["changes"]) == 2
    assert Guarantee.from_dict(entry["guarantee"]) == ledger.entries()[0].request.guarantee
    status, table, _ = run("ledger", "export", "--ledger", url, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(table))
    assert (row["label"], row["period"], row["epsilon"]) == ("'=1+1", "a,b", "1.0"), "no spreadsheet runs it"
    assert json.loads(row["guarantee"]) == entry["guarantee"]
    secret = key.read_text().strip()
    assert secret not in out + table and bytes.fromhex(secret).hex() not in out + table


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dataset": None}, "ledger needs dataset"),
        ({"ledger": None}, "dataset needs ledger"),
        ({"dataset": "visit"}, "did you mean visits"),
        ({"ledger": "mysql://root:hunter2@host/db"}, "must be a URL such as"),
        ({"ledger": None, "dataset": None, "release_id": "auto"}, "release_id auto needs a ledger"),
        ({"key_file": None, "release_id": "auto"}, "needs the key"),
    ],
)
def test_refused_before_anything_is_reserved(call, ledger, given, words):
    with pytest.raises(HeadcountError, match=words) as error:
        call(**given)
    assert "hunter2" not in str(error.value) and ledger.entries() == []


def test_the_page_shows_spending_against_the_limit(call, run, url, tmp_path):
    for label in ("shops & <b>more</b>", "jobs"):
        call(label=label)
    status, out, err = run("ledger", "show", "--html", tmp_path / "ledger.html", "--ledger", url)
    page = (tmp_path / "ledger.html").read_text()
    assert (status, err) == (0, []) and "ledger.html" in out
    assert "shops &amp; &lt;b&gt;more&lt;/b&gt;" in page and page.count("committed") == 2
    assert page.count("<polyline") == 3 and "spent, composed" in page and "the limit of 2.5" in page


def test_an_error_names_the_extra(call, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ParameterError, match=r"headcount\[postgres\]") as error:
        call(ledger="postgresql://u:hunter2@h/x")
    assert "hunter2" not in str(error.value)


def test_create_is_refused(run, url, tmp_path):
    words = ["ledger", "create", "visits", "--ledger", url, "--limit-delta", "1e-6"]
    refused(run(*words, "--limit-epsilon", "0"), "--limit-epsilon must be positive")
    status, out, _ = run(*words, "--limit-epsilon", "8", "--per", "year")
    assert status == 0 and "epsilon = 8 at delta = 1e-06 in each year" in out
    refused(run(*words, "--limit-epsilon", "9"), "'visits' is in", "already")
    refused(run("ledger", "create", "a b", *words[3:], "--limit-epsilon", "9"), "the name of a data set")
    status, out, _ = run("ledger", "show", "--ledger", url)
    assert status == 0 and "no release yet" in out
