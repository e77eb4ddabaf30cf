"""Bounds that are chosen, from the command line: `headcount histogram` without --bound, and `headcount bound`."""

import csv
import json
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines import parser
from headcount.pipelines.command import load
from headcount.pipelines.commands import choose_bound, histogram
from headcount.pipelines.main import main
from tests.fixed_key import write_fixed_key

SHAPE = ["--user", "who", "--item", "item", "--epsilon", "1", "--delta", "1e-6"]
ONE_STAGE = [*SHAPE, "--of", "events", "--method", "one-stage"]
FILE = "counts-00000-of-00001.csv"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """20,000 rows of users of very different size on ten common items and many rare ones; a key and a domain."""
    directory = tmp_path_factory.mktemp("bound")
    generator = np.random.default_rng(3)
    item, user = generator.geometric(0.3, 20_000), generator.zipf(1.3, 20_000) % 3000
    columns = {"who": [f"u{u}" for u in user], "item": [f"i{i}" for i in item]}
    pq.write_table(pa.table(columns), directory / "events.parquet")
    write_fixed_key(directory / "key")
    (directory / "domain.txt").write_text("\n".join(f"i{n}" for n in range(1, 20)) + "\n")
    return directory


def run(command, place, out, *flags):
    key = ["--key-file", place / "key", "--release-id", "r", "--format", "csv"]
    words = [command, "--input", place / "events.parquet", *key, "--output", out, *flags]
    assert main([str(word) for word in words]) == 0
    return json.loads((out / "report.json").read_text())


def test_without_a_bound_one_is_chosen_and_reported(place, tmp_path, capsys):
    report = run("histogram", place, tmp_path / "a", *ONE_STAGE)
    said = capsys.readouterr().out
    assert f"chosen: a bound of {report['details']['chosen']['bound']}" in said
    choice, bounding, noise = report["details"]["guarantee"]["mechanisms"]
    assert (report["details"]["guarantee"]["epsilon"], report["details"]["guarantee"]["delta"]) == (1, 1e-6)
    assert (choice["epsilon"], noise["epsilon"], noise["delta"]) == (0.1, 0.9, 1e-6)
    assert re.match(
        rf"{report['details']['chosen']['bound']} (event|item)s?\b", bounding["details"]["a user adds at most"]
    )
    assert report["details"]["parameters"]["bound"] == "auto"
    again = run("histogram", place, tmp_path / "b", *ONE_STAGE, "--shards", 9, "--direct_runner_bundle_repeat=2")
    assert again == report
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()


def test_share_method_and_objective_are_passed_on(place, tmp_path):
    flags = ["--objective", "items", "--noise", "laplace", "--max-per-item", 1]
    report = run("histogram", place, tmp_path / "items", *ONE_STAGE, *flags)
    assert report["details"]["guarantee"]["mechanisms"][0]["details"]["objective"] == "items"
    assert report["details"]["guarantee"]["mechanisms"][0]["epsilon"] == 0.05
    assert report["details"]["chosen"]["noise"] == "laplace" and report["details"]["chosen"].get("max_per_item", 1) == 1
    report = run("histogram", place, tmp_path / "gem", *ONE_STAGE, "--bound-method", "gem", "--bound-share", 0.25)
    assert report["details"]["guarantee"]["mechanisms"][0]["details"]["method"] == "gem"
    assert [step["epsilon"] for step in report["details"]["guarantee"]["mechanisms"]] == [0.25, 0, 0.75]


def test_a_public_domain_without_a_bound(place, tmp_path):
    report = run(
        "histogram", place, tmp_path / "out", *ONE_STAGE, "--noise", "gaussian", "--domain", place / "domain.txt"
    )
    assert report["details"]["chosen"]["noise"] == "gaussian"
    assert len((tmp_path / "out" / FILE).read_text().splitlines()) == 20


