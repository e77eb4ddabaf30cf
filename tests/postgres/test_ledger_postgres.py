"""All tests of the ledger, on PostgreSQL."""

import psycopg
import pytest

from tests.pipelines.ledger.test_ledger import *  # noqa: F403
from tests.postgres.conftest import PASSWORD


def test_no_password_is_told(run, call, ledger, url):  # noqa: F811
    call()
    assert PASSWORD in url
    said = [
        run("ledger", *words, "--ledger", url) for words in (["show"], ["total", "visits"], ["export"], ["resolve"])
    ]
    said.append(run("ledger", "show", "--ledger", url.replace("ledger_", "nowhere_")))
    said.append(run("ledger", "show", "--ledger", url.replace("headcount:", "nobody:")))
    assert [status for status, _, _ in said] == [0, 0, 0, 0, 2, 2]
    assert not any(PASSWORD in out or PASSWORD in " ".join(err) for _, out, err in said)
    with pytest.raises(Exception) as error:  # noqa: B017
        call(ledger=url.replace("headcount:", "nobody:"))
    assert PASSWORD not in str(error.value)


def test_the_level_of_isolation_is_ours(url, ledger):  # noqa: F811
    """Where the server's default is a snapshot from before the wait for the lock, what others reserved would not be seen."""
    name = url.rpartition("/ledger_")[2].partition("?")[0]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE ledger_{name} SET default_transaction_isolation = 'repeatable read'")
    with ledger._database.writing() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
