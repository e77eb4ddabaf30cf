"""`headcount quantiles` from end to end: every format, times, values that are missing, and a search."""

from __future__ import annotations

import datetime
import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy, quantile_search
from tests.pipelines.commands.sampled_events import (
    BUDGET,
    PROMISE,
    contributions,
    job,
    make_place,
    release,
    report_of,
    rows,
    sample,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("quantiles"))


def test_quantiles_and_ranges_of_one_sample(run, place, tmp_path):
    """Two jobs with the same key and id read what they are asked for off the same sample."""
    words = ["quantiles", "--user", "who", "--value", "value", *PROMISE, "--lo", "-5", "--hi", "15", "--levels", "6"]
    made = quantile_hierarchy(BUDGET, -5, 15, levels=6)
    tree = made.tree(made.run([contributions(place, "value", made.leaves)], release(place), sample("value")))
    out = tmp_path / "out"
    assert run(*words, "--quantile", "0.5", "--quantile", "0.9", *job(place, out))[0] == 0
    assert rows(out, "quantiles") == [tree.quantiles([check_share("q", 0.5), check_share("q", 0.9)]).to_pylist()]
    parameters = report_of(out)["details"]["parameters"]
    stated = {"lo": "-5", "hi": "15", "quantile": [0.5, 0.9], "values": "number", "levels": 6}
    assert parameters | stated == parameters
    assert "item_type" not in parameters
    ranges = tmp_path / "ranges"
    words[words.index("-5")] = "-5e0"  # the same number
    assert run(*words, "--range=-5:3.25", "--range", "3.25:15", *job(place, ranges))[0] == 0
    assert rows(ranges, "ranges") == [tree.range_counts([(-5, 3.25), (3.25, 15)]).to_pylist()]


@pytest.mark.slow("cuts")
def test_a_search_for_one_quantile_is_that_of_the_pure_function(run, place, tmp_path):
    """And it is near the median: the rank has a stddev of 0.02 in a round of 3,000 users, and a part has 0.02 of them. So 0.15
    off, or no row, is seven standard deviations in one of seven rounds: below 1e-10."""
    words = [
        "quantiles",
        "--user",
        "who",
        "--value",
        "value",
        *PROMISE,
        "--lo",
        "-5",
        "--hi",
        "15",
        "--relation",
        "replace",
    ]
    words += ["--method", "search", "--rounds", "7", "--quantile", "0.5"]
    made = quantile_search(BUDGET, 0.5, -5, 15, rounds=7, relation=Relation.REPLACE)
    wanted = made.run([contributions(place, "value", made.leaves)], release(place), "Quantiles").to_pylist()
    for shards, out in (("3", tmp_path / "out"), ("11", tmp_path / "again")):
        assert run(*words, *job(place, out), "--shards", shards, "--output-files", "2")[0] == 0
        assert rows(out, "quantiles", 2) == [wanted, []]
        parameters = report_of(out)["details"]["parameters"]
        stated = {"method": "search", "rounds": 7, "quantile": [0.5], "lo": "-5", "hi": "15"}
        assert parameters | stated == parameters
        assert parameters["threshold"] == made.plan.threshold and not {"levels", "branching"} & parameters.keys()
        assert report_of(out)["details"]["guarantee"]["epsilon"] == 2
    values = np.asarray(pq.read_table(place / "events.parquet")["value"])
    assert abs((values < wanted[0]["value"]).mean() - 0.5) < 0.15


def test_search_and_tree_draw_other_bits():
    """The same plan, grid, key, id and label: one sample for both would be a second release of it."""
    tree, search = quantile_hierarchy(BUDGET, -5, 15, levels=6), quantile_search(BUDGET, 0.5, -5, 15, rounds=6)
    assert tree.plan == search.plan and tree.leaves == search.leaves
    assert tree.subkey(bytes(32), "r1", "Quantiles/Sampled") != search.subkey(bytes(32), "r1", "Quantiles/Sampled")


def test_times_come_out_as_text(run, place, tmp_path):
    out = tmp_path / "out"
    flags = [*PROMISE, "--lo", "2024-01-01", "--hi", "2024-02-01", "--levels", "5", "--quantile", "0.5"]
    assert run("quantiles", "--user", "who", "--value", "time", *flags, *job(place, out), "--format", "jsonl")[0] == 0
    (row,) = map(json.loads, (out / "quantiles-00000-of-00001.jsonl").read_text().splitlines())
    assert row["value"] in {"2024-01-15", "2024-01-16"}  # 240 hours and five days after the start, nearly


def _as_csv(table, path):
    pa.csv.write_csv(table, path)


def _as_jsonl(table, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def _as_avro(table, path):
    fields = [{"name": "who", "type": "string"}, {"name": "value", "type": ["null", "double"]}]
    with open(path, "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "Row", "fields": fields}, table.to_pylist())


@pytest.mark.slow("cuts")
@pytest.mark.parametrize(("name", "write"), [("e.csv", _as_csv), ("e.jsonl", _as_jsonl), ("e.avro", _as_avro)])
def test_every_format_gives_the_same_quantiles(run, place, tmp_path, name, write):
    write(pq.read_table(place / "events.parquet", columns=["who", "value"]), place / name)
    words = ["quantiles", "--user", "who", "--value", "value", *PROMISE, "--lo", "-5", "--hi", "15", "--levels", "6"]
    assert run(*words, "--quantile", "0.5", *job(place, tmp_path / "out", name))[0] == 0
    made = quantile_hierarchy(BUDGET, -5, 15, levels=6)
    tree = made.tree(made.run([contributions(place, "value", made.leaves)], release(place), sample("value")))
    assert rows(tmp_path / "out", "quantiles") == [tree.quantiles([check_share("q", 0.5)]).to_pylist()]


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_values_that_are_missing_or_wrong(run, place, tmp_path, form):
    """Nulls are refused with their row, or dropped; what is no number is refused and not told."""
    table = pa.table({"who": [f"u{k}" for k in range(400)] + ["x"], "value": [0.25] * 400 + [None]})
    words = ["quantiles", "--user", "who", "--value", "value", *PROMISE, "--lo", "0", "--hi", "1", "--quantile", "0.5"]
    words += ["--levels", "2"]
    write = {"parquet": pq.write_table, "csv": _as_csv, "jsonl": _as_jsonl}[form]
    write(table, tmp_path / f"events.{form}")
    flags = ["--input", tmp_path / f"events.{form}", "--output", tmp_path / "out"]
    status, _, err = run(*words, *flags)
    assert status == 2 and "column 'value', row 401: is null" in err[-1]
    assert run(*words, *flags, "--drop-null")[0] == 0
    assert len(rows(tmp_path / "out", "quantiles")[0]) == 1
    wrong = pa.table({"who": ["u", "v"], "value": ["0.5", "secret"]})
    write(wrong, tmp_path / f"events.{form}")
    status, _, err = run(*words, *flags, "--overwrite")
    assert status == 2 and "column 'value'" in err[-1] and "secret" not in "".join(err)


def test_ranges_of_times_have_colons_of_their_own():
    from headcount.pipelines.commands.quantiles import value_range

    assert value_range("-5:3.5") == (-5, 3.5)
    day = datetime.date(2024, 1, 1)
    assert value_range("2024-01-01:2024-01-02") == (day, datetime.date(2024, 1, 2))
    noon = datetime.datetime(2024, 1, 1, 12, 30)
    assert value_range("2024-01-01T12:30:2024-01-01T12:30:15") == (noon, noon.replace(second=15))
