"""Only some rows, and a public table beside them, by every way in: commands, calls, transforms and steps of YAML."""

from __future__ import annotations

import json

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.preparation import preparation, public_table
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines import yaml_provider
from headcount.pipelines.command import COMMANDS, load
from headcount.pipelines.main import main
from headcount.pipelines.parser import make_parser
from headcount.transforms import Budget, Contributions, Quantile, Total
from tests.fixed_key import write_fixed_key
from tests.golden.events import events

REGIONS = {"country": ["de", "at"], "region": ["middle", "south"]}
LARGE = {"epsilon": 1e9, "delta": 1e-3}
WHERE = "number >= 0.5 and region != middle"
READ_NONE = "run stream plan audit series diff forecast show verify statement ledger explain-yaml".split()
READ_NONE += "generate key demo completion".split()
pytestmark = [pytest.mark.filterwarnings("ignore:this promises little"), pytest.mark.seconds]


def true_users(**given) -> int:
    """The users in rows of the golden events that are kept."""
    table = events()
    held = {name: table.column(name) for name in table.schema.names}
    columns, _ = preparation(**given).prepared(held, ["user"], Place())
    return len(columns["user"].unique())


@pytest.fixture
def place(tmp_path):
    pq.write_table(events(), tmp_path / "events.parquet")
    (tmp_path / "regions.csv").write_text("country,region\nde,middle\nat,south\n")
    write_fixed_key(tmp_path / "key")
    return tmp_path


def test_every_command_that_reads_events_has_the_flags():
    for name in COMMANDS:
        flags = {action.dest for action in make_parser(load(name))._actions}
        assert ({"where", "join", "on"} <= flags) != (name in READ_NONE), name


def test_a_call_counts_the_rows_that_are_kept():
    table = events()
    expected = true_users(where=WHERE, join=REGIONS, on="country")
    assert 0 < expected < len(table.column("user").unique())
    found = headcount.total(table, user="user", of="users", where=WHERE, join=REGIONS, on="country", **LARGE)
    assert found.table.column("bounded_count").to_pylist() == [expected]
    by_region = headcount.histogram(
        table, user="user", item="region", where="region is not null", join=pa.table(REGIONS), on="country",
        method="one-stage", bound=2, **LARGE,
    )  # fmt: skip
    assert set(by_region.table.column("region").to_pylist()) == {"middle", "south"}
    ages = headcount.quantiles(
        table, user="user", value="size", lo=0, hi=10, range=[(0, 5), (5, 10)], epsilon=10, delta=1e-2,
        where="size is not null", join={"country": ["de", "at"], "size": [2.0, 7.0]}, on="country",
    )  # fmt: skip
    assert all(count > 0 for count in ages.table.column("count").to_pylist())
    assert "where size is not null" in str(ages)


def test_rows_without_a_partner_are_refused_or_dropped():
    given = {"user": "user", "item": "region", "join": REGIONS, "on": "country", "epsilon": 1, "delta": 1e-6}
    with pytest.raises(InputError, match=r"column 'region'.* is null; fill it in, or drop such rows with drop_null"):
        headcount.histogram(events(), **given)
    headcount.histogram(events(), **given, drop_null=True)
    headcount.histogram(events(), **given, where="region is not null")


def test_mistakes_in_a_call():
    given = {"user": "user", "item": "item", "epsilon": 1, "delta": 1e-6}
    for where, words in {
        "number >": r"^where 'number >': at its end: a value is needed",
        "nmber > 5": r"^no column 'nmber'; did you mean 'number'\?",
        "number > x": r"^where 'number > x': column 'number' is double: 'x' is no number",
    }.items():
        with pytest.raises((ParameterError, InputError), match=words):
            headcount.histogram(events(), where=where, **given)
    with pytest.raises(ParameterError, match=r"^on 'country' needs a table .*: give join$"):
        headcount.histogram(events(), on="country", **given)
    with pytest.raises(InputError, match="column 'item' is in the rows and in the table of join"):
        headcount.histogram(events(), join={"country": ["de"], "item": ["x"]}, on="country", **given)


def test_noise_is_another_where_rows_are_chosen(place):
    """Else equal results under one id would tell that every row meets the condition."""
    given = {"user": "user", "item": "item", "epsilon": 1, "delta": 1e-6, "method": "one-stage", "bound": 2}
    given |= {"key_file": place / "key", "release_id": "r"}
    all_rows, kept, again = (
        headcount.histogram(events(), **given, where=where).table
        for where in (None, "item is not null", "(item  IS NOT null)")
    )
    assert kept.equals(again) and not kept.equals(all_rows)
    sampled = {name: given[name] for name in ("user", "item", "key_file", "release_id")}
    sampled |= {"epsilon": 3, "delta": 1e-2, "max_items": 1}
    some = [headcount.sampled(events(), **sampled, where=where).table for where in (None, "item is not null")]
    assert not some[0].equals(some[1])


