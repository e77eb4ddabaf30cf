"""Several cores for one batch. NumPy and Arrow let go of Python's lock while they work, so threads are enough."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


@functools.cache
def _pool() -> ThreadPoolExecutor:
    workers = min(4, os.cpu_count() or 1)  # beyond that they wait for Python's lock and for memory
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix="headcount")


os.register_at_fork(
    after_in_child=_pool.cache_clear
)  # a forked process has none of its parent's threads, and would wait


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of each item, in the order of the items. It must not call `in_threads` itself.

    One item alone stays in this thread: handing it over would take longer than most of what is done with it.
    """
    given = list(items)
    return [function(given[0])] if len(given) == 1 else list(_pool().map(function, given))
