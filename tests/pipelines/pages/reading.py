"""Reads a page back: its texts and its numbers, and every number that a release allows it to hold.

Nothing of the code that makes pages is used here: roundings and derived numbers are stated again.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?:[MBT]\b)?")
_VOID = ("meta", "br", "rect", "line", "circle", "path", "polygon", "polyline")
# What sentences and charts hold whatever the release is: shares of noise and of coins, 0, SHA-256, and round numbers of axes.
_CONSTANTS = {"0", "1", "10", "50", "95", "100", "256"}


class Page(HTMLParser):
    """The texts of a page, the tags and attributes in it, and the rows of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.tables: list[list[list[str]]] = []
        self.widths: list[list[float]] = []  # of the bars of each table
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every tag is closed"

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append((tag, given))
        self.texts += [given[name] for name in ("aria-label", "title", "alt") if name in given]
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
            self.widths.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "rect" and "fill" in given.get("class", "").split():
            self.widths[-1].append(float(given["width"].removesuffix("%")))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" in self._open:
            return
        self.texts.append(data)
        if self._open and ({"td", "th"} & {*self._open}):
            self.tables[-1][-1][-1] += data

    def numbers(self) -> Iterator[tuple[str, str]]:
        """Every number of the texts, and where it stands."""
        for text in self.texts:
            yield from ((found, text) for found in _NUMBER.findall(text))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def shown(value: float) -> set[str]:
    """A number in all the ways in which a page may round it: whole, to four, six or fifteen digits; as percent to four."""
    if not math.isfinite(value):
        return set()
    ways = {f"{value:.4g}", f"{value:.6g}", f"{value:.15g}", f"{100 * value:.4g}", f"{100 * value:.0f}"}
    ways |= {f"{round(value):,}", str(round(value))} if abs(value) >= 1000 or value == round(value) else set()
    return {way.lstrip("-") for way in ways}


def worded(value: float, low: float, high: float) -> set[str]:
    """A number by its range: as it is, or as about one digit where the range is wider than the number."""
    if high - low <= abs(value):
        return signed(value)
    first = float(f"{value:.0e}")
    return {f"about {way}" for way in signed(first if low <= first <= high else value)}


def signed(value: float) -> set[str]:
    """The same with its sign."""
    return {f"-{way}" if value < 0 else way for way in shown(value)}


def allowed(folder: Path) -> set[str]:
    """All numbers that the page of a release may hold."""
    report, rows = json.loads((folder / "report.json").read_text()), rows_of(folder)
    found = {*_CONSTANTS, *_axes()}
    for value in (*_leaves(report), *(leaf for row in rows for leaf in _leaves(row))):
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, int | float):
            found |= shown(value) | (shown(float(f"{value:.0e}")) if math.isfinite(value) else set())
        else:
            found |= {*_NUMBER.findall(str(value))}
    return found | _derived(report, rows)


def _axes() -> set[str]:
    """The numbers along axes: 1, 2 or 5 times a power of ten."""
    sizes = [times * 10.0**power for times in (1, 2, 5) for power in range(-12, 15)]
    letters = (("", 1.0), ("M", 1e6), ("B", 1e9), ("T", 1e12))
    plain = {f"{size / unit:.4g}{letter}" for size in sizes for letter, unit in letters}
    return plain | {f"{size:,.0f}" for size in sizes if size >= 1000}


def _derived(report: Mapping[str, Any], rows: list[dict[str, Any]]) -> set[str]:
    """What is counted or computed: shown rows, items of little noise or error, items that have no logarithm, a guess's chance,
    half of the range of the noise, and for estimates a quarter of the interval; of people, who was lost, and their groups."""
    guarantee = report["details"]["guarantee"]
    loss = math.exp(min(guarantee["epsilon"], 100))
    chance = min(1, (loss + guarantee["delta"]) / (1 + loss))
    found = {f"{math.ceil(1000 * chance - 1e-9) / 10:g}"}
    number = len(rows)
    found |= {f"{min(number, most):,}" for most in (20, 50, 62, 200)}
    found |= {f"{min(number, 50) - first}" for first in (10, 20)}
    public = [each.partition("=")[0] for each in report["details"]["parameters"].get("public_columns", [])]
    named = {tuple(row[key] for key in report["keys"] if key not in public) for row in rows if public}
    found |= {f"{len(named):,}", f"{min(len(named), 12)}"} if public else set()
    size = next((name for name in ("count", "bounded_count", "probability") if name in report["columns"]), None)
    noise = next((name for name in ("noise_stddev", "error") if name in report["columns"]), None)
    if size is not None and noise is not None and report.get("keys"):
        off = [row[noise] for row in rows]
        if "95 % interval" in report["columns"].get("low", ""):
            off = [(row["high"] - row["low"]) / (2 * 1.959963984540054) for row in rows]
            found = found.union(*map(shown, off))
        found.add(f"{sum(each <= 0.1 * row[size] for each, row in zip(off, rows, strict=True)):,}")
        found.add(f"{sum(not (each > 0 and row[size] > 0) for each, row in zip(off, rows, strict=True)):,}")
    for before, row in itertools.pairwise(rows):
        if "condition" in row:
            found |= shown(before["count"] - row["count"]) | shown(1 - (row["share_of_before"] or 0))
    if any("window" in row for row in rows):  # lines over days, along round numbers
        found |= {f"{k * times * 10**power:,}" for k in range(8) for times in (1, 2, 5) for power in range(9)}
    for name in (*report.get("keys", []), "cohort", "day"):
        values = {row[name] for row in rows if name in row}
        found |= {str(len(values)), f"{len(values) - 8:,}"}
    for row in (*rows, *report["details"].get("properties", [])):
        found |= shown(1.959963984540054 * row["noise_stddev"]) if "noise_stddev" in row else set()
    return found


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield name
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value
