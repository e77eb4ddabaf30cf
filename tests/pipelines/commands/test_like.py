"""`--like`: as many events of a user count as in an earlier release, which costs nothing."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines.flags.like import earlier_cap
from headcount.pipelines.main import main
from headcount.pipelines.sinks.finished import sealed
from tests.fixed_key import write_fixed_key

FILE = "counts-00000-of-00001.csv"
SHAPE = ["--user", "who", "--item", "item", "--epsilon", "2", "--delta", "1e-6"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """600 users with one to nine events on an item, a key, and a release of it."""
    folder = tmp_path_factory.mktemp("like")
    user = np.repeat(np.arange(600), np.arange(600) % 9 + 1)
    pq.write_table(pa.table({"who": user, "item": user % 4, "other": user % 3}), folder / "events.parquet")
    write_fixed_key(folder / "key")
    run(folder, "histogram", folder / "first", *SHAPE, "--of", "events")
    run(folder, "histogram", folder / "users", *SHAPE)
    changed = json.loads((folder / "first" / "report.json").read_text())
    changed["details"]["chosen"]["max_per_item"] = 7
    (folder / "changed.json").write_text(json.dumps(changed))
    (folder / "deep.json").write_text("[" * 100_000)
    return folder


def run(place, command, out, *flags, status=0):
    key = ["--key-file", place / "key", "--release-id", "r", "--format", "csv"]
    words = [command, "--input", place / "events.parquet", *key, "--output", out, *flags]
    assert main([str(word) for word in words]) == status
    return json.loads((out / "report.json").read_text()) if status == 0 else None


@pytest.mark.parametrize("like", ["first", "first/report.json"])
def test_it_is_as_if_c_were_given_and_names_the_release_that_chose_it(place, tmp_path, like, capsys):
    first = json.loads((place / "first/report.json").read_text())
    cap = first["details"]["chosen"]["max_per_item"]
    found = run(place, "histogram", tmp_path / "a", *SHAPE, "--of", "events", "--like", place / like)
    assert f"{cap} of a user is what release {first['release_id']} counts, too (--like)" in capsys.readouterr().out
    by_hand = run(place, "histogram", tmp_path / "b", *SHAPE, "--of", "events", "--max-per-item", cap)
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()
    assert found["details"]["parameters"].pop("like") == first["release_id"]
    assert found | {"content_sha256": 0} == by_hand | {"content_sha256": 0}
    assert "choice of the events" in str(first["details"]["guarantee"])
    assert "choice of the events" not in str(found["details"]["guarantee"]), "nothing is spent on it"


def test_an_aggregate_takes_that_of_a_histogram_a_call_that_of_a_report_and_both_are_verified(place, tmp_path, capsys):
    first = json.loads((place / "first/report.json").read_text())
    cap = first["details"]["chosen"]["max_per_item"]
    run(place, "aggregate", tmp_path / "a", *SHAPE, "--users", "--events", "--like", place / "first")
    again = ["--input", place / "events.parquet", "--key-file", place / "key"]
    assert main([str(word) for word in ("verify", tmp_path / "a", *again)]) == 0
    assert main(["statement", str(tmp_path / "a")]) == 0
    assert (
        f"at most {cap} events of a user count on one item was taken from another release, r" in capsys.readouterr().out
    )
    frame = pq.read_table(place / "events.parquet")
    given = {"user": "who", "item": "item", "epsilon": 2, "delta": 1e-6, "of": "events", "key_file": place / "key"}
    made = headcount.histogram(frame, like=first, release_id="c", **given)
    assert made.report["details"]["parameters"]["max_per_item"] == cap


def test_an_approved_plan_is_of_one_c(place, tmp_path, capsys):
    """What a file holds is asked for like what is given: another c than the one that was approved is refused."""
    url, given = f"sqlite:///{tmp_path}/ledger.db", [*SHAPE, "--of", "events", "--label", "items"]
    account = ["--ledger", url]
    limit = ["--limit-epsilon", "9", "--limit-delta", "1e-5", "--approved-only"]
    assert main(["ledger", "create", "d", *limit, *account]) == 0
    cap = json.loads((place / "first/report.json").read_text())["details"]["chosen"]["max_per_item"]
    plan = tmp_path / "report.yaml"
    flags = f"item: item, epsilon: {SHAPE[SHAPE.index('--epsilon') + 1]}, delta: {SHAPE[SHAPE.index('--delta') + 1]}"
    plan.write_text(
        f"data: {{input: {place / 'events.parquet'}, user: who}}\nkey_file: {place / 'key'}\nledger: {url}\ndataset: d\n"
        f"output: {tmp_path}/out\nreleases:\n  items: {{command: histogram, {flags}, of: events, max_per_item: {cap}}}\n"
    )
    assert main(["ledger", "approve", "d", str(plan), "--by", "an officer", *account]) == 0
    other = json.loads((place / "first/report.json").read_text()) | {"content_sha256": None}
    other["details"]["chosen"]["max_per_item"] = cap + 1
    (tmp_path / "other.json").write_bytes(sealed(other))
    account += ["--dataset", "d"]
    run(place, "histogram", tmp_path / "a", *given, *account, "--like", tmp_path / "other.json", status=2)
    assert "approve" in capsys.readouterr().err
    run(place, "histogram", tmp_path / "b", *given, *account, "--like", place / "first")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--of", "users"], "--like says how many events of a user count, and users are counted: add --of events"),
        (
            ["--max-per-item", "3"],
            "--max-per-item 3 says what --like takes from an earlier release: leave one of them out",
        ),
        (["--item", "other"], "--like is a release with --item item, and this one has item, other"),
        (["--like", "users"], "--like must be a release of events, of which a limited number of a user count"),
        (["--like", "key"], "--like must be an output that is complete"),
        (["--like", "nowhere"], "--like must be an output that is complete, got"),
        (["--like", "changed.json"], "--like must be a release as its job wrote it; this one is changed"),
        (["--like", "deep.json"], "--like must be an output of Headcount"),
        (
            ["--protect", "user-day", "--time", "at"],
            "--like is a release that protects each user, and this one each user-day",
        ),
    ],
)
def test_what_is_refused(place, tmp_path, flags, said, capsys):
    words = [str(place / word) if flags[0] == "--like" and not word.startswith("--") else word for word in flags]
    like = [] if flags[0] == "--like" else ["--like", place / "first"]
    of = [] if flags[0] == "--of" else ["--of", "events"]
    run(place, "histogram", tmp_path / "out", *SHAPE, *of, *like, *words, status=2)
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_another_programs_report_is_no_release(tmp_path):
    (tmp_path / "report.json").write_text("[]")
    with pytest.raises(argparse.ArgumentTypeError, match="must be an output of Headcount"):
        earlier_cap(str(tmp_path))
