"""Keys of every type, from every format that can hold it: counted as DuckDB's GROUP BY counts them."""

import collections
import datetime
import decimal
import io
import json
import pathlib
import uuid

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.columns.key_column import parse_column
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError
from headcount.pipelines.sources import json as source_json
from headcount.pipelines.sources import parquet as source_parquet
from headcount.pipelines.sources.columns import place_of
from tests.pipelines.sources.event_files import avro, batches, put, refusal, types_of

ROWS = 400
START = datetime.datetime(1969, 12, 20)
WORDS = ["", "a", "ä\x1fb", "\x1b", 'say, "hi"\nthere', "7", "007", "x" * 50]
UUIDS = [uuid.UUID(int=k * 2**100 + k) for k in range(4)]


def made(values, kind, seed, nulls=True):
    """A column of values at random, every twentieth of them null."""
    generator = np.random.default_rng(seed)
    chosen = [values[k] for k in generator.integers(0, len(values), ROWS)]
    absent = generator.random(ROWS) < (0.05 if nulls else 0)
    return pa.array([None if none else value for none, value in zip(absent, chosen, strict=True)], kind)


def integers(kind):
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    return [int(value) for value in (least, least + 1, 0, 1, 7, most - 1, most)]


TIMES = [START + datetime.timedelta(hours=5 * k, seconds=k) for k in range(90)]
DATES = [(START + datetime.timedelta(days=9 * k)).date() for k in range(60)]
DECIMALS = [decimal.Decimal(text) for text in ("0.00", "-1.50", "1.50", "1234567.89")]
CLOCK = [datetime.time(13, 45, k) for k in range(4)]
COLUMNS = {
    "user": made([f"u{k}" for k in range(20)], pa.string(), 0, nulls=False),
    "text": made(WORDS, pa.string(), 1),
    "long_text": made(WORDS, pa.large_string(), 2),
    "kind": made(["red", "green"], pa.string(), 3).dictionary_encode(),
    "yes": made([True, False], pa.bool_(), 4),
    **{
        kind: made(integers(kind), pa.type_for_alias(kind), k)
        for k, kind in enumerate(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), 5)
    },
    "date": made(DATES, pa.date32(), 13),
    "date_ms": made(DATES, pa.date64(), 14),
    **{f"time_{unit}": made(TIMES, pa.timestamp(unit), k) for k, unit in enumerate(("s", "ms", "us", "ns"), 15)},
    "utc": made(TIMES, pa.timestamp("us", "UTC"), 19),
    "clock": made(CLOCK, pa.time64("us"), 20),
    "decimal": made(DECIMALS, pa.decimal128(20, 2), 21),
    "large_decimal": made(DECIMALS, pa.decimal256(50, 2), 22),
    "id": made([each.bytes for each in UUIDS], pa.uuid(), 23),
    "age": made(list(range(-5, 90)), pa.int16(), 24),
    "weight": made([-1.5, 0.0, 17.9, 18.0, 64.99, 65.0, 1e9], pa.float64(), 25),
    "tags": made([[], ["a"], ["a", "b", "a"], ["b", None]], pa.list_(pa.string()), 26),
    "person": made([{"id": 1, "at": {"city": "Rome"}}, {"id": 2, "at": None}], None, 27),
}
TABLE = pa.table(COLUMNS)


def edges(column):
    """The bins of :0,18,65 in SQL."""
    bins = f"when {column} < 0 then '< 0' when {column} < 18 then '[0, 18)' when {column} < 65 then '[18, 65)'"
    return f"case {bins} when {column} >= 65 then '>= 65' end"


def units(column):
    """What is made of times: the key column as it is asked for, and the same in SQL."""
    return {
        f"{column}:hour": f"date_trunc('hour', {column})",
        f"{column}:day": f"{column}::date",
        f"{column}:week": f"date_trunc('week', {column})::date",
        f"{column}:month": f"date_trunc('month', {column})::date",
        f"{column}:year": f"year({column})",
    }


