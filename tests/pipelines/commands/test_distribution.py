"""`headcount distribution` from end to end: output, report and plot, what --explain says, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.distribution.plan import plan_distribution
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.pipelines.commands.distribution import plot
from tests.fixed_key import write_fixed_key

ITEMS = [f"genre {number:02d}" for number in range(25)]
SHAPE = ["distribution", "--user", "user", "--item", "item", "--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """1,000 users with 20 to 60 samples of 25 items."""
    random = np.random.default_rng(3)
    users = np.repeat(np.arange(1000), random.integers(20, 61, 1000))
    p = 1 / np.arange(1, 26)
    items = pa.array(ITEMS).take(pa.array(random.choice(25, len(users), p=p / p.sum())))
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    pq.write_table(pa.table({"user": users, "item": items}), path)
    return path


@pytest.fixture(scope="module")
def domain(tmp_path_factory):
    path = tmp_path_factory.mktemp("domain") / "domain.txt"
    path.write_text("\n".join(ITEMS))
    return path


@pytest.mark.slow("cuts")
@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ([], {}),
        (
            ["--samples-per-user", "20", "--method", "dense", "--users", "1000", "--format", "csv"],
            {"samples_per_user": 20, "method": "dense", "users": 1000},
        ),
        (
            ["--samples-per-user", "20", "--method", "dense", "--hypothesis", "phs"],
            {"samples_per_user": 20, "method": "dense", "hypothesis": "phs"},
        ),
    ],
)
def test_one_command_is_the_pure_function(run, events, domain, tmp_path, flags, given):
    key, out = tmp_path / "key", tmp_path / "out"
    write_fixed_key(key)
    words = ["--input", events, "--domain", domain, "--key-file", key, "--release-id", "r1", "--output", out]
    status, said, _ = run(*SHAPE, *flags, *words)
    assert status == 0
    table, release = pq.read_table(events), learn_distribution(Budget(1, 1e-6), ITEMS, **given)
    batch = contribution_batch(table["user"].combine_chunks(), table["item"].combine_chunks())
    expected = release.run([batch], Release(KeyFile(key), "r1"), "Distribution").to_pylist()
    if "csv" in flags:
        found = pa.csv.read_csv(out / "distribution-00000-of-00001.csv")
    else:
        found = pq.read_table(out / "distribution-00000-of-00001.parquet")
    assert found.to_pylist() == expected
    assert [row["item"] for row in expected] == ITEMS
    report = json.loads((out / "report.json").read_text())
    assert report["details"]["guarantee"]["epsilon"] == 1 and report["details"]["parameters"]["symbols"] == 25
    assert report["details"]["parameters"]["hypothesis"] == given.get("hypothesis", "ks")
    assert ("the errors are 1 and the probabilities say nothing" in str(report.get("note"))) == ("phs" in flags)
    if release.choice is not None:
        chosen = report["details"]["chosen"]["samples_per_user"]
        assert 5 <= chosen <= 60 and report["details"]["parameters"]["samples_per_user"] == "auto"
        assert f"chosen: {chosen} samples per user, by the method {report['details']['chosen']['method']}" in said
        assert f"{chosen} samples" in json.dumps(report["details"]["guarantee"]["words"])
    else:
        assert (
            report["details"]["parameters"]["samples_per_user"] == 20
            and report["details"]["parameters"]["method"] == "dense"
        )
    first, *bars = said.splitlines()
    assert first == "the 20 largest of 25 probabilities, with the error to expect:"
    assert bars[0].startswith("genre 00") and "#" in bars[0]


@pytest.mark.parametrize("format", ["avro", "jsonl"])
def test_every_format_is_shown(run, events, domain, tmp_path, format):
    """And two files are one distribution."""
    words = ["--input", events, "--domain", domain, "--output", tmp_path / "out", "--samples-per-user", "20"]
    status, said, _ = run(*SHAPE, *words, "--format", format, "--output-files", "2")
    assert status == 0 and "the 20 largest of 25 probabilities" in said


def test_the_plot_shows_errors_to_scale():
    lines = plot([("tea\n", 0.7, 0.1), ("coffee", 0.3, 0.1), ("x" * 30, 0.0, 0.1)]).splitlines()
    assert lines[0] == "the probabilities, with the error to expect:"
    assert lines[1] == f"{'tea':<20}  70.0000%  10.0000% {'#' * 30}{'-' * 10}"
    assert lines[2] == f"{'coffee':<20}  30.0000%  10.0000% {'#' * 10}{'-' * 10}"
    assert lines[3] == f"{'x' * 17}...   0.0000%  10.0000% {'-' * 5}"
    assert len(plot([(f"i{n}", 1 / 100, 0.0) for n in range(100)]).splitlines()) == 21


def test_explain_tells_the_promise_and_the_errors(run, domain):
    status, said, _ = run(*SHAPE, "--domain", domain, "--explain")
    assert status == 0
    for words in (
        "(epsilon = 1, delta = 1e-06)",
        "choice of the samples per user: epsilon = 0.05",
        "if the 25 symbols were equally likely",
        "1,000 of each user's samples, method laplace",
        "the more they differ, the larger are the errors",
    ):
        assert words in said
    given = ["--samples-per-user", "50", "--users", "700", "--method", "sparse"]
    _, said, _ = run(*SHAPE, "--domain", domain, *given, "--explain")
    assert "public 700" in said and "50 of each user's samples, method sparse" in said and "for 700 users" in said
    assert "biased, and as private" in said
    _, said, _ = run(*SHAPE, "--domain", domain, "--samples-per-user", "buckets", "--explain")
    assert "16 of each user's samples" in said and "all of the budget" in said


def test_the_papers_hypothesis_selection_is_a_choice_and_says_how_many_users_it_needs(run, domain):
    """Too few public users are refused by their number; where it is counted with noise, --explain tells how many are needed."""
    phs = [*SHAPE, "--domain", domain, "--hypothesis", "phs", "--explain"]
    status, said, _ = run(*phs, "--samples-per-user", "100", "--method", "dense")
    least = plan_distribution(Budget(1, 1e-6), 25, 100, Relation.ADD_REMOVE, None, "dense", "phs").least_users()
    assert status == 0 and "by phs, epsilon of each" in said and f"fewer than {least:,} users are too few" in said
    _, said, _ = run(*phs, "--method", "dense")
    assert "method dense, choices by phs" in said and "too few" in said
    given = ["--samples-per-user", "100", "--method", "dense", "--users"]
    least = plan_distribution(Budget(1, 1e-6), 25, 100, Relation.ADD_REMOVE, 9, "dense", "phs").least_users()
    status, _, err = run(*phs, *given, least - 1)
    assert status == 2 and f"--users must be at least {least} for the hypothesis 'phs'" in err[0]
    assert run(*phs, *given, least)[0] == 0
    for method in ("laplace", "auto"):
        status, _, err = run(*phs, "--method", method)
        assert status == 2 and f"--hypothesis phs is of no use to --method {method}" in err[0]


def test_too_few_users_are_told_by_the_errors(run, events, domain, tmp_path):
    """1,000 users are too few here: the noisy number of them says so, and no row looks like a result."""
    words = ["--input", events, "--domain", domain, "--output", tmp_path / "out", "--samples-per-user", "20"]
    shape = [word if word != "1" else "0.25" for word in SHAPE]
    status, said, _ = run(*shape, *words, "--method", "dense", "--hypothesis", "phs")
    plan = plan_distribution(Budget(0.25, 1e-6), 25, 20, Relation.ADD_REMOVE, None, "dense", "phs")
    assert plan.least_users() > 1000 + 16 * plan.users.stddev  # more noise has a probability below 1e-9
    assert status == 0 and "\nerrors of 1 say that nothing is known: there are too few users\n" in said
    table = pq.read_table(tmp_path / "out" / "distribution-00000-of-00001.parquet")
    assert set(table["error"].to_pylist()) == {1.0}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "1"], "missing --domain"),
        (["--domain", "{domain}"], "missing --epsilon"),
        (["--epsilon", "1", "--domain", "nowhere"], "--domain 'nowhere' cannot be read"),
        (["--epsilon", "1", "--domain", "{domain}", "--users", "5"], "--users 5 is the number of those with enough"),
        (["--epsilon", "1", "--domain", "{domain}", "--method", "gaussian"], "--method gaussian needs a --delta"),
        (["--epsilon", "1", "--domain", "{domain}", "--samples-per-user", "some"], "--samples-per-user must be"),
        (
            ["--epsilon", "1", "--domain", "{domain}", "--samples-per-user", "20000"],
            "from 1 to 10000, or auto, median or buckets, got '20000'",
        ),
    ],
)
def test_what_is_refused(run, domain, flags, words):
    status, _, said = run("distribution", *(flag.replace("{domain}", str(domain)) for flag in flags), "--explain")
    assert status == 2 and words in said[0]
