"""S3 and Google Cloud Storage, through Beam's filesystems and real servers on loopback: in, out and what goes wrong."""

import gzip
import io
import json
import logging
import socket

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, S3Options
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format

import headcount
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.jobs.local import local_runner
from headcount.pipelines.main import main
from headcount.pipelines.sinks import formats, output
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources import matching, parquet
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.storage import stores
from tests.fixed_key import write_fixed_key
from tests.pipelines.refusals import refused
from tests.pipelines.stores import BUCKET, gcs_server, s3_server

SHAPE = ["--user", "user", "--item", "item", "--epsilon", "1", "--delta", "1e-6", "--bound", "2"]
REPORT = b'{"headcount": "0"}\n'


@pytest.fixture(scope="module", params=["s3", "gs"])
def store(request, tmp_path_factory):
    """(URL of the bucket, flags of Beam) of each store."""
    if request.param == "s3":
        with s3_server() as url:
            yield f"s3://{BUCKET}", ["--s3_endpoint_url", url]
    else:
        with gcs_server(tmp_path_factory.mktemp("account")):
            yield f"gs://{BUCKET}", []


@pytest.fixture
def bucket(store, request):
    """A place of this test alone in the store, which Beam's filesystems know how to reach."""
    FileSystems.set_options(PipelineOptions(store[1]))
    return f"{store[0]}/{request.node.originalname}"


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("key") / "key")
    write_fixed_key(path)
    return path


def events(part):
    """3,000 rows of 900 users on a few items."""
    generator = np.random.default_rng(part)
    user = [f"u{u}" for u in generator.integers(0, 900, 3_000)]
    return {"user": user, "item": [f"i{i}" for i in generator.geometric(0.4, 3_000)]}


def encoded(columns, format):
    table = pa.table(columns)
    file = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, file)
        return file.getvalue()
    if format == "avro":
        fields = [{"name": name, "type": "string"} for name in columns]
        fastavro.writer(file, {"type": "record", "name": "Event", "fields": fields}, table.to_pylist())
        return file.getvalue()
    if format == "csv":
        return formats.encode(table.to_batches()[0], "csv")
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def contents(directory):
    return {name: stores.read(stores.join(directory, name)) for name in stores.names(directory)}


def job(store, *words):
    assert main(["histogram", *SHAPE, *words, *store[1]]) == 0


@pytest.mark.slow("services")
def test_a_job_gives_the_same_bytes_as_on_this_machine(store, bucket, key, tmp_path):
    """From each kind of file in turn, to another format each."""
    names = ["parquet", "csv.gz"] if bucket.startswith("s3") else ["parquet", "jsonl", "avro"]
    for name, format in zip(names, ("jsonl", "parquet", "csv"), strict=False):
        for part in range(2):
            content = encoded(events(part), name.split(".")[0])
            content = gzip.compress(content) if name.endswith(".gz") else content
            (tmp_path / f"events-{part}.{name}").write_bytes(content)
            stores.write(f"{bucket}/{name}/events-{part}.{name}", content)
        release = ["--key-file", key, "--release-id", "r1", "--format", format, "--output-files", "2"]
        here, there = str(tmp_path / "out" / name), f"{bucket}/{name}/out"
        job(store, "--input", f"{tmp_path}/events-*.{name}", "--output", here, *release)
        job(store, "--input", f"{bucket}/{name}/events-*.{name}", "--output", there, *release)
        assert len(contents(there)) == 4
        assert contents(there) == contents(here)
        assert stores.siblings(there, ".tmp-") == []


@pytest.mark.slow("services")
def test_an_output_is_shown_and_verified(store, bucket, run):
    """Flags of Beam lead there, as they led the job."""
    out = f"{bucket}/out"
    made = headcount.histogram(events(0), user="user", item="item", epsilon=1, delta=1e-6)
    made.save(out, output_files=2)
    assert run("verify", f"{out}/", *store[1])[1].startswith("complete and unchanged: 2 files, ")
    status, text, _ = run("show", out, "--rows", "1", *store[1])
    assert status == 0 and f"in {out}\n" in text and made.report["promise"] in text
    page = stores.read(f"{out}/report.html")
    stores.remove(f"{out}/report.html")
    assert run("show", out, "--html", *store[1])[:2] == (0, f"to look at: {out}/report.html\n")
    assert stores.read(f"{out}/report.html") == page and stores.siblings(out, ".tmp-") == []
    stores.write(f"{out}/counts-00001-of-00002.parquet", b"another")
    refused(run("verify", out, *store[1]), "changed: ", f"{out}/counts-00001-of-00002.parquet")
    refused(run("show", f"{bucket}/none", *store[1]), "no complete output")
    refused(run("verify", store[0], *store[1]), "OUT must name a directory")
    refused(run("verify", f"{store[0]}-missing/out", *store[1]), f"{store[0]}-missing/out")


def target(bucket, **changes):
    return output.Target(**{"directory": f"{bucket}/out", "release_id": "r1", "files": 2, "format": "jsonl"} | changes)


def write(target, texts):
    written = []
    for k, text in enumerate(texts):
        rows = pa.RecordBatch.from_pydict({"item": pa.array([text] if text else [], pa.string())})
        written += [output.write_file(target, k, rows)]
    return written