# The key column as it is asked for, and the same in SQL.
PLAIN = ["text", "long_text", "kind", "yes", "date", "date_ms", "utc", "clock"]
NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
PARQUET = {
    **{name: name for name in (*PLAIN, *NUMBERS)},
    **{f"time_{unit}": f"time_{unit}" for unit in ("s", "ms", "us")},
    **{name: f"rtrim(rtrim({name}::varchar, '0'), '.')" for name in ("decimal", "large_decimal")},
    "id": "id::varchar",
    **{spec: sql for name in ("time_s", "time_ms", "time_us", "time_ns") for spec, sql in units(name).items()},
    "date:day": "date",
    "date:week": "date_trunc('week', date)::date",
    "date_ms:month": "date_trunc('month', date_ms)::date",
    **{f"{name}:0,18,65": edges(name) for name in ("age", "weight", "decimal", "int64", "uint64")},
    "person.id": "person.id",
    "person.at.city": "person.at.city",
}
AVRO = {
    **{name: name for name in ("text", "kind", "yes", "int32", "int64", "date", "time_ms", "time_us", "utc", "clock")},
    "decimal": "rtrim(rtrim(decimal::varchar, '0'), '.')",
    "id": "id::varchar",
    **units("time_us"),
    "weight:0,18,65": edges("weight"),
    "person.id": "person.id",
    "person.at.city": "person.at.city",
}
CSV = {
    **{name: f"{name}::varchar" for name in ("text", "yes", "date", "decimal", "id", "int64", "uint64")},
    **{f"{name}:int": name for name in ("int8", "int64", "uint32")},
    **units("time_us"),
    "date:month": "date_trunc('month', date)::date",
    **{f"{name}:0,18,65": edges(name) for name in ("age", "weight")},
}
JSON = {
    **{name: f"{name}::varchar" for name in ("text", "yes", "date", "decimal", "id")},
    **{f"{name}:int": name for name in ("int8", "int64", "uint32")},
    **units("time_us"),
    **{f"{name}:0,18,65": edges(name) for name in ("age", "weight")},
    "person.id:int": "person.id",
    "person.at.city": "person.at.city",
}


def parquet_file(directory):
    out = io.BytesIO()
    pq.write_table(TABLE, out, row_group_size=150)
    return put(directory, "e.parquet", out.getvalue())


