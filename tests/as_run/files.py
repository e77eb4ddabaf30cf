"""Files as other programs write them: each is a function of a folder, which it writes its file or files into."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

USERS = 100  # so few that an int8 tells them apart; each has both items
DAY = datetime.datetime(2026, 11, 2, 23, 30)  # and the day after: in Berlin both are a day later
WRITERS: dict[str, Callable[[Path], None]] = {}


def writer(function: Callable[[Path], None]) -> Callable[[Path], None]:
    """Registers a file by the name of its function."""
    WRITERS[function.__name__] = function
    return function


def events(**columns: Any) -> dict[str, Any]:
    """Two rows of each user: columns are values by item (0 and 1), or arrays."""
    user = np.repeat(np.arange(USERS), 2)
    item = np.tile([0, 1], USERS)
    found: dict[str, Any] = {"user": user.tolist(), "item": [("tea", "milk")[k] for k in item]}
    for name, values in columns.items():
        found[name] = [values[k] for k in item]
    return found


def table(user: pa.DataType = pa.string(), **columns: tuple[pa.DataType, list[Any]]) -> pa.Table:  # noqa: B008
    """An Arrow table: the users of a type, and other columns by type and values."""
    rows = events(**{name: values for name, (_, values) in columns.items()})
    text = not pa.types.is_integer(user)
    users = pa.array([f"u{each}" if text else each for each in rows.pop("user")])
    made = {"user": users.cast(user) if not pa.types.is_dictionary(user) else users.dictionary_encode()}
    for name, values in rows.items():
        type_ = columns[name][0] if name in columns else pa.string()
        made[name] = (
            pa.array(values, type_.value_type).dictionary_encode()
            if pa.types.is_dictionary(type_)
            else pa.array(values).cast(type_)
        )
    return pa.table(made)


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


def name_of(type_: pa.DataType) -> str:
    """The name of a type as a part of a file's."""
    return str(type_).replace("dictionary<values=string, indices=int32, ordered=0>", "dictionary")


for _type in [*INTEGERS, *TEXTS]:

    def _typed(folder: Path, type_: pa.DataType = _type) -> None:
        values = [7, 9] if pa.types.is_integer(type_) else ["tea", "milk"]
        counts = type_ if pa.types.is_integer(type_) else pa.int64()
        made = table(type_, item=(type_, values), times=(counts, [1, 2]))
        pq.write_table(made, folder / f"arrow_{name_of(type_)}.parquet")

    WRITERS[f"arrow_{name_of(_type)}"] = _typed


@writer
def arrow_widths_differ(folder: Path) -> None:
    """Files of one table, whose integers have other widths."""
    (folder / "widths").mkdir()
    for number, type_ in enumerate([pa.int16(), pa.int64(), pa.int32()]):
        pq.write_table(table(type_, item=(type_, [7, 9])), folder / "widths" / f"{number}.parquet")


@writer
def pandas_frame(folder: Path) -> None:
    frame = pd.DataFrame(events(at=[DAY, DAY], price=[1.5, 20.25]))
    frame["small"] = frame["user"].astype("int32")
    frame["kind"] = frame["item"].astype("category")
    frame["maybe"] = frame["user"].astype("Int64")
    frame.to_parquet(folder / "pandas.parquet")
    frame.to_csv(folder / "pandas.csv", index=False)
    frame.to_json(folder / "pandas.jsonl", orient="records", lines=True)


@writer
def polars_frame(folder: Path) -> None:
    frame = pl.DataFrame(events(at=[DAY, DAY], ok=[True, False]))
    frame = frame.with_columns(
        pl.col("user").cast(pl.Int32),
        pl.col("item").cast(pl.Categorical).alias("kind"),
        pl.col("at").dt.date().alias("on"),
    )
    frame.write_parquet(folder / "polars.parquet")
    frame.drop("kind").write_ndjson(folder / "polars.ndjson")
    frame.write_csv(folder / "polars.csv")
    frame.drop("kind").write_avro(folder / "polars.avro")


@writer
def duckdb_table(folder: Path) -> None:
    with duckdb.connect() as database:
        database.execute(
            f"create table log as select (i // 2)::INTEGER as user_id, if(i % 2 = 0, 'tea', 'milk') as item, "
            f"(1.5 + i % 2)::DECIMAL(10, 2) as price, TIMESTAMP '2026-11-02 23:30:00' as at, "
            f"TIMESTAMPTZ '2026-11-02 23:30:00+00' as at_zone, (i % 2 = 0) as ok, uuid() as id, "
            f"{{'id': (i // 2)::INTEGER, 'name': 'n'}} as who from range({2 * USERS}) t(i)"
        )
        for format in ("parquet", "csv", "json"):
            database.execute(f"copy log to '{folder / f'duckdb.{format}'}' (format {format})")
        database.execute(
            f"copy (select user_id, item, \"at\"::DATE as day from log) to '{folder / 'hive'}' "
            "(format parquet, partition_by (day))"
        )


