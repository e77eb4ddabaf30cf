"""Tables in and out, by Google's own clients against a server on loopback that speaks the two protocols."""

import collections
import datetime
import decimal
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.main import main
from headcount.pipelines.sinks import bigquery as sink_bigquery
from headcount.pipelines.sinks import output
from headcount.pipelines.sinks.write import _WriteFile
from headcount.pipelines.sources import bigquery as source_bigquery
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources.columns import columns_of, place_of
from headcount.pipelines.storage import bigquery, stores
from tests.fixed_key import write_fixed_key
from tests.pipelines.bigquery_server import bigquery_server  # noqa: E402
from tests.pipelines.schedule import Killed, Schedule, countdown
from tests.pipelines.stores import BUCKET, gcs_server

EVENTS, OUTPUT = "bigquery://project.dataset.events", "bigquery://project.dataset.counts"
SHAPE = ["--user", "user", "--item", "item", "--epsilon", "1", "--delta", "1e-6", "--bound", "2"]
TEMPORARY = f"gs://{BUCKET}/temporary"
REPORT = '{"headcount":"new"}'  # as a description is
OLD_REPORT = '{"headcount": "old"}\n'
MOST_STEPS = 60
GENUINE = requests.Session.request


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    with gcs_server(tmp_path_factory.mktemp("account")):
        yield


@pytest.fixture
def warehouse(files):
    FileSystems.set_options(PipelineOptions([]))
    with bigquery_server() as found:
        yield found


@pytest.fixture(scope="module")
def events():
    generator = np.random.default_rng(1)
    user = [f"u{u}" for u in generator.integers(0, 900, 4_000)]
    return pa.table({"user": user, "x": [0.5] * 4_000, "item": [f"i{i}" for i in generator.geometric(0.4, 4_000)]})


@pytest.fixture
def words(tmp_path, events):
    """The flags of a job that can be repeated, and the rows and the report that it gives for files on this machine."""
    pq.write_table(events, tmp_path / "events.parquet")
    write_fixed_key(tmp_path / "key")
    flags = [*SHAPE, "--key-file", str(tmp_path / "key"), "--release-id", "r1", "--output-files", "2"]
    local = ["--input", str(tmp_path / "events.parquet"), "--output", str(tmp_path / "out")]
    assert main(["histogram", *flags, *local]) == 0
    parts = [pq.read_table(tmp_path / "out" / f"counts-0000{k}-of-00002.parquet") for k in range(2)]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [file["rows"] for file in report["files"]] == [part.num_rows for part in parts]
    return flags, pa.concat_tables(parts), {name: part for name, part in report.items() if name != "files"}


@pytest.mark.slow("services")
def test_a_job_from_table_to_table(warehouse, events, words, capsys):
    flags, rows, report = words
    warehouse.add("events", events)
    more = ["--input", EVENTS, "--output", OUTPUT, "--temp_location", TEMPORARY]
    assert main(["histogram", *flags, *more]) == 0
    assert warehouse.rows["counts"].equals(rows)
    told = json.loads(warehouse.tables["counts"]["description"])
    seals = {told.pop("content_sha256"), report.pop("content_sha256")}
    assert len(told.pop("rows_sha256")) == 64 and told == report  # a table has no files to compare
    assert len(seals) == 2
    assert stores.names(TEMPORARY) == [] and "items came out" in capsys.readouterr().out
    assert main(["histogram", *flags, *more]) == 0 and "already there, the same bytes" in capsys.readouterr().out
    warehouse.add("events", events.slice(9))
    assert main(["histogram", *flags, *more]) == 2 and "so nothing is changed" in capsys.readouterr().err
    warehouse.add("events", events)
    assert main(["histogram", *flags, *more, "--overwrite"]) == 0
    assert warehouse.rows["counts"].equals(rows) and warehouse.loads == ["counts", "counts"]


def read(columns, types, table_bytes=1 << 30):
    streams = source_bigquery.split(EVENTS, table_bytes, columns, types, PipelineOptions([]))
    return streams, [list(source_bigquery.read(EVENTS, columns, types, stream)) for stream in streams]


