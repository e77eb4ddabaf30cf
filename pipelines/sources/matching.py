"""Which files a job reads: those that patterns match, or that lie in a folder; and of which format they are.

A folder stands for the files in it and below it, as Hive and Spark see them. Names that begin with a dot or an underscore are
hidden there (`_SUCCESS`, `_temporary`, `.crc`), unless they are a column of Hive's (`_day=1`). Results of Headcount are no
events: a folder's report.json is passed over, and so are the files that it lists.
"""

from __future__ import annotations

import dataclasses
import glob
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.sinks.output import REPORT, listed_files
from headcount.pipelines.sources import bigquery as source_bigquery
from headcount.pipelines.sources.files import compression
from headcount.pipelines.storage import bigquery, stores
from headcount.pipelines.storage.stores import filesystem, is_folder, is_local, reason
from headcount.pipelines.suggestions import did_you_mean, nearest

T = TypeVar("T")

_FORMATS = {
    ".parquet": "parquet",
    ".avro": "avro",
    ".csv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_MOST_REPORT = 1 << 26  # bytes; ours has a few lines for each of at most 10,000 files
TEXT_FORMATS = ("csv", "json")


@dataclasses.dataclass(frozen=True)
class InputFile:
    """One file, or one table, and its size in bytes."""

    path: str
    size: int


def files_of(patterns: Sequence[str]) -> list[InputFile]:
    """The files that the patterns name, each once, sorted by path; refuses a pattern without files."""
    found: dict[str, InputFile] = {}
    for pattern in patterns:
        for file in _match(pattern):
            found.setdefault(os.path.abspath(file.path) if is_local(file.path) else file.path, file)
    return sorted(found.values(), key=lambda file: file.path)


def format_of(patterns: Sequence[str], paths: Sequence[str], said: str | None) -> str:
    """The format of all files: as it is said, or by their names."""
    if said is not None:
        tables = [path for path in paths if bigquery.is_table(path)]
        if tables:
            raise ParameterError(f"--input-format {said} is for files, but {tables[0]} is a table: leave it out")
        return _FORMATS[f".{said}"]
    kinds = [_format(path) for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind is None:
            raise InputError(f"{path}: {_unknown(path)}{_pattern_instead(patterns, paths)}")
        if kind != kinds[0]:
            raise InputError(
                f"{path} is {kind}, but {paths[0]} is {kinds[0]}; all files must be of one format"
                f"{_pattern_instead(patterns, paths)}"
            )
    return kinds[0] or ""


def is_compressed(path: str) -> bool:
    """Whether a file's name says so."""
    return compression(path) is not None


def _match(pattern: str) -> list[InputFile]:
    if bigquery.is_table(pattern):
        return [InputFile(pattern, source_bigquery.size(pattern))]
    return _match_local(pattern) if is_local(pattern) else _match_remote(pattern)


def _match_local(pattern: str) -> list[InputFile]:
    """Local files by the shell's rules: Beam's own matching walks the whole tree and knows no relative patterns."""
    if os.path.isdir(pattern):
        return _in_folder(pattern)
    paths = [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)
    files = [path for path in paths if not os.path.isdir(path)]
    if not files:
        raise InputError(_no_match(pattern, paths) if glob.has_magic(pattern) else _no_file(pattern))
    for path in files:
        if not os.access(path, os.R_OK):
            raise InputError(f"{path}: no permission to read it")
    return [InputFile(path, os.path.getsize(path)) for path in files]


def _match_remote(pattern: str) -> list[InputFile]:
    """Files by Beam's matching, with their sizes, by one listing."""
    filesystem(pattern)
    if pattern.endswith("/") or (not glob.has_magic(pattern) and _asked(pattern, is_folder)):
        return _in_folder(pattern)
    files = [InputFile(path, size) for path, size in _asked(pattern, stores.matched) if not path.endswith("/")]
    if files:
        return files
    if glob.has_magic(pattern):
        raise InputError(f"no file matches {pattern!r}; ** stands for folders of any depth")
    return _in_folder(pattern)


def _asked(path: str, question: Callable[[str], T]) -> T:
    """What a storage answers; whatever it raises is one line."""
    try:
        return question(path)
    except Exception as error:  # every storage has its own
        raise InputError(f"{path!r} cannot be listed: {reason(error)}") from None


def _in_folder(folder: str) -> list[InputFile]:
    files = _asked(folder, _files_in)
    if not files:
        missing = "" if is_local(folder) else ", or is not there"
        raise InputError(
            f"{folder!r} holds no files to read{missing}; names that begin with a dot or an underscore are passed over, and so "
            "are results of Headcount"
        )
    for file in files:
        if is_local(folder) and not os.access(file.path, os.R_OK):
            raise InputError(f"{file.path}: no permission to read it")
    return files


def _no_match(pattern: str, matched: Sequence[str]) -> str:
    """What a pattern without files gets, which maybe matches folders, or would match files in the folders below."""
    for folder in matched:
        below = _pattern_of(pattern, [file.path for file in _asked(folder, _files_in)])
        if below is not None:
            return f"{pattern!r} matches folders alone: for the files in them give {below!r}"
    start, name = os.path.split(pattern)
    if any(glob.glob(os.path.join(start, deeper, name)) for deeper in ("*", "*/*", "*/*/*")):
        return (
            f"no file matches {pattern!r}, but some do in the folders below: give {os.path.join(start, '**', name)!r}"
        )
    return f"no file matches {pattern!r}"


def _no_file(path: str) -> str:
    folder, name = os.path.split(path)
    there = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    near = did_you_mean(repr(os.path.join(folder, other)) for other in nearest(name, there))
    return f"no such file or folder: {path!r}{near and f'; {near}'}"


def _files_in(folder: str) -> list[InputFile]:
    """The files of a folder and of all folders in it; none if there is no such folder."""
    found = [InputFile(path, size) for path, size in stores.files_below(folder, _is_hidden)]
    results: set[str] = set()
    for file in found:
        parent, _, name = file.path.rpartition("/")
        if name == REPORT and file.size <= _MOST_REPORT:
            names = listed_files(stores.read(file.path))
            results |= set() if names is None else {stores.join(parent, result) for result in (REPORT, *names)}
    return [file for file in found if file.path not in results]


def _is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is passed over."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _pattern_of(folder: str, paths: Sequence[str]) -> str | None:
    """A pattern that matches the files of a folder, at any depth, that have the commonest known ending."""
    counted = Counter(_ending(path) for path in paths if _format(path) is not None)
    if not counted:
        return None
    # To the shell ** is any number of folders, to Beam any letters at all.
    return f"{folder.rstrip('/')}/{'**/*' if is_local(folder) else '**'}{counted.most_common(1)[0][0]}"


def _ending(path: str) -> str:
    start, ending = os.path.splitext(path)
    return os.path.splitext(start)[1] + ending if is_compressed(path) else ending


def _format(path: str) -> str | None:
    if bigquery.is_table(path):
        return "bigquery"
    name = path.lower()
    if is_compressed(path):
        name = os.path.splitext(name)[0]
    format = _FORMATS.get(os.path.splitext(name)[1])
    return None if is_compressed(path) and format not in TEXT_FORMATS else format


def _unknown(path: str) -> str:
    if path.lower().endswith((".tsv", ".tab")):
        return "give --input-format csv --delimiter tab, if this is a table of text with tabs between its columns"
    return (
        f"unknown kind of file; the names of input files end in {', '.join(_FORMATS)}, those of text also in .gz and the like "
        "after it; of others say it by --input-format"
    )


def _pattern_instead(patterns: Sequence[str], paths: Sequence[str]) -> str:
    """What to give in place of a folder that also holds files that are not meant."""
    for pattern in patterns:
        inside = [path for path in paths if path.startswith(f"{pattern.rstrip('/')}/")]
        instead = _pattern_of(pattern, inside) if len(inside) > 1 else None
        if instead is not None:
            return f"; for some files of a folder give a pattern, such as {instead!r}"
    return ""
