"""A retry costs nothing, and so must be the same release of the same input: of other data, nothing is published.

They run on SQLite here, and all of them on PostgreSQL in tests/postgres.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.mechanisms.errors import InputError
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import COMMITTED, RESERVED, make_dataset
from headcount.pipelines.sinks.finished import sealed
from headcount.pipelines.sinks.repeated import release_digest
from tests.pipelines.ledger.accounts import FRAME, files, states, write_csv
from tests.pipelines.refusals import refused

FEW = {"user": ["u1", "u2", "u3"], "item": ["a", "b", "a"]}  # of whom nothing is named
NAMES = {"user": "user", "item": "item", "epsilon": 1.0, "delta": 1e-6}


def with_more(frame):
    return {"user": [*frame["user"], "new"], "item": [*frame["item"], "a"]}


@pytest.fixture
def account(url, ledger, key):
    """A data set with room for many, as the parameters of a call."""
    ledger.create(make_dataset("many", "user", "add-remove", 50.0, 1e-3, None))
    return {"ledger": url, "dataset": "many", "key_file": key}


@pytest.mark.slow("kills")
@pytest.mark.parametrize("frame", [FRAME, FEW], ids=["the same names", "nothing at all"])
@pytest.mark.parametrize("name", ["partitions", "histogram", "aggregate", "top", "count_release", "sampled"])
def test_the_same_rows_of_other_data_are_no_retry(account, ledger, name, frame):
    """Names, and results without rows, are the same for many inputs; each of them would be one more release."""
    given = NAMES | {"aggregate": {"users": True}, "top": {"k": 2}}.get(name, {}) | account
    call = getattr(headcount, name)
    first = call(frame, **given, release_id="r1")
    turned = {column: values[::-1] for column, values in frame.items()}
    assert call(turned, **given, release_id="r1").report == first.report  # rows in another order are the same input
    with pytest.raises(InputError, match="the input changed"):
        call(with_more(frame), **given, release_id="r1")
    (entry,) = ledger.entries("many")
    assert [change.state for change in entry.changes] == [RESERVED, COMMITTED, COMMITTED]
    assert entry.made.release_sha256 == release_digest(json.dumps(first.report).encode())


def test_many_inputs_under_one_id_are_one_release(account, ledger):
    """Twelve inputs without a named item; each had its own private choices, and today's rows are the same for all."""
    inputs = [{"user": [f"u{k}" for k in range(size)], "item": ["a"] * size} for size in range(1, 13)]
    given = NAMES | account | {"release_id": "r1"}
    assert headcount.histogram(inputs[0], **given).table.num_rows == 0
    for other in inputs[1:]:
        with pytest.raises(InputError, match="so nothing is published"):
            headcount.histogram(other, **given)
    assert len(ledger.entries("many")) == 1


@pytest.fixture
def command(run, url, ledger, key, tmp_path):
    """A job on the account of visits, of the events in a file."""

    def made(name, out, frame, *more, ledger=url):
        write_csv(tmp_path / "events.csv", frame)
        words = ["--input", tmp_path / "events.csv", "--user", "user", "--epsilon", 1]
        words += [] if name == "choose-bound" else ["--delta", 1e-7]
        words += ["--key-file", key, "--release-id", "r1", "--ledger", ledger, "--dataset", "visits"]
        return run(name, *words, "--output", tmp_path / out, *more)

    return made


@pytest.mark.slow("kills")
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("partitions", ["--item", "item"]),
        ("histogram", ["--item", "item"]),
        ("aggregate", ["--item", "item", "--users"]),
        ("choose-bound", ["--item", "item", "--for-epsilon", 1, "--for-delta", 1e-7]),
        ("total", []),
        ("quantiles", ["--value", "item", "--lo", 0, "--hi", 9, "--quantile", 0.5]),
    ],
)
def test_jobs_of_other_data_publish_nothing(command, ledger, tmp_path, name, own):
    """Also where the report is known before the run, and where rows are values."""
    own = [*own, "--overwrite"]
    frame = FEW if name != "quantiles" else {"user": ["u1", "u2"], "item": [1, 2]}
    assert command(name, "out", frame, *own)[0] == 0
    wrote = files(tmp_path / "out")
    status, out, _ = command(name, "out", frame, *own)
    assert status == 0 and "spends nothing" in out and files(tmp_path / "out") == wrote
    more = {"user": [*frame["user"], "u9"], "item": [*frame["item"], frame["item"][0]]}
    refused(command(name, "out", more, *own), "has published another result than this, so nothing is published")
    assert files(tmp_path / "out") == wrote and states(ledger) == [COMMITTED]


