"""Rows of a key in levels as the tree that they are: what each is called, and which lie below it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headcount.mechanisms.columns.level_keys import ALL, LEVEL, OTHER

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Node:
    """One row, its word, and the nodes below it, the largest first and what is other last."""

    row: Row
    word: str
    children: list[Node]


def path(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    """The values of a row down to its level, but for the last of what is other. (Files of text have no empty values.)"""
    depth = 0 if row[LEVEL] == ALL else keys.index(row[LEVEL]) + 1
    return tuple(row[key] for key in keys[: depth - bool(row[OTHER])])


def word(row: Row, keys: Sequence[str]) -> str:
    """What a row is called below the node above it."""
    if row[OTHER]:
        return f"({OTHER})"
    named = path(row, keys)
    return str(named[-1]) if named else f"({ALL})"


def in_order(rows: Iterable[Row], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Rows each below the node that it belongs to, with the words of their own levels in place of what is empty."""

    def shown(row: Row) -> dict[str, Any]:
        at = keys[0] if row[LEVEL] == ALL else row[LEVEL]
        named = dict(zip(keys, path(row, keys), strict=False))
        return {**row, **{key: named.get(key, "") for key in keys}, at: word(row, keys)}

    places = sorted(rows, key=lambda row: ([str(value) for value in path(row, keys)], bool(row[OTHER])))
    return [shown(row) for row in places]


def roots(rows: Iterable[Row], keys: Sequence[str], size: str) -> list[Node]:
    """The trees of rows: one, if the row of all is among them. A row whose node above is not there stands by itself."""
    nodes = [(path(row, keys), Node(row, word(row, keys), [])) for row in rows]
    known = {place: node for place, node in nodes if not node.row[OTHER]}
    found: list[Node] = []
    for place, node in nodes:
        above = known.get(place if node.row[OTHER] else place[:-1]) if place or node.row[OTHER] else None
        (found if above is None else above.children).append(node)
    for _, node in nodes:
        node.children.sort(key=lambda each: (bool(each.row[OTHER]), -each.row[size]))
    return found