def avro_file(directory):
    city = {"type": "record", "name": "At", "fields": [{"name": "city", "type": ["null", "string"]}]}
    person = [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", city]}]
    types = {
        "user": "string",
        "text": "string",
        "kind": {"type": "enum", "name": "Kind", "symbols": ["red", "green"]},
        "yes": "boolean",
        "int32": "int",
        "int64": "long",
        "date": {"type": "int", "logicalType": "date"},
        "time_ms": {"type": "long", "logicalType": "timestamp-millis"},
        "time_us": {"type": "long", "logicalType": "local-timestamp-micros"},
        "utc": {"type": "long", "logicalType": "timestamp-micros"},
        "clock": {"type": "long", "logicalType": "time-micros"},
        "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
        "id": {"type": "string", "logicalType": "uuid"},
        "weight": "double",
        "tags": {"type": "array", "items": ["null", "string"]},
        "person": {"type": "record", "name": "Person", "fields": person},
    }
    records = TABLE.select(list(types)).to_pylist()
    for record in records:
        for name in ("time_ms",):
            record[name] = record[name] and record[name].replace(tzinfo=datetime.UTC)
    return put(directory, "e.avro", avro([(name, ["null", kind]) for name, kind in types.items()], records))


def as_text(value):
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def csv_file(directory):
    names = [name for name in TABLE.column_names if name not in ("tags", "person")]
    columns = [TABLE.column(name).to_pylist() for name in names]
    lines = [",".join(names)]
    for row in zip(*columns, strict=True):
        quoted = ("" if value is None else '"{}"'.format(as_text(value).replace('"', '""')) for value in row)
        lines.append(",".join(quoted))
    return put(directory, "e.csv", "\n".join(lines).encode())


def json_file(directory):
    lines = []
    for row in TABLE.drop_columns("time_ns").to_pylist():
        held = {name: value for name, value in row.items() if value is not None or len(lines) % 2}
        lines.append(json.dumps(held, default=as_text, ensure_ascii=False) + "\n")
    return put(directory, "e.jsonl", "".join(lines).encode())


FORMATS = {
    "parquet": (parquet_file, PARQUET),
    "avro": (avro_file, AVRO),
    "csv": (csv_file, CSV),
    "json": (json_file, JSON),
}


def counted(path, specs, **more):
    """How often each key occurs, as a job reads and names them: {values as texts: count}."""
    keys = asked("user", specs, drop_null=True, **more).of_schema(types_of(path, item=specs, **named(more)).schema)
    names = collections.Counter()
    for batch in batches(path, item=specs, **named(more)):
        names.update(keys.batch(batch, place_of(batch)).column("item").to_pylist())
    kind = {str: pa.string(), int: pa.int64()}[keys.keys.item_type]
    columns = keys.keys.decode(pa.array(list(names), kind))
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return collections.Counter({shown(row): count for row, count in zip(rows, names.values(), strict=True)})


def named(more):
    return {{"time_zone": "zone"}.get(name, name): value for name, value in more.items()}


def in_duckdb(table=TABLE):
    """The table with the types that DuckDB takes from Arrow."""
    for at, name in enumerate(table.column_names):
        if name == "large_decimal":
            table = table.set_column(at, name, table.column(name).cast(pa.decimal128(20, 2)))
        elif name == "id":
            texts = [None if each is None else str(each) for each in table.column(name).to_pylist()]
            table = table.set_column(at, name, pa.array(texts))
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    return connection.register("events", table)


DUCKDB = in_duckdb()


def grouped(sql, source="events", connection=DUCKDB):
    """The same by DuckDB."""
    columns = ", ".join(f"{each} as k{k}" for k, each in enumerate(sql))
    present = " and ".join(f"k{k} is not null" for k in range(len(sql)))
    keys = ", ".join(f"k{k}" for k in range(len(sql)))
    found = connection.execute(
        f"select {keys}, count(*) from (select {columns} from {source}) where {present} group by all"
    ).fetchall()
    return collections.Counter({shown(row[:-1]): row[-1] for row in found})


def shown(row):
    """Values of both sides in one form: times without a zone, dates as such."""
    values = []
    for value in row:
        if isinstance(value, datetime.datetime):
            value = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            value = str(value)
        elif isinstance(value, datetime.date):
            value = f"{value} 00:00:00"
        values.append(str(value))
    return tuple(values)


@pytest.fixture(scope="module", params=FORMATS)
def file(request, tmp_path_factory):
    write, cases = FORMATS[request.param]
    return request.param, write(tmp_path_factory.mktemp("types")), cases


@pytest.mark.seconds
def test_every_type_is_counted_as_duckdb_counts_it(file):
    format, path, cases = file
    for spec, sql in cases.items():
        assert counted(path, [spec]) == grouped([sql]), spec


@pytest.mark.seconds
def test_composite_keys_of_all_types_are_counted_as_duckdb_counts_them(file):
    """Three at a time, and ten."""
    format, path, cases = file
    specs = list({parse_column(spec).source: spec for spec in cases}.values())
    for chosen in [*(specs[k : k + 3] for k in range(0, len(specs), 3)), specs[:10]]:
        assert counted(path, chosen) == grouped([cases[spec] for spec in chosen]), chosen


@pytest.mark.seconds
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Pacific/Apia"])
def test_units_of_time_zones(file, zone):
    format, path, cases = file
    local = f"(time_us::timestamptz at time zone '{zone}')"
    for unit in ("day", "week", "month"):
        expected = grouped([f"date_trunc('{unit}', {local})::date"])
        assert counted(path, [f"time_us:{unit}"], time_zone=zone) == expected
    assert counted(path, ["time_us:year"], time_zone=zone) == grouped([f"year({local})"])
    assert counted(path, ["time_us:hour"], time_zone=zone) == grouped(
        [f"date_trunc('hour', {local}) at time zone '{zone}'"]
    )


def test_lists_count_for_each_of_their_elements(file):
    format, path, cases = file
    if format == "csv":
        content = b"user,tags\na,x\n"
        path = put(pathlib.Path(path).parent, "tags.csv", content)
        message = refusal(path, item="tags", explode="tags")
        assert message == f"{path}: column 'tags' is string, no list: leave it out of --explode (explode=)"
        return
    expected = grouped(["unnest(tags)", "yes::varchar" if format == "json" else "yes"])
    assert counted(path, ["tags", "yes"], explode="tags") == expected
    message = refusal(path, item="tags")
    assert "'tags'" in message and "give --explode tags" in message


def test_the_two_parsers_of_json_agree(tmp_path, monkeypatch):
    path = json_file(tmp_path)
    cases = [([spec], {}) for spec in JSON] + [(["tags"], {"explode": "tags"})]
    fast = [counted(path, specs, **more) for specs, more in cases]
    monkeypatch.setattr(source_json, "_parse_block", lambda *given: None)
    assert [counted(path, specs, **more) for specs, more in cases] == fast


def test_only_the_leaves_that_are_asked_for_are_read(tmp_path):
    path = parquet_file(tmp_path)
    with pq.ParquetFile(path) as file:
        (batch, *_) = source_parquet._batches(file, ["person.at.city", "user"], source_parquet.Groups(0, 1, 1), 100)
    assert batch.schema.field("person").type == pa.struct([("at", pa.struct([("city", pa.string())]))])
    one, both = (types_of(path, item=item).decoded for item in (["person.id"], ["person.id", "person.at.city"]))
    assert 0 < one < both


def test_a_column_of_the_whole_name_goes_before_a_path(tmp_path):
    rows = [{"user": "a", "x.y": "whole", "x": {"y": "inside"}}, {"user": "a", "x.y": "whole", "x": None}]
    records = put(tmp_path, "e.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    for path in (records, put(tmp_path, "e.parquet", out.getvalue())):
        assert counted(path, ["x.y"]) == {("whole",): 2}


# What cannot be a key, by the format: the key column, and what its refusal must say.
REFUSED = {
    "parquet": {
        "weight": "column 'weight' is double; put it into bins, by their edges: weight:0,18,30,65",
        "person": "an object with the fields 'id', 'at': name one of its fields by its path, for instance person.id",
        "person.name": "no column 'person.name'; 'person' is an object with the fields 'id', 'at': name one",
        "text.id": "no column 'text.id'",
        "int64:day": "column 'int64' is int64; int64:day is for dates and times",
        "yes:0,1": "column 'yes' is bool; bins are for numbers",
        "date:int": "column 'date' is date32[day]; date:int is for whole numbers",
        "date:hour": "dates have no hour; give day, week, month or year",
    },
    "avro": {"weight": "put it into bins, by their edges", "person": "for instance person.id"},
    "csv": {
        "text:day": "row 1: holds a text that is no date or time",
        "text:int": "holds a text that is no whole number",
    },
    "json": {
        "weight": "column 'weight' is not a string",
        "weight:int": "column 'weight' is not an integer",
        "text:0,18": "column 'text' is not a number",
        "person": "is an object: name one of its fields by its path, for instance person.id",
        "text.id": "column 'text' is not an object with fields",
    },
}


def test_what_cannot_be_a_key_is_refused(file):
    format, path, cases = file
    for spec, words in REFUSED[format].items():
        with pytest.raises(InputError) as caught:
            counted(path, [spec])
        assert path in str(caught.value) and words in str(caught.value), spec
