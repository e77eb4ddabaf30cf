"""A DoFn that works ahead: while one element is computed in a thread, the steps before and after it go on.

Elements here are large batches whose work NumPy and Arrow do outside of Python's lock, so that this uses a second core of a
worker; results come in the order of the elements, within their bundle.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1), thread_name_prefix="headcount-ahead")


class Ahead(beam.DoFn):
    """Subclasses give `compute`, which must depend on its arguments alone, and a `process` that gives these to `ahead`."""

    def compute(self, element: Any, *beside: Any) -> Iterable[Any]:
        """The results of one element, and of the side inputs that come with it."""
        raise NotImplementedError

    def start_bundle(self) -> None:
        self._pending: collections.deque[Future[list[Any]]] = collections.deque()

    def ahead(self, element: Any, *beside: Any) -> Iterator[Any]:
        """Begins with one element, and gives the results of another that is done, if there is one."""
        self._pending.append(_pool().submit(lambda: list(self.compute(element, *beside))))
        if len(self._pending) > 1:  # one at work and one to hand on: more would only take memory
            yield from self._pending.popleft().result()

    def finish_bundle(self) -> Iterator[WindowedValue | beam.pvalue.TaggedOutput]:
        while self._pending:
            yield from map(_in_global_window, self._pending.popleft().result())


def _in_global_window(result: Any) -> WindowedValue | beam.pvalue.TaggedOutput:
    if isinstance(result, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(result.tag, _in_global_window(result.value))
    return WindowedValue(result, GlobalWindow().max_timestamp(), [GlobalWindow()])
