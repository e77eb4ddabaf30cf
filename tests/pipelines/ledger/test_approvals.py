"""A data set that takes releases of approved plans alone: by what a release does, never because it says so."""

import json

import pytest
import sqlalchemy as sa

import headcount
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import tables
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.approvals import Approval, Approved, asked_digests, plan_digest
from headcount.pipelines.ledger.records import make_dataset
from tests.pipelines.ledger.accounts import FRAME, request, write_csv
from tests.pipelines.refusals import refused

CALL = {"user": "user", "item": "item", "method": "one-stage", "bound": 2, "epsilon": 0.5, "delta": 1e-8}
REPORT = """
data: {{input: {folder}/events.csv, user: user}}
key_file: {folder}/key
ledger: {url}
dataset: visits
output: {folder}/{{period}}
releases:
  items: {{command: histogram, item: item, method: one-stage, bound: 2, epsilon: 0.5, delta: 1e-8}}
  some: {{command: histogram, item: item, where: "item != '{{period}}'", epsilon: 0.5, delta: 1e-8}}
"""


@pytest.fixture
def ledger(url):
    """A ledger with a data set that takes approved plans alone."""
    found = open_ledger(url)
    found.create(make_dataset("visits", "user", "add-remove", 4, 1e-6, None, approved_only=True))
    return found


@pytest.fixture
def report(tmp_path, url, key):
    write_csv(tmp_path / "events.csv", FRAME)
    path = tmp_path / "report.yaml"
    path.write_text(REPORT.format(folder=tmp_path, url=url))
    return path


@pytest.fixture
def approve(run, ledger, report, url):
    """Approve the report."""

    def made(*words):
        return run("ledger", "approve", "visits", report, "--by", "the officer", "--ledger", url, *words)

    return made


@pytest.fixture
def items(url, ledger, key):
    """The release `items` of the report as a call in Python."""

    def made(**given):
        whole = {**CALL, "ledger": url, "dataset": "visits", "key_file": key, "label": "items"} | given
        return headcount.histogram(FRAME, **whole)

    return made


def test_what_is_of_no_approved_plan_is_refused(items, approve, ledger):
    with pytest.raises(ParameterError, match="no plan is approved"):
        items()
    assert approve()[0] == 0
    for given in (
        {"epsilon": 0.4},
        {"epsilon": 0.6},
        {"delta": 1e-9},
        {"bound": 3},
        {"where": "item = a"},
        {"noise": "laplace"},
    ):
        with pytest.raises(ParameterError, match="other parameters or another budget"):
            items(**given)
    for label in (None, "other"):
        with pytest.raises(ParameterError, match="none has a release histogram"):
            items(label=label)
    assert ledger.entries() == []
    items(period="2026-W46")
    items(period="2026-W47")
    assert [entry.request.label for entry in ledger.entries()] == ["items"] * 2


def test_a_job_is_compared_as_a_call_is(run, approve, ledger, report, url, tmp_path, key):
    """The same flags, in another order and on other files, are of the plan; one other flag is not."""
    assert approve()[0] == 0
    words = [
        "--input",
        tmp_path / "events.csv",
        "--user",
        "user",
        "--item",
        "item",
        "--label",
        "some",
        "--key-file",
        key,
    ]
    words += ["--delta", 1e-8, "--epsilon", 0.5, "--ledger", url, "--dataset", "visits", "--format", "csv"]
    asked = [*words, "--period", "2026-11", "--where", "item != '2026-11'"]
    refused(
        run("histogram", *words, "--period", "2026-12", "--where", "item != '2026-11'", "--output", tmp_path / "o"),
        "has other parameters or another budget",
    )
    assert not (tmp_path / "o").exists()
    refused(run("histogram", *asked, "--of", "events", "--output", tmp_path / "o"), "data set 'visits' takes releases")
    assert run("histogram", *asked, "--output", tmp_path / "o")[0] == 0
    told = run("statement", tmp_path / "o", "--ledger", url, "--dataset", "visits")[1]
    (approval,) = ledger.approved("visits")
    assert "the officer approved its plan" in told and approval.plan_sha256 in told