@pytest.mark.slow("services")
def test_refusals_leftovers_and_replacing(bucket):
    """Also an output of no bytes, which S3 does not take as an upload."""
    new = target(bucket, overwrite=False)
    write(target(bucket, overwrite=False, release_id="dead"), ("x", "y"))
    stores.write(f"{new.directory}/counts-00000-of-00001.jsonl", b"of a commit that was killed")
    stores.write(f"{bucket}/outer.csv", b"of somebody else")
    output.prepare(new)
    assert stores.names(bucket) == ["outer.csv"]
    output.commit(new, write(new, ("zero", "")), REPORT)
    names = ["counts-00000-of-00002.jsonl", "counts-00001-of-00002.jsonl", "report.json"]
    assert contents(new.directory) == dict(zip(names, (b'{"item": "zero"}\n', b"", REPORT), strict=True))
    with pytest.raises(ParameterError, match="--overwrite"):
        output.prepare(new)
    again = target(bucket, overwrite=True, release_id="r2", files=1)
    output.prepare(again)
    output.commit(again, write(again, ("two",)), REPORT)
    assert contents(again.directory) == {"counts-00000-of-00001.jsonl": b'{"item": "two"}\n', "report.json": REPORT}
    assert stores.names(bucket) == ["out/counts-00000-of-00001.jsonl", "out/report.json", "outer.csv"]


@pytest.mark.slow("kills")
def test_a_commit_that_was_cut_is_completed_or_removed(bucket, monkeypatch):
    """After the first of two files; tests/pipelines/test_commit.py cuts it everywhere."""
    new = target(bucket, overwrite=False)
    written = write(new, ("zero", "one"))
    genuine, left = stores.move, [1]

    def move(source, place):
        left[0] -= 1
        if left[0] < 0:
            raise InterruptedError
        genuine(source, place)

    with monkeypatch.context() as patch:
        patch.setattr(stores, "move", move)
        with pytest.raises(InterruptedError):
            output.commit(new, written, REPORT)
    assert stores.names(new.directory) == ["counts-00000-of-00002.jsonl"]
    output.commit(new, written, REPORT)
    output.commit(new, written, REPORT)
    assert len(contents(new.directory)) == 3
    output.abandon(new)
    assert len(contents(new.directory)) == 3
    stores.remove(f"{new.directory}/report.json")
    output.abandon(new)
    assert stores.names(bucket) == []


def test_of_a_wide_file_little_more_than_the_chosen_columns_is_fetched(bucket, monkeypatch):
    """2 of 20 columns, which lie 20 apart: a tenth of 6.5 MB, and the footer twice."""
    generator = np.random.default_rng(0)
    columns = {f"c{n}": generator.integers(0, 2**62, 40_000) for n in range(20)}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=10_000, use_dictionary=False)
    stores.write(f"{bucket}/wide.parquet", file.getvalue())
    received = [0]
    genuine = socket.socket.recv_into

    def recv_into(self, buffer, *arguments):
        size = genuine(self, buffer, *arguments)
        received[0] += size
        return size

    monkeypatch.setattr(socket.socket, "recv_into", recv_into)
    chosen = columns_of("c3", "c13")
    types = parquet.types(f"{bucket}/wide.parquet", chosen)
    batches = list(parquet.read(f"{bucket}/wide.parquet", chosen, types, None))
    assert np.array_equal(np.concatenate([batch["c3"].to_numpy() for batch in batches]), columns["c3"])
    assert file.getbuffer().nbytes > 6_000_000
    # What reaches the sockets of this process: the servers' side gets requests alone.
    assert 640_000 < received[0] < 1_500_000


def test_worker_processes_get_the_flags_of_a_store():
    """As a worker of the local runner reads them at its start."""
    given = PipelineOptions(["--s3_endpoint_url", "http://127.0.0.1:1", "--direct_num_workers", "2"])
    provision = local_runner(given)._provision_info.provision_info
    found = sdk_worker_main._parse_pipeline_options(json_format.MessageToJson(provision.pipeline_options))
    assert found.view_as(S3Options).s3_endpoint_url == "http://127.0.0.1:1"
    assert found.view_as(DirectOptions).direct_num_workers == 2


def test_a_folder_is_its_files_but_hidden_ones_and_results(store, bucket):
    names = ["a.csv", "day=1/b.csv", "day=2/deep/c.csv"]
    for name in (*names, "_SUCCESS", "day=1/.b.csv.crc", "_temporary/d.csv", "out/counts-00000-of-00001.csv"):
        stores.write(f"{bucket}/{name}", b"user,item\n")
    stores.write(f"{bucket}/out/report.json", b'{"headcount": "0", "files": [{"name": "counts-00000-of-00001.csv"}]}')
    stores.write(f"{bucket}-of-others/e.csv", b"user,item\n")
    for folder in (bucket, f"{bucket}/"):
        inputs = sources.expand_inputs([folder])
        assert [file.path for file in inputs.files] == [f"{bucket}/{name}" for name in names] and inputs.bytes == 30
    assert f"{bucket}/a.csv" in [file.path for file in matching.files_of([store[0]])]


def test_places_that_are_not_there(store, bucket, caplog):
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(InputError, match="no file matches"):
        sources.expand_inputs([f"{bucket}/nothing-*.csv"])
    with pytest.raises(InputError, match="holds no files to read, or is not there"):
        sources.expand_inputs([f"{bucket}/nothing"])
    scheme = bucket.partition("://")[0]
    with pytest.raises(ParameterError, match="cannot write to --output"):
        output.prepare(target(f"{scheme}://no-such-bucket-here", overwrite=False))
    with pytest.raises(ParameterError, match=f"--output must name a directory, such as {scheme}://bucket/out"):
        stores.normal(f"{scheme}://bucket")
