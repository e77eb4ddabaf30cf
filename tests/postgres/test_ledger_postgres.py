"""All tests of the ledger, on PostgreSQL."""

import psycopg
import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import tables
from headcount.pipelines.ledger.records import COMMITTED
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


def test_who_runs_jobs_cannot_take_back_what_was_published(call, ledger, url):
    """With the rights that docs/ledger.md names, somebody can add to history, and change none of it; what is spent stays so."""
    names = {name.removeprefix("headcount_"): name for name in tables.metadata.tables}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS counter")
        connection.execute(f"CREATE ROLE counter LOGIN PASSWORD '{PASSWORD}'")
        connection.execute(f"GRANT SELECT ON {', '.join(names.values())} TO counter")
        added = f"{names['entries']}, {names['changes']}, {names['allowed']}"
        connection.execute(f"GRANT INSERT ON {added} TO counter")
        connection.execute(f"GRANT UPDATE ON {names['ledger']} TO counter")
        connection.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO counter")
    theirs = url.replace("headcount:", "counter:")
    try:
        call(ledger=theirs), call(ledger=theirs)
        given_back = f"SELECT id, 'given back', 'x', 'y' FROM {names['entries']}"
        back = f"INSERT INTO {names['changes']} (entry, state, at, who) {given_back}"
        with psycopg.connect(theirs, autocommit=True) as connection:
            assert connection.execute(back).rowcount == 2
            for words in (
                f"DELETE FROM {names['changes']}",
                f"UPDATE {names['datasets']} SET limit_epsilon = 99",
                f"INSERT INTO {names['approvals']} (dataset, plan_sha256, said_by, at, who) VALUES ('x', 'y', 'me', 'z', 'me')",
                f"DELETE FROM {names['approved_only']}",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(words)
        assert [entry.state for entry in ledger.entries()] == [COMMITTED] * 2
        with pytest.raises(ParameterError, match="epsilon = 2 of it is spent"):
            call(ledger=theirs)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY counter")
            connection.execute("DROP ROLE counter")


def test_the_level_of_isolation_is_ours(url, ledger):
    """Where the server's default is a snapshot from before the wait for the lock, what others reserved would not be seen."""
    name = url.rpartition("/ledger_")[2].partition("?")[0]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE ledger_{name} SET default_transaction_isolation = 'repeatable read'")
    with ledger._database.writing() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
