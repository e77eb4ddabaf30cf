"""A stream that runners are tried with: files of rows in ten windows, out of order, and one window without users."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headcount.mechanisms.randomness.windows import window_id
from tests.fixed_key import write_fixed_key
from tests.runners.harness import headcount, output

QUIET = 3  # the window without users


class Stream:
    """Rows of `number` windows of `size` seconds from `start` on, and some before and after; their files come in turns."""

    def __init__(self, folder: Path, start: int, size: int, number: int = 10, files: int = 4) -> None:
        self.folder, self.start, self.size, self.number = folder, start, size, number
        (folder / "in").mkdir(parents=True)
        write_fixed_key(folder / "key")
        generator, rows = np.random.default_rng(21), 3000 * number
        at = generator.integers(start - size, start + size * (number + 1), rows)
        at[(at >= start + QUIET * size) & (at < start + (QUIET + 1) * size)] = start - 1
        self._at = at
        columns = {
            "user": pa.array([f"u{u}" for u in generator.integers(0, 600, rows)]),
            "item": pa.array([f"i{i}" for i in generator.geometric(0.15, rows)]),
            "number": pa.array(generator.integers(0, 10, rows)),
            "at": pa.array(at, pa.timestamp("s")),
        }
        self._table = pa.table(columns)
        self._parts = [self._table.slice(k * rows // files, rows // files) for k in range(files)]

    def put(self, part: int) -> None:
        """Let a file arrive, whole."""
        aside = self.folder / "in" / f".{part}"
        pq.write_table(self._parts[part], aside)
        os.rename(aside, self.folder / "in" / f"{part}.parquet")

    def put_all(self) -> None:
        for part in range(len(self._parts)):
            self.put(part)

    def words(self, own: str, release_id: str = "s") -> list[object]:
        """The command line, all but --output and the runner."""
        command, *flags = own.split()
        begin = datetime.datetime.fromtimestamp(self.start, datetime.UTC).isoformat()
        words = ["stream", command, "--input", self.folder / "in", "--time", "at", "--every", f"{self.size}s"]
        words += ["--from", begin, "--windows", self.number, "--wait", "1s", "--user", "user", "--format", "csv"]
        return [*words, *flags, "--key-file", self.folder / "key", "--release-id", release_id]

    def name(self, window: int) -> str:
        """The folder of a window."""
        begin = datetime.datetime.fromtimestamp(self.start + window * self.size, datetime.UTC)
        return f"{begin:%Y-%m-%dT%H%M%SZ}"

    def batch(self, own: str, release_id: str = "s") -> dict[str, dict[str, bytes]]:
        """What this machine makes of each window in a job of its own."""
        command, *flags = own.split()
        found = {}
        for window in range(self.number):
            end = self.start + (window + 1) * self.size
            mine = (self._at >= end - self.size) & (self._at < end)
            assert mine.any() == (window != QUIET)
            file, out = self.folder / "window.parquet", self.folder / "batch" / command / self.name(window)
            pq.write_table(self._table.filter(pa.array(mine)), file)
            words = [command, "--input", file, "--user", "user", "--format", "csv", *flags, "--output", out]
            words += ["--key-file", self.folder / "key", "--release-id", window_id(release_id, end)]
            headcount(*words, "--period", self.name(window))
            found[self.name(window)] = output(out)
        return found


def past(folder: Path) -> Stream:
    """A stream whose windows are over: its files are read, and all windows close at once."""
    return Stream(folder, 1_700_000_000, 60)


def coming(folder: Path, seconds: int, size: int, number: int) -> Stream:
    """A stream that begins in some seconds, of rows that say so already: none is late, however slow the machine is."""
    return Stream(folder, int(time.time()) + seconds, size, number)


def outputs(folder: Path) -> dict[str, dict[str, bytes]]:
    """The files of each window, and whatever lies beside them."""
    return {path.name: output(path) for path in sorted(folder.iterdir())}
