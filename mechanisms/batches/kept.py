"""Chunks that stay where they are: in a job whose workers are all in this process, a reference travels in their place.

A runner copies each element several times on its way through a shuffle. Here only the reference is copied. A store belongs
to one run and lives as long as that: a step that runs again finds what it found, and every reader finds the same bytes. A
worker in another process has no such store, so that from there the bytes themselves travel.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

_MARK = b"headcount.kept/"  # no Arrow stream begins so
_FEW = 1 << 12  # bytes that may as well travel

_numbers = itertools.count()
_stores: dict[str, dict[bytes, bytes]] = {}


@dataclasses.dataclass(frozen=True)
class Keeper:
    """Puts chunks into the store of a run, if it is in this process; None is a run without one."""

    store: str | None = None

    def __call__(self, chunk: bytes) -> bytes:
        """A reference to the chunk, or the chunk itself."""
        store = _stores.get(self.store) if self.store is not None else None
        if store is None or len(chunk) < _FEW:
            return chunk
        reference = b"%b%b/%d" % (_MARK, str(self.store).encode(), next(_numbers))
        store[reference] = chunk
        return reference


def found(chunk: bytes) -> bytes:
    """The chunk that a reference is of; other bytes are what they are."""
    if not chunk.startswith(_MARK):
        return chunk
    store = _stores.get(chunk[len(_MARK) :].split(b"/")[0].decode())
    if store is None:
        raise RuntimeError("a reference to a chunk left the process or the run that it is of")  # a bug
    return store[chunk]


@contextmanager
def keeping(store: str) -> Iterator[None]:
    """The time of a run, whose store has this name, as no other has."""
    _stores[store] = {}
    try:
        yield
    finally:
        del _stores[store]