def test_streams_give_the_chosen_columns_and_go_on_where_they_broke(warehouse):
    table = pa.table(
        {"n": range(1_000), "who": [str(i) for i in range(1_000)], "x": [b""] * 1_000, "what": range(1_000)}
    )
    warehouse.add("events", table)
    columns = columns_of("who", "what", "n")
    inputs = sources.expand_inputs([EVENTS])
    assert inputs.bytes == table.nbytes
    types = sources.column_types(inputs, columns)
    assert types.schema == pa.schema([("who", pa.string()), ("what", pa.int64()), ("n", pa.int64())])
    warehouse.broken_streams.update(f"projects/project/locations/eu/sessions/1/streams/{k}" for k in range(3))
    streams, batches = read(columns, types)
    assert len(streams) == 3 and warehouse.broken_streams == set()
    assert [len(found) for found in batches] == [1, 1, 1]  # messages are put together
    found = pa.Table.from_batches([batch.replace_schema_metadata(None) for part in batches for batch in part])
    assert found.combine_chunks().equals(table.select(["who", "what", "n"]))
    assert batches[1][0].schema.metadata[b"headcount.file"] == f"{EVENTS}, stream 1".encode()
    assert read(columns, types, table_bytes=0)[0] == [streams[0]._replace(name=streams[0].name.replace("/1/", "/2/"))]


DAY, MOMENT = datetime.date(2026, 11, 1), datetime.datetime(2026, 11, 1, 13, 45, 7)
TYPED = pa.table(
    {
        "user": [1, 1, 2],
        "text": ["a", "b", "a"],
        "whole": [2**63 - 1, 0, 0],
        "yes": [True, False, True],
        "date": [DAY, DAY, DAY + datetime.timedelta(days=7)],
        "clock": pa.array([datetime.time(13), datetime.time(13), None], pa.time64("us")),
        "local": pa.array([MOMENT, MOMENT, None], pa.timestamp("us")),
        "seen": pa.array([MOMENT, MOMENT, MOMENT], pa.timestamp("us", "UTC")),
        "price": pa.array(list(map(decimal.Decimal, ("1.5", "1.5", "-2"))), pa.decimal128(38, 9)),
        "large": pa.array(list(map(decimal.Decimal, ("1.5", "1.5", "-2"))), pa.decimal256(76, 38)),
        "age": [17.5, 18.0, 70.0],
        "tags": [["a", "b"], [], ["a"]],
        "person": [{"id": 7, "at": {"city": "Rome"}, "x": "x"}, {"id": 7, "at": None, "x": "x"}, None],
    }
)


def counted(specs, explode=None):
    """How often each key of the table occurs, with drop_null, as texts."""
    columns = columns_of("user", specs, None, explode)
    types = source_bigquery.types(EVENTS, columns)
    row_schema = asked("user", specs, drop_null=True, explode=explode).of_schema(types.schema)
    parts = [batch for part in read(columns, types)[1] for batch in part]
    names = pa.concat_arrays([row_schema.batch(batch, place_of(batch)).column("item") for batch in parts])
    keys = zip(*(column.to_pylist() for column in row_schema.shown.decode(names)), strict=True)
    return collections.Counter(keys)


def test_keys_of_all_types_of_a_table(warehouse):
    warehouse.add("events", TYPED)
    week = DAY - datetime.timedelta(days=6)
    assert counted(["text"]) == {("a",): 2, ("b",): 1}
    assert counted(["whole", "yes"]) == {(2**63 - 1, True): 1, (0, False): 1, (0, True): 1}
    assert counted(["date", "date:week"]) == {
        (DAY, week): 2,
        (DAY + datetime.timedelta(days=7), DAY + datetime.timedelta(days=1)): 1,
    }
    assert counted(["clock", "local"]) == {(datetime.time(13), MOMENT): 2}
    assert counted(["seen", "seen:hour"]) == {
        (MOMENT.replace(tzinfo=datetime.UTC), datetime.datetime(2026, 11, 1, 13, tzinfo=datetime.UTC)): 3
    }
    assert counted(["price"]) == counted(["large"]) == {("1.5",): 2, ("-2",): 1}
    assert counted(["age:18,65"]) == {("< 18",): 1, ("[18, 65)",): 1, (">= 65",): 1}
    assert counted(["tags", "yes"], explode="tags") == {("a", True): 2, ("b", True): 1}
    assert counted(["person.id"]) == {(7,): 2} and counted(["person.at.city"]) == {("Rome",): 1}