def digest(report):
    return report["details"]["input_digest"]


@pytest.mark.slow("cuts")
def test_the_digest_is_the_same_however_the_input_comes(command, account, tmp_path):
    """In a call and in a job, in any order, shards, batches and worker processes; without a ledger there is none."""
    called = headcount.histogram(FRAME, **NAMES, **account, release_id="r1").report
    found = {digest(called)}
    pairs = sorted(zip(*FRAME.values(), strict=True))
    turned = dict(zip(FRAME, map(list, zip(*pairs, strict=True)), strict=True))
    workers = ["--direct_running_mode", "multi_processing", "--direct_num_workers", 2]
    for number, (frame, how) in enumerate([(FRAME, []), (turned, ["--shards", 3]), (turned, workers)]):
        elsewhere = f"sqlite:///{tmp_path}/ledger{number}.db"  # an id is one release of a ledger
        open_ledger(elsewhere).create(make_dataset("visits", "user", "add-remove", 2.5, 1e-6, None))
        assert command("histogram", f"out{number}", frame, "--item", "item", *how, ledger=elsewhere)[0] == 0
        found.add(digest(json.loads((tmp_path / f"out{number}" / "report.json").read_text())))
    assert len(found) == 1
    without = {name: value for name, value in account.items() if name == "key_file"}
    assert "input_digest" not in headcount.histogram(FRAME, **NAMES, **without, release_id="r1").report["details"]
    other = headcount.histogram(FRAME, **NAMES, **account, release_id="r2").report
    assert digest(other) not in found and len(digest(other)) == 32


def test_messages_have_a_digest_without_a_key(run, url, ledger, tmp_path):
    """Their noise is their own: who reads other messages makes another release, whatever comes out."""
    ledger.create(make_dataset("messages", "user", "replace", 9.0, 1e-3, None))
    given = ["--epsilon", 4, "--delta", 1e-4, "--relation", "replace", "--users", 50, "--buckets", 4]
    assert run("randomize", "--of", 1, *given, "--output", tmp_path / "mine.parquet")[0] == 0
    mine = pq.read_table(tmp_path / "mine.parquet")
    assert mine.num_rows  # a user's own message is among them
    pq.write_table(pa.concat_tables([mine, mine.slice(0, 1)]), tmp_path / "yours.parquet")
    shape = ["shape", "--model", "shuffle", *given, "--ledger", url, "--dataset", "messages", "--release-id", "r1"]
    shape += ["--output", tmp_path / "out", "--overwrite"]
    assert run(*shape, "--input", tmp_path / "mine.parquet")[0] == 0
    wrote = files(tmp_path / "out")
    assert digest(json.loads(wrote["report.json"]))
    assert run(*shape, "--input", tmp_path / "mine.parquet")[0] == 0 and files(tmp_path / "out") == wrote
    refused(run(*shape, "--input", tmp_path / "yours.parquet"), "so nothing is published")


def test_what_a_release_is_known_by():
    """Rows, choices and the input; not what made it, on whose account, nor its owner's words."""
    rows = {"rows": 1, "decision": "a bound of 2", "files": [{"name": "x", "rows": 1, "sha256": "ab"}]}
    details = {"parameters": {"epsilon": 1}, "chosen": 2, "input_digest": "cd", "versions": {"python": "3"}}
    report = {"headcount": "1", "dataset": "d", "label": "l", "period": "p", **rows, "details": details}

    def known(**changed):
        inner = {name.removeprefix("in_"): value for name, value in changed.items() if name.startswith("in_")}
        outer = {name: value for name, value in changed.items() if not name.startswith("in_")}
        return release_digest(json.dumps(report | outer | {"details": details | inner}).encode())

    same = [{"headcount": "2"}, {"dataset": "e"}, {"label": "m"}, {"period": "q"}, {"in_versions": {}}]
    assert {known(**changed) for changed in same} == {known()}
    others = [{"decision": "a bound of 3"}, {"in_chosen": 3}, {"in_input_digest": "ce"}, {"rows": 2}]
    others += [{"files": [{"name": "x", "rows": 1, "sha256": "ac"}]}, {"in_parameters": {"epsilon": 2}}]
    assert len({known(), *(known(**changed) for changed in others)}) == 1 + len(others)


