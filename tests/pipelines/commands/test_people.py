"""The commands of questions about people: from files of every kind, what they say before and after, and what they refuse."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines.main import main
from tests.fixed_key import write_fixed_key
from tests.mechanisms.people.logs import log

FUNNEL = ["funnel", "--user", "user", "--time", "at", "--step", "page=/", "--step", "price > 0", "--epsilon", "800"]
QUESTIONS = {
    "funnel": [*FUNNEL, "--within", "36h", "--drop-null"],
    "activity": ["activity", "--user", "user", "--epsilon", "800", "--bins", "1,10,14"],
    "retention": ["retention", "--user", "user", "--time", "at", "--from", "2026-10-05", "--to", "2026-10-18",
                  "--epsilon", "800", "--drop-null"],
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    table = log(3, users=200, rows=2500, minutes=15_000, nulls=True)
    pq.write_table(table, folder / "log.parquet")
    pa.csv.write_csv(table, folder / "log.csv")
    lines = (json.dumps({name: _plain(value) for name, value in row.items()}) for row in table.to_pylist())
    (folder / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
    write_fixed_key(folder / "key")
    return folder


def _plain(value):
    return value if value is None or isinstance(value, int | str) else value.isoformat()


@pytest.mark.parametrize("question", QUESTIONS)
def test_files_of_every_kind_say_the_same(question, files, tmp_path, capsys):
    found = {}
    for kind in ("parquet", "csv", "jsonl"):
        words = [*QUESTIONS[question], "--input", str(files / f"log.{kind}"), "--output", str(tmp_path / kind)]
        assert main(words) == 0
        (path,) = (tmp_path / kind).glob("*.parquet")
        found[kind] = pq.read_table(path).column("count").to_pylist()
    assert found["parquet"] == found["csv"] == found["jsonl"] and sum(found["parquet"]) > 100
    capsys.readouterr()


def test_it_explains_its_noise_before_any_data(capsys):
    assert (
        main(["funnel", "--user", "u", "--time", "t", "--step", "a=b", "--step", "c=d", "--epsilon", "1", "--explain"])
        == 0
    )
    told = capsys.readouterr().out
    assert "step 1, a=b: standard deviation 1.919; 95 % are within 3.959 users" in told
    assert "step 2, c=d: standard deviation 1.357; 95 % are within 3 users" in told and "delta = 0" in told
    words = ["retention", "--user", "u", "--time", "t", "--from", "2026-11-02", "--to", "2026-11-15", "--epsilon", "1"]
    assert main([*words, "--explain"]) == 0
    told = capsys.readouterr().out
    assert "cohort 1, of 2 weeks" in told and "cohort 2, of 1 week" in told and "its first week in the data" in told
    assert main(["activity", "--user", "u", "--by", "c", "--epsilon", "1", "--delta", "1e-8", "--explain"]) == 0
    told = capsys.readouterr().out
    assert "each bin: standard deviation" in told and "named from about 67 users on" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["retention", "--user", "u", "--time", "t", "--epsilon", "1"],
            "the first and last day of the data are private",
        ),
        (["funnel", "--user", "u", "--time", "t", "--epsilon", "1"], "missing --step"),
        (["funnel", "--user", "u", "--step", "a=b", "--epsilon", "1"], "missing --time"),
        (["funnel", "--user", "u", "--time", "t", "--step", "a=", "--epsilon", "1"], "a value is needed here"),
        (["activity", "--user", "u", "--epsilon", "1", "--bins", "1,x"], "whole numbers with commas"),
        (["activity", "--user", "u", "--epsilon", "1", "--by", "c"], "--delta must be positive"),
        (["activity", "--user", "u", "--epsilon", "1", "--domain", "f"], "--domain has the values of --by"),
        (["activity", "--user", "u", "--epsilon", "1", "--noise", "gaussian"], "--delta must be positive"),
        (["activity", "--user", "u", "--epsilon", "1", "--item", "page"], "give --by COLUMN"),
        ([*FUNNEL, "--within", "soon"], "within must be a span of time"),
    ],
)
def test_it_refuses(words, message, capsys):
    assert main([*words, "--explain"]) == 2
    assert message in capsys.readouterr().err


def test_a_release_is_verified_and_its_ledger_is_charged_once(files, tmp_path, capsys):
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    assert main(["ledger", "create", "log", "--limit-epsilon", "5", "--limit-delta", "1e-6", "--ledger", ledger]) == 0
    given = ["--input", str(files / "log.parquet"), "--key-file", str(files / "key")]
    words = ["funnel", "--user", "user", "--time", "at", "--step", "page=/", "--step", "price>0", "--by", "country",
             "--drop-null", "--epsilon", "2", "--delta", "1e-7", *given, "--ledger", ledger, "--dataset", "log",
             "--label", "path", "--release-id", "auto", "--output", str(tmp_path / "out")]  # fmt: skip
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "country de" in shown and "of the step before" in shown
    assert main(words) == 0
    assert "already there, the same bytes" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "out"), *given]) == 0
    assert "it came from this input with this key" in capsys.readouterr().out
    assert main(["ledger", "total", "log", "--ledger", ledger]) == 0
    assert "spent: 1 release: epsilon = 2 at" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["keys"] == ["country"] and report["columns"]["count"].startswith("the users who came to the step")
    assert [row["step"] for row in report["shown"]][:2] == [1, 2]


@pytest.mark.parametrize("question", ["funnel", "activity", "retention", "actives"])
def test_where_no_value_has_enough_users_nothing_is_told(question, tmp_path):
    table = log(1, users=20, rows=90)
    asked = {
        "funnel": {"time": "at", "step": "page=/"},
        "activity": {"bins": [1, 2]},
        "retention": {"time": "at", "from_": "2026-10-05", "to": "2026-10-18"},
        "actives": {"time": "at", "from_": "2026-10-05", "to": "2026-10-18"},
    }[question]
    result = getattr(headcount, question)(table, user="user", by="country", epsilon=1, delta=1e-9, **asked)
    assert result.table.num_rows == 0 and result.table.column_names[0] == "country"
    assert "no value of country came out, as none has enough users: it takes about" in repr(result)
    result.save(tmp_path / "out")
    assert "and --by country the one to count?" in (tmp_path / "out" / "report.html").read_text()