def test_key_columns_of_all_types_in_a_table(warehouse):
    """What BigQuery has no type for becomes one that holds it; names become such as a table may have."""
    columns = {
        "user.id": pa.array([1], pa.int16()),
        "user_id": pa.array(["x"]),
        "größe": pa.array([2**64 - 1], pa.uint64()),
        "yes": pa.array([True]),
        "day": pa.array([DAY], pa.date64()),
        "hour": pa.array([MOMENT], pa.timestamp("s", "Europe/Berlin")),
        "local": pa.array([MOMENT], pa.timestamp("ms")),
        "fine": pa.array([MOMENT], pa.timestamp("ns")),
        "clock": pa.array([datetime.time(13)], pa.time32("s")),
        "count": pa.array([1.0]),
    }
    ((_, written),) = _WriteFile(found := target(files=1)).process((0, pa.RecordBatch.from_pydict(columns)))
    sink_bigquery.commit(found, [output.Written(*written)], REPORT.encode())
    (row,) = warehouse.rows["counts"].to_pylist()
    assert row == {
        "user_id_": 1,
        "user_id": "x",
        "größe": 2**64 - 1,
        "yes": True,
        "day": DAY,
        "hour": MOMENT.replace(tzinfo=datetime.UTC),
        "local": MOMENT,
        "fine": "2026-11-01T13:45:07.000000000",
        "clock": "13:00:00",
        "count": 1.0,
    }
    types = [field["type"] for field in warehouse.tables["counts"]["schema"]["fields"]]
    assert types == "INT64 STRING NUMERIC BOOL DATE TIMESTAMP DATETIME STRING STRING FLOAT64".split()


def test_a_session_is_a_snapshot_and_a_table_may_be_empty(warehouse, events):
    warehouse.add("events", events)
    columns = columns_of("user", "item")
    types = source_bigquery.types(EVENTS, columns)
    streams = source_bigquery.split(EVENTS, 0, columns, types, PipelineOptions([]))
    warehouse.add("events", events.slice(0, 0))
    assert sum(batch.num_rows for batch in source_bigquery.read(EVENTS, columns, types, streams[0])) == 4_000
    assert read(columns, types) == ([], [])


def test_tables_that_cannot_be_read(warehouse, events, monkeypatch):
    def refusal(path=EVENTS, columns=None):
        with pytest.raises((InputError, ParameterError)) as caught:
            source_bigquery.types(path, columns or columns_of("user", "item"))
        return str(caught.value)

    assert "no such table" in refusal()
    warehouse.add("events", events)
    assert "no column 'x2'; it has 'user', 'x', 'item'" in refusal(columns=columns_of("user", "x2"))
    assert "column 'x' is double; put it into bins, by their edges: x:0,18,30,65" in refusal(
        columns=columns_of("user", "x")
    )
    assert "column 'x' is double; counts must be integers" in refusal(columns=columns_of("user", "item", "x"))
    warehouse.tables["events"]["schema"]["fields"][0]["mode"] = "REPEATED"
    assert "column 'user' is list<item: string>, which tells no users apart" in refusal()
    warehouse.add("events", events, type="VIEW")
    assert "is a VIEW; write the rows of a view or query to a table first" in refusal()
    for wrong in ("bigquery://dataset.events", "bigquery://p.d.t*", "bigquery://p.d.t$20200101", "bigquery://"):
        assert f"bigquery://project.dataset.table, got '{wrong}'" in refusal(wrong)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "needs the extra headcount[gcp]" in refusal()


def target(*flags, run=None, **changes):
    words = {"files": 2, "format": "parquet", "overwrite": False, "prefix": "counts"} | changes
    options = PipelineOptions(["--temp_location", TEMPORARY, *flags])
    return sink_bigquery.make_target(OUTPUT, "r1", **words, options=options)


def write(target, texts=("zero", "one")):
    written = []
    for k, text in enumerate(texts):
        rows = pa.RecordBatch.from_pydict({"item": [text], "count": [1.0]})
        written += [output.write_file(target, k, rows)]
    return written


def start(warehouse, overwrite):
    """No table, or one of an old output with a column more."""
    warehouse.tables.clear()
    if overwrite:
        rows = pa.table({"item": ["old"], "count": [1.0], "noise_stddev": [1.0]})
        warehouse.add("counts", rows, description=OLD_REPORT, labels={"headcount-run": "old", "team": "a"})
    found = target(overwrite=overwrite)
    return found, write(found)


def check(warehouse):
    """What a reader may see at any moment: no report, or the one of the rows that are there."""
    description = warehouse.tables.get("counts", {}).get("description")
    if description is not None:
        rows = {REPORT: ["zero", "one"], OLD_REPORT: ["old"]}[description]
        assert warehouse.rows["counts"]["item"].to_pylist() == rows


def assert_whole(warehouse):
    assert warehouse.tables["counts"]["description"] == REPORT
    check(warehouse)
    assert stores.names(TEMPORARY) == []


