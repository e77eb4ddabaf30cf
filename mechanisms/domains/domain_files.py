"""Public domains in files: Parquet or CSV with the key columns, a text file of one column, or a list or range for columns.

A small one travels with the job. A large one stays where it is: workers read it themselves, and refuse it if it has changed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES
from headcount.mechanisms.batches.domain import Domain, PartDomain, StoredDomain, UnnamedDomain
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.columns.keys import ITEM, Keys
from headcount.mechanisms.columns.public_files import (
    TRAVELS_BYTES,
    Given,
    absolute,
    read_local,
    stamp,
    table_columns,
    utf8,
)
from headcount.mechanisms.domains.domain import KeyList, array_of, in_order, names_of, names_of_product
from headcount.mechanisms.domains.key_ranges import KeyRange, parse_range, range_of
from headcount.mechanisms.domains.partly_public import PartlyPublic, check_combinations, partly_public
from headcount.mechanisms.errors import InputError, ParameterError

_Source: TypeAlias = str | KeyRange | KeyList  # of one column: a file, a range, or the values themselves


@dataclasses.dataclass(frozen=True)
class DomainFile:
    """A public domain in a file, or in a file, a range or a list for each key column, whose combinations are the keys.

    A file that ends in .parquet or .csv has the key columns, by their names in the output; others are left alone. Any other
    file has the values of one column, one per line. Files are read by `read`, also by the workers. A text like
    `2026-11-01..2026-11-30`, or a tuple of two ends, is a range, and a Python list has the values themselves. Where some key
    columns have none of these, keys are partly public. `columns` are all key columns, where they are known beforehand.
    """

    path: str | Mapping[str, Any]
    max_item_bytes: int = MAX_ITEM_BYTES
    read: Callable[[str], bytes] = read_local
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        texts = [self.path] if isinstance(self.path, str) else [*self.path]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise ParameterError(
                "a domain file is given by its path, or by a mapping from each key column to the path of its list",
                "domain",
            )
        if not isinstance(self.path, str):
            object.__setattr__(self, "path", {name: _source(name, given) for name, given in self.path.items()})

    @property
    def sources(self) -> list[_Source]:
        """All files, ranges and lists."""
        return [self.path] if isinstance(self.path, str) else list(self.path.values())

    @property
    def public(self) -> list[str]:
        """The columns that have a list, each with what it is, in words."""
        assert not isinstance(self.path, str)
        words = {KeyRange: lambda each: each.text, KeyList: lambda each: f"{len(each):,} values"}
        return [f"{name}={words.get(type(each), lambda _: 'a list')(each)}" for name, each in self.path.items()]

    def unnamed(self) -> UnnamedDomain | PartDomain:
        """Its size, before the types of the key columns are known."""
        if isinstance(self.path, str):
            return UnnamedDomain(len(_key_list(self.path, self._content(self.path), None)))
        size = 1
        for name, each in self.path.items():
            size *= each.size(name) if isinstance(each, KeyRange) else len(_list_of(name, each, self._content(each)))
        if not self._is_partly(self.columns):
            return UnnamedDomain(size)
        check_combinations(size)
        return PartDomain(size, self.public)

    def domain(self, keys: Keys) -> Domain | PartlyPublic:
        """The domain of these keys."""
        contents = [self._content(each) for each in self.sources]
        if self._is_partly(keys.names):
            return partly_public(self._lists(contents, keys), keys, self.public)
        names = in_order(self._names(contents, keys), self._given)
        if names.nbytes <= TRAVELS_BYTES:
            return Domain(names)
        return StoredDomain(_Load(self._absolute(), keys, tuple(map(stamp, contents))), names)

    def _is_partly(self, columns: Sequence[str]) -> bool:
        """Whether some of the key columns have a list, and others have none."""
        return not isinstance(self.path, str) and {*self.path} < {*columns}

    def _absolute(self) -> DomainFile:
        """The same wherever a worker runs."""
        path = self.path
        made = absolute(path) if isinstance(path, str) else {name: absolute(each) for name, each in path.items()}
        return dataclasses.replace(self, path=made)

    @property
    def _given(self) -> Given:
        return _given(self.path) if isinstance(self.path, str) else Given()

    def _names(self, contents: Sequence[bytes], keys: Keys) -> Names:
        """The names of the keys, in the order of the files."""
        if isinstance(self.path, str):
            return names_of(_key_list(self.path, contents[0], keys.names), keys, self.max_item_bytes)
        if {*self.path} != {*keys.names}:
            given, wanted = (", ".join(map(repr, names)) for names in (self.path, keys.names))
            raise ParameterError(f"the domain has a list for {given}: the key columns are {wanted}", "domain")
        return names_of_product(self._lists(contents, keys), keys, self.max_item_bytes)

    def _lists(self, contents: Sequence[bytes], keys: Keys) -> dict[str, KeyList]:
        """The values of each column that has a list."""
        assert not isinstance(self.path, str)
        fields = dict(zip(keys.names, keys.fields, strict=True))
        found = {}
        for (name, each), content in zip(self.path.items(), contents, strict=True):
            if isinstance(each, KeyRange):
                found[name] = KeyList({name: each.values(fields[name])}, Given(f"domain {each.text!r}", "value"))
            else:
                found[name] = _list_of(name, each, content)
        return found

    def _content(self, source: _Source) -> bytes:
        """The content of a file; what is no file has none."""
        if not isinstance(source, str):
            return b""
        try:
            return self.read(source)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "no such file, or not readable"
            raise ParameterError(f"domain {source!r} cannot be read: {reason}", "domain") from error


@dataclasses.dataclass(frozen=True)
class _Load:
    """What reads the names of a stored domain again, elsewhere: files with other bytes are refused."""

    file: DomainFile
    keys: Keys
    stamps: tuple[str, ...]

    def __call__(self) -> Names:
        contents = []
        for path, expected in zip(self.file.sources, self.stamps, strict=True):
            try:
                content = self.file.read(path) if isinstance(path, str) else b""
            except (OSError, ValueError):
                raise InputError(
                    f"domain {path!r} cannot be read by a worker: a large domain must lie where all workers can read it"
                ) from None
            if stamp(content) != expected:
                raise InputError(f"domain {path!r} has changed since the job began: run the job again")
            contents.append(content)
        return self.file._names(contents, self.keys)


def _source(name: str, given: Any) -> _Source:
    """What is given for a key column: a file, a range, or values."""
    if isinstance(given, KeyRange | KeyList):
        return given
    if isinstance(given, tuple):
        return range_of(given)
    if isinstance(given, list):
        if not given:
            raise ParameterError(f"the domain has an empty list for column {name!r}: give at least one value", "domain")
        return KeyList({name: array_of(name, given)}, Given(f"domain of column {name!r}", "value"))
    if not isinstance(given, str | os.PathLike) or not os.fspath(given):
        raise ParameterError(
            f"the domain of column {name!r} must be a file, a range like 2026-11-01..2026-11-30, or a list of values, got a "
            f"{type(given).__name__}",
            "domain",
        )
    path = os.fspath(given)
    return parse_range(path) or path


def _list_of(name: str, source: str | KeyList, content: bytes) -> KeyList:
    return source if isinstance(source, KeyList) else _key_list(source, content, [name])


def _given(path: str) -> Given:
    return Given(f"domain {path!r}", "row" if path.endswith((".csv", ".parquet")) else "line")


def _key_list(path: str, content: bytes, wanted: Sequence[str] | None) -> KeyList:
    """The columns of a file that are wanted; None for whatever it has."""
    given = _given(path)
    columns = table_columns(path, content, wanted, given)
    if columns is not None:
        return KeyList(columns, given)
    if wanted is not None and len(wanted) > 1:
        listed = ", ".join(map(repr, wanted))
        raise given.error(
            f"has one value per line, but a key has the columns {listed}: give a .csv or .parquet file with these columns, or "
            "a list for each of them"
        )
    return KeyList({ITEM if wanted is None else wanted[0]: _lines(content, given)}, given)


def _lines(content: bytes, given: Given) -> pa.Array:
    """The lines of a text file, none of which is empty."""
    text = utf8(content, given).replace(b"\r\n", b"\n").removesuffix(b"\n")
    if not text:
        raise given.error("is empty: give one item per line")
    lines = pc.split_pattern(pa.array([text], pa.binary()).cast(pa.string()), "\n").values
    empty = pc.index(lines, "").as_py()
    if empty >= 0:
        raise given.error("is empty", empty)
    return lines
