"""How rows become one digest and reports another, and what of them may be recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.csv

DIGESTS = Path(__file__).with_name("digests.json")

# Who changes words records reports, and does not record other rows by mistake.
RECORDED = {None: (), "report": ("report",), "rows": ("rows", "report")}

# Of a report, what is another with every version and day.
_OWN = ("versions", "headcount", "date", "content_sha256")

Digests = dict[str, dict[str, str]]


def after(known: Digests, name: str, content: Mapping[str, Any], record: str | None) -> tuple[Digests, list[str]]:
    """The digests with those parts of a job that are recorded, and which of the others differ."""
    found = {part: digest(each) for part, each in content.items()}
    before = known.get(name, {})
    written = before | {part: made for part, made in found.items() if part in RECORDED[record]}
    return known | {name: written}, [part for part, made in found.items() if written.get(part) != made]


def digest(content: Any) -> str:
    """A digest of rows in their order, or of a report.

    Floats count with seven digits: the last ones of a fitted curve depend on the processor.
    """
    return hashlib.blake2b(json.dumps(_plain(content), sort_keys=True).encode(), digest_size=12).hexdigest()


def parts(out: Path, data: Path) -> dict[str, Any]:
    """The rows of an output of CSV files, and its report; `data` is the folder of its input."""
    tables = [(path.name, pyarrow.csv.read_csv(path)) for path in sorted(out.glob("*.csv"))]
    rows = [[name, table.column_names, table.to_pylist()] for name, table in tables]
    return {"rows": rows, "report": told(json.loads((out / "report.json").read_text().replace(str(data), "DATA")))}


def told(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report without what made it, and when."""
    return {name: entry for name, entry in report.items() if name not in _OWN}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    if isinstance(value, Iterable):
        return [_plain(entry) for entry in value]
    return str(value)
