"""Several cores for one batch, and for a collection in parts. NumPy and Arrow let go of Python's lock while they work, so
threads are enough.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@functools.cache
def _pool(name: str, most: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(most, os.cpu_count() or 1), thread_name_prefix=name)


os.register_at_fork(
    after_in_child=_pool.cache_clear
)  # a forked process has none of its parent's threads, and would wait


def _within() -> ThreadPoolExecutor:
    return _pool("headcount", 4)  # beyond that they wait for Python's lock and for memory


def _over() -> ThreadPoolExecutor:
    return _pool("headcount-parts", 2)  # each has work for the others


def in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of each item, in the order of the items. It must not call `in_threads` itself.

    One item alone stays in this thread: handing it over would take longer than most of what is done with it.
    """
    given = list(items)
    return [function(given[0])] if len(given) == 1 else list(_within().map(function, given))


def side_by_side(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The same for large parts of the data, two at a time: `function` may call `in_threads`, but not this."""
    given = list(items)
    return [function(given[0])] if len(given) == 1 else list(_over().map(function, given))


def ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The same for items that take time to come: while `function` works on one, the next is fetched."""
    pending: collections.deque[Future[R]] = collections.deque()
    for item in items:
        pending.append(_over().submit(function, item))
        if len(pending) > 1:  # more would only take memory
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


class Parts(Generic[T]):
    """A collection in parts, each made when it is looked at: such as the users of a job in shards, and what is made of them.

    What is asked of users one by one can be asked of each shard by itself, so that no step holds all rows at once. Into how
    many shards users are cut changes nothing of any result. Without users there are no parts.
    """

    def __init__(self, makers: Sequence[Callable[[], T]]) -> None:
        self._makers = makers

    @classmethod
    def of(cls, *parts: T) -> Parts[T]:
        """Parts that are there."""
        return cls([_same(part) for part in parts])

    def __len__(self) -> int:
        return len(self._makers)

    def __iter__(self) -> Iterator[T]:
        return (make() for make in self._makers)

    def __getitem__(self, number: int) -> T:
        return self._makers[number]()

    def each(self, function: Callable[[T], R]) -> list[R]:
        """`function` of each part, in their order, two at a time."""
        return side_by_side(lambda make: function(make()), self._makers)

    def map(self, function: Callable[[T], R]) -> Parts[R]:
        """`function` of each part, anew whenever one is looked at."""
        return Parts([_then(make, function) for make in self._makers])

    def numbered(self) -> Parts[tuple[int, T]]:
        """Each part with its number, from 0."""
        return Parts([_then(make, _with(number)) for number, make in enumerate(self._makers)])

    def held(self, pack: Callable[[T], bytes], unpack: Callable[[bytes], T]) -> Parts[T]:
        """The same parts, made now: one alone stays as it is, and several are held in few bytes."""
        if len(self) < 2:
            return Parts.of(*self)
        return Parts.of(*self.each(pack)).map(unpack)


def _same(part: T) -> Callable[[], T]:
    return lambda: part


def _with(number: int) -> Callable[[T], tuple[int, T]]:
    return lambda part: (number, part)


def _then(make: Callable[[], T], function: Callable[[T], R]) -> Callable[[], R]:
    return lambda: function(make())
