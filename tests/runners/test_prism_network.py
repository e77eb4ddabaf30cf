"""Who reaches a stream on Prism, which itself listens on every address: refused on a network, or in one of its own."""

import os
import signal
import subprocess
from contextlib import contextmanager

import pytest

from tests.network import listening, stranger
from tests.runners.arriving import coming
from tests.runners.harness import HEADCOUNT, MINUTES

JOB = "histogram --item item --method one-stage --bound 3 --epsilon 1 --delta 1e-6"
# As docs/streams.md shows.
ALONE = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.fixture
def words(prism, tmp_path):
    """The command line of a stream of hours."""
    stream = coming(tmp_path, 3600, 60, 4)
    stream.put(0)
    flags = ["--runner=PrismRunner", f"--prism_location={prism}", "--environment_type=LOOPBACK"]
    return [*HEADCOUNT, *map(str, [*stream.words(JOB), *flags, "--output", tmp_path / "out"])]


@contextmanager
def running(words):
    """A stream that runs, with all sockets on which it listens."""
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, start_new_session=True, **pipes)
    try:
        assert process.stderr is not None
        while "RUNNING" not in (line := process.stderr.readline()):
            assert line, "it ended before it ran"
        yield listening(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_on_a_network_it_does_not_start(words):
    with stranger():  # so that there is one
        done = subprocess.run(words, capture_output=True, text=True, timeout=5 * MINUTES)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("headcount: Prism listens on every address of this machine (")


def test_in_a_network_of_its_own_no_stranger_reaches_it(words):
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody make a network namespace: run as root")
    with stranger() as outside, running([*ALONE, *words]) as seen:
        assert [each.program[:5] for each in seen if each.is_reached_from_outside] == ["prism"] and len(seen) > 1
        assert outside.reaches({each.port for each in seen}) == set()


def test_behind_a_firewall_only_prism_itself_is_open_and_the_worker_gives_no_key(words, tmp_path):
    """The attack: whoever reaches the worker in the process of the stream has it run code, which reads the key."""
    with stranger() as outside, running([*words, "--behind-firewall"]) as seen:
        open_ = {each for each in seen if each.is_reached_from_outside}
        others = {each.port for each in seen if "prism" not in each.program}
        reached = outside.reaches(others)
        told = [outside.attack("pool", port, tmp_path / "key", tmp_path / "stolen") for port in reached]
    assert not (tmp_path / "stolen").exists(), told
    assert others and reached == set() and all("prism" in each.program for each in open_)
