"""A DoFn that works ahead: while one element is computed in a thread, the steps before and after it go on.

Elements here are large batches whose work NumPy and Arrow do outside of Python's lock, so that this uses a second core of a
worker; results come in the order of the elements, within their bundle, each in the window of its own element.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import BoundedWindow

from headcount.transforms.core.windows import in_window


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1), thread_name_prefix="headcount-ahead")


class Ahead(beam.DoFn):
    """Subclasses give `compute`, which must depend on its arguments alone, and a `process` that gives these and the window of
    the element to `ahead`."""

    def compute(self, element: Any, *beside: Any) -> Iterable[Any]:
        """The results of one element, and of what comes with it."""
        raise NotImplementedError

    def start_bundle(self) -> None:
        self._pending: collections.deque[tuple[BoundedWindow, Future[list[Any]]]] = collections.deque()

    def ahead(self, window: BoundedWindow, element: Any, *beside: Any) -> Iterator[Any]:
        """Begins with one element, and gives the results of another that is done, if there is one, in the window of that."""
        for own, results in self._begun(window, element, *beside):
            yield from (in_window(result, own) for result in results)

    def finish_bundle(self) -> Iterator[Any]:
        for own, results in self._rest():
            yield from (in_window(result, own) for result in results)

    def _begun(self, window: BoundedWindow, element: Any, *beside: Any) -> Iterator[tuple[BoundedWindow, list[Any]]]:
        """Begins with one element, and gives the window and the results of another that is done."""
        self._pending.append((window, _pool().submit(lambda: list(self.compute(element, *beside)))))
        if len(self._pending) > 1:  # one at work and one to hand on: more would only take memory
            yield self._next()

    def _rest(self) -> Iterator[tuple[BoundedWindow, list[Any]]]:
        while self._pending:
            yield self._next()

    def _next(self) -> tuple[BoundedWindow, list[Any]]:
        window, results = self._pending.popleft()
        return window, results.result()
