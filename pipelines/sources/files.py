"""Opening input files: local or on any filesystem that Beam knows, compressed or not, with errors that hold no data.

Libraries put the bytes that they choke on into their messages. Here every failure of theirs becomes one line
that names the file and nothing of its content; the original is dropped.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import zstandard

from headcount.mechanisms.errors import HeadcountError, InputError
from headcount.pipelines.storage.stores import is_local, opened

T = TypeVar("T")

_CHUNK = 1 << 18  # compressed bytes at a time
_PIECE = 1 << 10  # of them to decompress at a time: gzip and zstd make at most 50 MB of it, whatever it holds
_MOST = 1 << 20  # what bzip2 and lzma make of it at a time, which know no such limit of their own
_BUFFER = 1 << 20

_ENDINGS = {".gz": "gzip", ".deflate": "deflate", ".bz2": "bzip2", ".xz": "lzma", ".lzma": "lzma"}
_ENDINGS |= {".zst": "zstd", ".zstd": "zstd"}
_DECODERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "deflate": zlib.decompressobj,
    "bzip2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
    "zstd": lambda: zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj(),
}


def compression(path: str) -> str | None:
    """How a file is compressed, by the end of its name, as Beam knows these; None if it is not."""
    name = path.lower()
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), None)


def open_bytes(path: str) -> io.BufferedIOBase:
    """The file as it lies there."""
    if is_local(path):
        return open(path, "rb")
    file: io.BufferedIOBase = opened(path)
    return file


def open_text(path: str) -> io.BufferedIOBase:
    """The bytes of a text file, decompressed if its name says so; a truncated stream is an error.

    Beam's own decompression takes a truncated file for a shorter one, which would drop rows in silence.
    """
    raw = open_bytes(path)
    kind = compression(path)
    return raw if kind is None else io.BufferedReader(_Decompressed(raw, _DECODERS[kind]), _BUFFER)


@contextmanager
def reading(path: str, kind: str) -> Iterator[None]:
    """Turns whatever a library raises about a file into an InputError of one line, without its message."""
    try:
        yield
    except HeadcountError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except MemoryError:
        raise
    except PermissionError:
        raise InputError(f"{path}: no permission to read it") from None
    except Exception as error:
        name = type(error).__name__
        raise InputError(
            f"{path} cannot be read: it is truncated, damaged or no {kind} file ({name}); if it is of another kind, give "
            "--input-format"
        ) from None


def guarded(path: str, kind: str, elements: Iterable[T]) -> Iterator[T]:
    """The elements of a library's reader, with its failures turned as by `reading`; those of the caller are not."""
    with reading(path, kind):
        yield from elements


class _Decompressed(io.RawIOBase):
    """A compressed file of one or more members, read as one stream."""

    def __init__(self, raw: io.BufferedIOBase, make_decoder: Callable[[], Any]) -> None:
        self._raw = raw
        self._make_decoder = make_decoder
        self._decoder: Any = None  # None: between two members
        self._input = memoryview(b"")
        self._output = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            held = not getattr(self._decoder, "needs_input", True)  # it has more to give of what it was given
            data = self._input if self._input or held else memoryview(self._raw.read(_CHUNK))
            if not data and not held and self._decoder is not None:
                raise EOFError("the compressed stream has no end")
            if not data and not held:
                return 0
            if self._decoder is None:
                self._decoder = self._make_decoder()
            piece = data[: 0 if held else _PIECE]
            limit = (_MOST,) if hasattr(self._decoder, "needs_input") else ()
            self._output = memoryview(self._decoder.decompress(piece, *limit))
            unused = 0
            if self._decoder.eof:
                unused = len(self._decoder.unused_data)
                self._decoder = None
            self._input = data[len(piece) - unused :]
        size = min(len(buffer), len(self._output))
        buffer[:size] = self._output[:size]
        self._output = self._output[size:]
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
