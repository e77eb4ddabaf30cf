"""Processes that share the work of this one on all cores; spawned, as a fork of one with threads may wait for ever."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from headcount.mechanisms.errors import HeadcountError


@contextmanager
def spawned(processes: int, begin: Callable[..., object] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """While its block runs, up to so many processes do what is submitted. Each calls `begin` with what is `given` to it first.

    They end with the block, and with this process, whatever ends it.
    """
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, spawn, initializer=_begin, initargs=(begin, given))
    try:
        yield pool
    except BrokenProcessPool:
        raise HeadcountError(
            "a process that shared the work was ended, most likely for want of memory: give a lower --processes"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., object] | None, given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without words: whoever started it has them
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*given)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
