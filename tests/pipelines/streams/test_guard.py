"""A process that is killed takes along what it has started; one that goes on keeps it."""

import signal
import subprocess
import sys
import time

from headcount.pipelines.streams.guard import taken_along

PROGRAM = """
import subprocess, time
from headcount.pipelines.streams.guard import taken_along
started = subprocess.Popen(["sleep", "600"])
with taken_along():
    print(started.pid, flush=True)
    time.sleep(600)
"""


def test_a_killed_process_takes_along_what_it_started():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        started = killed.stdout.readline().strip()
        assert _runs(started)
        killed.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while _runs(started):
        assert time.monotonic() < end, "it goes on"
        time.sleep(0.05)


def test_after_the_block_nothing_is_ended():
    with subprocess.Popen(["sleep", "600"]) as started:
        with taken_along():
            pass
        assert started.poll() is None
        started.kill()


def _runs(pid):
    listed = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip()
    return bool(listed) and not listed.startswith("Z")
