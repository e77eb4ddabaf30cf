"""A job from one command to a committed output: the same rows each time, or one line and no output."""

import collections
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms import Budget, KeyFile, Release, contribution_batch, private_histogram
from headcount.mechanisms.columns.reading import reading
from tests.fixed_key import write_fixed_key
from tests.pipelines.refusals import CANARY, refused

SHAPE = [
    "--user",
    "who",
    "--item",
    "item",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
    "--of",
    "events",
    "--method",
    "one-stage",
    "--bound",
    "2",
]


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """20,000 rows of 5,000 users on ten common items and many rare ones, as strings and as integers."""
    generator = np.random.default_rng(3)
    item = generator.geometric(0.3, 20_000)
    user = generator.integers(0, 5_000, 20_000)
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    columns = {"who": pa.array([f"u{u}" for u in user]), "item": pa.array([f"i{i}" for i in item])}
    pq.write_table(pa.table({**columns, "number": pa.array(item), "n": pa.array(np.ones(20_000, int))}), path)
    return str(path)


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("key") / "key")
    write_fixed_key(path)
    return path


def rows(directory, name="counts-00000-of-00001.parquet"):
    return pq.read_table(directory / name).to_pylist()


def test_a_histogram_from_one_command(run, events, tmp_path):
    out = tmp_path / "new" / "out"
    status, said, err = run("histogram", "--input", events, *SHAPE, "--output", out)
    assert (status, err) == (0, [])
    report = json.loads((out / "report.json").read_text())
    words, *lines, wrote, page = said.splitlines()
    assert words.startswith(f"counts of events by item: {report['rows']} items came out")
    assert "".join(lines).count("i1 ") == 1
    assert wrote == f"wrote {out} (release {report['release_id']})"
    assert page == f"to look at: {out / 'report.html'}"
    assert sorted(path.name for path in out.iterdir()) == [
        "counts-00000-of-00001.parquet",
        "report.html",
        "report.json",
    ]
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]
    found = rows(out)
    assert [row["item"] for row in found] == sorted(row["item"] for row in found)
    assert {"i1", "i2"} <= {row["item"] for row in found}
    assert all(
        row["bounded_count"] == int(row["bounded_count"]) and row["noise_stddev"] == found[0]["noise_stddev"]
        for row in found
    )


def test_estimates_are_the_default_and_those_of_the_pure_function(run, events, key, tmp_path):
    """The true number of users of i1, who are most of all, is met within a tenth: ten standard deviations of its noise."""
    asked = ["--user", "who", "--item", "item", "--epsilon", "1", "--delta", "1e-6"]
    words = [*asked, "--key-file", key, "--release-id", "r1"]
    status, said, err = run("histogram", "--input", events, *words, "--output", tmp_path / "out")
    table = pq.read_table(events)
    columns = (table[name].combine_chunks() for name in ("who", "item"))
    made = private_histogram(Budget(1, 1e-6))
    release = Release(KeyFile(key), "r1").of_rows(reading(user="who"))
    wanted, told = made.run_decided([contribution_batch(*columns)], release, "Histogram")
    assert (status, err) == (0, []) and rows(tmp_path / "out") == wanted.to_pylist()
    true = collections.Counter(item for _, item in {(row["who"], row["item"]) for row in table.to_pylist()})
    first = next(row for row in wanted.to_pylist() if row["item"] == "i1")
    assert first["count"] == pytest.approx(true["i1"], rel=0.1)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["decision"] == told.description() and report["share_left_out"] == round(told.left_out, 3)
    assert report["assumption"] in said and f"\n{told.description()}\nwrote " in said
    most = told.plan.kept.totals_bound
    assert f"\ncount is an estimate of the users of the item; at most {most:,} items of one user count in all\n" in said
    assert report["details"]["chosen"]["totals_bound"] == most and report["details"]["chosen"]["max_per_item"] == 1
    status, out, err = run("histogram", *asked, "--explain")
    assert (status, err) == (0, []) and "users is shown with a chance of 50 %" in out and "standard deviation" in out


