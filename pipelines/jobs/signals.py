"""Ctrl-C and SIGTERM during a job: they stop it wherever it is, so that it can clean up."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

_AGAIN = 0.5  # seconds


class Stopped(BaseException):
    """A signal asked the job to stop; `status` is the exit status that says so."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.status = 128 + number


class Signals:
    """While its block runs, signals raise `Stopped` in the main thread, and `received` holds the first one.

    What a handler raises can get lost: Python drops it in a finaliser, and Beam wraps it beyond recognition. So
    it is raised again every half second until the block ends or calls `ignore`, and `received` tells the reason.
    Signals that this process was started to ignore stay ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # no other thread may handle signals
            handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self._before = {number: old for number, old in handlers.items() if old != signal.SIG_IGN}
            self._before[signal.SIGALRM] = signal.getsignal(signal.SIGALRM)
            for number in self._before:
                signal.signal(number, self._stop)
            self._hook = sys.unraisablehook
            sys.unraisablehook = self._lost
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.ignore()
        for number, old in self._before.items():
            signal.signal(number, old)
        if self._before:
            sys.unraisablehook = self._hook

    def ignore(self) -> None:
        """Let no further signal in: a cleanup begins."""
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, frame: object) -> None:
        if self.received is None:
            self.received = number
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        raise Stopped(self.received)

    def _lost(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Stopped):
            self._hook(unraisable)
