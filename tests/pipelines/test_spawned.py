"""Processes that share work end with the one that started them, and one that is lost is told in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headcount.mechanisms.errors import HeadcountError
from headcount.pipelines.spawned import spawned

SLEEPING = """
import os, time
from headcount.pipelines.spawned import spawned

if __name__ == "__main__":
    with spawned(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_they_end_with_the_process_that_started_them(tmp_path, by):
    script = tmp_path / "sleeping.py"
    script.write_text(SLEEPING)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, start_new_session=True) as started:
        worker = int(started.stdout.readline())
        time.sleep(0.2)  # it sleeps, too
        if by == signal.SIGINT:
            os.killpg(started.pid, by)  # as a terminal does
        else:
            os.kill(started.pid, by)
        started.wait(timeout=60)
    until = time.monotonic() + 60
    while _lives(worker):
        assert time.monotonic() < until
        time.sleep(0.05)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    told = Path(f"/proc/{process}/stat")  # whoever should wait for it may be gone, too
    return not told.exists() or told.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_one_that_is_lost_is_told_in_words():
    with pytest.raises(HeadcountError, match="was ended, most likely for want of memory: give a lower --processes"):  # noqa: SIM117
        with spawned(1) as pool:
            pool.submit(os._exit, 1).result()
