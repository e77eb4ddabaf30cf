"""A call releases what the command does: for every job on events the same rows and the same report, without a pipeline.

The digests are those that the commands themselves are held to (tests/golden), so that equality is with what they release.
"""

from __future__ import annotations

import inspect
import json

import pyarrow.csv
import pytest

import headcount
from headcount.mechanisms import private_histogram
from headcount.pipelines import parser
from headcount.pipelines.command import load
from headcount.pipelines.main import main
from headcount.transforms import Histogram
from tests.called_jobs import OF_EVENTS, called
from tests.golden import events
from tests.golden.digests import DIGESTS, after, parts
from tests.privacy.independence import Words
from tests.runners.jobs import JOBS, column

KNOWN = json.loads(DIGESTS.read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("calls")
    events.write(directory)
    return directory


@pytest.mark.seconds
@pytest.mark.parametrize("job", OF_EVENTS)
def test_a_call_releases_what_the_command_does(job, data, tmp_path, monkeypatch):
    """And no two of its draws share a lane, and no two measures a subkey: `tests/privacy/randomness` has what this must see."""
    words = Words(monkeypatch)
    result, args = called(job, data)
    assert words.all > 0 and words.twice == words.shared == 0
    result.save(tmp_path / "out", format="csv", output_files=args.output_files)
    assert after(KNOWN, f"command: {job}", parts(tmp_path / "out", data), None)[1] == []


def test_there_is_a_job_for_every_function():
    names = {JOBS[job].split()[0].replace("-", "_") for job in OF_EVENTS}
    assert names == {name for name in headcount.__all__ if name.islower()} - {
        "rehearse",
        "forecast",
        "ledger",
        "plan",
        "run",
        "series",
        "diff",
    }  # which are no jobs


@pytest.mark.seconds
@pytest.mark.parametrize("job", ["estimates", "only good rows", "quantiles"])
def test_every_byte_is_that_of_the_command(job, data, tmp_path, capsys):
    """One of each way in, and one with rows left out; the commands run on Beam."""
    name, *own = JOBS[job].split()
    source = ["--input", str(data / "events.parquet"), "--user", "user", *column(name, own)]
    release = ["--key-file", str(data / "key"), "--release-id", events.RELEASE_ID]
    assert main([name, *source, *own, *release, "--output", str(tmp_path / "command")]) == 0
    said = capsys.readouterr().out
    result, _ = called(job, data)
    result.save(tmp_path / "call")
    there, here = (
        {path.name: path.read_bytes() for path in (tmp_path / each).iterdir()} for each in ("command", "call")
    )
    assert here == there and len(there) == 3
    assert result.report == json.loads(there["report.json"])
    assert all(line in said for line in repr(result).splitlines())


def test_the_bound_of_a_choice_goes_into_a_histogram(data):
    shared = {"user": "user", "item": "item", "key_file": data / "key"}
    chosen = headcount.choose_bound(events.events(), epsilon=0.1, for_epsilon=0.9, for_delta=1e-6, **shared)
    (row,) = chosen.table.to_pylist()
    budget = {"epsilon": 0.9, "delta": 1e-6}
    asked = {"of": "events", "method": "one-stage", **budget, **shared}
    result = headcount.histogram(events.events(), bound_from=chosen.report, **asked)
    parameters = result.report["details"]["parameters"]
    assert (parameters["bound"], parameters["bound_from"]) == (row["bound"], chosen.report["release_id"])
    with pytest.raises(headcount.ParameterError, match="bound_from must be a report of choose-bound"):
        headcount.histogram(events.events(), bound_from=result.report, **asked)


def test_users_are_counted_unless_events_are_asked_for(data):
    """At every door. A user counts once on an item; of a bot's events as many as the report says."""
    for made in (headcount.histogram, private_histogram, Histogram):
        assert inspect.signature(made).parameters["of"].default == "users"
    assert parser.parse(load("histogram"), [])[0].of == "users"
    rows = [(f"u{k % 3000}", "ab"[k % 2]) for k in range(6000)] * 2 + [("bot", "a")] * 100_000
    frame = {"user": [user for user, _ in rows], "item": [item for _, item in rows]}
    shared = {"user": "user", "item": "item", "epsilon": 8, "delta": 1e-4, "key_file": data / "key", "release_id": "r"}
    users, found = headcount.histogram(frame, **shared), headcount.histogram(frame, **shared, of="events")
    cap, most = (found.report["details"]["chosen"][name] for name in ("max_per_item", "totals_bound"))
    assert cap < 100
    assert found.report["columns"]["count"] == (
        f"an estimate of the events of the item, at most {cap} of a user on one item, and at most {most:,} of a user in all"
    )
    for result, truth in ((users, {"a": 1501, "b": 1500}), (found, {"a": 6000 + cap, "b": 6000})):
        for row in result.table.to_pylist():
            assert row["low"] <= truth[row["item"]] <= row["high"]
            assert row["count"] == pytest.approx(truth[row["item"]], rel=0.05)


def test_a_domain_is_its_items_or_their_file(data):
    items = (data / "domain.txt").read_text().split()
    shared = {"user": "user", "item": "item", "epsilon": 1, "key_file": data / "key", "release_id": "r"}
    results = [headcount.histogram(events.events(), domain=each, **shared) for each in (items, data / "domain.txt")]
    assert results[0].table == results[1].table and results[0].table.num_rows == len(items)


def test_a_domain_of_several_columns_is_a_file_lists_tuples_or_a_frame(tmp_path):
    (tmp_path / "countries.txt").write_text("de\nat\n")
    (tmp_path / "pages.txt").write_text("/\n/a\n")
    (tmp_path / "keys.csv").write_text("page,country\n/,de\n/a,de\n/,at\n/a,at\n")
    pairs = [(country, page) for country in ("de", "at") for page in ("/", "/a")]
    frame = {"user": [f"u{k}" for k in range(400)], "country": ["de", "at"] * 200, "page": ["/", "/a"] * 200}
    (tmp_path / "key").write_text(events.KEY)
    (tmp_path / "key").chmod(0o600)
    given = {"user": "user", "item": ["country", "page"], "epsilon": 5, "key_file": tmp_path / "key", "release_id": "d"}
    results = [
        headcount.histogram(frame, domain=domain, **given).table
        for domain in (
            pairs,
            tmp_path / "keys.csv",
            {"country": tmp_path / "countries.txt", "page": tmp_path / "pages.txt"},
            pyarrow.table({"page": [page for _, page in pairs], "country": [country for country, _ in pairs]}),
        )
    ]
    assert all(each.equals(results[0]) for each in results)  # the same names: so the same noise
    assert results[0].select(["country", "page"]).to_pylist() == [
        {"country": country, "page": page} for country, page in sorted(pairs)
    ]