@pytest.mark.parametrize(("noise", "bound"), [("laplace", 19), ("gaussian", 5), ("laplace", "auto")])
def test_users_of_a_public_domain(place, tmp_path, noise, bound):
    """No user has more than 19 of the items, and so at most an l2 norm of 5: a bound that is given loses nothing."""
    flags = ["--domain", place / "domain.txt", "--max-per-item", 1, "--noise", noise, "--bound", bound]
    report = run("histogram", place, tmp_path / "out", *ONE_STAGE, *flags)
    assert report["details"]["parameters"]["max_per_item"] == 1 and report["details"]["parameters"]["public_domain"]
    norm = {"laplace": "l1", "gaussian": "l2"}[noise]
    chosen = report["details"]["chosen"]["bound"] if bound == "auto" else bound
    (bounding,) = [step for step in report["details"]["guarantee"]["mechanisms"] if step["name"] == "bounding"]
    assert bounding["details"]["a user adds at most"] == f"an {norm} norm of {chosen}" + " and 1 on one item"
    events = pq.read_table(place / "events.parquet").to_pylist()
    users, times = Counter(), Counter(row["item"] for row in events)
    for _, item in {(row["who"], row["item"]) for row in events}:
        users[item] += 1
    rows = list(csv.DictReader((tmp_path / "out" / FILE).open()))
    assert len(rows) == 19
    if bound == "auto":
        assert report["details"]["chosen"]["max_per_item"] == 1 and "at most 1 on one item" in report["decision"]
        assert chosen <= 19
        assert float(rows[0]["bounded_count"]) < times["i1"] / 2
    else:
        for row in rows:
            assert abs(float(row["bounded_count"]) - users[row["item"]]) < 15 * float(row["noise_stddev"])
        assert times["i1"] - users["i1"] > 20 * float(rows[0]["noise_stddev"])


def test_the_bound_alone_for_users_of_a_public_domain(place, tmp_path):
    shape = [*SHAPE[:4], "--epsilon", "1", "--for-epsilon", "1", "--domain", place / "domain.txt"]
    report = run("choose-bound", place, tmp_path / "out", *shape, "--max-per-item", 1)
    assert report["details"]["chosen"]["max_per_item"] == report["details"]["parameters"]["max_per_item"] == 1
    assert report["details"]["chosen"]["bound"] <= 19
    assert report["details"]["guarantee"]["mechanisms"][0]["details"]["cap on one item"] == 1


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--for-delta", "1e-6", "--bound-method", "gem", "--kappa", "1.5"], {"kappa": 1.5}),
        (["--domain", "{}", "--noise", "gaussian", "--for-delta", "1e-6", "--sparsity", "7"], {"sparsity": 7}),
    ],
)
def test_what_single_methods_take_is_handed_on(place, flags, expected):
    words = ["--epsilon", "0.1", "--for-epsilon", "0.9", *(flag.format(place / "domain.txt") for flag in flags)]
    args, _ = parser.parse(choose_bound.COMMAND, words)
    choose_bound.check(args)
    (step,) = choose_bound.make_mechanism(args, str).guarantee().mechanisms
    assert step.details.items() >= expected.items()


def test_a_guess_of_the_users_is_handed_on(place):
    for flags, users in (([], 100_000), (["--users", "5000"], 5000)):
        words = [
            "--epsilon",
            "0.1",
            "--for-epsilon",
            "0.9",
            "--for-delta",
            "1e-6",
            "--domain",
            str(place / "domain.txt"),
        ]
        words += ["--noise", "gaussian", "--bound-method", "output-perturbation"]
        args, _ = parser.parse(choose_bound.COMMAND, [*words, *flags])
        choose_bound.check(args)
        assert choose_bound.make_mechanism(args, str).choice.users == users