@writer
def times_of_every_unit(folder: Path) -> None:
    columns = {
        f"{unit}{'_zone' if zone else ''}": (pa.timestamp(unit, zone), [DAY, DAY + datetime.timedelta(days=1)])
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "Europe/Berlin")
    }
    day = [DAY.date(), DAY.date() + datetime.timedelta(days=1)]
    pq.write_table(table(**columns, date32=(pa.date32(), day), date64=(pa.date64(), day)), folder / "times.parquet")
    pq.write_table(
        table(at=(pa.timestamp("ns"), [DAY, DAY])), folder / "int96.parquet", use_deprecated_int96_timestamps=True
    )


@writer
def numbers_and_truths(folder: Path) -> None:
    prices = [decimal.Decimal("0.1"), decimal.Decimal("12.50")]
    made = table(
        price=(pa.decimal128(10, 2), prices),
        wide=(pa.decimal256(50, 6), prices),
        fraction=(pa.float64(), [0.1, 12.5]),
        small=(pa.float32(), [0.1, 12.5]),
        ok=(pa.bool_(), [True, False]),
    )
    pq.write_table(made, folder / "numbers.parquet")


@writer
def plain_csv(folder: Path) -> None:
    rows = events(at=["2026-11-02T23:30:00", "2026-11-03T08:00:00"], age=[17, 42])
    lines = list(zip(*([*map(str, column)] for column in rows.values()), strict=True))
    for name, options, end, mark in (
        ("plain.csv", {}, "\n", ""),
        ("windows.csv", {}, "\r\n", "\ufeff"),
        ("tabs.tsv", {"delimiter": "\t"}, "\n", ""),
    ):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            file.write(mark)
            made = csv.writer(file, lineterminator=end, **options)
            made.writerow(rows)
            made.writerows(lines)
    with gzip.open(folder / "packed.csv.gz", "wt", newline="") as file:
        made = csv.writer(file)
        made.writerow(rows)
        made.writerows(lines)
    with open(folder / "semicolons.csv", "w", newline="", encoding="utf-8") as file:
        made = csv.writer(file, delimiter=";", quoting=csv.QUOTE_ALL)
        made.writerow(["User ID", "Country", "Age"])
        made.writerows([(line[0], line[1], line[3]) for line in lines])
    with open(folder / "headless.csv", "w", newline="") as file:
        csv.writer(file).writerows(lines)


@writer
def nested_json(folder: Path) -> None:
    rows = events()
    lines = [
        {"user": {"id": user, "name": f"n{user}"}, "event": {"page": {"path": item}}, "tags": [item, "all"]}
        for user, item in zip(rows["user"], rows["item"], strict=True)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "nested.jsonl").write_text(text)
    with gzip.open(folder / "nested.jsonl.gz", "wt") as file:
        file.write(text)


@writer
def avro_unions(folder: Path) -> None:
    rows = events()
    fields = [
        {"name": "user", "type": ["null", "int"]},
        {"name": "item", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["tea", "milk"]}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ]
    schema = fastavro.parse_schema({"type": "record", "name": "Event", "fields": fields})
    zone = DAY.replace(tzinfo=datetime.UTC)
    records = [
        {"user": user, "item": item, "kind": item, "at": zone, "day": DAY.date(), "price": decimal.Decimal("1.50")}
        for user, item in zip(rows["user"], rows["item"], strict=True)
    ]
    for codec in ("null", "deflate"):
        with open(folder / f"unions_{codec}.avro", "wb") as file:
            fastavro.writer(file, schema, records, codec)


@writer
def nulls(folder: Path) -> None:
    rows = events(price=[1.5, None])
    rows["item"][0] = rows["user"][3] = None
    pq.write_table(pa.table(rows), folder / "nulls.parquet")


def write_all(folder: Path) -> None:
    """All files."""
    (folder / "domain.txt").write_text("7\n9\n")
    (folder / "sorts.csv").write_text("item,sort\ntea,hot\nmilk,cold\n")
    for write in WRITERS.values():
        write(folder)
