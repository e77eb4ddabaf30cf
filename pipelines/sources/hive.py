"""Columns in the names of folders, as Hive and Spark write them: `day=2026-11-01/country=de/part-0.parquet`.

They are texts, whatever they look like; letters that no folder may have are written with a percent sign.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from urllib.parse import unquote

from headcount.mechanisms.errors import InputError
from headcount.pipelines.storage.bigquery import is_table
from headcount.pipelines.storage.stores import is_local

_NULL = "__HIVE_DEFAULT_PARTITION__"


@functools.lru_cache(maxsize=1024)
def folder_columns(path: str) -> dict[str, list[str]]:
    """{name: value as it is written} of the folders that a file lies in; several values, if a name is there again."""
    found: dict[str, list[str]] = {}
    if is_table(path):
        return found
    for folder in (os.path.abspath(path) if is_local(path) else path).split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if name and equals:
            found.setdefault(unquote(name), []).append(value)
    return found


def folder_value(path: str, name: str) -> str | None:
    """The text of a column that the name of a folder holds; None is a null."""
    first, *more = folder_columns(path)[name]
    if more:
        raise InputError(f"{path}: two folders above each other are named {name}=...: rename one of them")
    try:
        return None if first == _NULL else unquote(first, errors="strict")
    except UnicodeDecodeError:
        raise InputError(f"{path}: the folder {name}=... has a name that is no UTF-8 text: rename it") from None


def check_folders(paths: Iterable[str], names: Iterable[str]) -> None:
    """Refuses files of which some have one of these columns in the names of their folders, and some have not."""
    paths = list(paths)
    for name in names:
        having = [name in folder_columns(path) for path in paths]
        for path, has in zip(paths, having, strict=True):
            if has:
                folder_value(path, name)
        if any(having) and not all(having):
            one, other = paths[having.index(True)], paths[having.index(False)]
            raise InputError(
                f"{one}: column {name!r} is in the name of a folder ({name}=...), but {other} lies in no such folder; "
                "all files must have it"
            )
