"""Keys of several columns, from files to files: counted as DuckDB counts them, and shown as they were.

At an epsilon of a million the noise rounds to nothing; the bound is above what any user has, and below what any key has.
"""

import datetime
import json

import duckdb
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from headcount.pipelines.main import main

EXACT = [
    "--of",
    "events",
    "--method",
    "one-stage",
    "--bound",
    "60",
    "--epsilon",
    "1000000",
    "--delta",
    "1e-9",
    "--noise",
    "laplace",
]
ROWS = 16_000
ITEMS = [
    "--item",
    "country",
    "--item",
    "member",
    "--item",
    "seen:week",
    "--item",
    "age:0,18,65",
    "--item",
    "person.group",
]
SQL = """
    select country, member, date_trunc('week', seen)::date as seen_week,
        case when age < 18 then '[0, 18)' when age < 65 then '[18, 65)' else '>= 65' end as age, person."group", count(*)
    from events group by all order by all
"""


@pytest.fixture(scope="module")
def events():
    random = np.random.default_rng(3)
    age = random.choice([3, 17, 18, 64, 65, 90], ROWS)
    return pa.table(
        {
            "user": [f"u{k}" for k in random.integers(0, 800, ROWS)],
            "country": random.choice(["de", "at", 'ch, "li"'], ROWS),
            "member": pa.array(random.integers(0, 2, ROWS) == 1),
            "seen": pa.array(1_790_000_000 + 86_400 * 10 * random.integers(0, 2, ROWS), pa.timestamp("s")).cast(
                pa.timestamp("us")
            ),
            "age": age,
            "person": [{"group": int(k), "name": "x"} for k in random.integers(-1, 1, ROWS)],
            "tags": [["a", "b"][:k] for k in random.integers(0, 3, ROWS)],
        }
    )


def write(events, directory, format):
    """The events as one file; in text, times are texts in ISO 8601."""
    path = str(directory / f"events.{format}")
    if format == "parquet":
        pq.write_table(events, path)
    elif format == "avro":
        group = [{"name": "group", "type": "long"}, {"name": "name", "type": "string"}]
        types = {
            "user": "string",
            "country": "string",
            "member": "boolean",
            "seen": {"type": "long", "logicalType": "local-timestamp-micros"},
            "age": "long",
            "person": {"type": "record", "name": "Person", "fields": group},
            "tags": {"type": "array", "items": "string"},
        }
        schema = {"type": "record", "name": "E", "fields": [{"name": n, "type": t} for n, t in types.items()]}
        with open(path, "wb") as file:
            fastavro.writer(file, schema, events.to_pylist())
    elif format == "jsonl":
        with open(path, "w") as file:
            file.writelines(json.dumps(row, default=datetime.datetime.isoformat) + "\n" for row in events.to_pylist())
    else:
        flat = events.drop_columns(["person", "tags"])
        flat = flat.append_column("person.group", pa.array([row["group"] for row in events["person"].to_pylist()]))
        pyarrow.csv.write_csv(flat, path)
    return path


def run(path, out, *flags):
    assert main(["histogram", "--input", path, "--user", "user", *flags, *EXACT, "--output", str(out)]) == 0
    report = json.loads((out / "report.json").read_text())
    (name,) = [file["name"] for file in report["files"]]
    return out / name, report


def expected(events, sql=SQL):
    with duckdb.connect() as connection:
        return connection.register("events", events).execute(sql).fetchall()


def found(path, format):
    """The key columns and the rounded count, as DuckDB reads them."""
    with duckdb.connect() as connection:
        if format == "avro":
            with open(path, "rb") as file:
                rows = list(fastavro.reader(file))
            return [
                tuple(value for name, value in row.items() if name not in NUMBERS) + (round(row["bounded_count"]),)
                for row in rows
            ]
        shown = connection.execute(f"select * exclude (noise_stddev, low, high) from '{path}'").fetchall()
        return [(*row[:-1], round(row[-1])) for row in shown]


NUMBERS = ("bounded_count", "noise_stddev", "low", "high")


