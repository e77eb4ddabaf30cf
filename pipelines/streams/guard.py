"""What a stream started ends with it, also if it is killed: a server of Beam's, such as Prism, would go on for ever."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_GUARD = 'read -r _; kill -9 "$@"'  # nothing is ever written: it reads until whoever could is gone


@contextmanager
def taken_along() -> Iterator[None]:
    """While its block runs, the processes that this one has started by then end with it, whatever ends it."""
    started = _children()
    if not started:
        yield
        return
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = ["sh", "-c", _GUARD, "headcount-guard", *started]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **quiet)  # type: ignore[call-overload]
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def _children() -> list[str]:
    """The processes that this one has started, by their numbers."""
    with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as listing:
        said, _ = listing.communicate()
    own = [line.split()[0] for line in said.splitlines() if int(line.split()[1]) == os.getpid()]
    return [pid for pid in own if int(pid) != listing.pid]
