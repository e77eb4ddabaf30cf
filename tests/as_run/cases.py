"""What people run, one line each: the words of the command, and what must come of it.

What comes is the items that are shown, in any order; ROWS if it is enough that there are some; or a text that the one line of
refusal has.
"""

from __future__ import annotations

from typing import NamedTuple

ROWS = ("*",)
BUDGET = "--epsilon 10 --delta 1e-2"
TEA = ("milk", "tea")
NUMBERS = ("7", "9")


class Case(NamedTuple):
    """Words of a command, without its budget and output, and what comes of it."""

    words: str
    found: tuple[str, ...] | str
    budget: str = BUDGET


def counted(path: str, item: str, found: tuple[str, ...] | str, user: str = "user", more: str = "") -> Case:
    """A histogram by one column of a file, in one stage: what is tried is how rows are read, and that takes the least time."""
    words = f"histogram --of events --method one-stage --bound 4 --input {{files}}/{path} --user {user} --item {item} {more}"
    return Case(words, found)


CASES: dict[str, Case] = {
    **{
        f"{kind} users, items and counts": Case(
            f"histogram --input {{files}}/arrow_{kind}.parquet --user user --item item --count times",
            NUMBERS if "int" in kind else TEA,
        )
        for kind in (
            *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
            *("string", "large_string", "string_view", "dictionary"),
        )
    },
    "integer widths that differ, small first": counted("widths", "item", NUMBERS),
    "integer widths that differ, large first": Case(
        "histogram --of users --input {files}/widths/1.parquet --input {files}/widths/2.parquet --user user --item item",
        NUMBERS,
    ),
    "pandas, int32 users": counted("pandas.parquet", "item", TEA, user="small"),
    "pandas, integers that may be missing": counted("pandas.parquet", "kind", TEA, user="maybe"),
    "pandas, days": counted("pandas.parquet", "at:day", ("2026-11-02",)),
    "pandas, bins": counted("pandas.parquet", "price:0,10,100", ("[0, 10)", "[10, 100)")),
    "pandas, csv": counted("pandas.csv", "item", TEA),
    "pandas, json lines": counted("pandas.jsonl", "item", TEA),
    "polars, categories": counted("polars.parquet", "kind", TEA),
    "polars, truths": counted("polars.parquet", "ok", ("false", "true")),
    "polars, dates": counted("polars.parquet", "on", ("2026-11-02",)),
    "polars, json lines": counted("polars.ndjson", "item", TEA),
    "polars, csv": counted("polars.csv", "item", TEA),
    "polars, avro": counted("polars.avro", "item", TEA),
    "duckdb, parquet": counted("duckdb.parquet", "item", TEA, user="user_id"),
    "duckdb, decimals": counted("duckdb.parquet", "price", ("1.5", "2.5"), user="user_id"),
    "duckdb, days in a zone": counted(
        "duckdb.parquet", "at_zone:day", ("2026-11-03",), user="user_id", more="--time-zone Europe/Berlin"
    ),
    "duckdb, nested users": counted("duckdb.parquet", "item", TEA, user="who.id"),
    "duckdb, csv": counted("duckdb.csv", "item", TEA, user="user_id"),
    "duckdb, json": counted("duckdb.json", "item", TEA, user="user_id"),
    "duckdb, folders": counted("hive", "day", ("2026-11-02",), user="user_id"),
    **{
        f"times in {unit}": counted("times.parquet", f"{unit}:day", ("2026-11-02", "2026-11-03"))
        for unit in ("s", "ms", "us", "ns", "date32", "date64")
    },
    **{
        f"times in {unit} with a zone": counted("times.parquet", f"{unit}_zone:day", ("2026-11-02", "2026-11-03"))
        for unit in ("s", "ms", "us", "ns")
    },
    "times as items": counted("times.parquet", "us", ROWS),
    "int96": counted("int96.parquet", "at:day", ("2026-11-02",)),
    "decimals": counted("numbers.parquet", "price", ("0.1", "12.5")),
    "decimals of 256 bits": counted("numbers.parquet", "wide", ("0.1", "12.5")),
    "decimals in bins": counted("numbers.parquet", "price:0,0.1,0.5", ("[0.1, 0.5)", ">= 0.5")),
    "fractions in bins": counted("numbers.parquet", "fraction:0,0.1,0.5", ("[0.1, 0.5)", ">= 0.5")),
    "fractions as items": counted("numbers.parquet", "fraction", "bins"),
    "truths": counted("numbers.parquet", "ok", ("false", "true")),
    "csv": counted("plain.csv", "item", TEA),
    "csv with a mark and CRLF": counted("windows.csv", "item", TEA),
    "csv with tabs": counted("tabs.tsv", "item", TEA, more="--input-format csv --delimiter tab"),
    "csv with tabs, which nobody said": counted("tabs.tsv", "item", "--input-format csv --delimiter tab"),
    "csv, packed": counted("packed.csv.gz", "item", TEA),
    "csv, bins of texts": counted("plain.csv", "age:0,18,65", ("[0, 18)", "[18, 65)")),
    "csv, days of texts": counted("plain.csv", "at:day", ("2026-11-02", "2026-11-03")),
    "csv, quoted headers and semicolons": Case(
        "histogram --of users --input {files}/semicolons.csv --delimiter ; --user|User ID|--item|Country", TEA
    ),
    "csv, semicolons that nobody said": Case(
        "histogram --of users --input {files}/semicolons.csv --user|User ID|--item|Country", "--delimiter ';'"
    ),
    "csv without a header": counted("headless.csv", "item", "is its first row a header?"),
    "json, nested": counted("nested.jsonl", "event.page.path", TEA, user="user.id"),
    "json, nested and packed": counted("nested.jsonl.gz", "event.page.path", TEA, user="user.id"),
    "json, lists": counted("nested.jsonl", "tags", ("all", *TEA), user="user.id", more="--explode tags"),
    "json, an object as user": counted("nested.jsonl", "event.page.path", "user.id"),
    "avro, unions": counted("unions_null.avro", "item", TEA),
    "avro, packed": counted("unions_deflate.avro", "kind", TEA),
    "avro, times": counted("unions_null.avro", "at:day", ("2026-11-02",)),
    "avro, dates": counted("unions_null.avro", "day", ("2026-11-02",)),
    "avro, decimals": counted("unions_null.avro", "price", ("1.5",)),
    "nulls": counted("nulls.parquet", "item", "--drop-null"),
    "nulls, dropped": counted("nulls.parquet", "item", TEA, more="--drop-null"),
    "no such column": counted("pandas.parquet", "itme", "did you mean 'item'?"),
    "no such file": counted("nothing.parquet", "item", "no such file"),
    "some rows, pandas": counted("pandas.parquet", "item", ("tea",), more="--where item=tea"),
    "some rows, polars' categories": counted(
        "polars.parquet", "item", ("milk",), more="--where (kind!=tea)and(on>=2026-11-02)"
    ),
    "some rows, duckdb's folders": counted("hive", "item", TEA, user="user_id", more="--where day<=2026-11-02"),
    "some rows, decimals": counted("duckdb.parquet", "price", ("2.5",), user="user_id", more="--where price>1.5"),
    "some rows, csv": counted("plain.csv", "age:0,18,65", ("[18, 65)",), more="--where age>=18"),
    "some rows, json": counted("pandas.jsonl", "item", ("tea",), more="--where item=tea"),
    "some rows, avro": counted("unions_null.avro", "item", TEA, more="--where at=2026-11-02"),
    **{
        f"some rows by times in {unit}": counted(
            "times.parquet", f"{unit}:day", ("2026-11-03",), more=f"--where {unit}>2026-11-02"
        )
        for unit in ("s", "ms", "us", "ns", "us_zone", "date32", "date64")
    },
    "a public table": counted("pandas.csv", "sort", ("cold", "hot"), more="--join {files}/sorts.csv --on item"),
    "two keys": counted("pandas.parquet", "item --item at:day", ROWS),
    # Every command that reads events, and those beside them.
    "histogram of events": Case(
        "histogram --of events --input {files}/arrow_int32.parquet --user user --item item", NUMBERS
    ),
    "histogram, one stage": Case(
        "histogram --of events --method one-stage --input {files}/arrow_int32.parquet --user user --item item", NUMBERS
    ),
    "aggregate": Case(
        "aggregate --users --events --sum price:0:50 --mean price:0:50 --input {files}/pandas.parquet --user small "
        "--item item",
        TEA,
    ),
    "total": Case("total --input {files}/arrow_int32.parquet --user user", ROWS, "--epsilon 10"),
    "funnel": Case(
        "funnel --time at --step item=tea --step price>1 --by item --input {files}/pandas.parquet --user small",
        ("tea",),
    ),
    "retention": Case(
        "retention --time at --every day --from 2026-11-01 --to 2026-11-09 --input {files}/duckdb.parquet --user user_id",
        ROWS,
    ),
    "activity": Case("activity --bins 1,2 --input {files}/arrow_int32.parquet --user user", ROWS, "--epsilon 10"),
    "actives": Case(
        "actives --time at --from 2026-11-01 --to 2026-11-09 --input {files}/pandas.parquet --user small", ROWS
    ),
    "partitions": Case("partitions --input {files}/arrow_int32.parquet --user user --item item", NUMBERS),
    "choose-bound": Case(
        "choose-bound --input {files}/arrow_int32.parquet --user user --item item",
        ROWS,
        "--epsilon 1 --for-epsilon 9 --for-delta 1e-2",
    ),
    "sampled": Case("sampled --input {files}/arrow_int32.parquet --user user --item item", NUMBERS),
    "heavy-hitters": Case(
        "heavy-hitters --phi 0.1 --input {files}/arrow_int32.parquet --user user --item item", NUMBERS
    ),
    "quantiles": Case(
        "quantiles --quantile 0.5 --lo 0 --hi 100 --levels 4 --input {files}/pandas.parquet --user small --value price",
        ROWS,
    ),
    "quantiles of decimals": Case(
        "quantiles --quantile 0.5 --lo 0 --hi 100 --levels 4 --input {files}/duckdb.parquet --user user_id --value price",
        ROWS,
    ),
    "quantiles of times": Case(
        "quantiles --quantile 0.5 --lo 2026-11-01 --hi 2026-11-30 --levels 4 --input {files}/duckdb.parquet "
        "--user user_id --value at",
        ROWS,
    ),
    "count-release": Case(
        "count-release --input {files}/arrow_int32.parquet --user user --item item", ROWS, "--rho 5 --delta 1e-2"
    ),
    "top": Case("top --k 2 --input {files}/arrow_int32.parquet --user user --item item", ROWS),
    "plume": Case(
        "plume --max-items 2 --input {files}/arrow_int32.parquet --user user --item item", ROWS, "--rho 5 --delta 1e-2"
    ),
    "shape": Case(
        "shape --domain-size 100 --input {files}/arrow_int32.parquet --user user --item item", ROWS, "--epsilon 10"
    ),
    "distribution": Case(
        "distribution --domain {files}/domain.txt --input {files}/arrow_int32.parquet --user user --item item",
        NUMBERS,
    ),
    "user-days": Case(
        "histogram --of users --protect user-day --time at --input {files}/pandas.parquet --user small --item item", TEA
    ),
}
