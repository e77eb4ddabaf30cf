"""`headcount shape --model`, `randomize` and `counters` from end to end, and single properties; the noise is the system's."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion, SupportQuestion
from headcount.mechanisms.shape.papers.pan_private import pan_private_counts
from headcount.mechanisms.shape.papers.shuffled import shuffled
from headcount.mechanisms.shape.properties import ShapeProperties, central_property
from headcount.pipelines.commands.shape import randomize

QUESTIONS = (EntropyQuestion(accuracy=0.5), DistinctQuestion(), CoverageQuestion())
PROTOCOL = "--epsilon 2 --delta 1e-2 --relation replace --users 300 --buckets 1200 --salt survey".split()
COUNTERS = "--epsilon 3 --buckets 1200 --salt visits".split()


@pytest.fixture
def people(tmp_path):
    """300 users with an item each."""
    items = [f"i{k}" for k in np.random.default_rng(0).zipf(1.6, 300) % 80]
    pq.write_table(pa.table({"who": [f"u{k}" for k in range(300)], "what": items}), tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


def rows_of(out) -> list[dict]:
    return pq.read_table(out / "shape-00000-of-00001.parquet").to_pylist()


def check_report(out, plan, said):
    """The answers in the report are those of the rows, by the code of all models."""
    report = json.loads((out / "report.json").read_text())
    batch = pq.read_table(out / "shape-00000-of-00001.parquet").to_batches()[0]
    answers = ShapeProperties(plan, QUESTIONS).answers(batch)
    assert {name: report["details"][name] for name in answers.report_fields()} == answers.report_fields()
    assert said.splitlines()[0] == report["decision"] == answers.description()
    return report


@pytest.mark.parametrize("mode", ["l1", "l2"])
def test_the_shuffle_model_from_users_to_their_shape(run, people, tmp_path, mode):
    """What `shape` makes of the stored messages is the pure function of them, as CSV too; a second run gives it again."""
    messages, out, again = tmp_path / "messages.parquet", tmp_path / "out", tmp_path / "again"
    protocol = [*PROTOCOL, "--mode", mode]
    who = ["--input", people, "--user", "who", "--item", "what"]
    status, said, err = run("randomize", *who, *protocol, "--output", messages)
    assert (status, err) == (0, []) and "messages of 300 users; send them once" in said
    stored = messages.read_bytes()
    status, _, err = run("randomize", *who, *protocol, "--output", messages)
    assert status == 2 and "a user reports once; send those messages" in err[0]
    assert messages.read_bytes() == stored and sorted(path.name for path in tmp_path.iterdir()) == [
        "messages.parquet",
        "people.parquet",
    ]
    plan = shuffled(Budget(2, 1e-2), users=300, buckets=1200, mode=mode, estimate="algorithm-1")
    table = pq.read_table(messages)
    bucket, sign = (np.asarray(table[name]).astype(np.int64) for name in ("bucket", "sign"))
    expected = plan.shape(plan.sums(bucket, sign))
    words = ["--model", "shuffle", *protocol, "--estimate", "algorithm-1"]
    status, said, err = run("shape", *words, "--input", messages, "--output", out)
    assert status == 0 and rows_of(out) == expected.to_pylist()
    report = check_report(out, plan, said)
    assert (
        report["details"]["parameters"]["model"] == "shuffle"
        and report["details"]["parameters"]["estimate"] == "algorithm-1"
    )
    assert report["details"]["guarantee"]["relation"] == "replace" and report["details"]["guarantee"]["delta"] == 1e-2
    pyarrow.csv.write_csv(table, tmp_path / "messages.csv")
    assert run("shape", *words, "--input", tmp_path / "messages.csv", "--shards", 5, "--output", again)[0] == 0
    assert rows_of(again) == rows_of(out)
    assert run("verify", out, "--input", messages)[1].startswith(
        "complete and unchanged, and it came from this input: "
    )


def test_one_user_reports_its_item(run, tmp_path):
    """On a device: the user's own message is there among the noise, and nothing else tells it."""
    protocol = "--epsilon 2 --delta 1e-2 --relation replace --users 3 --buckets 12".split()
    status, said, _ = run("randomize", "--of", "7", *protocol, "--output", tmp_path / "mine.parquet")
    table = pq.read_table(tmp_path / "mine.parquet")
    assert status == 0 and "of 1 users" in said and table.column_names == ["bucket", "sign"]
    assert {"bucket": 7, "sign": 1} in table.to_pylist() and len(table) > 10
    assert "a user sends some" in run("randomize", "--of", "7", *protocol, "--explain")[1]


