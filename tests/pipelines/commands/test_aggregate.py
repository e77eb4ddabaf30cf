"""`headcount aggregate`: from files of any kind to metrics by key, and what is refused by the names of flags."""

from __future__ import annotations

import json

import duckdb
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headcount
from headcount.pipelines.main import main
from tests.fixed_key import write_fixed_key
from tests.pipelines.refusals import refused

DECIMAL = pa.decimal128(9, 2)
AVRO = {
    pa.float64(): "double",
    DECIMAL: {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
}
EXACT = ["--epsilon", "1e9", "--delta", "1e-3", "--max-items", "3", "--max-per-item", "50", "--calibrate", "none"]
ASKED = ["--users", "--events", "--sum", "price:0:100", "--mean", "price:0:100", "--variance", "price:0:100"]
QUANTILES = ["--quantile", "0.5,0.905:price:0:100", "--quantile", "0.111:price:-20:120"]


def table(kind: pa.DataType) -> pa.Table:
    rng = np.random.default_rng(1)
    user, shop = rng.integers(0, 40, 900), rng.integers(0, 3, 900)
    price = pa.array(rng.integers(-10, 120, 900).astype(float)).cast(kind)
    return pa.table({"user": [f"u{u}" for u in user], "shop": [f"s{s}" for s in shop], "price": price})


def truth(rows: pa.Table) -> dict[str, list[float]]:
    """What DuckDB says, which has nothing of ours."""
    asked = """
        select shop, count(distinct user) bounded_users, count(*) bounded_events, sum(cut) bounded_sum_price,
            avg(cut) mean_price, var_pop(cut) variance_price
        from (select *, greatest(0, least(100, price))::double cut from rows) group by shop order by shop
    """
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return connection.sql(asked).to_arrow_table().drop_columns("shop").to_pydict()


def write(rows: pa.Table, path, format: str) -> str:
    name = str(path / f"events.{format}")
    if format == "parquet":
        pq.write_table(rows, name)
    elif format == "csv":
        pa.csv.write_csv(rows, name)
    elif format == "avro":
        fields = [{"name": "user", "type": "string"}, {"name": "shop", "type": "string"}]
        schema = {
            "type": "record",
            "name": "row",
            "fields": [*fields, {"name": "price", "type": AVRO[rows["price"].type]}],
        }
        with open(name, "wb") as file:
            fastavro.writer(file, schema, rows.to_pylist())
    else:
        with open(name, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows.to_pylist())
    return name


@pytest.mark.slow("cuts")
@pytest.mark.parametrize(
    "format, kind",
    [("parquet", pa.float64()), ("csv", pa.float64()), ("csv", DECIMAL), ("jsonl", pa.float64()), ("avro", pa.float64()),
     ("avro", DECIMAL)],
)  # fmt: skip
def test_with_a_huge_epsilon_every_format_and_type_gives_the_exact_metrics(format, kind, tmp_path, capsys):
    rows = table(kind)
    (tmp_path / "domain.txt").write_text("s0\ns1\ns2\n")
    write_fixed_key(tmp_path / "key")
    flags = ["--user", "user", "--item", "shop", *ASKED, *QUANTILES, *EXACT, "--domain", str(tmp_path / "domain.txt")]
    files = ["--input", write(rows, tmp_path, format), "--key-file", str(tmp_path / "key")]
    assert main(["aggregate", *files, *flags, "--output", str(tmp_path / "out")]) == 0
    found = pq.read_table(*(tmp_path / "out").glob("*.parquet"))
    assert found["shop"].to_pylist() == ["s0", "s1", "s2"]
    for name, values in truth(rows).items():
        assert np.asarray(found[name]) == pytest.approx(np.array(values), rel=2e-3), name
    for name, share, (low, high) in (
        ("p50_price", 0.5, (0, 100)),
        ("p90_5_price", 0.905, (0, 100)),
        ("p11_1_price", 0.111, (-20, 120)),
    ):
        exact = rows.to_pandas().astype({"price": float}).groupby("shop").price
        # Where the share of the rows is a whole number, any value between two is one.
        ends = [exact.quantile(share, interpolation=side).clip(low, high) for side in ("lower", "higher")]
        step = (high - low) / 8**5
        assert (ends[0] - step <= np.asarray(found[name])).all() and (np.asarray(found[name]) <= ends[1] + step).all()
    said = capsys.readouterr().out
    assert "3 items came out, with the range of the noise:" in said and "mean_price" in said and "p90_5_price" in said
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["columns"]["mean_price"].startswith("the mean of the values")
    assert report["columns"]["p50_price"].startswith("the value that as many of the rows as its name says")
    assert "share of rows" in report["columns"]["p50_price_rank_stddev"]
    assert set(report["columns"]) == set(found.column_names)


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float32(), pa.float64(), DECIMAL,
     pa.decimal256(40, 4), pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.float64())],
    ids=str,
)  # fmt: skip
def test_with_a_huge_epsilon_every_type_and_relation_gives_the_exact_metrics(kind):
    """Without Beam, which the command above has: each kind of column, against DuckDB on the plain numbers."""
    plain = table(pa.float64())
    prices = np.maximum(np.asarray(plain["price"]), 0) if str(kind).startswith("uint") else np.asarray(plain["price"])
    plain = plain.set_column(2, "price", pa.array(prices))
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    given = pa.array(prices).cast(pa.int64() if text else pa.float64())
    given = given.dictionary_encode() if pa.types.is_dictionary(kind) else given.cast(kind)
    for relation in ("add-remove", "replace"):
        found = headcount.aggregate(
            plain.set_column(2, "price", given), user="user", item="shop", domain=["s0", "s1", "s2"], users=True, events=True,
            sum="price:0:100", mean="price:0:100", variance="price:0:100", epsilon=1e9, delta=1e-3, max_items=3,
            max_per_item=50, calibrate="none", relation=relation,
        ).table  # fmt: skip
        for name, values in truth(plain).items():
            assert np.asarray(found[name]) == pytest.approx(np.array(values), rel=2e-3), name


