"""`headcount sampled` and `heavy-hitters` from end to end: output and report, --explain, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.sampled import plan as sampling_plan
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from tests.pipelines.commands.sampled_events import (
    BUDGET,
    PROMISE,
    SHAPE,
    contributions,
    job,
    make_place,
    release,
    report_of,
    rows,
    sample,
)
from tests.runners.jobs import column


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("sampled"))


@pytest.mark.slow("cuts")
def test_a_sample_from_one_command_is_that_of_the_pure_function(run, place, tmp_path):
    out = tmp_path / "out"
    words = ["sampled", *SHAPE, *PROMISE, "--max-items", "2", "--relation", "replace"]
    status, said, err = run(*words, *job(place, out))
    words_of_rows, *_, wrote, _ = said.splitlines()
    note = said.rpartition("\n\n")[2].splitlines()[:-2]
    assert (status, wrote, err) == (0, f"wrote {out} (release r1)", [])
    assert note[0].startswith("each user counts once for each of at most 2 of its distinct items, however many rows")
    assert "\n".join(note) == report_of(out)["note"]
    made = sampled_histogram(BUDGET, max_items=2, relation="replace")
    wanted = made.run([contributions(place, "item")], release(place), sample("item")).to_pylist()
    assert rows(out) == [wanted] and len(wanted) > 10
    assert words_of_rows == (
        f"counts of users by item: {len(wanted)} items came out; the 10 largest, with the range of the noise:"
    )
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
        of_rows = ("rows", "shown", "files", "content_sha256")
        reports.append({name: part for name, part in report_of(out).items() if name not in of_rows})
    assert reports[0] == reports[1]
    assert rows(tmp_path / "out-1") == [[]]


def test_heavy_hitters_of_integers_in_files(run, place, tmp_path):
    out = tmp_path / "out"
    words = ["heavy-hitters", "--user", "who", "--item", "number", *PROMISE, "--phi", "0.06", "--users", "3000"]
    words += ["--max-items", "1"]
    assert run(*words, "--output-files", "3", *job(place, out))[0] == 0
    made = heavy_hitters(BUDGET, 0.06, users=3000, item_type=int, max_items=1)
    wanted = numbered(made.run([contributions(place, "number")], release(place, "number"), sample("number")))
    found = sorted((row for part in rows(out, files=3) for row in part), key=lambda row: row["number"])
    assert found == wanted and 1 < len(wanted) < 12
    assert report_of(out)["details"]["parameters"].items() >= {"phi": 0.06, "users": 3000}.items()
    assert "may stay hidden" not in report_of(out)["note"]
    words[words.index("0.06")] = "0.001"
    assert run(*words, *job(place, tmp_path / "few"))[0] == 0
    assert "users may stay hidden, whatever their share: one of" in report_of(tmp_path / "few")["note"]
    every = sampled_histogram(BUDGET, item_type=int, max_items=1).run(
        [contributions(place, "number")], release(place, "number"), sample("number")
    )
    # At another share, of the same sample as `headcount sampled` has.
    assert rows(tmp_path / "few") == [numbered(every)]
    sampled = {row["number"]: row["sampled"] for row in wanted}
    assert {row["number"]: row["sampled"] for row in numbered(every) if row["sampled"] >= made.least} == sampled


def numbered(released):
    """Rows as a job shows them whose items are in the column number."""
    return [{"number": row.pop("item"), **row} for row in released.to_pylist()]


def test_heavy_hitters_of_users_that_are_counted(run, place, tmp_path):
    """3000 users, counted with a standard deviation of 7: the same items as for the public number, of the rest's sample."""
    out = tmp_path / "out"
    words = ["heavy-hitters", *SHAPE, *PROMISE, "--phi", "0.06", "--max-items", "1"]
    assert run(*words, *job(place, out))[0] == 0
    made = heavy_hitters(BUDGET, 0.06, max_items=1)
    wanted = made.run([contributions(place, "item")], release(place), sample("item")).to_pylist()
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
        report = report_of(out)
        whose = report["note"].splitlines()[0]
        items = report["details"]["chosen"]["max_items"]
        assert (status, err) == (0, []) and items in (5, 10)
        assert report["decision"].startswith(f"chosen: each user counts for at most {items} of its distinct items")
        assert f"\n{report['note']}\n{report['decision']}\n" in said
        assert "up to the number that was chosen" in whose and "too low" in whose
        wanted = made.run([contributions(place, "item")], release(place), sample("item")).to_pylist()
        assert rows(out) == [wanted] and len(wanted) > 5
        assert report["details"]["parameters"]["max_items"] == "auto" and "rate" not in report["details"]["parameters"]
        steps = report["details"]["guarantee"]["mechanisms"]
        assert (steps[0]["name"], steps[0]["epsilon"]) == ("choice of the items per user", 0.2)
        assert sum(step["epsilon"] for step in steps) == pytest.approx(2)
    sampling_plan.calibrate_sample.cache_clear()


@pytest.mark.slow("jobs")
@pytest.mark.parametrize(
    "command",
    [
        "sampled",
        "sampled --max-items 1",
        "heavy-hitters --phi 0.06 --users 3000",
        "quantiles --value item --lo 0 --hi 1 --quantile 0.5",
        "quantiles --value item --lo 0 --hi 1 --quantile 0.5 --method search",
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
    assert status == 0 and out.splitlines()[0].endswith(f"under {relation.description()}.")


def test_explain_reads_nothing(run):
    promise = ["--epsilon", "1", "--delta", "1e-8", "--explain", "--input", "nowhere.parquet"]
    expected = {
        ("sampled",): ["epsilon = 0.9", "- chosen: max items ", "- an item of about ", "items of users"],
        ("heavy-hitters", "--phi", "0.01"): [
            "epsilon = 0.8",
            "counted with noise",
            "items of fewer than",
            "- chosen: ",
        ],
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
            "--delta must be positive, as an item that one user alone has cannot be hidden for certain",
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
        (
            ["quantiles", *PROMISE, "--quantile", "0.5"],
            "missing --lo (the least value that counts, known without a look at the data), --hi",
        ),
        (QUANTILES, "missing --quantile or --range"),
        ([*QUANTILES, "--quantile", "0.5", "--range", "0:1"], "at no further cost"),
        ([*QUANTILES, "--quantile", "1.5"], "--quantile must be a number between 0 and 1, got 1.5"),
        ([*QUANTILES, "--quantile", "0.5", "--item", "age"], "unknown flag '--item'"),
        ([*QUANTILES, "--quantile", "0.5", "--item", "x"], "unknown flag '--item'"),
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
        (
            ["quantiles", "--epsilon", "1", "--lo", "0", "--hi", "1"],
            "as a value that one user alone has cannot be hidden",
        ),
        (
            [*QUANTILES, "--quantile", "0.5", "--levels", "11", "--branching", "4"],
            "must be at most 1048576, got 4 ** 11",
        ),
    ],
)
def test_what_is_refused(run, words, said):
    status, out, err = run(*words, "--explain")
    assert (status, out, len(err)) == (2, "", 1) and said in err[0]