_OF_ROWS = {"rows", "shown", "files", "content_sha256"}  # what a report says of the released rows, and of nothing else


def test_the_report_says_nothing_of_the_data(run, events, key, tmp_path):
    """It is the same for other input, shards and key: all that is in it was known before, but for the released rows."""
    small = tmp_path / "small.parquet"
    pq.write_table(pq.read_table(events).slice(0, 10), small)
    common = ["--release-id", "r", "--format", "jsonl", "--output-files", "3"]
    other = str(tmp_path / "key")
    write_fixed_key(other, 8)
    for path, name, shards, source in ((events, "a", 3, key), (small, "b", 5, other)):
        words = ["--output", tmp_path / name, "--shards", shards, "--key-file", source]
        assert run("histogram", "--input", path, *SHAPE, *common, *words)[0] == 0
    a, b = tmp_path / "a", tmp_path / "b"
    reports = [json.loads((out / "report.json").read_text()) for out in (a, b)]
    texts = [json.dumps({name: report[name] for name in report if name not in _OF_ROWS}) for report in reports]
    assert texts[0] == texts[1] and all(_OF_ROWS <= set(report) for report in reports)
    assert sorted(os.listdir(a)) == sorted(os.listdir(b))
    text = (a / "report.json").read_text()
    assert not any(word in text for word in (events, str(tmp_path), key, "shards", "20000", "20_000"))


def test_words_for_the_report_move_no_noise_and_left_out_rows_are_told(run, events, key, tmp_path):
    common = ["histogram", "--input", events, *SHAPE, "--key-file", key, "--release-id", "r1"]
    assert run(*common, "--output", tmp_path / "a")[0] == 0
    more = ["--label", "all shops", "--period", "week 3", "--suppress-below", "100", "--output", tmp_path / "b"]
    status, said, err = run(*common, *more)
    every, found = rows(tmp_path / "a"), rows(tmp_path / "b")
    assert (status, err) == (0, []) and found == [row for row in every if row["bounded_count"] >= 100]
    without = len(every) - len(found)
    assert without > 1 and f"\n{without} rows left out because their count is below 100\n" in said
    report = json.loads((tmp_path / "b" / "report.json").read_text())
    assert (report["label"], report["period"], report["rows"]) == ("all shops", "week 3", len(found))
    assert report["left_out"] == [{"rows": without, "because": "their count is below 100"}]
    (file,) = report["files"]
    assert file["sha256"] == hashlib.sha256((tmp_path / "b" / file["name"]).read_bytes()).hexdigest()
    status, said, err = run(*common, "--suppress-below", "100000000", "--output", tmp_path / "c")
    assert (status, err) == (0, []) and "no row came out: all were left out" in said
    refused(
        run(*common, "--max-relative-error", "0", "--output", tmp_path / "d"),
        "--max-relative-error must be a number above 0",
    )


def test_a_release_can_be_repeated_bit_for_bit(run, events, key, tmp_path):
    """Under other shards and with every bundle run twice, which also runs the commit twice; and from other files."""
    common = ["--input", events, *SHAPE, "--key-file", key, "--release-id", "r1", "--format", "csv"]
    assert run("histogram", *common, "--output", tmp_path / "a")[0] == 0
    words = ["--output", tmp_path / "b", "--shards", "3", "--direct_runner_bundle_repeat=2"]
    assert run("histogram", *common, *words)[0] == 0
    name = "counts-00000-of-00001.csv"
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]

    table = pq.read_table(events)
    table = table.take(np.random.default_rng(4).permutation(table.num_rows))  # the same rows, shuffled
    cuts = [0, 10, 9_000, table.num_rows]
    for part, (start, stop) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(table.slice(start, stop - start), tmp_path / f"part-{part}.parquet", row_group_size=777)
    common[1] = str(tmp_path / "part-*.parquet")
    assert run("histogram", *common, "--output", tmp_path / "c")[0] == 0
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