@pytest.mark.slow("kills")
@pytest.mark.parametrize("name", ["histogram", "total"])
@pytest.mark.parametrize("booked", [True, False], ids=["with a ledger", "without one"])
def test_a_finished_release_is_told_of_and_not_refused(run, url, ledger, key, tmp_path, name, booked):
    """Without --overwrite: nothing is written and nothing charged. Other events are refused, and change nothing."""
    out = tmp_path / "out"

    def made(frame, *more):
        write_csv(tmp_path / "events.csv", frame)
        words = [
            "--input",
            tmp_path / "events.csv",
            "--user",
            "user",
            "--epsilon",
            1,
            "--key-file",
            key,
            "--output",
            out,
        ]
        words += ["--item", "item", "--delta", 1e-7] if name == "histogram" else []
        words += ["--release-id", "auto", "--ledger", url, "--dataset", "visits"] if booked else ["--release-id", "r1"]
        return run(name, *words, *more)

    status, first, _ = made(FRAME)
    assert status == 0 and f"wrote {out} (release " in first
    wrote, times = files(out), {path: path.stat().st_mtime_ns for path in out.iterdir() if path.suffix != ".html"}
    status, again, err = made(FRAME)
    assert (status, err) == (0, []) and f"already there, the same bytes: {out} (release " in again
    same = again.replace("already there, the same bytes:", "wrote").splitlines()
    assert [line for line in same if line not in first.splitlines()] == (
        ["data set visits: this release is in the ledger already, and spends nothing"] if booked else []
    )
    assert files(out) == wrote and times == {path: path.stat().st_mtime_ns for path in times}
    refused(made(with_more(FRAME)), "another result than this, so nothing is")
    refused(made(FRAME, "--output-files", 2), "holds an output already" if booked else "so nothing is changed")
    assert files(out) == wrote and not [path for path in tmp_path.iterdir() if ".tmp-" in path.name]
    if booked:
        (entry,) = ledger.entries("visits")
        assert "spends nothing" in again and entry.state == COMMITTED


def test_what_is_half_there_is_finished_and_what_was_changed_is_left(run, key, tmp_path):
    """Rows before the report, as a killed job leaves them; a file that somebody removed; and one that somebody changed."""
    write_csv(tmp_path / "events.csv", FRAME)
    words = ["total", "--input", tmp_path / "events.csv", "--user", "user", "--epsilon", 1, "--key-file", key]
    words += ["--release-id", "r1", "--output", tmp_path / "out"]
    assert run(*words)[0] == 0
    wrote, rows = files(tmp_path / "out"), tmp_path / "out" / "totals-00000-of-00001.parquet"
    for lost in ("report.json", rows.name):
        (tmp_path / "out" / "report.html").unlink()
        (tmp_path / "out" / lost).unlink()
        status, said, _ = run(*words)
        assert status == 0 and f"wrote {tmp_path / 'out'}" in said and files(tmp_path / "out") == wrote
    rows.write_bytes(b"another's")
    refused(run(*words), "another result than this, so nothing is changed")
    assert rows.read_bytes() == b"another's"
    assert run(*words, "--overwrite")[0] == 0 and files(tmp_path / "out") == wrote


def test_a_release_is_of_the_day_on_which_it_was_reserved(job, call, ledger, tmp_path):
    assert job("out", "--release-id", "r1")[0] == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (entry,) = ledger.entries()
    assert report["date"] == entry.changes[0].at[:10]
    assert call(release_id="r2").report["date"] == ledger.entries()[1].changes[0].at[:10]


def test_a_statement_is_of_the_report_that_the_ledger_knows(job, call, run, url, tmp_path):
    """Whoever changes a report can give it a digest of its own again: the ledger has seen the one that the job wrote."""
    assert job("out", "--release-id", "r1")[0] == 0
    account = ["--ledger", url, "--dataset", "visits"]
    status, text, _ = run("statement", tmp_path / "out", *account)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert status == 0 and "this one among them" in text
    assert f"Date: {report['date']}  \nData set: visits" in text
    (tmp_path / "out" / "report.json").write_bytes(sealed(report | {"label": "another"}))
    assert run("statement", tmp_path / "out")[0] == 0
    refused(run("statement", tmp_path / "out", *account), "changed: the ledger knows another report.json", "'r1'")
    call(release_id="r2").save(tmp_path / "saved", format="csv")  # with another report than the call was charged with
    assert run("statement", tmp_path / "saved", *account)[0] == 0
