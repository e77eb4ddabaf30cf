"""Memory: what large batches leave is kept for the next ones, and a job that may need more than there is says so first.

glibc gives every freed block of some size back to the kernel, and gets the next one page by page. For a job that is made of
large blocks, those page faults cost more than the work itself, and a heap for every thread keeps what no other can use.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

_FIXED = 300 << 20  # of Python with Beam
_PER_BYTE = 4  # of input without compression: 1.9 to 3.4 were measured
_MEMORY, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # the options of mallopt(3)


def keep_freed() -> None:
    """Sets this process's allocator so; without effect where the C library is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_ARENA_MAX, 1)


def too_little(size: int) -> str | None:
    """What to say before a job on this machine starts, of so many bytes without compression; None if they have room."""
    needed, free = _FIXED + _PER_BYTE * size, _available()
    if free is None or needed <= free:
        return None
    return (
        f"this job may need up to {needed / 2**30:.1f} GB of memory, and {free / 2**30:.1f} GB are free here; if it ends for "
        "that, run it on Flink, whose workers hold a part each (--runner=FlinkRunner, docs/flink.md): the result is the same"
    )


def _available() -> int | None:
    """The bytes that this process may still get, of the machine and of its container; None where that is not told."""
    known = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in _MEMORY.read_text().splitlines() if line.startswith("MemAvailable:"))
        known.append(int(line.split()[1]) << 10)
    with suppress(OSError, ValueError):  # "max" is no limit
        limit, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        known.append(max(0, limit - used))
    return min(known, default=None)