def test_an_approval_is_taken_back(run, items, approve, ledger, url):
    assert approve()[0] == 0
    items(release_id="a")
    refused(approve(), "is approved already, by the officer")
    (approval,) = ledger.approved("visits")
    refused(run("ledger", "withdraw", "visits", "ffff", "--ledger", url), "no approved plan")
    done = run("ledger", "withdraw", "visits", approval.plan_sha256[:12], "--by", "the board", "--ledger", url)
    assert done[0] == 0 and "which the officer had approved" in done[1]
    with pytest.raises(ParameterError, match="no plan is approved"):
        items(release_id="b")
    items(release_id="a")  # the same rows once more, at no cost
    shown = run("ledger", "show", "visits", "--ledger", url)[1]
    assert "approved by the officer on" in shown and "; withdrawn on" in shown and "for approved plans alone" in shown
    assert approve()[0] == 0 and len(ledger.approved("visits")) == 2
    items(release_id="b")


def test_an_approval_that_is_taken_back_meanwhile_counts_no_more(ledger, monkeypatch):
    """The ledger looks again in the transaction that reserves."""
    ledger.approve(_approval("d1"))
    look = ledger._look

    def overtaken(*words):
        found = look(*words)
        open_ledger_of(ledger).withdraw("visits", "d1", "somebody")
        return found

    monkeypatch.setattr(ledger, "_look", overtaken)
    with pytest.raises(ParameterError, match="no plan is approved"):
        ledger.reserve(request("a", asked=["0" * 64], label="items"))
    assert ledger.entries() == []


def open_ledger_of(ledger):
    return type(ledger)(ledger._database)


def _approval(plan, **given):
    release = Approved(
        **{"name": "items", "command": "histogram", "asked_sha256": "0" * 64, "epsilon": 1.0, "delta": 0.0} | given
    )
    return Approval("visits", plan, "the officer", [release])


def test_naming_a_plan_is_not_enough(ledger):
    """Label, command and digest must be those of a release, and the cost no more than what was approved."""
    ledger.approve(_approval("d1"))
    wrong = [
        {},
        {"asked": []},
        {"asked": ["1" * 64]},
        {"asked": ["0" * 64], "command": "total"},
        {"asked": ["d1"], "label": "d1"},
    ]
    for given in wrong:
        with pytest.raises(ParameterError, match="takes releases of approved plans alone"):
            ledger.reserve(request("a", **{"label": "items"} | given))
    ledger.approve(_approval("d2", asked_sha256="2" * 64, epsilon=0.9))
    with pytest.raises(ParameterError, match="takes releases of approved plans alone"):
        ledger.reserve(request("a", asked=["2" * 64]))
    entry = ledger.reserve(request("a", asked=["0" * 64]))
    found = ledger.approval_of("a")
    assert entry.state == "reserved" and found is not None and found.plan_sha256 == "d1"


def test_where_nothing_must_be_approved_all_is_taken_and_approvals_are_named(url):
    ledger = open_ledger(url)
    ledger.create(make_dataset("visits", "user", "add-remove", 4, 1e-6, None))
    ledger.approve(_approval("d1"))
    ledger.reserve(request("a"))
    ledger.reserve(request("b", asked=["0" * 64]))
    assert ledger.approval_of("a") is None and ledger.approval_of("b").said_by == "the officer"


def test_a_ledger_of_the_version_before_is_used_as_it_is_until_something_is_approved(url):
    """It has none of the new tables; a Headcount of that version refuses it only from the first approval on."""
    ledger = open_ledger(url)
    ledger.create(make_dataset("visits", "user", "add-remove", 4, 1e-6, None))
    new = [tables.allowed, tables.withdrawals, tables.approved, tables.approvals, tables.approved_only]
    with ledger._database.writing() as connection:
        tables.metadata.drop_all(connection, new)
        connection.execute(sa.update(tables.ledger).values(version=tables.BEFORE))
    ledger.reserve(request("a"))
    ledger.create(make_dataset("more", "user", "add-remove", 4, 1e-6, None))
    assert ledger.approved("visits") == [] and ledger.approval_of("a") is None and len(ledger.datasets()) == 2
    assert _version(ledger) == tables.BEFORE
    ledger.approve(_approval("d1"))
    assert _version(ledger) == tables.VERSION and len(ledger.approved("visits")) == 1
    assert [entry.request.release_id for entry in ledger.entries()] == ["a"]
    ledger.create(make_dataset("strict", "user", "add-remove", 4, 1e-6, None, approved_only=True))
    assert [each.approved_only for each in ledger.datasets()] == [False, True, False]


