"""The end of a report: what is known of the rows once they are written, without reading them again.

Whoever writes a file sums it up (`summary`): its number of rows, its digest, its largest rows. The commit puts the sums of all
files into the report (`finished`). All of it is a function of the released rows, and so as public as they are; and the same
for every attempt.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.counting.quality import left_out
from headcount.pipelines.sinks.formats import T, times_as_text
from headcount.pipelines.sinks.meanings import meanings, total_metrics

SEAL = "content_sha256"  # the part of a report that is the digest of all others
SHOWN = 10  # rows that a report shows
IN_ORDER = ("step", "least", "age", "window")  # columns of rows that have an order of their own
_LONGEST = 60  # letters of an item there
# By what rows are ranked: the first of these columns that they have, beside the key, or else of their metrics.
_RANKED = (
    ("rank", "ascending"),
    ("count", "descending"),
    ("bounded_count", "descending"),
    ("probability", "descending"),
)


def summary(batch: pa.RecordBatch, keys: Sequence[str] = ()) -> str:
    """The rows of one file, summed up as JSON; `keys` are the columns of what is counted, if rows have them."""
    names = batch.schema.names
    rows = [_shown(row) for row in times_as_text(first_rows(batch, keys, SHOWN)).to_pylist()]
    return json.dumps({"columns": names, "rows": batch.num_rows, "left_out": left_out(batch), "shown": rows})


def first_rows(rows: T, keys: Sequence[str], number: int) -> T:
    """A number of the rows of one file, in their order there: the largest, or the first if there is nothing to rank them by."""
    by = _ranked_by(rows.schema.names, keys)
    if by is None:
        return rows.slice(0, number)
    # Rows are sorted by their keys, and so are those of one rank.
    values = rows.column(by[0])
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    ranked = pa.record_batch({by[0]: whole, "row": np.arange(rows.num_rows)})
    return rows.take(pc.select_k_unstable(ranked, number, [by, ("row", "ascending")]))


def finished(
    report: bytes,
    names: Sequence[str],
    digests: Sequence[bytes],
    summaries: Sequence[str],
    keys: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The report with the rows of all files (of these names, in their order) summed up; its details stay last.

    `keys` are the columns of what is counted, if rows have them, and what each means.
    """
    content = json.loads(report)
    parts = [json.loads(part) for part in summaries]
    columns = parts[0]["columns"]
    told = meanings(columns, dict(keys), content)
    details = content.pop("details", None)
    content["rows"] = sum(part["rows"] for part in parts)
    without = {why: sum(part["left_out"][why] for part in parts) for why in parts[0]["left_out"]}
    if without:
        content["left_out"] = [{"rows": number, "because": why} for why, number in without.items()]
    held = [name for name, _ in keys if name in columns]
    if held:
        content["keys"] = held
    shown = largest(itertools.chain(*(part["shown"] for part in parts)), columns, held, SHOWN)
    content |= {"columns": told, "shown": shown}
    content["files"] = [
        {"name": name, "rows": part["rows"], "sha256": digest.hex()}
        for name, digest, part in zip(names, digests, parts, strict=True)
    ]
    if details is not None:
        content["details"] = details
    return sealed(content)


def largest(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], keys: Sequence[str], number: int
) -> list[dict[str, Any]]:
    """A number of the rows as a report shows them: the largest, those of one rank in the order of their keys; or the first."""
    by = _ranked_by(columns, keys)
    if by is None:
        return [_shown(row) for row in itertools.islice(rows, number)]
    name, sign = by[0], 1 if by[1] == "ascending" else -1
    found = heapq.nsmallest(number, rows, key=lambda row: (sign * row[name], *_in_order(row, keys)))
    return [_shown(row) for row in found]


def _in_order(row: Mapping[str, Any], keys: Sequence[str]) -> Iterator[tuple[bool, Any]]:
    """The key of a row for sorting: what is empty, as it is above the level of a row, comes first."""
    return ((row[key] is not None, row[key]) for key in keys)


def to_json(content: Mapping[str, Any]) -> bytes:
    """The bytes of a report."""
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sealed(content: Mapping[str, Any]) -> bytes:
    """The bytes of a report that holds the digest of its own content, so that a change of it is seen; its details stay last.

    Whoever means to deceive can write a digest, too: only the key and the input, or the ledger, tell who wrote a report.
    """
    parts = {name: part for name, part in content.items() if name not in (SEAL, "details")}
    last = {"details": content["details"]} if "details" in content else {}
    return to_json({**parts, SEAL: _seal(content), **last})


def changed_note(report: Mapping[str, Any]) -> str | None:
    """What is to be said of a report that is not as it was written, or of which that cannot be told; else None."""
    if SEAL not in report:
        return "report.json holds no digest of its content: an earlier version of Headcount wrote it, or it was changed"
    try:
        same = report[SEAL] == _seal(report)
    except ValueError:  # numbers that no report of ours holds
        same = False
    return None if same else "changed: report.json is not as its job wrote it, its content has another digest"


def _seal(content: Mapping[str, Any]) -> str:
    rest = {name: part for name, part in content.items() if name != SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _ranked_by(columns: Sequence[str], keys: Sequence[str]) -> tuple[str, str] | None:
    if not any(key in columns for key in keys) or any(name in columns and name not in keys for name in IN_ORDER):
        return None
    metrics = ((name, "descending") for name in total_metrics(columns))
    return next((by for by in (*_RANKED, *metrics) if by[0] in columns), None)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _shown_value(value) for name, value in row.items()}


def _shown_value(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[: _LONGEST - 1]}…"
    return None if isinstance(value, float) and not math.isfinite(value) else value
