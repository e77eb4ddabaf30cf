"""Memory that large batches leave is kept for the next ones.

glibc gives every freed block of some size back to the kernel, and gets the next one page by page. For a job that is made of
large blocks, those page faults cost more than the work itself, and a heap for every thread keeps what no other can use.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # the options of mallopt(3)


def keep_freed() -> None:
    """Sets this process's allocator so; without effect where the C library is another one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
        mallopt(_ARENA_MAX, 1)
