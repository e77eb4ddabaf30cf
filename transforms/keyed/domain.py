"""A public domain as the caller gives it: items, tuples of the key columns, or a frame with these columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headcount.mechanisms.batches.frames import frame_reader, is_frame
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.keys.columns import KeyColumn
from headcount.mechanisms.keys.keys import Keys, resolve
from headcount.transforms.keyed.values import plain_value


@dataclasses.dataclass(frozen=True)
class GivenItems:
    """What the caller says of items: their type, if anything, and those of a public domain, if there is one.

    `domain` and `made` are for the factory of a mechanism. What the names of the domain's items are depends on the key columns
    of the collection, so `of` has them again; there are as many.
    """

    domain: Any = None
    item_type: type | None = None
    columns: tuple[pa.Array, ...] = ()
    names: tuple[str, ...] | None = None  # of the columns, where a frame has them
    made: type = str

    def of(self, keys: Keys) -> list[Any] | None:
        """The names of the domain's items for these keys; None where they are those that are known already."""
        if not self.columns or (self.item_type is not None and keys == Keys.plain(self.item_type, keys.names[0])):
            return None
        names = keys.names if self.names is None else self.names
        if len(self.columns) != len(keys.names) or {*names} != {*keys.names}:
            given = ", ".join(map(repr, self.names)) if self.names is not None else len(self.columns)
            raise ParameterError(
                f"the domain has the columns {given}, but the key columns are {', '.join(map(repr, keys.names))}: give these",
                "domain",
            )
        return list(keys.encode_shown(dict(zip(names, self.columns, strict=True))).to_pylist())


def given_items(item_type: type | None, domain: Any = None) -> GivenItems:
    """What the parameters `item_type` and `domain` of a transform say."""
    if domain is None or isinstance(domain, str | bytes):
        return GivenItems(domain, item_type, made=item_type or str)
    if hasattr(domain, "digest"):  # made of keys already
        made = int if pa.types.is_integer(domain.type) else str
        return GivenItems(domain, item_type or made, made=made)
    names: tuple[str, ...] | None = None
    if is_frame(domain):
        table = frame_reader(domain).read_all()
        names, columns = tuple(table.schema.names), tuple(each.combine_chunks() for each in table.columns)
    else:
        values = list(domain)
        kinds = set(map(type, values))
        if kinds <= {str, int}:
            said = item_type or (int if kinds == {int} else str)
            return GivenItems(
                values, said, _columns([(each,) for each in values]) if len(kinds) == 1 else (), made=said
            )
        columns = _columns([each if isinstance(each, tuple) else (each,) for each in values])
    guessed = resolve(
        [KeyColumn(str(k)) for k in range(len(columns))], {str(k): each.type for k, each in enumerate(columns)}
    )
    found = guessed.encode_shown({str(k): each for k, each in enumerate(columns)})
    return GivenItems(found.to_pylist(), item_type, columns, names, guessed.item_type)


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[pa.Array, ...]:
    try:
        return tuple(pa.array(list(map(plain_value, column))) for column in zip(*rows, strict=True))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise ParameterError(
            "the items of the domain must all be of one kind: texts, integers, dates, or tuples with one of these for each key "
            "column",
            "domain",
        ) from None