def test_the_bound_alone(place, tmp_path, capsys):
    shape = [*SHAPE[:4], "--epsilon", "0.1", "--for-epsilon", "0.9", "--for-delta", "1e-6"]
    report = run("choose-bound", place, tmp_path / "out", *shape, "--output-files", 2)
    chosen = report["details"]["chosen"]
    assert f"chosen: a bound of {chosen['bound']}" in capsys.readouterr().out
    assert (report["details"]["guarantee"]["epsilon"], report["details"]["guarantee"]["delta"]) == (0.1, 0)
    header, row = (tmp_path / "out" / "bound-00000-of-00002.csv").read_text().splitlines()
    assert header.replace('"', "") == "bound,max_per_item,noise"
    assert row.replace('"', "") == f"{chosen['bound']},{chosen.get('max_per_item', 0)},{chosen['noise']}"
    assert len((tmp_path / "out" / "bound-00001-of-00002.csv").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        (
            histogram,
            ["--method", "one-stage", "--bound", "5", "--objective", "items"],
            ["--objective items", "--bound 5"],
        ),
        (
            histogram,
            ["--method", "one-stage", "--bound", "5", "--bound-share", "0.2"],
            ["--bound-share 0.2", "--bound 5"],
        ),
        (
            histogram,
            ["--method", "one-stage", "--bound", "5", "--bound-method", "em"],
            ["--bound-method em", "--bound 5"],
        ),
        (histogram, ["--bound", "some"], ["--bound", "'some'"]),
        (histogram, ["--objective", "fun"], ["--objective", "'fun'"]),
        (histogram, ["--objective", "items", "--domain", "d"], ["--objective items", "--domain"]),
        (choose_bound, [], ["missing --for-epsilon"]),
        (choose_bound, ["--for-epsilon", "1", "--kappa", "3"], ["--kappa 3.0 is of no use here"]),
        (choose_bound, ["--for-epsilon", "1", "--domain", "d", "--sparsity", "3"], ["--sparsity 3 is of no use here"]),
        (choose_bound, ["--for-epsilon", "1", "--users", "3"], ["--users 3 is of no use here"]),
        (choose_bound, ["--for-epsilon", "1"], ["--for-delta must be positive"]),
        (choose_bound, ["--for-epsilon", "1", "--for-delta", "0.6"], ["--for-delta must be", "below 1/2", "got 0.6"]),
        (choose_bound, ["--for-epsilon", "1", "--for-delta", "1e-6", "--delta", "1e-7"], ["--delta 1e-07", "dp-gd"]),
    ],
)
def test_refusals_name_the_flags(command, flags, words):
    base = ["--epsilon", "1", *(["--delta", "1e-6"] if command is histogram else [])]
    with pytest.raises(ParameterError) as error:
        command.check(parser.parse(command.COMMAND, [*base, *flags])[0])
    assert all(word in str(error.value) for word in words), error.value


def test_a_wrong_epsilon_of_the_later_release_is_told_by_its_own_flag(capsys):
    assert main(["choose-bound", "--epsilon", "1", "--for-epsilon", "-2", "--for-delta", "1e-6", "--explain"]) == 2
    assert capsys.readouterr().err == "headcount: --for-epsilon must be positive, got -2.0\n"


def test_explain_gives_the_shares_and_what_typical_data_gives(capsys):
    assert main(["histogram", *ONE_STAGE, "--explain", "--noise", "laplace"]) == 0
    said = capsys.readouterr().out
    for words in (
        "choice of the bound: epsilon = 0.1",
        "bounds 1 to 10000",
        "releases of three made-up logs gave\n- chosen: bound ",
        "users is shown with a chance of 50 %",
        "headcount forecast",
    ):
        assert words in said
    assert (
        main(["choose-bound", *SHAPE[:4], "--epsilon", "0.1", "--for-epsilon", "1", "--for-delta", "1e-8", "--explain"])
        == 0
    )
    said = capsys.readouterr().out
    assert "(epsilon = 0.1, delta = 0)" in said and "- chosen: bound " in said


def test_explain_tells_the_cap_of_a_public_domain(place, capsys):
    flags = ["histogram", *ONE_STAGE, "--explain", "--domain", str(place / "domain.txt"), "--max-per-item", "1"]
    assert main([*flags, "--bound", "5"]) == 0
    assert "a user adds at most an l1 norm of 5 and 1 on one item" in capsys.readouterr().out
    assert main([*flags, "--noise", "gaussian", "--bound", "5"]) == 0
    assert "a user adds at most an l2 norm of 5 and 1 on one item" in capsys.readouterr().out
    assert main(flags) == 0
    said = capsys.readouterr().out
    assert "bounds 1 to 19, cap on one item 1, candidates 19" in said and "max per item 1, noise laplace" in said


