"""How far a study is, on a terminal: steps done of how many, what is being done, and about how long the rest takes."""

from __future__ import annotations

import time
from typing import TextIO

_CLEAR = "\r\x1b[K"
_WIDTH = 24


class Bar:
    """Shows the steps of a study while its block runs, and is silent on anything but a terminal."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        self._stream, self._steps = stream, steps
        self._shown = stream.isatty()
        self._begun = 0
        self._started = time.monotonic()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def step(self, doing: str) -> None:
        """The next step begins."""
        if self._shown:
            self._stream.write(_CLEAR + line(self._begun, self._steps, time.monotonic() - self._started, doing))
            self._stream.flush()
        self._begun += 1


def line(done: int, steps: int, elapsed: float, doing: str) -> str:
    """The progress as one line."""
    full = _WIDTH * done // max(steps, 1)
    left = f", about {_clock(elapsed * (steps - done) / done)} left" if done else ""
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {done} of {steps}{left}: {doing}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
