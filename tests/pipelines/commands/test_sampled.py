"""`headcount sampled`, `heavy-hitters` and `quantiles` from end to end: output and report, --explain, and what is refused."""

from __future__ import annotations

import datetime
import json
from fractions import Fraction

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.mechanisms.sampled import plan as sampling_plan
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.axis import Axis, leaf_column
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy, quantile_search
from headcount.transforms import Budget
from tests.fixed_key import write_fixed_key
from tests.runners.jobs import column

SHAPE = ["--user", "who", "--item", "what"]
PROMISE = ["--epsilon", "2", "--delta", "1e-4"]
BUDGET = Budget(2, 1e-4)
START = datetime.datetime(2024, 1, 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """20,000 events of 3,000 users, on items and with values of several types; and a key."""
    directory = tmp_path_factory.mktemp("sampled")
    random = np.random.default_rng(3)
    user, item, value = random.integers(0, 3000, 20_000), random.geometric(0.1, 20_000), random.normal(5, 3, 20_000)
    times = [START + datetime.timedelta(hours=float(v) * 24 + 240) for v in value]
    columns = {"who": [f"u{u}" for u in user], "what": [f"i{i}" for i in item], "number": item, "value": value}
    table = pa.table(columns | {"time": pa.array(times, pa.timestamp("ms", "UTC"))})
    pq.write_table(table, directory / "events.parquet")
    write_fixed_key(directory / "key")
    return directory


def job(place, out, events="events.parquet"):
    key = ["--key-file", place / "key", "--release-id", "r1"]
    return ["--input", place / events, *key, "--output", out]


def sample(item, user="who"):
    return json.dumps([user, item, None, 4096])


def release(place):
    return Release(KeyFile(place / "key"), "r1")


def contributions(place, item, leaves=None, axis=None):
    table = pq.read_table(place / "events.parquet")
    column = table[item].combine_chunks()
    if leaves is not None:
        column = leaf_column(column, axis or Axis("number"), leaves, item)
    return contribution_batch(table["who"].combine_chunks(), column)


def rows(directory, name="counts", files=1):
    return [pq.read_table(directory / f"{name}-{k:05}-of-{files:05}.parquet").to_pylist() for k in range(files)]


def report_of(directory):
    return json.loads((directory / "report.json").read_text())


def test_a_sample_from_one_command_is_that_of_the_pure_function(run, place, tmp_path):
    out = tmp_path / "out"
    words = ["sampled", *SHAPE, *PROMISE, "--max-items", "2", "--relation", "replace"]
    status, said, err = run(*words, *job(place, out))
    *note, wrote, words_of_rows = said.splitlines()[:4]
    assert (status, wrote, err) == (0, f"wrote {out} (release r1)", [])
    assert note[0].startswith("each user counts once for each of at most 2 of its distinct items, however many rows")
    assert "\n".join(note) == report_of(out)["note"]
    made = sampled_histogram(BUDGET, max_items=2, relation="replace")
    wanted = made.run([contributions(place, "what")], release(place), sample("what")).to_pylist()
    assert rows(out) == [wanted] and len(wanted) > 10
    assert words_of_rows == f"{len(wanted)} items came out; the 10 largest:"
    assert list(wanted[0]) == ["item", "count", "noise_stddev", "low", "high", "sampled"]
    report = report_of(out)
    assert (report["details"]["guarantee"]["epsilon"], report["details"]["guarantee"]["delta"]) == (2, 1e-4)
    assert report["details"]["parameters"].items() >= {"max_items": 2, "threshold": made.plan.threshold}.items()
    assert report["details"]["parameters"]["rate"] == float(made.plan.rate)
    again = tmp_path / "again"
    assert run(*words, *job(place, again), "--shards", "9")[0] == 0
    assert report_of(again) == report and rows(again) == [wanted]


def test_the_report_holds_what_may_be_published_alone(run, place, tmp_path):
    """Neither rows, users or sampled users in all nor hidden items: but for the shown rows, it is the same for any input."""
    nothing = tmp_path / "events.parquet"
    pq.write_table(pq.read_table(place / "events.parquet").slice(0, 1), nothing)
    reports = []
    for events in (place / "events.parquet", nothing):
        out = tmp_path / f"out-{len(reports)}"
        key = ["--key-file", place / "key", "--release-id", "r1", "--output", out]
        assert run("sampled", *SHAPE, *PROMISE, "--max-items", "1", "--input", events, *key)[0] == 0
        reports.append({name: part for name, part in report_of(out).items() if name not in ("rows", "shown", "files")})
    assert reports[0] == reports[1]
    assert rows(tmp_path / "out-1") == [[]]


def test_heavy_hitters_of_integers_in_files(run, place, tmp_path):
    out = tmp_path / "out"
    words = ["heavy-hitters", "--user", "who", "--item", "number", *PROMISE, "--phi", "0.06", "--users", "3000"]
    words += ["--max-items", "1"]
    assert run(*words, "--output-files", "3", *job(place, out))[0] == 0
    made = heavy_hitters(BUDGET, 0.06, users=3000, item_type=int, max_items=1)
    wanted = made.run([contributions(place, "number")], release(place), sample("number")).to_pylist()
    found = sorted((row for part in rows(out, files=3) for row in part), key=lambda row: row["item"])
    assert found == wanted and 1 < len(wanted) < 12
    assert report_of(out)["details"]["parameters"].items() >= {"phi": 0.06, "users": 3000}.items()
    assert "may stay hidden" not in report_of(out)["note"]
    words[words.index("0.06")] = "0.001"
    assert run(*words, *job(place, tmp_path / "few"))[0] == 0
    assert "users may stay hidden, whatever their share: one of" in report_of(tmp_path / "few")["note"]
    every = sampled_histogram(BUDGET, item_type=int, max_items=1).run(
        [contributions(place, "number")], release(place), sample("number")
    )
    assert rows(tmp_path / "few") == [
        every.to_pylist()
    ]  # at another share, of the same sample as `headcount sampled` has
    sampled = {row["item"]: row["sampled"] for row in wanted}
    assert {row["item"]: row["sampled"] for row in every.to_pylist() if row["sampled"] >= made.least} == sampled


def test_heavy_hitters_of_users_that_are_counted(run, place, tmp_path):
    """3000 users, counted with a standard deviation of 7: the same items as for the public number, of the rest's sample."""
    out = tmp_path / "out"
    words = ["heavy-hitters", *SHAPE, *PROMISE, "--phi", "0.06", "--max-items", "1"]
    assert run(*words, *job(place, out))[0] == 0
    made = heavy_hitters(BUDGET, 0.06, max_items=1)
    wanted = made.run([contributions(place, "what")], release(place), sample("what")).to_pylist()
    assert rows(out) == [wanted] and 1 < len(wanted) < 12
    report = report_of(out)
    assert (report["details"]["guarantee"]["epsilon"], report["details"]["guarantee"]["delta"]) == (2, 1e-4)
    assert [step["epsilon"] for step in report["details"]["guarantee"]["mechanisms"]] == [0, 1.8, 0.2, 0]
    assert "users are counted with noise of standard deviation 7.059" in report["note"]
    assert "users" not in report["details"]["parameters"] and "users_share" not in report["details"]["parameters"]
    status, said, _ = run(*words, "--explain", "--users-share", "0.5")
    assert status == 0 and "number of users: epsilon = 1" in said and "standard deviation 1.35" in said


def test_the_items_per_user_are_chosen_and_the_report_says_so(run, place, tmp_path, monkeypatch):
    """Of 3000 users with 5 items on average, by the fixed key."""
    monkeypatch.setattr(sampling_plan, "_search_walk", lambda *arguments: (Fraction(1, 3), 8))  # which takes seconds
    sampling_plan.calibrate_sample.cache_clear()
    for words, made in (
        (["sampled"], sampled_histogram(BUDGET)),
        (["heavy-hitters", "--phi", "0.06"], heavy_hitters(BUDGET, 0.06)),
    ):
        out = tmp_path / words[0]
        status, said, err = run(*words, *SHAPE, *PROMISE, *job(place, out))
        first, whose, *_ = said.splitlines()
        report = report_of(out)
        items = report["details"]["chosen"]["max_items"]
        assert (status, err) == (0, []) and items in (5, 10)
        assert first == report["decision"] == f"chosen: each user counts for at most {items} of its distinct items"
        assert "up to the number that was chosen" in whose and "too low" in whose
        wanted = made.run([contributions(place, "what")], release(place), sample("what")).to_pylist()
        assert rows(out) == [wanted] and len(wanted) > 5
        assert report["details"]["parameters"]["max_items"] == "auto" and "rate" not in report["details"]["parameters"]
        steps = report["details"]["guarantee"]["mechanisms"]
        assert (steps[0]["name"], steps[0]["epsilon"]) == ("choice of the items per user", 0.2)
        assert sum(step["epsilon"] for step in steps) == pytest.approx(2)
    sampling_plan.calibrate_sample.cache_clear()


@pytest.mark.parametrize(
    "command",
    [
        "sampled",
        "sampled --max-items 1",
        "heavy-hitters --phi 0.06 --users 3000",
        "quantiles --value what --lo 0 --hi 1 --quantile 0.5",
        "quantiles --value what --lo 0 --hi 1 --quantile 0.5 --method search",
    ],
)
@pytest.mark.parametrize("relation", list(Relation))
def test_the_promise_is_that_of_the_relation(run, command, relation):
    status, out, _ = run(
        *command.split(),
        *column(command.split()[0], command.split()[1:]),
        *PROMISE,
        "--relation",
        relation.value,
        "--explain",
    )
    assert status == 0 and out.splitlines()[0].endswith(f"under {relation.words()}.")


def test_quantiles_and_ranges_of_one_sample(run, place, tmp_path):
    """Two jobs with the same key and id read what they are asked for off the same sample."""
    words = ["quantiles", "--user", "who", "--value", "value", *PROMISE, "--lo", "-5", "--hi", "15", "--levels", "6"]
    made = quantile_hierarchy(BUDGET, -5, 15, levels=6)
    tree = made.tree(made.run([contributions(place, "value", made.leaves)], release(place), sample("value")))
    out = tmp_path / "out"
    assert run(*words, "--quantile", "0.5", "--quantile", "0.9", *job(place, out))[0] == 0
    assert rows(out, "quantiles") == [tree.quantiles([check_share("q", 0.5), check_share("q", 0.9)]).to_pylist()]
    parameters = report_of(out)["details"]["parameters"]
    assert parameters.items() >= {"lo": "-5", "hi": "15", "quantiles": 2, "values": "number", "levels": 6}.items()
    assert "item_type" not in parameters
    ranges = tmp_path / "ranges"
    words[words.index("-5")] = "-5e0"  # the same number
    assert run(*words, "--range=-5:3.25", "--range", "3.25:15", *job(place, ranges))[0] == 0
    assert rows(ranges, "ranges") == [tree.range_counts([(-5, 3.25), (3.25, 15)]).to_pylist()]


def test_a_search_for_one_quantile_is_that_of_the_pure_function(run, place, tmp_path):
    """And it is near the median: the rank has a stddev of 0.02 in a round of 3,000 users, and a part has 0.02 of them. So 0.15
    off, or no row, is seven standard deviations in one of seven rounds: below 1e-10."""
    words = [
        "quantiles",
        "--user",
        "who",
        "--value",
        "value",
        *PROMISE,
        "--lo",
        "-5",
        "--hi",
        "15",
        "--relation",
        "replace",
    ]
    words += ["--method", "search", "--rounds", "7", "--quantile", "0.5"]
    made = quantile_search(BUDGET, 0.5, -5, 15, rounds=7, relation=Relation.REPLACE)
    wanted = made.run([contributions(place, "value", made.leaves)], release(place), "Quantiles").to_pylist()
    for shards, out in (("3", tmp_path / "out"), ("11", tmp_path / "again")):
        assert run(*words, *job(place, out), "--shards", shards, "--output-files", "2")[0] == 0
        assert rows(out, "quantiles", 2) == [wanted, []]
        parameters = report_of(out)["details"]["parameters"]
        assert parameters.items() >= {"method": "search", "rounds": 7, "quantiles": 1, "lo": "-5", "hi": "15"}.items()
        assert parameters["threshold"] == made.plan.threshold and not {"levels", "branching"} & parameters.keys()
        assert report_of(out)["details"]["guarantee"]["epsilon"] == 2
    values = np.asarray(pq.read_table(place / "events.parquet")["value"])
    assert abs((values < wanted[0]["value"]).mean() - 0.5) < 0.15


def test_search_and_tree_draw_other_bits():
    """The same plan, grid, key, id and label: one sample for both would be a second release of it."""
    tree, search = quantile_hierarchy(BUDGET, -5, 15, levels=6), quantile_search(BUDGET, 0.5, -5, 15, rounds=6)
    assert tree.plan == search.plan and tree.leaves == search.leaves
    assert tree.subkey(bytes(32), "r1", "Quantiles/Sampled") != search.subkey(bytes(32), "r1", "Quantiles/Sampled")


def test_times_come_out_as_text(run, place, tmp_path):
    out = tmp_path / "out"
    flags = [*PROMISE, "--lo", "2024-01-01", "--hi", "2024-02-01", "--levels", "5", "--quantile", "0.5"]
    assert run("quantiles", "--user", "who", "--value", "time", *flags, *job(place, out), "--format", "jsonl")[0] == 0
    (row,) = map(json.loads, (out / "quantiles-00000-of-00001.jsonl").read_text().splitlines())
    assert row["value"] in {"2024-01-15", "2024-01-16"}  # 240 hours and five days after the start, nearly


def _as_csv(table, path):
    pa.csv.write_csv(table, path)


def _as_jsonl(table, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def _as_avro(table, path):
    fields = [{"name": "who", "type": "string"}, {"name": "value", "type": ["null", "double"]}]
    with open(path, "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "Row", "fields": fields}, table.to_pylist())


@pytest.mark.parametrize(("name", "write"), [("e.csv", _as_csv), ("e.jsonl", _as_jsonl), ("e.avro", _as_avro)])
def test_every_format_gives_the_same_quantiles(run, place, tmp_path, name, write):
    write(pq.read_table(place / "events.parquet", columns=["who", "value"]), place / name)
    words = ["quantiles", "--user", "who", "--value", "value", *PROMISE, "--lo", "-5", "--hi", "15", "--levels", "6"]
    assert run(*words, "--quantile", "0.5", *job(place, tmp_path / "out", name))[0] == 0
    made = quantile_hierarchy(BUDGET, -5, 15, levels=6)
    tree = made.tree(made.run([contributions(place, "value", made.leaves)], release(place), sample("value")))
    assert rows(tmp_path / "out", "quantiles") == [tree.quantiles([check_share("q", 0.5)]).to_pylist()]


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_values_that_are_missing_or_wrong(run, place, tmp_path, form):
    """Nulls are refused with their row, or dropped; what is no number is refused and not told."""
    table = pa.table({"who": [f"u{k}" for k in range(400)] + ["x"], "value": [0.25] * 400 + [None]})
    words = ["quantiles", "--user", "who", "--value", "value", *PROMISE, "--lo", "0", "--hi", "1", "--quantile", "0.5"]
    words += ["--levels", "2"]
    write = {"parquet": pq.write_table, "csv": _as_csv, "jsonl": _as_jsonl}[form]
    write(table, tmp_path / f"events.{form}")
    flags = ["--input", tmp_path / f"events.{form}", "--output", tmp_path / "out"]
    status, _, err = run(*words, *flags)
    assert status == 2 and "column 'value', row 401: is null" in err[-1]
    assert run(*words, *flags, "--drop-null")[0] == 0
    assert len(rows(tmp_path / "out", "quantiles")[0]) == 1
    wrong = pa.table({"who": ["u", "v"], "value": ["0.5", "secret"]})
    write(wrong, tmp_path / f"events.{form}")
    status, _, err = run(*words, *flags, "--overwrite")
    assert status == 2 and "column 'value'" in err[-1] and "secret" not in "".join(err)


def test_explain_reads_nothing(run):
    promise = ["--epsilon", "1", "--delta", "1e-8", "--explain", "--input", "nowhere.parquet"]
    expected = {
        ("sampled",): ["epsilon = 0.9", "if 100 items of each user may count, an item of about 250 users is shown"],
        ("heavy-hitters", "--phi", "0.01"): ["epsilon = 0.8", "counted with noise", "items of fewer than"],
        ("sampled", "--max-items", "1"): [
            "rate 0.28824267, threshold 23",
            "79 users is shown with a chance of 50 %, one of 104 with 95 %",
        ],
        ("sampled", "--max-items", "10", "--objective", "w50"): ["109 users is shown", "an item of 202 users"],
        ("heavy-hitters", "--phi", "0.01", "--users", "1000000", "--max-items", "1"): [
            "reported from 2,883 sampled users",
            "10,002 users",
        ],
        ("quantiles", "--lo", "0", "--hi", "9", "--quantile", "0.5"): ["1,024 equal parts", "levels of a user", "202"],
        ("quantiles", "--lo", "0", "--hi", "9", "--quantile", "0.5", "--method", "search", "--rounds", "5"): [
            "halved 5 times, down to one of 32 equal parts",
            "rounds of a user, each with its own coin 5",
        ],
    }
    for words, parts in expected.items():
        status, out, err = run(*words, *promise)
        assert (status, err) == (0, []) and "epsilon = 1, delta = 1e-08" in out
        for part in parts:
            assert part in out, words
    one = run("sampled", "--max-items", "1", *promise)[1]
    assert "with Laplace noise and a threshold, at the same promise, an item of 20 users" in one


QUANTILES = ["quantiles", *PROMISE, "--lo", "0", "--hi", "1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sampled", "--delta", "1e-6"], "missing --epsilon"),
        (
            ["sampled", "--epsilon", "1"],
            "--delta must be positive, as which items there are cannot be hidden for certain",
        ),
        (["sampled", *PROMISE, "--max-items", "0"], "--max-items must be a whole number from 1"),
        (["sampled", *PROMISE, "--bound", "5"], "unknown flag '--bound'"),
        (["heavy-hitters", *PROMISE], "missing --phi"),
        (
            ["heavy-hitters", *PROMISE, "--phi", "0.1", "--relation", "replace"],
            "--relation replace needs --users, the public number of all users",
        ),
        (
            ["heavy-hitters", *PROMISE, "--phi", "0.1", "--users", "9", "--users-share", "0.1"],
            "--users-share 0.1 is of no use with --users: leave one of them out",
        ),
        (
            ["heavy-hitters", *PROMISE, "--phi", "0.1", "--users-share", "1"],
            "--users-share must be a share between 0 and 1, got 1.0",
        ),
        (["heavy-hitters", *PROMISE, "--phi", "2", "--users", "9"], "--phi must be a share between 0 and 1, got 2.0"),
        (["quantiles", *PROMISE, "--quantile", "0.5"], "missing --lo, --hi"),
        (QUANTILES, "missing --quantile or --range"),
        ([*QUANTILES, "--quantile", "0.5", "--range", "0:1"], "at no further cost"),
        ([*QUANTILES, "--quantile", "1.5"], "--quantile must be a number between 0 and 1, got 1.5"),
        ([*QUANTILES, "--quantile", "0.5", "--item", "age"], "unknown flag '--item'"),
        ([*QUANTILES, "--quantile", "0.5", "--item-type", "int"], "unknown flag '--item-type'"),
        (
            [*QUANTILES, "--quantile", "1.5", "--method", "search"],
            "--quantile must be a number between 0 and 1, got 1.5",
        ),
        (
            [*QUANTILES, "--quantile", "0.5", "--quantile", "0.9", "--method", "search"],
            "--method search finds one --quantile, got 2 times --quantile: take --method tree",
        ),
        ([*QUANTILES, "--range", "0:1", "--method", "search"], "--method search finds one --quantile, got --range"),
        (
            [*QUANTILES, "--quantile", "0.5", "--method", "search", "--levels", "9"],
            "--levels 9 is of no use to --method",
        ),
        ([*QUANTILES, "--quantile", "0.5", "--rounds", "9"], "--rounds 9 is of no use to --method tree: leave it out"),
        ([*QUANTILES, "--range", "1"], "--range must be two values with a colon between them, as 18:25, got '1'"),
        ([*QUANTILES, "--range", "0.7:0.2"], "--range must begin below its end, got (0.7, 0.2)"),
        (
            [*QUANTILES, "--quantile", "0.5", "--lo", "low"],
            "--lo must be a number, or a date or time such as 2030-01-31",
        ),
        ([*QUANTILES[:-1], "2024-01-01", "--quantile", "0.5"], "lo and hi must both be numbers, dates or times"),
        (["quantiles", "--epsilon", "1", "--lo", "0", "--hi", "1"], "as a value that one user has cannot be hidden"),
        (
            [*QUANTILES, "--quantile", "0.5", "--levels", "11", "--branching", "4"],
            "must be at most 1048576, got 4 ** 11",
        ),
    ],
)
def test_what_is_refused(run, words, said):
    status, out, err = run(*words, "--explain")
    assert (status, out, len(err)) == (2, "", 1) and said in err[0]


def test_ranges_of_times_have_colons_of_their_own():
    from headcount.pipelines.commands.quantiles import value_range

    assert value_range("-5:3.5") == (-5, 3.5)
    day = datetime.date(2024, 1, 1)
    assert value_range("2024-01-01:2024-01-02") == (day, datetime.date(2024, 1, 2))
    noon = datetime.datetime(2024, 1, 1, 12, 30)
    assert value_range("2024-01-01T12:30:2024-01-01T12:30:15") == (noon, noon.replace(second=15))