def test_an_output_is_replaced_only_if_asked_for(run, events, tmp_path):
    words = ["histogram", "--input", events, *SHAPE, "--output", tmp_path / "out"]
    assert run(*words, "--output-files", "2")[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    refused(run(*words), "holds an output already", "--overwrite")
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert run(*words, "--overwrite")[0] == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["counts-00000-of-00001.parquet", "report.html", "report.json"]
    total = ["total", "--input", events, "--user", "who", "--epsilon", "1", "--output", tmp_path / "out"]
    refused(run(*total), "holds an output already", "--overwrite")
    assert run(*total, "--overwrite")[0] == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["report.html", "report.json", "totals-00000-of-00001.parquet"]
    assert "How many users and events" in (tmp_path / "out" / "report.html").read_text(), (
        "the page is the new one's too"
    )


def test_a_folder_of_text_gives_the_same_bytes_as_a_file(run, key, tmp_path):
    """Parts without an ending and with semicolons, in folders by day; also the report, which says nothing of the files."""
    rows = [(f"u{k % 300}", f"i{k % 3}") for k in range(900)]
    pq.write_table(
        pa.table({"who": [who for who, _ in rows], "item": [what for _, what in rows]}), tmp_path / "e.parquet"
    )
    for day in range(3):
        folder = tmp_path / "events" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "_SUCCESS").touch()
        lines = ["who;item", *(";".join(row) for row in rows[day::3])]
        (folder / "part-00000").write_text("\n".join(lines))
    common = [*SHAPE, "--key-file", key, "--release-id", "r1"]
    assert run("histogram", "--input", tmp_path / "e.parquet", *common, "--output", tmp_path / "a")[0] == 0
    words = ["histogram", "--input", tmp_path / "events", *common, "--output", tmp_path / "b"]
    refused(run(*words), "--input-format")
    refused(run(*words, "--input-format", "csv"), "give --delimiter ';'")
    assert run(*words, "--input-format", "csv", "--delimiter", ";")[0] == 0
    for name in ("counts-00000-of-00001.parquet", "report.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_public_domain_of_integers(run, events, tmp_path):
    """Pure epsilon: every item of the domain is released, also one that nobody has."""
    (tmp_path / "domain.txt").write_text("1\n-5\n2\n")
    words = [
        "--user",
        "who",
        "--item",
        "number",
        "--count",
        "n",
        "--epsilon",
        "1",
        "--of",
        "events",
        "--method",
        "one-stage",
        "--bound",
        "2",
    ]
    words += ["--domain", tmp_path / "domain.txt", "--output", tmp_path / "out"]
    assert run("histogram", "--input", events, *words)[0] == 0
    assert [row["number"] for row in rows(tmp_path / "out")] == [-5, 1, 2]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["details"]["guarantee"]["delta"], report["details"]["parameters"]["noise"]) == (0.0, "laplace")


def test_empty_input_and_nothing_released_look_alike(run, tmp_path):
    schema = pa.schema([("who", pa.string()), ("item", pa.string())])
    tables = {"empty": schema.empty_table(), "few": pa.table({"who": ["a"], "item": ["x"]}, schema=schema)}
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        words = ["--input", tmp_path / f"{name}.parquet", *SHAPE, "--output", tmp_path / name]
        assert run("histogram", *words)[0] == 0
    found = [(tmp_path / name / "counts-00000-of-00001.parquet").read_bytes() for name in tables]
    assert found[0] == found[1]
    assert rows(tmp_path / "empty") == []


