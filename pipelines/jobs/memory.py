"""Memory: what large batches leave is kept for the next ones, and a job that may need more than there is says so first.

glibc gives every freed block of some size back to the kernel, and gets the next one page by page. For a job that is made of
large blocks, those page faults cost more than the work itself, and a heap for every thread keeps what no other can use.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from headcount.mechanisms.errors import ParameterError

_FIXED = 300 << 20  # of Python with Beam
_STEPS = 1 << 30  # of what steps hold at once: 0.5 to 1.1 GB were measured
_PER_BYTE = 4  # of input without compression: 1.9 to 3.4 were measured where chunks travel
_WAITING = 1.5  # the same where they wait here: 0.5 to 1.3 were measured
_IN_MEMORY = 512 << 20  # of rows that wait, beyond which the page cache of the disk has them as long as there is room
_MEMORY, _GROUP, _MOUNTS = Path("/proc/meminfo"), Path("/sys/fs/cgroup"), Path("/proc/self/mountinfo")

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # the options of mallopt(3)


def keep_freed() -> None:
    """Sets this process's allocator so, and lets Arrow use it as NumPy does; without effect where the C library is another
    one."""
    if (mallopt := _of_glibc("mallopt")) is not None:
        pa.set_memory_pool(pa.system_memory_pool())
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_ARENA_MAX, 1)


def give_back() -> None:
    """Gives the kernel what the last step has freed, before the next one lays its own between what is left of it."""
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None)


def check_asked(asked: int | None, here: bool) -> None:
    """Refuses a limit where rows do not wait in this process."""
    if asked is not None and not here:
        raise ParameterError(
            "--memory-limit is for jobs in this process: leave it out, since workers elsewhere and in processes of their "
            "own have memory of their own (docs/limits.md)"
        )


def limit_for(asked: int | None, here: bool, size: int) -> int | None:
    """The bytes of memory that waiting rows may take, of a job of this number of bytes without compression: those asked for, or
    512 MB, if the disk has room for twice what is beyond; or else half of this machine's memory, or of its container's.

    None is no limit, where the machine does not tell, or rows wait not here, where they are not kept.
    """
    if not here:
        return None
    whole = _least(_machine("MemTotal"), _group("memory.max"))
    if asked is not None:
        return asked
    half = None if whole is None else whole // 2
    on_disk = round(_WAITING * size) - _IN_MEMORY
    return _least(half, _IN_MEMORY) if 2 * on_disk <= _room(tempfile.gettempdir()) else half


def too_little(size: int, limit: int | None, here: bool) -> str | None:
    """What to say before a job on this machine starts, of this number of bytes without compression; None if they have room.

    Rows wait in this process (`here`), up to the limit in memory and beyond it on disk; or are copied from worker to worker.
    """
    waiting = round(_WAITING * size)
    in_memory = waiting if limit is None else min(waiting, limit)
    needed = _FIXED + (min(_STEPS, _PER_BYTE * size) + in_memory if here else _PER_BYTE * size)
    free = _available()
    if free is not None and needed > free:
        helps = here and needed - in_memory <= free
        smaller = "give a smaller --memory-limit, beyond which rows wait on disk, or " if helps else ""
        return (
            f"this job may need up to {needed / 2**30:.1f} GB of memory, and {free / 2**30:.1f} GB are free here; if it ends "
            f"for that, {smaller}run it on Flink, whose workers hold a part each (--runner=FlinkRunner, docs/flink.md): the "
            "result is the same"
        )
    folder = tempfile.gettempdir()
    on_disk, room = waiting - in_memory, _room(folder)
    if here and on_disk > room:
        return (
            f"this job may need up to {on_disk / 2**30:.1f} GB of disk for rows that wait, and {room / 2**30:.1f} GB of disk "
            f"are free in {folder!r}; if it ends for that, set TMPDIR to a larger disk, or run it on Flink (docs/flink.md)"
        )
    return None


def _available() -> int | None:
    """The bytes that this process may still get, of the machine and of its container; None where that is not told."""
    limit, used = _group("memory.max"), _group("memory.current")
    left = None if limit is None or used is None else max(0, limit - used)
    return _least(_machine("MemAvailable"), left)


def _room(folder: str) -> int:
    """The bytes that are free on the disk of a folder: none where what it holds is in memory."""
    device = os.stat(folder).st_dev
    with suppress(OSError):
        for line in _MOUNTS.read_text().splitlines():
            mounted, _, kind = line.partition(" - ")
            if f" {os.major(device)}:{os.minor(device)} " in mounted and kind.split()[0] in ("tmpfs", "ramfs"):
                return 0
    return shutil.disk_usage(folder).free


def _machine(name: str) -> int | None:
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in _MEMORY.read_text().splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) << 10
    return None


def _group(name: str) -> int | None:
    with suppress(OSError, ValueError):  # "max" is no limit
        return int((_GROUP / name).read_text())
    return None


def _least(*known: int | None) -> int | None:
    return min((each for each in known if each is not None), default=None)
