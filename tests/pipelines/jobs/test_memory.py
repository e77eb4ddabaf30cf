"""A job that may not fit into memory says so before it starts, and how it would."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.pipelines import parser
from headcount.pipelines.command import load
from headcount.pipelines.jobs import memory
from headcount.pipelines.jobs.source import Events

GB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine(free, limit, used): what the system tells; None is nothing."""

    def tells(free=None, limit=None, used=0, whole=0):
        monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
        monkeypatch.setattr(memory, "_GROUP", tmp_path)
        monkeypatch.setattr(memory, "_MOUNTS", tmp_path / "mounts")
        if free is not None:
            (tmp_path / "meminfo").write_text(f"MemTotal: {whole >> 10} kB\nMemAvailable:   {free >> 10} kB\n")
        if limit is not None:
            (tmp_path / "memory.max").write_text(f"{limit}\n")
            (tmp_path / "memory.current").write_text(f"{used}\n")

    return tells


def test_what_fits_is_not_spoken_of(machine):
    machine(free=8 * GB)
    assert memory.too_little(GB, None, here=False) is None
    assert memory.too_little(4 * GB, None, here=True) is None


def test_what_may_not_fit_is_told_with_the_way_out(machine):
    machine(free=8 * GB)
    words = memory.too_little(3 * GB, None, here=False)
    assert "up to 12.3 GB of memory, and 8.0 GB are free" in words
    assert "--runner=FlinkRunner" in words and "--memory-limit" not in words
    words = memory.too_little(6 * GB, None, here=True)
    assert "up to 10.3 GB of memory, and 8.0 GB are free" in words
    assert "--runner=FlinkRunner" in words and "a smaller --memory-limit" in words


def test_what_waits_on_disk_takes_no_memory(machine, monkeypatch):
    machine(free=8 * GB)
    assert memory.too_little(6 * GB, 4 * GB, here=True) is None
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3 * GB))
    assert memory.too_little(4 * GB, 4 * GB, here=True) is None
    words = memory.too_little(6 * GB, 4 * GB, here=True)
    assert "up to 5.0 GB of disk for rows that wait, and 3.0 GB of disk are free in" in words
    assert "TMPDIR" in words and "docs/flink.md" in words


def test_a_smaller_limit_is_named_where_it_helps(machine):
    machine(free=GB)
    words = memory.too_little(2 * GB, GB // 2, here=True)
    assert "1.8 GB of memory, and 1.0 GB are free" in words and "--memory-limit" not in words
    machine(free=3 * GB // 2)
    assert "a smaller --memory-limit" in memory.too_little(2 * GB, GB // 2, here=True)


def test_memory_is_no_disk(machine, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100 * GB))
    machine(free=4 * GB, whole=16 * GB)
    assert memory.limit_for(None, True, 3 * GB) == GB // 2
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for kind, limit in ("ext4", GB // 2), ("tmpfs", 8 * GB):
        (tmp_path / "mounts").write_text(f"21 1 0:0 / /x rw - tmpfs x rw\n22 1 {number} / /tmp rw - {kind} tmp rw\n")
        assert memory.limit_for(None, True, 3 * GB) == limit
    assert "5.8 GB of memory, and 4.0 GB are free" in memory.too_little(3 * GB, 8 * GB, here=True)


def test_a_container_counts(machine):
    machine(free=8 * GB, limit=4 * GB, used=GB)
    assert "3.0 GB are free" in memory.too_little(GB, None, here=False)
    machine(free=8 * GB, limit="max")
    assert memory.too_little(GB, None, here=False) is None


def test_a_system_that_tells_nothing_is_not_judged(machine):
    machine()
    assert memory.too_little(10**15, None, here=False) is None
    assert memory.limit_for(None, here=True, size=10**15) is None


def test_by_default_rows_beyond_512_megabytes_wait_on_disk_and_without_room_there_half_of_the_memory_is_theirs(
    machine, monkeypatch
):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5 * GB))
    machine(free=GB, whole=8 * GB)
    assert memory.limit_for(None, here=True, size=2 * GB) == GB // 2
    assert memory.limit_for(None, here=True, size=2 * GB + 1) == 4 * GB, (
        "one and a half times that beyond 512 MB, twice"
    )
    assert memory.limit_for(0, here=True, size=GB) == 0
    machine(free=GB, whole=8 * GB, limit=2 * GB)
    assert memory.limit_for(None, here=True, size=10 * GB) == GB
    machine(free=GB, whole=GB >> 1)
    assert memory.limit_for(None, here=True, size=GB) == GB >> 2, "never more than half"
    assert memory.limit_for(None, here=False, size=GB) is None


@pytest.mark.skipif(not memory._of_glibc("malloc_trim"), reason="needs the C library of GNU")
def test_what_a_step_has_freed_is_given_back():
    """In a process of its own, which keeps what it frees, as every job does; with a block behind it that stays."""
    script = (
        "from headcount.pipelines.jobs import memory; import resource\n"
        "rss = lambda: int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize() >> 20\n"
        "memory.keep_freed(); import numpy; large = [numpy.ones(1 << 20) for _ in range(32)]\n"
        "del large[:-1]; kept = rss(); memory.give_back(); print(kept - rss())"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert int(told) > 200, "of 31 blocks of 8 MB"


@pytest.mark.parametrize(
    "flags", [["--runner", "FlinkRunner"], ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]]
)
def test_elsewhere_a_limit_is_refused(run, tmp_path, flags):
    (tmp_path / "e.csv").write_text("user,item\na,x\nb,x\n")
    words = f"--input {tmp_path}/e.csv --user user --item item --epsilon 1 --delta 1e-6 --output {tmp_path}/out"
    status, _, said = run("histogram", *words.split(), "--memory-limit", "1G", *flags)
    assert status == 2 and len(said) == 1
    assert "--memory-limit is for jobs in this process" in said[0]


def test_a_job_says_it_before_it_starts(run, tmp_path, machine):
    (tmp_path / "e.csv").write_text("user,item\na,x\nb,x\n")
    machine(free=GB >> 4)
    words = f"--input {tmp_path}/e.csv --user user --item item --epsilon 1 --delta 1e-6 --output {tmp_path}/out"
    status, _, said = run("histogram", *words.split(), "--method", "one-stage", "--bound", "1")
    assert status == 0, "it is a hint: the bytes of a file tell only so much"
    assert "may need up to 0.3 GB of memory, and 0.1 GB are free here" in said[0]


def test_what_runs_without_beam_is_told_by_contributions(tmp_path):
    """A row in 28 windows of days is 28 of them, and each element of a list is one."""
    days = pa.array([0] * 600_000, pa.date32())
    lists = pa.array([["a"] * 60] * 300_000)
    table = {"user": pa.array(range(600_000)), "day": days}
    pq.write_table(pa.table(table), tmp_path / "days.parquet")
    pq.write_table(pa.table({"user": pa.array(range(300_000)), "tags": lists}), tmp_path / "lists.parquet")

    def contributions(file, *flags):
        words = ["--input", str(tmp_path / file), "--user", "user", *flags, "--epsilon", "1", "--delta", "1e-6"]
        args, _ = parser.parse(load("histogram"), [*words, "--output", "out"])
        return Events(args, False).contributions()

    assert contributions("days.parquet", "--item", "day") == 600_000
    last = contributions("days.parquet", "--item", "day:last28", "--domain", "day_last28=1970-01-01..1970-01-02")
    assert last == 28 * 600_000
    assert contributions("lists.parquet", "--item", "tags", "--explode", "tags") >= 1_000_000