def test_approvals_are_asked_for_whatever_the_ledger_says_of_its_version(ledger):
    """The bug: the documented rights let who runs jobs set the version to that without approvals, which switched them off."""
    with ledger._database.writing() as connection:
        connection.execute(sa.update(tables.ledger).values(version=tables.BEFORE))
    assert ledger.dataset("visits").approved_only
    with pytest.raises(ParameterError, match="no plan is approved"):
        ledger.reserve(request("a"))
    ledger.approve(_approval("d1"))
    assert ledger.reserve(request("b", asked=["0" * 64])).state == "reserved"


def _version(ledger):
    with ledger._database.reading() as connection:
        return connection.execute(sa.select(tables.ledger.c.version)).scalar_one()


def test_a_report_for_another_data_set_is_refused(run, ledger, report, url):
    ledger.create(make_dataset("other", "user", "add-remove", 4, 1e-6, None))
    refused(run("ledger", "approve", "other", report, "--ledger", url), "is for data set 'visits'")


def test_spaces_and_comments_are_no_part_of_a_plan(run, approve, ledger, report):
    assert approve()[0] == 0
    text = report.read_text()
    report.write_text("# for the board\n" + text.replace("\n  items:", "\n\n  items:   "))
    refused(approve(), "is approved already")
    report.write_text(text.replace("bound: 2", "bound: 3"))
    assert approve()[0] == 0 and len({each.plan_sha256 for each in ledger.approved("visits")}) == 2


def asked_digest(*given):
    """With a mark in every place."""
    return asked_digests(*given)[0]


def test_a_text_that_no_placeholder_stands_for_is_as_it_is(run, ledger, report, url, tmp_path):
    """The bug: the period was put out of all texts, so that a condition of another year was taken as the approved one, and the
    approved one itself was refused in another period."""
    text = report.read_text().replace("item != '{period}'", "item != '2026' and item != '{period}'")
    report.write_text(text)
    words = ("--period", "2026")
    assert run("ledger", "approve", "visits", report, "--ledger", url, *words)[0] == 0
    report.write_text(text.replace("item != '2026'", "item != '2025'"))
    refused(run("run", report, "--check", "--period", "2025"), "has other parameters or another budget")
    report.write_text(text)
    for period in ("2025", "2026", "2027"):
        assert run("run", report, "--check", "--period", period)[0] == 0


def test_what_follows_from_the_period_is_free_and_nothing_else_is():
    def asked(period, **given):
        return asked_digest("histogram", "l", period, {"item": ["day"], "epsilon": 1.0, "format": "csv"} | given, {})

    assert asked("2026-W46") == asked("2026-W47") == asked(None) == asked(None, format="parquet")
    weeks = [
        asked("2026-W46", where="t >= 2026-11-09 and t <= 2026-11-15"),
        asked("2026-W01", where="t >= 2025-12-29 and t <= 2026-01-04"),
    ]
    assert weeks[0] == weeks[1]
    assert len({*weeks, asked("2026-W46", where="t >= 2026-11-10 and t <= 2026-11-15"), asked("2026-W46")}) == 3
    assert asked_digest("total", "l", None, {}, {"domain": ["a.txt"]}) != asked_digest(
        "total", "l", None, {}, {"domain": ["b.txt"]}
    )
    assert asked_digest("total", "l", None, {}, {"domain": {"a": 1}}) != asked_digest(
        "total", "l", None, {}, {"domain": None}
    )


@pytest.mark.parametrize("period", ["x' or item = 'a", "x' or (item) = 'a", "a b", "'", ""])
def test_a_period_adds_nothing_to_what_is_asked(period):
    """The bug: any text was free, and so a condition within it."""
    plain = asked_digest("histogram", "some", "2026-W46", {"where": "item != '2026-W46'"}, {})
    assert asked_digest("histogram", "some", "w1", {"where": "item != 'w1'"}, {}) == plain
    assert asked_digest("histogram", "some", period, {"where": f"item != '{period}'"}, {}) != plain


def test_a_plan_is_the_same_in_whatever_order_its_releases_stand():
    one, other = Approved("a", "total", "0", 1.0, 0.0), Approved("b", "total", "0", 1.0, 0.0)
    assert plan_digest(None, [one, other]) == plan_digest(None, [other, one]) != plan_digest({"runs": 2}, [one, other])
    json.dumps(_approval("d1").as_dict())
