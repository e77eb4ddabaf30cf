"""All tests of the ledger, on PostgreSQL."""

from pathlib import Path

import psycopg
import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import tables
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.approvals import Approval, Approved
from headcount.pipelines.ledger.records import COMMITTED, make_dataset
from tests.pipelines.ledger.test_ledger import *  # noqa: F403
from tests.pipelines.ledger.test_retries import *  # noqa: F403
from tests.pipelines.ledger.test_states import *  # noqa: F403
from tests.pipelines.ledger.test_users import *  # noqa: F403
from tests.postgres.conftest import PASSWORD

REPORT = """
data: {{input: {folder}/events.csv, user: user}}
key_file: {folder}/key
ledger: {url}
dataset: visits
output: {folder}/out
releases: {{all: {{command: total, epsilon: 0.1}}}}
"""


def test_no_password_is_told(run, call, job, ledger, url, tmp_path):
    call()
    assert PASSWORD in url
    said = [
        run("ledger", *words, "--ledger", url) for words in (["show"], ["total", "visits"], ["export"], ["resolve"])
    ]
    said.append(run("ledger", "show", "--ledger", url.replace("ledger_", "nowhere_")))
    said.append(run("ledger", "show", "--ledger", url.replace("headcount:", "nobody:")))
    (tmp_path / "report.yaml").write_text(REPORT.format(folder=tmp_path, url=url))
    checked = run("run", tmp_path / "report.yaml", "--check")
    assert url.replace(PASSWORD, "***") in checked[1]
    said += [checked, run("total", "--dataset", "visits", "--ledger=", url), run("plan", tmp_path / "report.yaml")]
    assert [status for status, _, _ in said] == [0, 0, 0, 0, 2, 2, 0, 2, 0]
    assert not any(PASSWORD in out or PASSWORD in " ".join(err) for _, out, err in said)
    with pytest.raises(Exception) as error:  # noqa: B017
        call(ledger=url.replace("headcount:", "nobody:"))
    assert PASSWORD not in str(error.value)


RIGHTS = Path(__file__).parents[2] / "deploy" / "postgres" / "rights.sql"
ROLES = ("headcount_readers", "headcount_jobs", "headcount_officers")


@pytest.fixture
def role(url, ledger):
    """The URL of somebody who had every right to headcount_ledger, and has those of one role since the script was run."""
    made = []

    def granted(name):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE who_{name} LOGIN PASSWORD '{PASSWORD}'")
            made.append(f"who_{name}")
            connection.execute(f"GRANT ALL ON {tables.ledger.name} TO who_{name}, PUBLIC")
            for _ in range(2):
                connection.execute(RIGHTS.read_text())
            connection.execute(f"GRANT {name} TO who_{name}")
        return url.replace("headcount:", f"who_{name}:")

    yield granted
    with psycopg.connect(url, autocommit=True) as connection:
        for each in (*made, *ROLES):
            connection.execute(f"DROP OWNED BY {each}")
            connection.execute(f"DROP ROLE {each}")


def denied(url, *statements):
    with psycopg.connect(url, autocommit=True) as connection:
        for words in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(words)


def never(role):
    """What nobody may do but the owner, with every table of the ledger."""
    changed = [f"UPDATE {name} SET {next(iter(table.c)).name} = NULL" for name, table in tables.metadata.tables.items()]
    gone = [f"DELETE FROM {name}" for name in tables.metadata.tables]
    denied(role, *changed, *gone, *(f"TRUNCATE {name} CASCADE" for name in tables.metadata.tables))
    denied(
        role,
        "UPDATE headcount_ledger SET version = 2",
        "INSERT INTO headcount_ledger (version) VALUES (2)",
        "DROP TABLE headcount_approved_only",
        "UPDATE headcount_datasets SET limit_epsilon = 99",
        "INSERT INTO headcount_datasets SELECT 'mine', unit, relation, 99, 0, '', adaptive, at, who FROM headcount_datasets",
        "INSERT INTO headcount_approved_only (dataset, at, who) VALUES ('visits', 'x', 'me')",
    )


def test_who_runs_jobs_cannot_take_back_what_was_published(call, ledger, url, role):
    """With the rights of the script, somebody can add to history, and change none of it; what is spent stays so."""
    theirs = role("headcount_jobs")
    call(ledger=theirs), call(ledger=theirs)
    given_back = "SELECT id, 'given back', 'x', 'y' FROM headcount_entries"
    back = f"INSERT INTO headcount_changes (entry, state, at, who) {given_back}"
    with psycopg.connect(theirs, autocommit=True) as connection:
        assert connection.execute(back).rowcount == 2
        assert connection.execute("UPDATE headcount_ledger SET locked = 7").rowcount == 1  # which means nothing
    never(theirs)
    assert [entry.state for entry in ledger.entries()] == [COMMITTED] * 2
    with pytest.raises(ParameterError, match="epsilon = 2 of it is spent"):
        call(ledger=theirs)


def test_who_runs_jobs_cannot_switch_approvals_off(call, ledger, url, role, run):
    """Neither with the rights of the script, nor with those that were documented before it, which let them set the version."""
    ledger.create(make_dataset("strict", "user", "add-remove", 9.0, 1e-6, None, approved_only=True))
    theirs = role("headcount_jobs")
    never(theirs)
    approved = f"INSERT INTO {tables.approvals.name} (dataset, plan_sha256, said_by, at, who)"
    denied(theirs, f"{approved} VALUES ('strict', 'y', 'me', 'z', 'me')")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"GRANT UPDATE ON {tables.ledger.name} TO headcount_jobs")
    with psycopg.connect(theirs, autocommit=True) as connection:
        assert connection.execute("UPDATE headcount_ledger SET version = 2").rowcount == 1
    with pytest.raises(ParameterError, match="no plan is approved"):
        call(ledger=theirs, dataset="strict")


def test_an_officer_approves_and_does_nothing_else(call, ledger, url, role, run):
    theirs = role("headcount_officers")
    officers = open_ledger(theirs)
    release = Approved("items", "histogram", "0" * 64, 1.0, 0.0)
    officers.approve(Approval("visits", "d1", "the officer", [release]))
    assert officers.withdraw("visits", "d1", "the officer").plan_sha256 == "d1"
    never(theirs)
    with pytest.raises(ParameterError, match="permission denied"):
        call(ledger=theirs)
    assert len(ledger.approved("visits")) == 1 and ledger.entries() == []


def test_a_reader_looks_and_does_nothing_else(call, ledger, url, role, run):
    call()
    theirs = role("headcount_readers")
    for words in (["show"], ["total", "visits"], ["export"]):
        assert run("ledger", *words, "--ledger", theirs) == run("ledger", *words, "--ledger", url)
    never(theirs)
    denied(theirs, "UPDATE headcount_ledger SET locked = 7", "INSERT INTO headcount_changes (entry) VALUES (1)")
    with pytest.raises(ParameterError, match="permission denied"):
        call(ledger=theirs)


def test_a_ledger_from_before_the_script_gets_its_column(call, ledger, url, role):
    """It works without as well, for whoever may update the table."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {tables.ledger.name} DROP COLUMN locked")
    call()
    call(ledger=role("headcount_jobs"))
    assert [entry.state for entry in ledger.entries()] == [COMMITTED] * 2


def test_the_level_of_isolation_is_ours(url, ledger):
    """Where the server's default is a snapshot from before the wait for the lock, what others reserved would not be seen."""
    name = url.rpartition("/ledger_")[2].partition("?")[0]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE ledger_{name} SET default_transaction_isolation = 'repeatable read'")
    with ledger._database.writing() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