CHOOSE = ["--user", "who", "--item", "item", "--epsilon", "0.1", "--for-epsilon", "1", "--for-delta", "1e-6"]


def test_a_bound_that_was_chosen_before_is_the_bound_of_any_release(place, tmp_path, capsys):
    """The same rows as with its numbers given by hand; the choice of the later job costs nothing, and is named."""
    report = run("choose-bound", place, tmp_path / "bound", *CHOOSE)
    found = run("histogram", place, tmp_path / "a", *ONE_STAGE, "--bound-from", tmp_path / "bound" / "report.json")
    chosen = report["details"]["chosen"]
    cap = ["--max-per-item", chosen["max_per_item"]] if "max_per_item" in chosen else []
    given = ["--bound", chosen["bound"], "--noise", chosen["noise"], *cap]
    by_hand = run("histogram", place, tmp_path / "b", *ONE_STAGE, *given)
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()
    assert found["details"]["parameters"].pop("bound_from") == report["release_id"]
    assert found | {"content_sha256": 0} == by_hand | {"content_sha256": 0}
    assert all("choice" not in step["name"] for step in found["details"]["guarantee"]["mechanisms"])
    histogram = load("histogram")
    taken = [*ONE_STAGE, "--bound-from", str(tmp_path / "bound" / "report.json")]
    given = [str(word) for word in (*ONE_STAGE, *given)]
    asked = []
    for words in (taken, given):
        args, _ = parser.parse(histogram, words)
        histogram.check(args)
        asked.append(histogram.plan(args, histogram.make_mechanism(args, str), str).asked)
    kept = ("bound", "noise", "max_per_item")
    assert [asked[0].get(name) for name in kept] == [asked[1].get(name) for name in kept], (
        "an approved plan is of one bound"
    )
    assert asked[0]["bound"] == chosen["bound"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--method", "estimates"], "--bound-from is for --method one-stage, got --method estimates"),
        (["--relation", "replace"], "--bound-from holds a choice under --relation add-remove, got --relation replace"),
        (["--domain", "domain.txt"], "--bound-from holds a choice without --domain"),
        (["--of", "users"], "--bound-from holds a choice for events, and users are counted: add --of events"),
        (["--bound", "5"], "--bound 5 is in the file of --bound-from: leave one of them out"),
        (["--noise", "laplace"], "--noise laplace is in the file of --bound-from"),
        (["--objective", "items"], "--objective items is for --bound auto"),
        (["--bound-from", "other.json"], "--bound-from must be the report.json of an output of headcount choose-bound"),
        (["--bound-from", "key"], "--bound-from must be the report.json of an output of headcount choose-bound"),
        (["--bound-from", "deep.json"], "--bound-from must be the report.json of an output of headcount choose-bound"),
        (["--bound-from", "nowhere.json"], "--bound-from must be a file that can be read, got 'nowhere.json'"),
    ],
)
def test_a_bound_of_another_promise_is_refused(place, monkeypatch, capsys, flags, said):
    """Another relation, another meaning of the bound, two of them, or no such file."""
    monkeypatch.chdir(place)
    report = {
        "command": "choose-bound",
        "release_id": "r",
        "details": {
            "chosen": {"bound": 30, "noise": "gaussian", "max_per_item": 2},
            "guarantee": {"relation": "add-remove"},
            "parameters": {"public_domain": False},
        },
    }
    (place / "bound.json").write_text(json.dumps(report))
    (place / "other.json").write_text(json.dumps(report | {"command": "histogram"}))
    (place / "deep.json").write_text("[" * 100_000)
    file = [] if "--bound-from" in flags else ["--bound-from", "bound.json"]
    stage = [] if "--method" in flags else ["--method", "one-stage"]
    stage += [] if "--of" in flags else ["--of", "events"]
    assert main(["histogram", *SHAPE, *stage, *file, *flags, "--explain"]) == 2
    assert said in capsys.readouterr().err