CONDITIONS = {
    "cheap": "price < 20",
    "of_a_few": "user in (u1, u2, u3, u30)",
    "mixed": "price >= 100 or not (shop = s1 and price > -5)",
    "unknown": "price is null",
}


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_with_a_huge_epsilon_shares_are_those_of_sql(relation):
    """Of the users of a shop, those with a row for which the condition is true, with nulls as in SQL: against DuckDB."""
    rows = table(pa.float64())
    price = [None if k % 7 == 0 else value for k, value in enumerate(rows["price"].to_pylist())]
    rows = rows.set_column(2, "price", pa.array(price))
    flags = ", ".join(f"coalesce(bool_or({text}), false) {name}" for name, text in CONDITIONS.items())
    shares = ", ".join(f"avg({name}::int) {name}" for name in CONDITIONS)
    quoted = flags.replace("(u1, u2, u3, u30)", "('u1', 'u2', 'u3', 'u30')").replace("= s1", "= 's1'")
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        sql = f"select shop, {shares} from (select shop, user, {quoted} from rows group by all) group by shop order by shop"
        exact = connection.sql(sql).to_arrow_table().to_pydict()
    for more in ({}, {"events": True, "max_per_item": 2}):
        found = headcount.aggregate(
            rows, user="user", item="shop", domain=["s0", "s1", "s2"], share=[f"{k}={v}" for k, v in CONDITIONS.items()],
            epsilon=1e9, delta=1e-3, max_items=3, calibrate="none", relation=relation, **more,
        ).table  # fmt: skip
        for name in CONDITIONS:
            assert np.asarray(found[name]) == pytest.approx(np.array(exact[name]), abs=1e-3), name
            assert (np.asarray(found[f"{name}_high"]) - np.asarray(found[f"{name}_low"])).max() < 1e-3


@pytest.mark.parametrize("ranges", [("-10:120", "0:50"), ("-100:100", "-20:20")])
def test_with_a_huge_epsilon_ratios_are_those_of_sums(ranges):
    """Against DuckDB, with values that are missing in either column, and ranges with and without a middle of 0."""
    rows = table(pa.float64())
    paid = [None if k % 7 == 0 else value for k, value in enumerate(rows["price"].to_pylist())]
    weight = [None if k % 5 == 0 else float(k % 45) for k in range(rows.num_rows)]
    rows = rows.append_column("paid", pa.array(paid)).append_column("weight/kg", pa.array(weight))
    ends = [each.split(":") for each in ranges]
    cut = [
        f'sum(greatest({low}, least({high}, "{name}"))) filter (where "{name}" is not null)'
        for name, (low, high) in zip(("paid", "weight/kg"), ends, strict=True)
    ]
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        exact = connection.sql(f"select {' / '.join(cut)} r from rows group by shop order by shop").fetchall()
    found = headcount.aggregate(
        rows, user="user", item="shop", domain=["s0", "s1", "s2"], ratio=f"each=paid:{ranges[0]}/weight/kg:{ranges[1]}",
        epsilon=1e9, delta=1e-3, max_items=3, max_per_item=50, calibrate="none",
    ).table  # fmt: skip
    assert np.asarray(found["each"]) == pytest.approx(np.array(exact)[:, 0], rel=1e-3)


