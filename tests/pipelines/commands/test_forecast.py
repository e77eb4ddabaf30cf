"""`headcount forecast`: what it says, from what, and what it refuses."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pytest

import headcount
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines import main, parser
from headcount.pipelines.commands.studies import forecast as command
from headcount.pipelines.studies.forecast import MEANINGS, Expected, foresee
from headcount.pipelines.studies.methods import Promised, method_of
from headcount.pipelines.studies.outlook import UNKNOWN, shown
from headcount.pipelines.studies.populations import assumed
from tests.fixed_key import write_fixed_key

NUMBERS = ["--users", "3e3", "--events-per-user", "5", "--items", "300", "--skew", "1.1"]


def table(seed: int = 1) -> pa.Table:
    """3,000 users with some events each, by a Zipf law."""
    random = np.random.default_rng(seed)
    user = np.repeat(np.arange(3000), random.geometric(0.2, 3000))
    ends = np.cumsum(1 / np.arange(1.0, 301))
    return pa.table({"user": user, "item": np.searchsorted(ends, ends[-1] * random.random(len(user)))})


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("key") / "key"
    write_fixed_key(path)
    return {"key_file": str(path), "release_id": "week"}


@pytest.fixture(scope="module")
def released(key) -> headcount.Result:
    return headcount.histogram(table(), user="user", item="item", epsilon=2, delta=1e-6, **key)


def about(items: Expected, shown: int) -> bool:
    """What was released would be so again, within a factor of two: a forecast's own noise is a fifth of that at most."""
    return shown / 2 < items.mean < 2 * shown


def run(*flags: str) -> None:
    assert main.main(["forecast", *flags]) == 0


def test_from_assumptions(capsys, tmp_path):
    run(*NUMBERS, "--epsilon", "4,1", "--delta", "1e-6", "--output", str(tmp_path / "out"))
    said = capsys.readouterr().out
    assert said.startswith(
        "a forecast: whole releases on made-up users, without any data of yours; it costs no epsilon\n"
    )
    assert "assumed: 3,000 users, 5 events each on average, 300 items, skew 1.1" in said
    for unknown in UNKNOWN:
        assert unknown in said
    rows = [*csv.DictReader(io.StringIO((tmp_path / "out" / "forecast.csv").read_text()))]
    assert [row["epsilon"] for row in rows] == ["1.0", "4.0"]
    assert [row["delta"] for row in rows] == ["1e-06", "1e-06"]
    first, last = (float(row["items"]) for row in rows)
    assert 0 < first < last < 300
    for row in rows:
        assert float(row["items_low"]) <= float(row["items"]) <= float(row["items_high"])
        assert row["method"] == "histogram" and row["decision"].startswith("chosen: ")
    page = (tmp_path / "out" / "forecast.html").read_text()
    assert "<svg" in page and "made-up users" in page and UNKNOWN[0] in page and "http" not in page.split("</style>")[1]


@pytest.mark.slow("jobs")
def test_like_an_earlier_release(released):
    told = headcount.forecast(like=released, epsilon=2)
    items = told.outlooks[0].expected["items"]
    assert about(items, released.table.num_rows)
    assert told.outlooks[0].promised == Promised(2.0, 1e-6, "add-remove")
    assert told.table.num_rows == 1 and told.table.column("items")[0].as_py() == items.mean
    shown = told._repr_html_()
    assert '<div class="headcount">' in shown and "<table class=" in shown and shown.count('<svg class="chart"') == 2
    assert repr(told) == told.text()


@pytest.mark.slow("jobs")
@pytest.mark.parametrize(("of", "flags"), [("users", ""), ("events", " --of events")])
def test_like_bounded_counts_and_another_method(key, capsys, tmp_path, of, flags):
    shared = {"user": "user", "item": "item", "epsilon": 2, "delta": 1e-6}
    one = headcount.histogram(table(), **shared, of=of, method="one-stage", bound=3, noise="laplace", **key)
    one.save(tmp_path / "week", format="csv")
    own = f"histogram{flags} --method one-stage --bound 3 --noise laplace"
    run("--like", str(tmp_path / "week"), "--epsilon", "2", "--method", "plume", "--method", own)
    said = capsys.readouterr().out
    assert f"like an earlier release (headcount histogram, epsilon 2, {one.table.num_rows} items)" in said
    assert "do not tell what the bound left out" in said and "plume" in said
    told = headcount.forecast(like=one, epsilon=2)
    assert told.outlooks[0].method.name == own
    assert about(told.outlooks[0].expected["items"], one.table.num_rows)


@pytest.mark.slow("jobs")
def test_the_method_is_that_of_the_release(key):
    one = headcount.histogram(table(), user="user", item="item", epsilon=2, delta=1e-6, of="events", **key)
    told = headcount.forecast(like=one, epsilon=2)
    assert told.outlooks[0].method.command == ("histogram", "--of", "events")
    assert about(told.outlooks[0].expected["items"], one.table.num_rows)


def test_names_have_no_error():
    told = headcount.forecast(
        users=3000, events_per_user=5, items=300, skew=1, epsilon=1, delta=1e-6, method="partitions"
    )
    assert {"items", "covered", "users_needed"} == set(told.outlooks[0].expected)
    assert "half within" not in told.text().split("\n")[3]


def test_from_a_shape(capsys, tmp_path):
    shape = headcount.shape(table(), user="user", item="item", epsilon=1, domain_size=1000)
    told = headcount.forecast(shape=shape, events_per_user=5, epsilon=2, delta=1e-6)
    assert 5 < told.outlooks[0].expected["items"].mean < 150


