"""A public domain as a caller in Python gives it: items, tuples of the key columns, a frame with these columns, or a file; or
a mapping from key columns to ranges, lists and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headcount.mechanisms.batches.domain import Domain, PartDomain, UnnamedDomain, arrow_type
from headcount.mechanisms.batches.frames import frame_reader, is_frame
from headcount.mechanisms.columns.keys import ITEM, Keys
from headcount.mechanisms.domains.domain import Given, KeyList, array_of, of_list
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.errors import ParameterError

_GIVEN = Given()


class GivenDomain:
    """What was given, once it was looked at: its size is known at once, its names once the keys are."""

    def __init__(self, given: Any) -> None:
        """Refuses what is no domain."""
        if isinstance(given, str | bytes) or not (is_frame(given) or isinstance(given, DomainFile | Domain | Iterable)):
            found = "one text" if isinstance(given, str | bytes) else f"a value of type {type(given).__name__}"
            raise _GIVEN.error(f"must be a list of items, a frame or a DomainFile, got {found}")
        if isinstance(given, Mapping):  # of columns to ranges, lists and files
            given = DomainFile(given)
        made: Any = given if isinstance(given, DomainFile | Domain) else None
        if made is None:
            made = frame_reader(given).read_all() if is_frame(given) else list(given)
        self._given = made
        self.unnamed = given.unnamed() if isinstance(given, DomainFile) else UnnamedDomain(len(made))

    @property
    def is_plain(self) -> bool:
        """Whether it is a list of texts or of integers, or a domain of names: all that need no key columns."""
        return self.known is not None

    @property
    def known(self) -> Domain | list[Any] | None:
        """Such a list or domain, for whoever needs no key columns; mixed lists too, which are refused there."""
        plain = isinstance(self._given, list) and set(map(type, self._given)) <= {str, int}
        return self._given if plain or isinstance(self._given, Domain) else None

    @property
    def kind(self) -> type:
        """What items are, by the values alone: str or int."""
        given = self._given
        if isinstance(given, Domain):
            return int if pa.types.is_integer(given.type) else str
        if isinstance(given, pa.Table):
            return int if given.num_columns == 1 and pa.types.is_integer(given.schema.types[0]) else str
        return int if isinstance(given, list) and set(map(type, given)) == {int} else str

    def named(self, keys: Keys | None) -> Domain | PartDomain:
        """The domain of these keys. Without keys, of one column whose type is not known, its own values tell the type."""
        if isinstance(self._given, DomainFile):
            return self._given.domain(keys or Keys.plain(str))
        if isinstance(self._given, Domain):
            return _of_names(self._given, keys)
        if isinstance(self._given, pa.Table):
            columns = {name: self._given.column(name).combine_chunks() for name in self._given.schema.names}
        else:
            columns = _columns(self._given, (ITEM,) if keys is None else keys.names)
        return of_list(KeyList(columns), keys or _own_keys(columns))


def _of_names(domain: Domain, keys: Keys | None) -> Domain:
    if keys is not None and (len(keys.fields) > 1 or domain.type != arrow_type(keys.item_type)):
        names = ", ".join(map(repr, keys.names))
        raise _GIVEN.error(f"is of {domain.type} items, but the keys are {names}: give it in these columns")
    return domain


def _columns(values: Sequence[Any], names: Sequence[str]) -> dict[str, pa.Array]:
    """The key columns of Python values, which are tuples where there are several."""
    if not values:
        raise _GIVEN.error("is empty; give at least one item")
    if len(names) == 1:
        return {names[0]: array_of(names[0], values)}
    wrong = [k for k, each in enumerate(values) if not isinstance(each, tuple | list) or len(each) != len(names)]
    if wrong:
        raise _GIVEN.error(f"is no tuple of a value for each of {', '.join(map(repr, names))}", wrong[0])
    return {name: array_of(name, each) for name, each in zip(names, zip(*values, strict=True), strict=True)}


def _own_keys(columns: dict[str, pa.Array]) -> Keys:
    """One column of texts or whole numbers, by its own type."""
    kinds = [int if pa.types.is_integer(column.type) else str for column in columns.values()]
    if len(kinds) > 1:
        raise ParameterError("the domain has several columns, but the key has one: give its column alone", "domain")
    return Keys.plain(kinds[0], next(iter(columns)))