@pytest.mark.parametrize("format", ["parquet", "avro", "csv", "jsonl"])
def test_a_key_of_five_columns(format, events, tmp_path, capsys):
    path = write(events, tmp_path, format)
    items = [f"{item}:int" if item == "person.group" and format in ("csv", "jsonl") else item for item in ITEMS]
    rows, report = run(path, tmp_path / "out", *items, "--format", format)
    wanted = expected(events)
    assert len(wanted) == 72 and min(row[-1] for row in wanted) > 150
    if format == "jsonl":  # which has no booleans among its keys, but texts of them
        wanted = sorted((row[0], str(row[1]).lower(), *row[2:]) for row in wanted)
    assert sorted(map(plain, found(rows, format))) == sorted(map(plain, wanted))
    assert report["keys"] == ["country", "member", "seen_week", "age", "person.group"]
    assert report["details"]["parameters"]["item"] == items[1::2]
    assert list(report["columns"])[:5] == report["keys"]
    out = capsys.readouterr().out
    assert "72 items came out; the 10 largest, with the range of the noise:" in out and "seen_week" in out


def plain(row):
    return tuple(str(value) if isinstance(value, datetime.date | bool) else value for value in row)


def test_types_and_order_of_the_result(events, tmp_path):
    path = write(events, tmp_path, "parquet")
    rows, _ = run(path, tmp_path / "out", *ITEMS)
    table = pq.read_table(rows)
    assert table.schema.types[:5] == [pa.string(), pa.bool_(), pa.date32(), pa.string(), pa.int64()]
    order = {"[0, 18)": 0, "[18, 65)": 1, ">= 65": 2}
    keys = [
        (*row[:3], order[row[3]], row[4])
        for row in zip(*(column.to_pylist() for column in table.columns[:5]), strict=True)
    ]
    assert keys == sorted(keys)


def test_lists_and_folders(events, tmp_path, capsys):
    events = events.slice(0, ROWS // 3)
    for day in ("2026-11-01", "2026-11-02"):
        (tmp_path / f"day={day}").mkdir()
        write(events, tmp_path / f"day={day}", "parquet")
    words = ["--item", "tags", "--explode", "tags", "--item", "day:month", "--item", "day"]
    rows, report = run(f"{tmp_path}/*/*.parquet", tmp_path / "out", *words)
    counts = expected(
        events, "select tag, count(*) from (select unnest(tags) as tag from events) group by all order by all"
    )
    month = datetime.date(2026, 11, 1)
    assert found(rows, "parquet") == [
        (tag, month, day, count) for tag, count in counts for day in ("2026-11-01", "2026-11-02")
    ]
    assert report["details"]["parameters"]["explode"] == "tags"


def test_names_that_the_result_has_itself_are_refused(events, tmp_path, capsys):
    path = str(tmp_path / "events.parquet")
    pq.write_table(events.select(["user", "country"]).rename_columns(["user", "low"]), path)
    assert (
        main(
            ["histogram", "--input", path, "--user", "user", "--item", "low", *EXACT, "--output", str(tmp_path / "out")]
        )
        == 2
    )
    assert "'low'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--item", "seen:dya"], "headcount: --item: 'seen:dya' is no key column: give COLUMN, COLUMN:hour"),
        (["--item", "age:18,0"], "the bins of column 'age' must begin at ascending numbers"),
        (["--item", "age", "--item", "age:0,18"], "'age' is given as a key column 2 times: give it once"),
        (["--item", "seen:day", "--time-zone", "Mars"], "--time-zone 'Mars' is not known here"),
        (["--item", "country", "--explode", "tags"], "headcount: --explode tags must be one of the columns of --item"),
        (["--item", "user"], "user, item and count must be different columns, got 'user', 'user'"),
        (["--item", "person.nobody"], "no column 'person.nobody'"),
        (["--item", "tags"], "give --explode tags"),
    ],
)
def test_refusals(flags, words, events, tmp_path, capsys):
    path = write(events, tmp_path, "parquet")
    assert (
        main(["histogram", "--input", path, "--user", "user", *flags, *EXACT, "--output", str(tmp_path / "out")]) == 2
    )
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1 and not (tmp_path / "out").exists()