def test_counters_from_the_first_event_to_the_shape(run, tmp_path):
    """Events in two batches, one of them added twice, and an intrusion: the shape is released once, and stays."""
    state, out, again = tmp_path / "state", tmp_path / "out", tmp_path / "again"
    items = [f"i{k % 60}" for k in range(600)]
    pq.write_table(pa.table({"page": items}), tmp_path / "events.parquet")
    assert run("counters", "--start", "--state", state, *COUNTERS)[0] == 0
    for name, said in (("a", "added batch a"), ("b", "added batch b"), ("a", "batch a is in")):
        add = ["--batch", name, "--input", tmp_path / "events.parquet", "--item", "page"]
        assert said in run("counters", *add, "--state", state, *COUNTERS)[1]
    assert "it may be seen once more" in run("counters", "--announce-intrusion", "--state", state, *COUNTERS)[1]
    words = ["--model", "pan-private", *COUNTERS, "--input", state]
    status, _, err = run("shape", *words, "--output", out)
    assert status == 2 and "give --samples" in err[0], "and nothing is released"
    status, said, err = run("shape", *words, "--samples", 1200, "--output", out)
    assert status == 0
    report = check_report(out, pan_private_counts(Budget(3), buckets=1200), said)
    assert report["details"]["guarantee"]["unit"] == "event" and said.splitlines()[2].split() == [
        "events",
        "items",
        "error",
    ]
    rows = rows_of(out)
    assert abs(sum(row["items"] for row in rows if row["count"] > 8) - 60) < 12, "60 items of 20 events each"
    assert run("shape", *words, "--samples", 1200, "--output", again)[0] == 0 and rows_of(again) == rows
    assert run("verify", out, "--input", state)[1].startswith("complete and unchanged, and it came from this input: ")
    status, _, err = run("counters", *add, "--state", state, *COUNTERS)
    assert status == 2 and "were released" in err[0]
    status, _, err = run("shape", *words, "--samples", 1200, "--estimate", "likelihood", "--output", tmp_path / "more")
    assert status == 2 and "released once and for all" in err[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A log with users, and a key."""
    directory = tmp_path_factory.mktemp("property")
    random = np.random.default_rng(3)
    columns = {"who": [f"u{u}" for u in range(3000)], "what": [f"i{i}" for i in random.zipf(1.5, 3000) % 400]}
    pq.write_table(pa.table(columns), directory / "events.parquet")
    write_key_file(directory / "key")
    return directory


@pytest.mark.parametrize(
    ("name", "words", "question"),
    [
        ("entropy", [], EntropyQuestion()),
        ("support-size", ["--most", "900"], SupportQuestion(900)),
        ("support-coverage", ["--coverage", "4000", "--samples", "3000"], CoverageQuestion(4000)),
    ],
)
def test_a_single_property_is_that_of_the_pure_function(run, place, tmp_path, name, words, question):
    out = tmp_path / "out"
    flags = ["--input", place / "events.parquet", "--user", "who", "--item", "what", "--property", name, *words]
    key = ["--key-file", place / "key", "--release-id", "r1", "--epsilon", "1"]
    status, said, err = run("shape", *flags, *key, "--output", out)
    assert (status, err) == (0, [])
    table = pq.read_table(place / "events.parquet")
    batch = contribution_batch(table["who"].combine_chunks(), table["what"].combine_chunks())
    samples = 3000 if "--samples" in words else None
    plan = central_property(Budget(1), question, samples=samples)
    rows = plan.run([batch], Release(KeyFile(place / "key"), "r1").of_rows(reading(user="who", item=["what"])), "Shape")
    assert pq.read_table(out / "property-00000-of-00001.parquet").to_pylist() == rows.to_pylist()
    report = json.loads((out / "report.json").read_text())
    assert report["details"]["properties"] == rows.to_pylist() and report["decision"] == said.splitlines()[0]
    assert report["decision"].startswith(question.name) and len(said.splitlines()) == 4
    assert "epsilon = 1, delta = 0" in run("shape", "--property", name, *words, "--epsilon", "1", "--explain")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("shape --epsilon 1 --model shuffle --buckets 8", "missing --users"),
        ("shape --epsilon 1 --model shuffle --users 8", "missing --buckets"),
        ("shape --epsilon 1 --model shuffle --users 8 --buckets 32", "got 'add-remove': give relation 'replace'"),
        ("shape --epsilon 1 --model shuffle --domain-size 8", "--domain-size is for --model central, not for shuffle"),
        (
            "shape --epsilon 1 --model shuffle --users 8 --buckets 32 --mode central",
            "--mode central needs the users' data",
        ),
        (
            "shape --epsilon 1 --model pan-private --buckets 8 --users 2",
            "--users is for --model shuffle, not for pan-private",
        ),
        ("shape --epsilon 1 --model pan-private --buckets 8 --max-items 2", "--max-items must be 1"),
        ("shape --epsilon 1 --model pan-private --buckets 8 --input a --input b", "takes one file of counters"),
        (
            "shape --epsilon 1 --domain-size 8 --salt s",
            "--salt is for --model shuffle and pan-private, not for central",
        ),
        ("shape --epsilon 1 --domain-size 8 --samples 9", "--samples is for --property, got 9"),
        ("shape --epsilon 1 --property entropy --buckets 9", "--buckets 9 says nothing for --property entropy"),
        ("shape --epsilon 1 --property entropy --most 9", "--most 9 says nothing for --property entropy"),
        ("shape --epsilon 1 --property support-size", "missing --most"),
        ("shape --epsilon 1 --domain-size 9 --mode central --estimate likelihood", "has an estimate of its own"),
        ("randomize --epsilon 1 --delta 1e-6 --users 9", "missing --buckets"),
        ("counters --start --state x --epsilon 1", "missing --buckets"),
    ],
)
def test_what_is_refused(run, words, said):
    status, out, err = run(*words.split(), "--explain")
    assert (status, out, len(err)) == (2, "", 1) and said in err[0]


def test_what_randomize_and_counters_refuse_of_data(run, people, tmp_path):
    pq.write_table(pa.table({"who": ["a", "a"], "what": ["x", "y"]}), tmp_path / "twice.parquet")
    given = ["--user", "who", "--item", "what", *PROTOCOL]
    for words, said in (
        (
            ["--input", tmp_path / "twice.parquet", *given, "--output", tmp_path / "m.parquet"],
            "a user has more than one row",
        ),
        ([*given, "--output", tmp_path / "m.parquet"], "give one of --of and --input"),
        (["--input", people, *given, "--output", tmp_path / "m.csv"], "--output must end in .parquet"),
        (["--input", people, *given, "--output", tmp_path / "no" / "m.parquet"], "cannot be written: No such file"),
        (
            ["--of", "tea", *PROTOCOL[:-2], "--output", tmp_path / "m.parquet"],
            "must be the number of a bucket without --salt",
        ),
    ):
        status, _, err = run("randomize", *words)
        assert status == 2 and said in err[0]
    state = ["--state", tmp_path / "state", *COUNTERS]
    assert run("counters", "--start", *state)[0] == 0
    for words, said in (
        (["--start"], "is there already"),
        (["--start", "--input", people], "--input is for --batch"),
        (["--batch", "a"], "missing --input (the files or the folder to read), --item"),
        (["--batch", "a", "--input", people, "--item", "none"], "no column 'none'"),
    ):
        status, _, err = run("counters", *words, *state)
        assert status == 2 and said in err[0]
    explained = run("counters", "--start", *state, "--explain")[1]
    assert explained.startswith("Event-level (epsilon = 3") and not list(tmp_path.glob("*.draft"))


def test_explain_speaks_of_the_model(run):
    out = run("shape", "--model", "shuffle", *PROTOCOL, "--explain")[1]
    assert "1,200 buckets gets some" in out and "each user has reported one item" in out
    out = run("shape", "--model", "pan-private", *COUNTERS, "--explain")[1]
    assert "Event-level" in out and "1,200 counters has noise of scale 0.3333" in out


def test_two_runs_of_one_output_do_not_mix(tmp_path, monkeypatch):
    """A second run begins and ends while the first one writes: what it has written stays, and the first says so."""
    path, first = str(tmp_path / "messages.parquet"), [True]

    def write_table(table, file):
        if first and first.pop():
            randomize.write(path, np.array([1, 2, 3]), np.array([1, 1, -1]))
        pq.write_table(table, file)

    monkeypatch.setattr(randomize, "pq", SimpleNamespace(write_table=write_table))
    with pytest.raises(ParameterError, match="is there: a user reports once"):
        randomize.write(path, np.array([7, 8]), np.array([1, 1]))
    assert pq.read_table(path).to_pydict() == {"bucket": [1, 2, 3], "sign": [1, 1, -1]}
    assert [each.name for each in tmp_path.iterdir()] == ["messages.parquet"]
