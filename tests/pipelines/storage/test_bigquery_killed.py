"""A load job goes on when whoever started it was killed: it never replaces the rows of another run, and can be ended."""

import pytest
import requests

from headcount.pipelines.ledger import outputs
from headcount.pipelines.sinks import bigquery as sink_bigquery
from tests.pipelines.ledger.accounts import request
from tests.pipelines.schedule import Killed
from tests.pipelines.storage.test_bigquery import (  # noqa: F401
    GENUINE,
    MOST_STEPS,
    OUTPUT,
    REPORT,
    assert_whole,
    files,
    patched_requests,
    start,
    target,
    warehouse,
    write,
)


def killed_while_it_loads(warehouse, monkeypatch, overwrite):  # noqa: F811
    """A run whose load job goes on after its process is gone."""
    found, written = start(warehouse, overwrite)
    warehouse.slow = True

    def after():
        if warehouse.jobs:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patched_requests(patch, lambda: None, after)
        sink_bigquery.commit(found, written, REPORT.encode())
    warehouse.slow = False


@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_the_next_run_ends_it_first(warehouse, monkeypatch, overwrite):  # noqa: F811
    """Else it would come behind the rows of the next run, under whose report they would stand then."""
    killed_while_it_loads(warehouse, monkeypatch, overwrite)
    later = target(overwrite=overwrite)
    assert not sink_bigquery.refuse(later)
    sink_bigquery.prepare(later)
    sink_bigquery.commit(later, write(later, ["two", "three"]), REPORT.encode())
    warehouse.finish()
    assert warehouse.rows["counts"]["item"].to_pylist() == ["two", "three"]
    assert warehouse.tables["counts"]["description"] == REPORT and warehouse.loads == ["counts"]


def test_one_that_is_given_up_is_ended_and_its_table_removed(warehouse, monkeypatch):  # noqa: F811
    killed_while_it_loads(warehouse, monkeypatch, overwrite=False)
    outputs.abandon(request("another", output=OUTPUT))
    assert "counts" in warehouse.tables
    outputs.abandon(request("r1", output=OUTPUT))
    warehouse.finish()
    assert warehouse.tables == {} and warehouse.loads == []


def test_a_complete_table_is_never_removed(warehouse):  # noqa: F811
    found, written = start(warehouse, overwrite=False)
    sink_bigquery.commit(found, written, REPORT.encode())
    outputs.abandon(request("r1", output=OUTPUT))
    assert_whole(warehouse)


@pytest.mark.slow("kills")
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_an_attempt_that_lags_behind_and_dies_undoes_nothing(warehouse, monkeypatch, overwrite):  # noqa: F811
    """Another one does the whole commit before its request k; after that request it dies."""
    for k in range(MOST_STEPS):
        found, written = start(warehouse, overwrite)
        requests_made = iter(range(MOST_STEPS))

        def before(found=found, written=written, k=k, requests_made=requests_made):
            made = next(requests_made)
            if made == k:
                with monkeypatch.context() as patch:
                    patch.setattr(requests.Session, "request", GENUINE)
                    sink_bigquery.commit(found, written, REPORT.encode())
            elif made > k:
                raise Killed

        with monkeypatch.context() as patch:
            patched_requests(patch, before)
            try:
                sink_bigquery.commit(found, written, REPORT.encode())
            except Killed:
                pass
        if next(requests_made) <= k:
            assert k >= 6
            return
        assert_whole(warehouse)
    raise AssertionError("the commit never ended")
