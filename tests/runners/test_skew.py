"""Uneven data on a real Flink cluster: the bytes of this machine, and memory that stays bounded."""

import contextlib
import os
import re
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.runners.harness import headcount, output, rows

pytestmark = pytest.mark.everything
MB = 1 << 20


def busy_user(generator):
    """2,000,000 rows of one user over 200,000 items in random order: 60 MB of distinct rows in each of two batches."""
    user = np.concatenate([np.zeros(2_000_000, np.int64), 1 + np.arange(100_000) % 10_000])
    item = np.concatenate([generator.integers(0, 200_000, 2_000_000), np.arange(100_000) % 1000])
    order = generator.permutation(len(user))
    return user[order], item[order], pa.array([generator.bytes(16).hex() for _ in range(200_000)])


def popular_item(generator):
    """One item that each of 300,000 users holds, and one ordinary item of each."""
    user = np.tile(np.arange(300_000), 2)
    item = np.concatenate([np.full(300_000, 1000), np.arange(300_000) % 1000])
    return user, item, pa.array([f"item {k}" for k in range(1001)])


def long_names(generator):
    """60 items with names of 1 MB, each held by 5 users, and a thousand ordinary ones."""
    user = np.arange(100_000) % 10_000
    item = np.concatenate([np.arange(99_700) % 1000, 1000 + np.arange(300) % 60])
    order = generator.permutation(len(user))
    names = [f"item {k}" for k in range(1000)] + [generator.bytes(MB // 2).hex() for _ in range(60)]
    return user[order], item[order], pa.array(names)


# The log; what is to be counted; and the peak memory of the largest Python worker in MB (some 200 go into its imports).
CASES = {
    "busy user": (busy_user, [], 900),
    "popular item": (popular_item, [], 600),
    "long names, dropped": (long_names, [], 1200),
    "long names, kept": (long_names, ["--max-item-bytes", 2 * MB, "--shards", 32, "--output-files", 8], 1200),
}


class Watch:
    """The peak memory of the processes that a cluster's task managers start while it is entered, in bytes.

    Those of an earlier job live on for some seconds, with that job's peak: they do not count.
    """

    def __init__(self, cluster):
        self._servers = {
            process["pid"] for name, process in cluster.state()["processes"].items() if name.startswith("task-manager")
        }
        self._ended, self._thread = threading.Event(), threading.Thread(target=self._run)
        self._earlier = set(self._running())
        self.workers = {}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _running(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if os.getpgid(int(pid)) in self._servers - {int(pid)}:
                    yield pid

    def _run(self):
        while not self._ended.wait(0.2):
            for pid in set(self._running()) - self._earlier:
                with contextlib.suppress(OSError, TypeError):
                    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
                    self.workers[pid] = int(peak[1]) * 1024


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_and_bounded_memory(cluster, data, tmp_path, case):
    log, flags, limit = CASES[case]
    user, item, names = log(np.random.default_rng(3))
    (tmp_path / "input").mkdir()
    users = pa.array([f"u{k}" for k in range(int(user.max()) + 1)])
    for number, part in enumerate(np.array_split(np.arange(len(user)), 4)):  # so that both task managers read
        columns = {"user": users.take(pa.array(user[part])), "item": names.take(pa.array(item[part]))}
        pq.write_table(pa.table(columns), tmp_path / "input" / f"{number}.parquet", row_group_size=100_000)
    words = [
        "histogram",
        "--of",
        "events",
        "--input",
        tmp_path / "input" / "*.parquet",
        "--user",
        "user",
        "--item",
        "item",
        *flags,
    ]
    words += ["--epsilon", "5", "--delta", "1e-2", "--method", "one-stage", "--bound", "5", "--format", "csv"]
    words += ["--key-file", data / "key", "--release-id", "r1"]
    headcount(*words, "--output", tmp_path / "here")
    with Watch(cluster) as watch:
        cluster.call("submit", *words, "--output", tmp_path / "there")
    assert output(tmp_path / "here") == output(tmp_path / "there")
    assert rows(output(tmp_path / "here")) >= 1000
    assert max(watch.workers.values()) < limit * MB