def test_shares_are_of_rows_that_are_left_and_of_columns_that_are_joined(tmp_path):
    """Of users with a row above 115, those with one in a cheap shop: which shops are cheap says a public table."""
    rows, exact = table(pa.float64()), {"epsilon": 1e9, "delta": 1e-3, "max_items": 1, "calibrate": "none"}
    kinds = pa.table({"shop": ["s0", "s1", "s2"], "kind": ["cheap", "dear", "cheap"]})
    rows = rows.append_column("all", pa.array(["all"] * rows.num_rows))
    found = headcount.aggregate(
        rows, user="user", item="all", domain=["all"], share="thrifty=kind=cheap", where="price > 115", join=kinds, on="shop",
        **exact,
    ).table  # fmt: skip
    left = rows.to_pandas().query("price > 115")
    met = left.assign(met=left.shop != "s1").groupby("user").met.any().mean()
    assert 0.1 < met < 0.95 and found["thrifty"].to_pylist() == [pytest.approx(met, abs=1e-3)]


def test_a_ratio_by_what_may_be_nothing_has_no_ends(tmp_path, capsys):
    """At epsilon 1, with three users on one of the keys: in rows, the report, the terminal and the page."""
    write_fixed_key(tmp_path / "key")
    (tmp_path / "domain.txt").write_text("few\nmany\n")
    rows = pa.table(
        {
            "user": [f"u{n}" for n in range(3003)],
            "shop": ["many"] * 3000 + ["few"] * 3,
            "price": [float(n % 10) for n in range(3003)],
            "cost": [float(n % 5) for n in range(3003)],
        }
    )
    pq.write_table(rows, tmp_path / "events.parquet")
    flags = ["--input", str(tmp_path / "events.parquet"), "--user", "user", "--item", "shop"]
    flags += ["--domain", str(tmp_path / "domain.txt"), "--key-file", str(tmp_path / "key")]
    flags += ["--ratio", "margin=price:0:10/cost:0:5", "--epsilon", "1", "--delta", "1e-6"]
    assert main(["aggregate", *flags, "--release-id", "r1", "--output", str(tmp_path / "out")]) == 0
    found = {row["shop"]: row for row in pq.read_table(*(tmp_path / "out").glob("*.parquet")).to_pylist()}
    assert found["few"]["margin_low"] is None and found["few"]["margin_high"] is None
    assert (
        found["many"]["margin_low"] < 2.25 < found["many"]["margin_high"]
        and 0 < found["many"]["margin_noise_stddev"] < 0.2
    )
    assert "unknown to unknown" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "price:0:10/cost:0:5" in report["columns"]["margin"] and set(report["columns"]) == set(found["few"])
    assert "null where the second sum may be 0" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("format", ["csv", "jsonl", "avro"])
def test_shares_of_files_of_every_kind_and_what_the_report_says(format, tmp_path, capsys):
    rows = table(pa.float64())
    write_fixed_key(tmp_path / "key")
    flags = ["--user", "user", "--item", "shop", "--users", "--share", "cheap=price < 20", "--share", "first=user=u1"]
    files = ["--input", write(rows, tmp_path, format), "--key-file", str(tmp_path / "key"), "--release-id", "r1"]
    (tmp_path / "domain.txt").write_text("s0\ns1\ns2\n")
    budget = ["--epsilon", "1e9", "--delta", "1e-3", "--max-items", "3", "--domain", str(tmp_path / "domain.txt")]
    budget += ["--calibrate", "none"]
    assert main(["aggregate", *files, *flags, *budget, "--output", str(tmp_path / "out")]) == 0
    found = pq.read_table(*(tmp_path / "out").glob("*.parquet"))
    exact = rows.to_pandas().assign(cheap=lambda frame: frame.price < 20, first=lambda frame: frame.user == "u1")
    exact = exact.groupby(["shop", "user"])[["cheap", "first"]].any().groupby("shop").mean()
    for name in ("cheap", "first"):
        assert np.asarray(found[name]) == pytest.approx(np.array(exact[name]), abs=1e-3), name
    said = json.loads((tmp_path / "out" / "report.json").read_text())["columns"]
    assert said["cheap"].startswith(
        "of the users of the item, the share with a row that meets the condition price < 20"
    )
    assert set(said) == set(found.column_names)
    assert "bounded_users, cheap and first by shop: 3 items came out" in capsys.readouterr().out
    assert "the condition price &lt; 20" in (tmp_path / "out" / "report.html").read_text()


