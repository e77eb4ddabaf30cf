"""A job that may not fit into memory says so before it starts, and how it would."""

import pytest

from headcount.pipelines.jobs import memory

GB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine(free, limit, used): what the system tells; None is nothing."""

    def tells(free=None, limit=None, used=0):
        monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
        monkeypatch.setattr(memory, "_GROUP", tmp_path)
        if free is not None:
            (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {free >> 10} kB\n")
        if limit is not None:
            (tmp_path / "memory.max").write_text(f"{limit}\n")
            (tmp_path / "memory.current").write_text(f"{used}\n")

    return tells


def test_what_fits_is_not_spoken_of(machine):
    machine(free=8 * GB)
    assert memory.too_little(GB) is None


def test_what_may_not_fit_is_told_with_the_way_out(machine):
    machine(free=8 * GB)
    words = memory.too_little(3 * GB)
    assert "up to 12.3 GB of memory, and 8.0 GB are free" in words
    assert "--runner=FlinkRunner" in words


def test_a_container_counts(machine):
    machine(free=8 * GB, limit=4 * GB, used=GB)
    assert "3.0 GB are free" in memory.too_little(GB)
    machine(free=8 * GB, limit="max")
    assert memory.too_little(GB) is None


def test_a_system_that_tells_nothing_is_not_judged(machine):
    machine()
    assert memory.too_little(10**15) is None


def test_a_job_says_it_before_it_starts(run, tmp_path, machine):
    (tmp_path / "e.csv").write_text("user,item\na,x\nb,x\n")
    machine(free=GB >> 4)
    words = f"--input {tmp_path}/e.csv --user user --item item --epsilon 1 --delta 1e-6 --output {tmp_path}/out"
    status, _, said = run("histogram", *words.split(), "--method", "one-stage", "--bound", "1")
    assert status == 0, "it is a hint: the bytes of a file tell only so much"
    assert "may need up to 0.3 GB of memory, and 0.1 GB are free here" in said[0]