def test_a_command_says_what_it_counted(place, capsys):
    words = ["total", "--input", str(place / "events.parquet"), "--user", "user", "--of", "users", "--epsilon", "1"]
    words += ["--where", "number>=0.5 AND region!='middle'", "--join", str(place / "regions.csv"), "--on", "country"]
    out = str(place / "out")
    assert main([*words, "--key-file", str(place / "key"), "--release-id", "r", "--output", out]) == 0
    assert f"how many users there are, of rows where {WHERE}: 1 total came out" in capsys.readouterr().out
    parameters = json.loads((place / "out" / "report.json").read_text())["details"]["parameters"]
    digest = public_table(str(place / "regions.csv"), "country").digest
    assert (parameters["where"], parameters["on"], parameters["join_digest"]) == (WHERE, "country", digest)
    assert "join" not in parameters
    page = (place / "out" / "report.html").read_text()
    assert "of rows where number &gt;= 0.5 and region != middle" in page and "public table <b><bdi>by country" in page
    assert main(["statement", out]) == 0
    told = capsys.readouterr().out
    assert f"Only rows where `{WHERE}` were counted" in told and f"(digest of the table: {digest})" in told
    again = ["verify", out, "--input", str(place / "events.parquet"), "--key-file", str(place / "key")]
    assert main(again) == 2 and "over a public table: give it again by --join" in capsys.readouterr().err
    (place / "other.csv").write_text("country,region\nde,middle\nat,north\n")
    assert main([*again, "--join", str(place / "other.csv")]) == 2
    assert "--join is not that of this release" in capsys.readouterr().err
    assert main([*again, "--join", str(place / "regions.csv")]) == 0


def test_a_table_with_a_row_for_each_user_is_taken_as_public(place, capsys):
    plans = {"user": [f"u{k}" for k in range(1500)], "plan": ["free", "paid", "free"] * 500}
    given = {"user": "user", "of": "users", "where": "plan = paid", "epsilon": 1}
    with pytest.warns(UserWarning, match="^the table of join has a row for each user, and is taken as public"):
        headcount.total(events(), join=plans, on="user", **given)
    pq.write_table(pa.table(plans), place / "plans.parquet")
    words = ["total", "--input", str(place / "events.parquet"), "--user", "user", "--of", "users", "--epsilon", "1"]
    words += ["--where", "plan=paid", "--join", str(place / "plans.parquet"), "--on", "user"]
    assert main([*words, "--output", str(place / "out")]) == 0
    assert "headcount: the table of --join has a row for each user" in capsys.readouterr().err


def test_explain_refuses_what_is_no_condition(capsys):
    assert main(["histogram", "--item", "i", "--epsilon", "1", "--delta", "1e-8", "--explain", "--where", "a b"]) == 2
    assert capsys.readouterr().err.startswith("headcount: --where 'a b': at character 3, 'b': after the column 'a'")


def test_contributions_and_a_step_of_yaml(place, collect):
    """Rows of beam.Row, whose types are known, and of dicts, of which nothing is known: there a number is a text."""
    rows = [{"user": f"u{k}", "item": "i", "country": ["de", "at", "xx"][k % 3], "n": k} for k in range(30)]
    given = {"where": "n >= 12 and region != middle", "join": str(place / "regions.csv"), "on": "country"}
    made = Contributions(item="region", **given)
    assert made.reading == asked("user", "region", prepare=preparation(**given)).reading
    step = yaml_provider.Total(of="users", epsilon=1e9, delta=0.001, item="region", **given)
    value = Quantile(Budget(10, 1e-2), 0.5, 0, 30, value="n", **given)

    def counted(pipeline):
        typed = pipeline | "Typed" >> beam.Create([beam.Row(**row) for row in rows])
        plain = pipeline | "Plain" >> beam.Create(rows).with_output_types(dict)
        told = [
            plain | "Contributions" >> made | beam.FlatMap(lambda batch: batch.to_pylist()) | beam.Map(_as_text),
            typed
            | "Again" >> Contributions(item="region", **given)
            | "All" >> Total(Budget(1e9), of="users")
            | "T" >> beam.Map(str),
            typed | "Step" >> step | "S" >> beam.Map(str),
            typed | "Value" >> value | "V" >> beam.Map(lambda row: "a quantile"),
        ]
        return told | beam.Flatten()

    found = collect(counted)
    expected = [row["user"] for row in rows if row["n"] >= 12 and row["country"] == "at"]
    assert sorted(each for each in found if each.startswith("user ")) == sorted(
        f"user {user} south" for user in expected
    )
    assert sum(f"bounded_count={float(len(expected))}" in each for each in found) == 2


def _as_text(row: dict) -> str:
    return f"user {row['user']} {row['item']}"


def test_tuples_have_no_other_columns(collect):
    kept = [("u1", "a"), ("u2", "b")]
    found = collect(
        lambda pipeline: (
            pipeline
            | beam.Create(kept)
            | Contributions(where="item = a")
            | beam.FlatMap(lambda batch: batch.to_pylist())
            | beam.Map(_as_text)
        )
    )
    assert found == ["user u1 a"]
    for again in (Contributions(where="item = a"), Quantile(Budget(1, 1e-2), 0.5, 0, 1, where="item = a")):
        with pytest.raises(Exception, match="where and join are for rows: give them to the Contributions"):
            collect(lambda pipeline, again=again: pipeline | beam.Create(kept) | Contributions() | "Again" >> again)
    with pytest.raises(InputError, match="tuples of user and item have no 'country'"):
        collect(lambda pipeline: pipeline | beam.Create(kept) | Contributions(where="country = de"))