def test_explain_reads_nothing(run, tmp_path):
    status, out, err = run("histogram", *SHAPE, "--explain")
    assert (status, err) == (0, [])
    assert "epsilon = 1" in out and "threshold" in out and "99.9 %" in out
    (tmp_path / "domain.txt").write_text("a\nb\n")
    words = ["--epsilon", "1", "--method", "one-stage", "--bound", "2", "--domain", tmp_path / "domain.txt"]
    status, out, err = run("histogram", *words, "--explain", "--input", "nowhere.parquet")
    assert (status, err) == (0, []) and "threshold: none" in out


def test_a_promise_that_hides_little_is_hinted_at(run, events, tmp_path):
    words = ["histogram", "--user", "who", "--item", "item", "--method", "one-stage", "--bound", "2"]
    status, out, err = run(*words, "--epsilon", "1e6", "--delta", "0.01", "--explain")
    assert status == 0 and "promises little" not in out
    assert len(err) == 1 and "epsilon = 1e+06 is above 10" in err[0] and "delta = 0.01 is above 0.0001" in err[0]
    job = [*words, "--epsilon", "11", "--delta", "1e-6", "--input", events, "--output", tmp_path / "out"]
    status, out, err = run(*job)
    assert status == 0 and "promises little" not in out
    assert len(err) == 1 and err[0].startswith("headcount: this promises little: epsilon = 11 is above 10")
    refused(run(*job), "holds an output already")
    for flags in (["--rho", "3", "--delta", "1e-6"], ["--epsilon", "10", "--delta", "1e-4"]):
        status, _, err = run("plume", *flags, "--explain")
        assert (status, len(err)) == (0, int("--rho" in flags))


def bad_inputs(directory):
    """Files that must be refused, each with the canary in it: (path, more flags, words of the line)."""
    good = {"who": pa.array(["u", "v"]), "item": pa.array([CANARY, "x"])}
    tables = {
        "null": (good | {"item": pa.array([CANARY, None])}, [], ["'item'", "row 2", "--drop-null"]),
        "negative": (good | {"n": pa.array([1, -4711])}, ["--count", "n"], ["'n'", "row 2"]),
        "float": (good | {"n": pa.array([1.5, 4711.25])}, ["--count", "n"], ["'n'"]),
        "list": (good | {"item": pa.array([[CANARY], []])}, [], ["'item'"]),
        "column": ({"who": good["who"], "where": good["item"]}, [], ["'item'"]),
    }
    for name, (columns, flags, words) in tables.items():
        path = directory / f"{name}.parquet"
        pq.write_table(pa.table(columns), path)
        yield path, flags, words
    path = directory / "truncated.parquet"
    path.write_bytes((directory / "null.parquet").read_bytes()[:-20])
    yield path, [], []
    path = directory / "ragged.csv"
    path.write_text(f"who,item\nu,{CANARY}\nv,{CANARY},{CANARY}\n")
    yield path, [], ["row 2"]
    path = directory / "broken.jsonl"
    path.write_text(f'{{"who": "u", "item": "x"}}\n{{"who": "{CANARY}')
    yield path, [], ["row 2"]


def test_bad_input_is_one_line_without_a_value_and_no_output(run, tmp_path):
    for path, flags, words in bad_inputs(tmp_path):
        result = run("histogram", "--input", path, *SHAPE, *flags, "--output", tmp_path / "out")
        refused(result, path.name, *words)
        assert "4711" not in result[2][0]
        assert not [name for name in os.listdir(tmp_path) if name.startswith("out")], path


def test_nulls_are_dropped_if_asked_for(run, tmp_path):
    pq.write_table(pa.table({"who": ["u", None], "item": ["x", "y"]}), tmp_path / "null.parquet")
    words = ["--input", tmp_path / "null.parquet", *SHAPE, "--output", tmp_path / "out"]
    assert run("histogram", *words, "--drop-null")[0] == 0


