"""Chunks that stay where they are: in a job whose workers are all in this process, a reference travels in their place.

A runner copies each element several times on its way through a shuffle. Here only the reference is copied. A store belongs
to one run and lives as long as that: a step that runs again finds what it found, and every reader finds the same bytes. A
worker in another process has no such store, so that from there the bytes themselves travel.

A store holds a given number of bytes in memory. Further chunks lie on disk, in files that have no name: no other user can open
them, no name tells anything, and they end with the process, however it ends. They are encrypted (AES-256 in counter mode) with
a key that is in the memory of this process alone. So whoever gets the disk later learns nothing but sizes. Which chunks lie
there changes no byte of any result.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from headcount.mechanisms.errors import InputError

_MARK = b"headcount.kept/"  # no Arrow stream begins so
_REFERENCE = re.compile(re.escape(_MARK) + rb"[0-9a-z]+/[0-9]{12}")  # of one length, whatever byte comes next
_FEW = 1 << 12  # bytes that may as well travel
_FILE = 1 << 28  # bytes of a file, after which the next one begins: a file goes when none of its chunks is needed

_numbers = itertools.count()
_stores: dict[str, _Store] = {}


@dataclasses.dataclass
class _File:
    """A file without a name, and how many bytes of it are written, and are still needed."""

    file: BinaryIO
    written: int = 0
    needed: int = 0


@dataclasses.dataclass(frozen=True)
class _OnDisk:
    """Where a chunk lies, and its number, which no other chunk of the store has."""

    file: _File
    start: int
    size: int
    number: int


class _Store:
    """The chunks of a run by their references, of which at most `limit` bytes are in memory (None: all of them)."""

    def __init__(self, limit: int | None) -> None:
        self._limit, self._held = limit, 0
        self._chunks: dict[bytes, bytes | _OnDisk] = {}
        self._last: _File | None = None
        self._key, self._numbers = os.urandom(32), itertools.count()
        self._lock = threading.Lock()  # steps work in threads

    def put(self, reference: bytes, chunk: bytes) -> None:
        with self._lock:
            if self._limit is None or self._held + len(chunk) <= self._limit:
                self._held += len(chunk)
                self._chunks[reference] = chunk
            else:
                self._chunks[reference] = self._written(chunk)

    def get(self, reference: bytes) -> bytes:
        with self._lock:
            place = self._chunks[reference]
            if isinstance(place, bytes):
                return place
            place.file.file.seek(place.start)
            written = place.file.file.read(place.size)
        return self._crypted(written, place.number)

    def forget(self, all_but: set[bytes]) -> None:
        with self._lock:
            for reference in self._chunks.keys() - all_but:
                place = self._chunks.pop(reference)
                if isinstance(place, bytes):
                    self._held -= len(place)
                    continue
                place.file.needed -= place.size
                if place.file.needed == 0:
                    self._close(place.file)

    def _crypted(self, data: bytes, number: int) -> bytes:
        """The chunk of this number encrypted, or what was encrypted so: no two chunks share a counter."""
        first = number.to_bytes(8, "big") + bytes(8)
        return Cipher(algorithms.AES(self._key), modes.CTR(first)).encryptor().update(data)

    def _written(self, chunk: bytes) -> _OnDisk:
        number = next(self._numbers)
        try:
            if self._last is None or self._last.written >= _FILE:
                self._last = _File(tempfile.TemporaryFile(prefix="headcount-"))
            to = self._last
            to.file.seek(to.written)
            to.file.write(self._crypted(chunk, number))
            to.file.flush()
        except OSError as error:
            if self._last is not None and self._last.needed == 0:
                self._close(self._last)
            raise InputError(
                f"rows that wait for a step cannot be written to {tempfile.gettempdir()!r}: {error.strerror}; make room "
                "there, set TMPDIR to a larger disk, or give more memory (--memory-limit)"
            ) from None
        place = _OnDisk(to, to.written, len(chunk), number)
        to.written += len(chunk)
        to.needed += len(chunk)
        return place

    def _close(self, file: _File) -> None:
        with suppress(OSError):  # of bytes that a full disk has not taken
            file.file.close()
        self._last = None if file is self._last else self._last


@dataclasses.dataclass(frozen=True)
class Keeper:
    """Puts chunks into the store of a run, if it is in this process; None is a run without one."""

    store: str | None = None

    def __call__(self, chunk: bytes) -> bytes:
        """A reference to the chunk, or the chunk itself."""
        store = _stores.get(self.store) if self.store is not None else None
        if store is None or len(chunk) < _FEW:
            return chunk
        reference = b"%b%b/%012d" % (_MARK, str(self.store).encode(), next(_numbers))
        store.put(reference, chunk)
        return reference


def found(chunk: bytes) -> bytes:
    """The chunk that a reference is of; other bytes are what they are."""
    if not chunk.startswith(_MARK):
        return chunk
    store = _stores.get(chunk[len(_MARK) :].split(b"/")[0].decode())
    if store is None:
        raise RuntimeError("a reference to a chunk left the process or the run that it is of")  # a bug
    return store.get(chunk)


def forget(store: str, waiting: Iterable[bytes]) -> None:
    """Drops the chunks of a run that no step will read: those without a reference in the bytes that wait for one."""
    if store in _stores:
        held = (data for data in waiting if _MARK in data)  # twice as fast as to look for the whole pattern
        _stores[store].forget({each for data in held for each in _REFERENCE.findall(data)})


@contextmanager
def keeping(store: str, limit: int | None = None) -> Iterator[None]:
    """The time of a run, whose store has this name, as no other has, and at most `limit` bytes in memory (None: any)."""
    _stores[store] = _Store(limit)
    try:
        yield
    finally:
        _stores.pop(store).forget(set())
