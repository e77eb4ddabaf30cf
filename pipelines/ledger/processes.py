"""Which process made an entry, and whether it is over: told only where that is certain.

A number of a process means something on one machine, in one space of processes (a container has its own), until the number is
given to another; so an entry holds all of these. Linux tells them; elsewhere no process is ever known to be over.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

_ENDED = "ZX"  # states of a process that does nothing any more: nobody has asked yet how it ended


def this_process() -> dict[str, Any]:
    """This process, for a later look."""
    pid = os.getpid()
    found = _look(pid)
    return {"host": socket.gethostname(), "space": _space(), "pid": pid, "start": None if found is None else found[1]}


def is_over(process: Mapping[str, Any]) -> bool | None:
    """Whether a process has ended; None if that cannot be known from here."""
    if process.get("space") is None or process.get("start") is None or process["space"] != _space():
        return None
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it is there, and somebody else's
    found = _look(process["pid"])
    if found is None:
        return None
    state, start = found
    return state in _ENDED or start != process["start"]


def _space() -> str | None:
    """The boot of this machine and the space of processes in it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _look(pid: int) -> tuple[str, int] | None:
    """The state of a process, and the tick of its start, which tells it from later ones of the same number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])