def test_what_is_refused_before_anything_is_read(run, events, tmp_path):
    words = ["histogram", "--input", events, *SHAPE]
    refused(run(*words), "missing --output")
    refused(run("histogram", *SHAPE, "--output", tmp_path / "out"), "missing --input")
    refused(run(*words, "--output", tmp_path / "out", "--frobnicate"), "unknown flag '--frobnicate'")
    refused(run(*words, "--output", tmp_path / "out", "--bound", "2.5"), "--bound", "'2.5'")
    refused(run("histogram", "--epsilon", "nan", "--domain", "d"), "--epsilon must be", "nan")
    refused(run("histogram", "--epsilon", "1", "--delta", "1"), "--delta must be", "1")
    refused(run(*words, "--epsilon", "5"), "--epsilon is given twice")
    refused(run(*words, "--output", tmp_path / "out", "--runner", "Foo"), "unknown runner 'Foo'")
    for name in ("runtime_type_check", "performance_runtime_type_check"):
        given = run(*words, "--output", tmp_path / "out", f"--{name}")
        refused(given, f"--{name} prints the element", "may name a user: leave it out")
    refused(run(*words, "--output", tmp_path / "out", "--input", "no*.parquet"), "no*.parquet")
    refused(run(*words, "--output", tmp_path / "out", "--key-file", "nowhere"), "nowhere")
    remote = ["--runner", "FlinkRunner", "--behind-firewall"]  # its server would be refused first
    refused(run(*words, "--output", tmp_path / "out", *remote), "--key-env", "--key-file")
    refused(run(*words, "--output", os.path.join(events, "out")), "--output")
    refused(run(*words, "--output", os.path.dirname(events)), "other files")
    refused(run("histogrm"), "unknown command 'histogrm'; did you mean histogram?")
    refused(run("hist"), "unknown command 'hist'; did you mean histogram?")
    refused(run("coun"), "unknown command 'coun'; did you mean counters or count-release?")
    refused(run("zebra"), "unknown command 'zebra'; give one of histogram, aggregate")
    refused(run("--epsilon", "1"), "unknown flag '--epsilon' in place of a command")
    assert os.listdir(tmp_path) == [] and os.listdir(os.path.dirname(events)) == ["events.parquet"]


def test_what_was_not_expected_has_a_traceback_and_no_output(run, events, tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("disk on fire")

    monkeypatch.setattr("headcount.pipelines.sinks.output.encode", fail)
    status, out, err = run("histogram", "--input", events, *SHAPE, "--output", tmp_path / "out")
    assert (status, out) == (1, "")
    assert "Traceback" in err[0] and "disk on fire" in err[-1]
    assert os.listdir(tmp_path) == []


PAUSE_IN_COMMIT = """
import logging, sys, time
logging.disable()  # Beam is imported before the driver can silence it
from headcount.pipelines import main
from headcount.pipelines.storage import stores
move = stores.move
def pause(source, target):
    move(source, target)
    print("moved", flush=True)
    time.sleep(60)
stores.move = pause
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.slow("kills")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_job_leaves_no_output(run, events, tmp_path, how):
    """Stopped in the middle of its commit. After kill -9 the next run removes what is left."""
    words = ["histogram", "--input", events, *SHAPE, "--output", str(tmp_path / "out")]
    job = subprocess.Popen(
        # Where the tests run in the background of a shell, Ctrl-C is ignored, and the job would inherit that.
        ["env", "--default-signal=INT", sys.executable, "-c", PAUSE_IN_COMMIT, *words, "--output-files", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout.readline() == "moved\n"
    job.send_signal(how)
    _, err = job.communicate(timeout=60)
    if how != signal.SIGKILL:
        assert (job.returncode, err) == (128 + how, f"headcount: stopped by {how.name}\n")
        assert os.listdir(tmp_path) == []
        return
    left = os.listdir(tmp_path)
    assert len(left) == 2 and "report.json" not in os.listdir(tmp_path / "out")
    assert run(*words)[0] == 0
    assert os.listdir(tmp_path) == ["out"]
    assert sorted(os.listdir(tmp_path / "out")) == ["counts-00000-of-00001.parquet", "report.html", "report.json"]