def test_a_refused_promise_is_told_beside_others():
    believed = assumed.from_numbers(3000, 5, 300, 1)
    methods = [method_of(("histogram",)), method_of(("histogram", "--bound", "2", "--noise", "laplace"))]
    told = foresee(believed, methods, [Promised(1.0, 1e-6)])
    assert told[0].refused is None and set(told[0].expected) == set(MEANINGS) - {"half_width", "other"}
    assert told[1].refused is not None and not told[1].expected


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "1"], "--users is needed: give it, or an earlier release by --like"),
        ([*NUMBERS], "--epsilon"),
        ([*NUMBERS, "--epsilon", ","], "--epsilon must be a number, or several"),
        (
            [*NUMBERS, "--epsilon", "1", "--like", "out"],
            "--events-per-user is assumed, and --like tells it: leave one out",
        ),
        (
            [*NUMBERS[:4], "--items", "300,20", "--skew", "1", "--epsilon", "1"],
            "from the widest to the finest, got 300, 20",
        ),
        ([*NUMBERS[:4], "--items", ",", "--skew", "1", "--epsilon", "1"], "--items must be one number, or"),
        (
            [*NUMBERS[:4], "--items", "0,20", "--skew", "1", "--epsilon", "1"],
            "--items must be from 1 to 10,000,000, got 0",
        ),
        (["--epsilon", "1", "--like", "a", "--shape", "b"], "--like and --shape are both given"),
        (["--epsilon", "1", "--shape", "b"], "--events-per-user is needed"),
        ([*NUMBERS[:-1], "11", "--epsilon", "1"], "--skew must be from 0 to 10, got 11"),
        (["--users", "inf", *NUMBERS[2:], "--epsilon", "1"], "--users must be from 1 to"),
    ],
)
def test_refusals(flags, words):
    args, _ = parser.parse(command.COMMAND, flags)
    with pytest.raises(ParameterError) as error:
        command.check(args)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_refusals_of_methods_and_promises():
    given = {"users": 100, "events_per_user": 2, "items": 10, "skew": 1}
    with pytest.raises(ParameterError, match="method must begin with one of histogram, plume"):
        headcount.forecast(**given, epsilon=1, method="total")
    with pytest.raises(ParameterError, match="cannot be read"):
        headcount.forecast(**given, epsilon=1, method="histogram '")
    with pytest.raises(ParameterError, match="epsilon"):
        headcount.forecast(**given, epsilon=-1)
    with pytest.raises(InputError, match="no complete output"):
        headcount.forecast(like="/nonexistent-release", epsilon=1)


def test_levels_that_do_not_fit_are_refused_in_words():
    given = {"users": 100, "events_per_user": 2, "skew": 1, "epsilon": 1}
    two, three = "histogram --levels a,b", "histogram --levels a,b,c"
    for items, method, words in (
        (50, [two, three], "method has keys of 2 levels and of 3: forecast one of these at a time"),
        ([5, 50], three, "items has 2 numbers, one for each level, and method has a key of 3 levels"),
        ([5, 50], None, "and method has a key of no levels: give one number, or a method whose levels have 2"),
        (50, "histogram --levels a", "levels are 2 to 9 columns"),
        (50, f"{two} --domain a=1..5", "domain"),
    ):
        with pytest.raises(ParameterError, match=words):
            headcount.forecast(**given, items=items, method=method)


@pytest.mark.seconds
def test_levels_in_words(capsys, tmp_path):
    flags = ["--users", "3e3", "--events-per-user", "5", "--items", "10,300", "--skew", "1.1", "--delta", "1e-6"]
    run(
        *flags,
        *("--epsilon", "1,2", "--method", "histogram --levels country,city --home", "--output", str(tmp_path / "out")),
    )
    said = capsys.readouterr().out
    assert "300 items, skew 1.1; nodes of each level: 10, 300\n" in said
    assert "half width: " in said and "other: the share" in said and "events shown" not in said
    rows = [*csv.DictReader(io.StringIO((tmp_path / "out" / "forecast.csv").read_text()))]
    assert [row["level"] for row in rows] == ["all", "country", "city"] * 2 and float(rows[1]["half_width"]) > 0
    assert "--home: city" in (tmp_path / "out" / "forecast.html").read_text()


def test_numbers_are_shown_as_far_as_they_are_worth_anything():
    assert shown("items", Expected(12_345.6, 11_119, 14_001)) == "12,300 (11,100 to 14,000)"
    assert shown("items", Expected(0.4, 0, 2)) == "0 (0 to 2)"
    assert shown("median_error", Expected(0.0456, 0.03, 0.06)) == "4.6 % (3.0 to 6.0)"
    assert shown("covered", Expected(0.9, 0.8, 1.2)) == "90 % (80 to 100)"
    assert shown("items", None) == "-"


def test_the_same_for_a_program(capsys, tmp_path):
    words = ["forecast", *NUMBERS, "--epsilon", "1", "--json", "--output", str(tmp_path / "out")]
    assert main.main(words) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    (row,) = told["forecasts"]
    with open(tmp_path / "out" / "forecast.csv") as file:
        (line,) = csv.DictReader(file)
    assert row.keys() == line.keys() and float(line["items"]) == row["items"] > 0
    assert "forecast.html" in said.err and UNKNOWN[0] in told["notes"]
