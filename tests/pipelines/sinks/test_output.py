"""The output: bytes, names, refusals, and a commit that may be cut anywhere and run again."""

import csv
import dataclasses
import datetime
import io
import json

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape import distinct
from headcount.pipelines.flags.groups import FORMATS
from headcount.pipelines.sinks import formats, output
from headcount.pipelines.storage import stores

ROWS = [
    {"item": 'a "b", c', "count": 5.0, "noise_stddev": 14.1},
    {"item": "zwölf\n", "count": 0.5, "noise_stddev": 14.1},
]
DAY, MOMENT = datetime.date(2026, 11, 1), datetime.datetime(2026, 11, 1, 13, 45, 7)
SCHEMA = pa.schema([("item", pa.string()), ("count", pa.float64()), ("noise_stddev", pa.float64())])
REPORT = b'{"headcount": "0"}\n'
NAMES = ["counts-00000-of-00002.csv", "counts-00001-of-00002.csv", "report.json"]


def batch(rows=ROWS, schema=SCHEMA):
    return pa.RecordBatch.from_pylist(rows, schema=schema.with_metadata({"x": "y"}))


def decode(content, format):
    if format == "parquet":
        return pq.read_table(io.BytesIO(content)).to_pylist()
    if format == "avro":
        return list(fastavro.reader(io.BytesIO(content)))
    if format == "csv":
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return pyarrow.csv.read_csv(io.BytesIO(content), parse_options=options).to_pylist()
    return [json.loads(line) for line in content.decode().splitlines()]


@pytest.fixture
def target(tmp_path):
    return output.Target(str(tmp_path / "out"), "r1", files=2, format="csv", overwrite=False)


def write(target, texts=("zero", "one")):
    """The temporary files of one attempt, as the pipeline writes them."""
    written = []
    for k, text in enumerate(texts):
        written += [output.write_file(target, k, rows_of(text))]
    return written


def rows_of(text):
    return batch([{"item": text, "count": 1.0, "noise_stddev": 1.0}])


def files(directory):
    return {path.name: path.read_text() for path in directory.iterdir()} if directory.is_dir() else {}


@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_back_from_every_format(format):
    assert decode(formats.encode(batch(), format), format) == ROWS
    numbers = pa.schema([("item", pa.int64()), ("count", pa.float64()), ("noise_stddev", pa.float64())])
    rows = [{"item": -(2**63), "count": -3.0, "noise_stddev": 2.0}]
    assert decode(formats.encode(batch(rows, numbers), format), format) == rows


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_that_are_all_missing_are_written(format):
    """As the shares of a funnel whose first step has no users."""
    rows = pa.record_batch({"step": pa.array([1.0, 2.0]), "share": pa.array([None, None], pa.float64())})
    assert formats.encode(rows, format)


