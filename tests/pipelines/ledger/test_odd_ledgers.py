"""Ledgers that are not as jobs leave them are told in one line, and one that cannot be written is looked at."""

import os
import shutil
import tempfile

import pytest
import sqlalchemy as sa

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger import tables
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import make_dataset
from tests.pipelines.ledger.accounts import request
from tests.pipelines.refusals import refused

NOBODY = 65534


@pytest.mark.parametrize("host", ["host:x", "[::1", "host:1x", "host:"])
def test_a_host_or_port_that_is_none(run, host):
    result = run("ledger", "show", "--ledger", f"postgresql://me:secret@{host}/ledger")
    refused(result, "--ledger")
    assert "secret" not in result[2][0]


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "{}", "1", "null", '{"epsilon": "x"}', "[" * 100_000])
def test_a_guarantee_that_is_none(run, ledger, url, text):
    """What is spent is not known then, so that nothing is told and nothing is taken."""
    ledger.reserve(request("a"))
    with ledger._database.writing() as connection:
        connection.execute(sa.update(tables.entries).values(guarantee=text))
    for words in (["show"], ["total", "visits"], ["export"], ["resolve"]):
        refused(run("ledger", *words, "--ledger", url), "entry 1 of the ledger, of data set 'visits', was changed")
    with pytest.raises(ParameterError, match="what is spent is not known"):
        ledger.reserve(request("b"))


@pytest.fixture
def frozen():
    """A ledger with one entry, which this process cannot write."""
    folder = tempfile.mkdtemp()
    url = f"sqlite:///{folder}/ledger.db"
    ledger = open_ledger(url)
    ledger.create(make_dataset("visits", "user", "add-remove", 2.5, 1e-6, None))
    ledger.reserve(request("a"))
    os.chmod(f"{folder}/ledger.db", 0o444)
    os.chmod(folder, 0o555)
    before = os.geteuid()
    if before == 0:  # whom no mode keeps out
        os.seteuid(NOBODY)
    try:
        yield url
    finally:
        os.seteuid(before)
        os.chmod(folder, 0o755)
        shutil.rmtree(folder)


def test_a_ledger_on_a_disk_that_cannot_be_written_is_looked_at(run, frozen):
    for words in (["show"], ["total", "visits"], ["export"]):
        status, out, err = run("ledger", *words, "--ledger", frozen)
        assert (status, err) == (0, []) and out
    refused(
        run("ledger", "create", "more", "--limit-epsilon", 1, "--limit-delta", 0, "--ledger", frozen), "cannot be used"
    )