def patched_requests(monkeypatch, before, after=lambda: None):
    """Calls these around every request to BigQuery."""

    def request(self, method, url, *arguments, **keywords):
        if "/bigquery/" not in url:
            return GENUINE(self, method, url, *arguments, **keywords)
        before()
        response = GENUINE(self, method, url, *arguments, **keywords)
        after()
        return response

    monkeypatch.setattr(requests.Session, "request", request)


@pytest.mark.slow("kills")
@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_a_commit_that_is_cut_anywhere_can_run_again(warehouse, monkeypatch, overwrite, lost):
    """The rows are loaded once, and whoever sees a report sees the rows that it is of."""
    for steps in range(MOST_STEPS):
        found, written = start(warehouse, overwrite)
        warehouse.loads.clear()
        with monkeypatch.context() as patch:
            cut = countdown(steps)
            around = (cut, lambda: None) if lost == "request" else (lambda: None, cut)
            patched_requests(patch, *around)
            try:
                sink_bigquery.commit(found, written, REPORT.encode())
                whole = True
            except Killed:
                whole = False
        check(warehouse)
        sink_bigquery.commit(found, written, REPORT.encode())
        assert_whole(warehouse)
        assert warehouse.loads == ["counts"]
        if whole:
            assert steps >= 6
            return
    raise AssertionError("the commit never ended")


@pytest.mark.slow("races")
@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwrite"])
def test_attempts_at_once_load_once(warehouse, monkeypatch, overwrite):
    for seed in range(6):
        found, written = start(warehouse, overwrite)
        warehouse.loads.clear()
        other = written if seed % 2 else write(found)
        schedule = Schedule(
            seed,
            lambda found=found, written=written: sink_bigquery.commit(found, written, REPORT.encode()),
            lambda found=found, other=other: sink_bigquery.commit(found, other, REPORT.encode()),
        )
        with monkeypatch.context() as patch:
            patched_requests(patch, schedule.step, lambda: check(warehouse))
            schedule.run()
        assert schedule.errors == [None, None]
        assert_whole(warehouse)
        assert warehouse.loads == ["counts"]


def test_a_load_job_that_fails_in_passing_is_tried_again(warehouse):
    found, written = start(warehouse, overwrite=False)
    warehouse.failing_loads = 2
    sink_bigquery.commit(found, written, REPORT.encode())
    assert_whole(warehouse)
    found, written = start(warehouse, overwrite=False)
    warehouse.failing_loads = 9
    with pytest.raises(RuntimeError, match="load job headcount-.*-4 failed"):
        sink_bigquery.commit(found, written, REPORT.encode())
    sink_bigquery.abandon(found)
    assert warehouse.tables == {} and stores.names(TEMPORARY) == []


def test_a_failed_run_leaves_an_old_output_and_other_tables_alone(warehouse):
    found, _ = start(warehouse, overwrite=True)
    sink_bigquery.abandon(found)
    assert warehouse.tables["counts"]["description"] == OLD_REPORT
    sink_bigquery.prepare(found)
    with pytest.raises(ParameterError, match="--overwrite"):
        sink_bigquery.prepare(target())
    for resource in ({"labels": {}}, {"labels": {"headcount-run": "1"}, "description": "mine now"}):
        warehouse.add("counts", pa.table({"a": [1]}), **resource)
        with pytest.raises(ParameterError, match="another table, which is never touched"):
            sink_bigquery.prepare(found)
        with pytest.raises(ParameterError, match="another table, which is never touched"):
            sink_bigquery.commit(found, write(found), REPORT.encode())
        assert warehouse.rows["counts"].num_rows == 1
    output.discard(found)


def test_what_a_table_needs():
    with pytest.raises(ParameterError, match="--format csv is of no use"):
        target(format="csv")
    with pytest.raises(ParameterError, match="give --temp_location gs://bucket/folder, got None"):
        sink_bigquery.make_target(OUTPUT, "r1", 1, "parquet", False, "counts", PipelineOptions([]))
    assert target("--project", "payer").project == "payer" and target().project == "project"
    assert bigquery.parse("bigquery://example.com:a-b.d_1.t-2 x") == ("example.com:a-b", "d_1", "t-2 x")


def test_a_report_fits_into_a_description(words):
    """BigQuery takes 16,384 characters."""
    report = {**words[2], "shown": [row | {"item": "x" * 60} for row in words[2]["shown"]]}
    assert len(sink_bigquery.description(json.dumps(report, indent=2).encode())) < 8_000 and report["headcount"]