ODD = {
    "user.id": pa.array([1, 2], pa.int16()),
    'a, "b"': pa.array([True, False]),
    "large": pa.array([0, 2**64 - 1], pa.uint64()),
    "date": pa.array([DAY, None], pa.date32()).fill_null(DAY),
    "date_ms": pa.array([DAY, DAY], pa.date64()),
    **{f"t_{unit}": pa.array([MOMENT, MOMENT], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
    "hour": pa.array([MOMENT, MOMENT], pa.timestamp("s", "Europe/Berlin")),
    "clock": pa.array([datetime.time(13, 45)] * 2, pa.time64("us")),
    "clock_s": pa.array([datetime.time(13, 45)] * 2, pa.time32("s")),
    "7": pa.array(["x", "y"]),
    "_7": pa.array(["x", "y"]),
}


def test_key_columns_of_every_type_in_parquet_are_as_they_were():
    rows = pa.RecordBatch.from_pydict(ODD)
    found = pq.read_table(io.BytesIO(formats.encode(rows, "parquet")))
    assert found.column_names == list(ODD)
    for name, column in ODD.items():
        written = {"t_s": pa.timestamp("ms"), "hour": pa.timestamp("ms", "Europe/Berlin"), "date_ms": pa.date32()}
        written["clock_s"] = pa.time32("ms")
        assert found.column(name).combine_chunks().equals(column.cast(written.get(name, column.type))), name


def test_key_columns_of_every_type_in_avro():
    content = formats.encode(pa.RecordBatch.from_pydict(ODD), "avro")
    names = ["user_id", "a___b_", "large", *list(ODD)[3:-2], "_7_", "_7"]
    reader = fastavro.reader(io.BytesIO(content))
    first, second = reader
    assert list(first) == names and [field.get("doc") for field in reader.writer_schema["fields"]][:2] == list(ODD)[:2]
    assert (first["user_id"], first["a___b_"], second["large"], first["date"]) == (1, True, 2**64 - 1, DAY)
    assert first["date_ms"] == DAY and first["clock"] == first["clock_s"] == datetime.time(13, 45)
    assert first["t_s"] == first["t_ms"] == first["t_us"] == MOMENT and first["_7_"] == "x"
    assert first["hour"] == MOMENT.replace(tzinfo=datetime.UTC)
    assert (
        first["t_ns"] == int(MOMENT.replace(tzinfo=datetime.UTC).timestamp()) * 10**9
    )  # which fastavro takes for a number


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_key_columns_of_every_type_in_text(format):
    content = formats.encode(pa.RecordBatch.from_pydict(ODD), format).decode()
    rows = (
        list(csv.DictReader(io.StringIO(content))) if format == "csv" else list(map(json.loads, content.splitlines()))
    )
    assert list(rows[0]) == list(ODD)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in rows[0].items()}
    assert texts == {
        "user.id": "1",
        'a, "b"': "true",
        "large": "0",
        "date": "2026-11-01",
        "date_ms": "2026-11-01",
        "t_s": "2026-11-01T13:45:07",
        "t_ms": "2026-11-01T13:45:07.000",
        "t_us": "2026-11-01T13:45:07.000000",
        "t_ns": "2026-11-01T13:45:07.000000000",
        "hour": "2026-11-01T14:45:07+01:00",
        "clock": "13:45:00.000000",
        "clock_s": "13:45:00",
        "7": "x",
        "_7": "x",
    }
    assert str(rows[1]["large"]) == str(2**64 - 1)


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_rows_give_the_same_bytes(format):
    halves = pa.Table.from_batches([batch(ROWS[:1]), batch(ROWS[1:])]).combine_chunks().to_batches()[0]
    assert formats.encode(batch(), format) == formats.encode(halves, format) == formats.encode(batch(), format)


def test_no_rows_still_have_a_schema():
    empty = batch([])
    assert pq.read_schema(io.BytesIO(formats.encode(empty, "parquet"))) == SCHEMA
    schema = fastavro.reader(io.BytesIO(formats.encode(empty, "avro"))).writer_schema
    assert [field["name"] for field in schema["fields"]] == SCHEMA.names
    assert formats.encode(empty, "csv") == b"item,count,noise_stddev\n"
    assert formats.encode(empty, "jsonl") == b""


def test_whole_counts_are_written_as_integers():
    rows = [
        {"item": item, "count": count, "noise_stddev": 1.5} for item, count in (("a", 5.0), ("b", 123456789012345.0))
    ]
    assert formats.encode(batch(rows), "csv") == b'item,count,noise_stddev\n"a",5,1.5\n"b",123456789012345,1.5\n'
    assert b'"count": 5,' in formats.encode(batch(rows), "jsonl")


def test_no_cell_of_csv_is_run_by_a_spreadsheet():
    """Names may be anybody's. All texts of up to two letters, of those that begin a formula and some that do not: no cell
    begins one, no two become alike, and all come back; numbers below 0 are numbers."""
    begin = "=+-@\t\r\n＝＋－＠"
    letters = ["", *begin, "'", "a", "1", '"', ",", " "]
    names = sorted({one + two for one in letters for two in letters})
    rows = [{"item": name, "count": -5.0, "noise_stddev": -0.5} for name in names]
    content = formats.encode(batch(rows), "csv")
    cells = [cells for cells in csv.reader(io.StringIO(content.decode(), newline=""))][1:]
    assert len(cells) == len({cell[0] for cell in cells}) == len(names)
    assert not any(cell[0].startswith(tuple(begin)) for cell in cells)
    assert {cell[0] for cell in cells} >= {"", "a", "a=", "'=a", "'@", "''", "''a", " ="}, "others are as they were"
    assert {tuple(cell[1:]) for cell in cells} == {("-5", "-0.5")}
    assert [row["item"] for row in formats.decode(content, "csv")] == names


def test_commit_moves_files_and_leaves_nothing_else(target, tmp_path):
    write(target)  # an attempt that failed later
    output.commit(target, write(target), REPORT)
    assert sorted(files(tmp_path / "out")) == NAMES
    assert files(tmp_path / "out")["report.json"].encode() == REPORT
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_that_is_cut_anywhere_can_run_again(target, tmp_path, monkeypatch, overwrite):
    """Fails at its n-th file operation, for every n, then runs again: the output is always whole.

    Until the end there is no report.json but that of the old output while all of it is there.
    """
    target = dataclasses.replace(target, overwrite=overwrite)
    old = output.Target(target.directory, "r0", files=3, format="csv", overwrite=False)
    operations = ("write", "move", "remove", "make_directory")
    genuine = {name: getattr(stores, name) for name in operations}
    for cut in range(1, 30):
        if overwrite:
            output.commit(old, write(old, ("a", "b", "c")), b'{"headcount": "old"}')
        written = write(target)
        left = [cut]

        def cutting(name, left=left):
            def operation(*arguments):
                left[0] -= 1
                if left[0] == 0:
                    raise InterruptedError
                return genuine[name](*arguments)

            return operation

        for name in operations:
            monkeypatch.setattr(stores, name, cutting(name))
        try:
            output.commit(target, written, REPORT)
            whole = True
        except InterruptedError:
            whole = False
        monkeypatch.undo()
        found = files(tmp_path / "out")
        if found.get("report.json") == '{"headcount": "old"}':
            assert len(found) == 4
        elif "report.json" in found:
            assert len(found) == 3
        output.commit(target, written, REPORT)
        found = files(tmp_path / "out")
        assert sorted(found) == NAMES
        assert "zero" in found["counts-00000-of-00002.csv"] and "one" in found["counts-00001-of-00002.csv"]
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        if whole:
            assert cut > 5
            return
        for name in found:
            (tmp_path / "out" / name).unlink()
    raise AssertionError("the commit never ended")


def test_a_commit_never_signs_the_files_of_another_job(target, tmp_path):
    """If its temporary files are gone and other files lie in their place, it must not add its report."""
    written = write(target)
    output.discard(target)
    other = dataclasses.replace(target, release_id="r2")
    output.commit(other, write(other, ("two", "three")), b'{"headcount": "other"}')
    with pytest.raises(ParameterError, match="another job"):
        output.commit(target, written, REPORT)
    assert files(tmp_path / "out")["report.json"] == '{"headcount": "other"}'


def test_a_commit_without_overwrite_refuses_an_output_that_came_meanwhile(target, tmp_path):
    written = write(target)
    other = dataclasses.replace(target, release_id="r2")
    output.commit(other, write(other), b'{"headcount": "other"}')
    with pytest.raises(ParameterError, match="meanwhile"):
        output.commit(target, written, REPORT)
    assert files(tmp_path / "out")["report.json"] == '{"headcount": "other"}'


def test_a_commit_needs_every_file(target):
    with pytest.raises(RuntimeError, match="expected the 2 files"):
        output.commit(target, write(target)[:1], REPORT)


def test_prepare_leaves_nothing(target, tmp_path):
    output.prepare(target)
    assert list(tmp_path.iterdir()) == []


def test_prepare_refuses_an_output_unless_it_may_replace_it(target, tmp_path):
    output.commit(target, write(target), REPORT)
    before = files(tmp_path / "out")
    with pytest.raises(ParameterError, match="--overwrite"):
        output.prepare(target)
    output.prepare(dataclasses.replace(target, overwrite=True))
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("name", "content"),
    [("thesis.txt", "x"), ("report.json", "{}"), ("report.json", "no json"), ("part-00000-of-00001.csv", "")],
)
def test_prepare_never_touches_what_is_not_ours(target, tmp_path, overwrite, name, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text(content)
    (tmp_path / "out" / "counts-00000-of-00001.csv").write_text("x")
    with pytest.raises(ParameterError, match="other files"):
        output.prepare(dataclasses.replace(target, overwrite=overwrite))
    assert len(files(tmp_path / "out")) == 2


def test_prepare_removes_what_killed_runs_left(target, tmp_path):
    """Of a commit that was killed half-way, and of a run that was killed before."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "counts-00000-of-00001.csv").write_text("x")
    write(dataclasses.replace(target, release_id="dead"))
    mine = tmp_path / "out.tmp-mine"
    mine.mkdir()
    (mine / "counts-00000-of-00001.csv").write_text("not ours: without the number of an attempt")
    output.prepare(target)
    assert [path.name for path in tmp_path.iterdir()] == ["out.tmp-mine"]
    assert len(files(mine)) == 1


def test_abandon_removes_a_half_made_output_but_not_an_old_one(target, tmp_path):
    written = write(target)
    (tmp_path / "out").mkdir()
    stores.move(stores.join(target.temporary, written[0].name), str(tmp_path / "out" / NAMES[0]))
    output.abandon(target)
    assert list(tmp_path.iterdir()) == []
    output.commit(target, write(target), REPORT)
    write(target)
    output.abandon(target)
    assert len(files(tmp_path / "out")) == 3 and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_output_that_cannot_be_written_is_refused(target, tmp_path):
    (tmp_path / "file").write_text("x")
    for directory in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ParameterError, match="--output"):
            output.prepare(dataclasses.replace(target, directory=str(directory)))
    with pytest.raises(ParameterError, match="of its own"):
        output.prepare(dataclasses.replace(target, directory="/"))


def test_names_of_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert stores.normal("out/") == str(tmp_path / "out")
    with pytest.raises(ParameterError, match="no filesystem is known for nosuch://"):
        stores.normal("nosuch://bucket/out")


@pytest.mark.parametrize("format", FORMATS)
def test_rows_are_read_again_by_their_names_and_with_texts_for_times(format):
    """Names that Avro has not, seconds that Parquet has not, and whole numbers that are decimals in Avro."""
    zone = datetime.UTC
    columns = {
        "a.b": pa.array(["x", 'y "z"']),
        "day": pa.array([DAY, DAY]),
        "hour": pa.array([MOMENT.replace(tzinfo=zone)] * 2, pa.timestamp("s", "UTC")),
        "big": pa.array([2**64 - 1, 0], pa.uint64()),
        "count": pa.array([1.5, 2.0]),
    }
    times = {"day": "2026-11-01", "hour": "2026-11-01T13:45:07Z"}
    rows = [
        {"a.b": "x", **times, "big": 2**64 - 1, "count": 1.5},
        {"a.b": 'y "z"', **times, "big": 0, "count": 2.0},
    ]
    if format == "csv":
        rows = [{**row, "big": str(row["big"]), "count": text} for row, text in zip(rows, ("1.5", "2"), strict=True)]
    content = formats.encode(pa.RecordBatch.from_pydict(columns), format)
    assert [dict(row) for row in formats.decode(content, format)] == rows
    fine = pa.RecordBatch.from_pydict({"t": pa.array([1, 1000], pa.timestamp("ms"))})
    first = next(iter(formats.decode(formats.encode(fine, format), format)))["t"]
    assert first.startswith("1970-01-01T00:00:00.001")


@pytest.mark.parametrize("format", ["parquet", "avro", "jsonl"])
def test_an_end_that_nothing_is_known_of_is_null(format):
    row = {"count": 7, "noise_stddev": 1.5, "low": 2, "high": None, "max_items": 3}
    batch = pa.RecordBatch.from_pylist([row], distinct.SCHEMA)
    assert list(formats.decode(formats.encode(batch, format), format)) == [row]
