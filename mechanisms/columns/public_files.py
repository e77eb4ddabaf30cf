"""Public files beside the data: their bytes, their columns, and what is said of them. Domains and joined tables lie in such."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headcount.mechanisms.errors import ParameterError

TRAVELS_BYTES = 1 << 20  # what is up to this size is part of the job; more are read by the workers


def read_local(path: str) -> bytes:
    """The content of a file of this machine."""
    with open(path, "rb") as file:
        return file.read()


@dataclasses.dataclass(frozen=True)
class Given:
    """Where keys come from, for messages: what it is called, what a row of it is called, and the parameter that gave it."""

    where: str = "the domain"
    row: str = "key"
    parameter: str = "domain"

    def error(self, problem: str, row: int | None = None) -> ParameterError:
        """An error about all of it, or about a row."""
        told = "" if row is None else f": {self.row} {row + 1}"
        return ParameterError(f"{self.where}{told} {problem}", self.parameter)


def absolute(source: Any) -> Any:
    """A path that also holds for a worker, which has another working directory; what is no path is as it is."""
    return os.path.abspath(source) if isinstance(source, str) and "://" not in source else source


def stamp(content: bytes) -> str:
    """What tells the bytes of a file from others."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def table_columns(path: str, content: bytes, wanted: Sequence[str] | None, given: Given) -> dict[str, pa.Array] | None:
    """The columns of a Parquet file, or the texts of a CSV file, that are wanted; None if a file is neither by its name."""
    if len(content) >> 31:
        raise given.error("has more than 2 GB: shorten it")
    if path.endswith(".parquet"):
        return _parquet(content, wanted, given)
    return _csv(content, wanted, given) if path.endswith(".csv") else None


def _csv(content: bytes, wanted: Sequence[str] | None, given: Given) -> dict[str, pa.Array]:
    from pyarrow import csv as arrow_csv

    text = utf8(content, given)
    header = next(csv.reader(io.StringIO(text[: 1 << 20].decode("utf-8", "ignore"), newline="")), None)
    names = _present(header or [], wanted, given)
    try:
        table = arrow_csv.read_csv(
            pa.py_buffer(text),
            arrow_csv.ReadOptions(use_threads=False),  # threads would lose row numbers
            arrow_csv.ParseOptions(newlines_in_values=True),
            arrow_csv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        ragged = re.match(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+):", str(error))
        if ragged:
            row, width, found = map(int, ragged.groups())
            raise given.error(f"has {found} fields, but the header has {width}", row - 2) from None
        raise given.error("is no CSV file") from None
    return {name: table.column(name).combine_chunks() for name in names}


def _parquet(content: bytes, wanted: Sequence[str] | None, given: Given) -> dict[str, pa.Array]:
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(content))
        names = _present(file.schema_arrow.names, wanted, given)
        table = file.read(columns=names)
        return {name: table.column(name).combine_chunks() for name in names}
    except (pa.ArrowInvalid, OSError):
        raise given.error("is no Parquet file, or damaged") from None


def _present(found: Sequence[str], wanted: Sequence[str] | None, given: Given) -> list[str]:
    """The columns to read, all of which must be there, once."""
    for name in found if wanted is None else wanted:
        if found.count(name) != 1:
            problem = "has no column" if name not in found else "has more than one column"
            hint = "; a list without a header is a text file, such as .txt" if len(found) == 1 else ""
            raise given.error(f"{problem} {name!r}{hint}")
    if not found:
        raise given.error("is empty: the first row of a .csv file names its columns")
    return list(found if wanted is None else wanted)


def utf8(content: bytes, given: Given) -> bytes:
    """The content of a text file, without the mark that some begin with."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        pa.array([content], pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        raise given.error("is not a text file in UTF-8") from None
    return content
