"""What a job shows to the network: nothing. Its servers listen on 127.0.0.1, whatever the runner."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.jobs import loopback
from tests.fixed_key import write_fixed_key
from tests.network import Socket, listening, stranger, watched

RUNNERS = {
    "without Beam": "",
    "in this process": "--runner=FnApiRunner",
    "threads": "--direct_running_mode=multi_threading --direct_num_workers=2",
    "processes": "--direct_running_mode=multi_processing --direct_num_workers=2",
    "worker pool": "--runner=PortableRunner --job_endpoint=embed --environment_type=LOOPBACK",
}
SERVERS = ("threads", "processes", "worker pool")


class Job:
    """A job that stands still, since its second file is a pipe that gives nothing until `go_on`."""

    def __init__(self, folder: Path, runner: str) -> None:
        (folder / "in").mkdir()
        (folder / "in" / "a.csv").write_text("user,item\n" + "".join(f"u{n},i{n % 3}\n" for n in range(200)))
        self._pipe = folder / "in" / "b.csv"
        os.mkfifo(self._pipe)
        self.key = folder / "key"
        write_fixed_key(self.key)
        words = (
            f"histogram --input {folder}/in/*.csv --user user --item item --epsilon 1 --delta 1e-6 --method one-stage"
        )
        words += (
            f" --bound 1 --format csv --key-file {self.key} --release-id r1 --output {folder}/out {RUNNERS[runner]}"
        )
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        self.process = subprocess.Popen([sys.executable, "-m", "headcount.pipelines.main", *words.split()], **pipes)

    def wait(self) -> None:
        """Until it reads the pipe, which it is then to wait for."""
        self._held: int | None = None
        while self._held is None:
            assert self.process.poll() is None, self.process.communicate()
            with contextlib.suppress(OSError):
                self._held = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(0.05)

    def go_on(self) -> None:
        """Let it end, which it must do well."""
        assert self._held is not None
        rest = self._pipe.with_suffix(".rest")
        rest.write_text("user,item\nu1,i1\n")
        os.replace(rest, self._pipe)  # for whoever opens it from now on
        os.write(self._held, b"user,item\nu1,i1\n")
        os.close(self._held)
        _, told = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, told


@contextlib.contextmanager
def standing_still(folder: Path, runner: str) -> Iterator[tuple[Job, set[Socket]]]:
    """A job of this runner, with all sockets on which it has listened."""
    job = Job(folder, runner)
    try:
        with watched(lambda: [job.process.pid]) as seen:
            job.wait()
            seen |= listening(job.process.pid)
            yield job, seen
    finally:
        if job.process.poll() is None:
            job.process.kill()


@pytest.mark.seconds
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_job_listens_on_loopback_alone(tmp_path, runner):
    with standing_still(tmp_path, runner) as (job, seen):
        job.go_on()
    assert {each for each in seen if each.is_reached_from_outside} == set()
    assert bool(seen) == (runner in SERVERS), "or the test sees nothing"


@pytest.mark.seconds
def test_a_stranger_gets_no_key_from_the_worker_pool_of_a_job(tmp_path):
    """The attack: whoever reaches the pool has it run code in the process of the job, which reads its key."""
    with stranger() as outside, standing_still(tmp_path, "worker pool") as (job, seen):
        ports = {each.port for each in seen}
        told = "".join(outside.attack("pool", port, job.key, tmp_path / "stolen") for port in outside.reaches(ports))
        stolen = (tmp_path / "stolen").read_text() if (tmp_path / "stolen").exists() else None
        reached = outside.reaches(ports)
        job.go_on()
    assert (stolen, reached) == (None, set()), told


@pytest.mark.parametrize("flags", [["--runner=PrismRunner"], ["--runner=prism"], ["--runner=FlinkRunner"]])
def test_a_server_that_others_reach_does_not_start(monkeypatch, flags):
    monkeypatch.setattr(loopback, "interfaces_up", lambda: ["eth0", "wlan0"])

    def check(*more: str) -> None:
        loopback.check(flags[0].partition("=")[2], PipelineOptions([*flags, *more]))

    with pytest.raises(ParameterError, match=r"every address of this machine \(eth0, wlan0\).*--behind-firewall"):
        check()
    check("--behind-firewall")
    check("--job_endpoint=localhost:8099")
    monkeypatch.setattr(loopback, "interfaces_up", list)
    check()


def test_a_runner_that_starts_no_server_is_not_asked_for_a_firewall(monkeypatch):
    monkeypatch.setattr(loopback, "interfaces_up", lambda: ["eth0"])
    for runner in (None, "DataflowRunner", "PortableRunner"):
        loopback.check(runner, PipelineOptions([]))


def test_a_command_says_so_before_it_reads_anything(run, monkeypatch):
    monkeypatch.setattr(loopback, "interfaces_up", lambda: ["eth0"])
    words = "histogram --input nothing.csv --user u --item i --epsilon 1 --delta 1e-6 --output out --runner PrismRunner"
    status, out, told = run(*words.split())
    assert (status, out) == (2, "") and "give --behind-firewall" in told[-1]
    status, _, told = run(*words.split(), "--behind-firewall")
    assert status == 2 and "firewall" not in told[-1]


def test_a_namespace_with_loopback_alone_has_no_interface_that_others_reach():
    code = "from headcount.pipelines.jobs.loopback import interfaces_up; print(interfaces_up())"
    with stranger() as outside:
        assert any(each.startswith("hc") for each in loopback.interfaces_up())
        command = ["ip", "netns", "exec", outside.name, sys.executable, "-c", code]
        assert subprocess.run(command, capture_output=True, text=True).stdout == "['eth0']\n"
        subprocess.run(["ip", "-n", outside.name, "link", "set", "eth0", "down"], check=True)
        assert subprocess.run(command, capture_output=True, text=True).stdout == "[]\n"
