"""How far a local run is, for the operator's terminal alone.

The counters are exact and of this process, so they show nothing of workers elsewhere. They are unprotected
statistics of the data: they are printed on a terminal and go nowhere else.
"""

from __future__ import annotations

import threading
import time
from typing import TextIO

_INTERVAL = 0.5
_CLEAR = "\r\x1b[K"


class _Counters:
    def __init__(self) -> None:
        self.rows = 0
        self.stage = "starting"
        self.started = self.last_row = time.monotonic()


_lock = threading.Lock()
_counters = _Counters()


def reset() -> None:
    """Start counting anew: a run begins."""
    global _counters
    with _lock:
        _counters = _Counters()


def advance(rows: int) -> None:
    """So many more rows have been read."""
    with _lock:
        _counters.rows += rows
        _counters.stage = "reading"
        _counters.last_row = time.monotonic()


def stage(name: str) -> None:
    """The run is now at this stage."""
    with _lock:
        _counters.stage = name


def line(rows: int, reading: float, elapsed: float, stage: str) -> str:
    """The progress as one line: rows read, their rate while they were read, the stage and the time so far."""
    rate = f", {rows / reading:,.0f} rows/s" if rows and reading > 0 else ""
    minutes, seconds = divmod(int(elapsed), 60)
    return f"{rows:,} rows read{rate}, {stage}, {minutes}:{seconds:02d}"


def summary(rows: int, elapsed: float) -> str:
    """The whole run as one line."""
    return f"{rows:,} rows in {elapsed:.1f} s, {rows / max(elapsed, 1e-9):,.0f} rows/s"


class Progress:
    """Shows the progress on a terminal while its block runs, and is silent on anything else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = stream.isatty()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._show, name="headcount-progress", daemon=True)

    def __enter__(self) -> Progress:
        reset()
        if self._shown:
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._shown:
            return
        self._end.set()
        self._thread.join()
        self._stream.write(_CLEAR)
        # Workers elsewhere count for themselves: nothing to tell then.
        if error is None and _counters.rows:
            self._stream.write(summary(_counters.rows, time.monotonic() - _counters.started) + "\n")
        self._stream.flush()

    def _show(self) -> None:
        while not self._end.wait(_INTERVAL):
            with _lock:
                now = _counters
                reading, elapsed = now.last_row - now.started, time.monotonic() - now.started
                text = line(now.rows, reading, elapsed, now.stage)
            self._stream.write(_CLEAR + text)
            self._stream.flush()
