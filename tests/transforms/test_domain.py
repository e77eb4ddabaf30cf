"""Public domains in pipelines: every key comes out and no other, whatever the data, and large ones stay where they are."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.batches import domain as batches_domain
from headcount.mechanisms.domains import domain_files
from headcount.transforms import Budget, Contributions, DomainFile, Histogram

SCHEMA = pa.schema([("user", pa.string()), ("country", pa.string()), ("age", pa.int64())])
KEYS = [(country, label) for country in ("DE", "F\x1fR", "") for label in ("< 18", ">= 18")]
NOBODY = pa.table({"user": [], "country": [], "age": []}, SCHEMA)
SOME = pa.table({"user": ["u", "v", "w"] * 50, "country": ["DE", "XX", ""] * 50, "age": [17, 18, 19] * 50}, SCHEMA)


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys.parquet"
    country, age = zip(*KEYS, strict=True)
    pq.write_table(pa.table({"age": age, "more": range(len(age)), "country": country}), path)
    return path


def counted(collect, release, data, domain, **how):
    def build(pipeline):
        rows = pipeline | beam.Create([data]) | Contributions(item=["country", "age:18"], schema=SCHEMA)
        return rows | "Histogram" >> Histogram(Budget(1), of="events", domain=domain, release=release, **how)

    return [tuple(row) for row in collect(build)]


@pytest.mark.parametrize("how", [{}, {"method": "one-stage", "bound": 3}, {"method": "one-stage"}], ids=str)
def test_all_keys_come_out_and_no_other_and_the_noise_is_that_of_any_other_form(
    collect, make_release, keys_file, how, monkeypatch
):
    monkeypatch.setattr(domain_files, "TRAVELS_BYTES", -1)
    stored = counted(collect, make_release(), SOME, DomainFile(str(keys_file)), **how)
    assert sorted(row[:2] for row in stored) == sorted(KEYS)
    assert stored == counted(collect, make_release(), SOME, KEYS[::-1], **how)
    nobody = counted(collect, make_release(), NOBODY, DomainFile(str(keys_file)), **how)
    assert sorted(row[:2] for row in nobody) == sorted(KEYS)


def test_a_domain_of_a_million_keys_does_not_travel(tmp_path, make_release):
    path = tmp_path / "keys.txt"
    path.write_text("\n".join(map(str, np.random.default_rng(1).permutation(1_000_000))))

    def size(domain, **how):
        pipeline = beam.Pipeline(runner="FnApiRunner")
        rows = pipeline | beam.Create([("u", "1")]).with_output_types(tuple[str, str])
        _ = rows | Histogram(Budget(1), of="events", domain=domain, release=make_release(), **how)
        return pipeline.to_runner_api().ByteSize()

    for how in ({}, {"method": "one-stage"}):
        assert size(DomainFile(str(path)), **how) < size(["1"], **how) + 50_000


def test_a_file_that_changes_before_a_worker_reads_it_ends_the_job(collect, make_release, keys_file, monkeypatch):
    monkeypatch.setattr(domain_files, "TRAVELS_BYTES", -1)
    made = DomainFile.domain

    def changed(file, keys):
        domain = made(file, keys)
        keys_file.write_bytes(keys_file.read_bytes() + b" ")
        batches_domain._loaded.clear()  # as on another machine
        return domain

    monkeypatch.setattr(domain_files.DomainFile, "domain", changed)
    with pytest.raises(Exception, match="has changed since the job began: run the job again"):
        counted(collect, make_release(), SOME, DomainFile(str(keys_file)))