def test_what_is_no_number_is_no_value():
    """Booleans are refused, not taken for 0 and 1 without a word."""
    rows = {"user": ["a", "b"], "shop": ["x", "x"], "price": [True, False]}
    with pytest.raises(headcount.InputError, match="bool; values must be numbers"):
        headcount.aggregate(rows, user="user", item="shop", mean="price:0:1", epsilon=1, delta=1e-6)


def test_explain_reads_nothing(capsys):
    flags = ["--user", "u", "--item", "i", "--users", "--mean", "price:0:100", "--epsilon", "1", "--delta", "1e-8"]
    assert main(["aggregate", "--input", "missing.parquet", *flags, "--explain"]) == 0
    said = capsys.readouterr().out
    assert "choice of the keys and rows of a user that count" in said and "a key needs about" in said


def test_ranges_are_chosen_and_the_report_has_them(tmp_path, capsys):
    flags = ["--user", "user", "--item", "shop", "--sum", "price:auto", "--mean", "price:-auto:auto"]
    flags += ["--rho", "20", "--delta", "1e-4", "--explain"]
    assert main(["aggregate", "--input", "missing.parquet", *flags]) == 0
    said = capsys.readouterr().out
    assert "by 0.0001-approximate 20-zCDP" in said and "choice of the range of price:auto" in said
    assert "0 to U, with U out of 1, 2, 5, 10 and so on, from 1e-09 to 1e+12; less than 0 counts as 0" in said
    write_fixed_key(tmp_path / "key")
    rows = pa.concat_tables(
        [table(pa.float64()).set_column(0, "user", pa.array([f"u{k}-{n}" for n in range(900)])) for k in range(5)]
    )
    files = ["--input", write(rows, tmp_path, "parquet"), "--key-file", str(tmp_path / "key"), "--release-id", "r1"]
    assert main(["aggregate", *files, *flags[:-1], "--output", str(tmp_path / "out")]) == 0
    assert "price from 0 to 200; price from -200 to 200" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    details = report["details"]
    assert details["chosen"]["range of price:-auto:auto"] == [-200.0, 200.0]
    assert details["parameters"]["rho"] == 20 and "epsilon" not in details["parameters"]
    assert "chosen privately, which takes about" in report["assumption"]
    assert "-200, 200" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    "flags, words",
    [
        ([], "nothing to compute: give one of --users"),
        (["--mean", "price"], "such as price:0:100, got 'price'"),
        (["--mean", "price:0:auto"], "needs both ends of a range, or none of them, got 'price:0:auto'"),
        (["--mean", "price:0:9", "--rho", "1"], "give one of --epsilon and --rho"),
        (["--mean", "price:9:1"], "low end below its high end"),
        (["--quantile", "price:0:1"], "such as 0.5,0.9:price:0:100, got 'price:0:1'"),
        (["--quantile", "0.5,1:price:0:1"], "--quantile must be a number between 0 and 1, got 1.0"),
        (["--quantile", "0.5:price:0:1", "--quantile", "0.5:price:0:2"], "'p50_price' is asked for more than once"),
        (["--users", "--max-per-item", "2"], "says nothing of users"),
        (["--ratio", "r=price:0:1"], "two columns with the ranges of their values, such as ctr=clicks:0:10/views:0:50"),
        (["--ratio", "r=price:0:1/price:0:1"], "'r' is of a range and itself"),
        (["--ratio", "sum_x=price:0:1/price:0:2"], "'sum_x' has a name that other metrics have"),
        (["--share", "event=buy"], "--share 'buy': at its end: after the column 'buy' a comparison is needed"),
        (["--share", "bought"], "a name of letters, digits and underscores, and a condition, such as bought=event=buy"),
        (["--share", "mean_x=price>1"], "'mean_x' has a name that other metrics have"),
        (["--share", "a=price>1", "--share", "a=price>2"], "'a' is asked for more than once"),
        (["--share", "shop=price>1"], "'shop' has the name of another column of the result"),
        (["--share", "a=prise>1"], "no column 'prise', did you mean 'price'?"),
        (["--share", "a=price>cheap"], "column 'price' is double"),
        (["--users", "--delta", "0"], "--delta must be positive"),
        (["--mean", "user:0:1"], "is not a decimal number"),
        (["--mean", "prise:0:1"], "no column 'prise', did you mean 'price'?"),
    ],
)
def test_what_is_wrong_is_said_by_flags(flags, words, tmp_path, run):
    source = [
        "--input",
        write(table(pa.float64()), tmp_path, "parquet"),
        "--user",
        "user",
        "--item",
        "shop",
        "--output",
        str(tmp_path / "o"),
    ]
    given = ["--epsilon", "1", *([] if "--delta" in flags else ["--delta", "1e-6"]), *flags]
    refused(run("aggregate", *source, *given), words)
