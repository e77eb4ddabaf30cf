"""Keys partly public: some key columns are public, by a list or a range, and the others are named from the data.

A key of several columns has one name, its columns joined (`keys`). Here a name is cut into its private part, which is the
private columns joined, and its public part. Rows whose public part is not on the list count nowhere. Then

1. items are *named* by their private parts: a user's items are the distinct private parts of its rows, so that a page is named
   once, and not once a day;
2. every named part with every public part is a key that is *counted*, as on a public list: series are complete, with zeros.

Guarantee: `projected` maps each user's rows by themselves, so that neighbours stay neighbours for every relation, and a
selection on it is as private as on any rows. What it names is released. So the list that `complete` makes of that and of the
public parts is public by then. Counts are bounded on whole keys, which get the noise: a user may be there on all days. Proof:
docs/proofs/partitions.md. Two ways are wrong. To name whole keys and fill the gaps tells on which days an item was named. To
limit a user's parts, and to take that for a limit on its keys, lets a user of all days count for all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.distinct import distinct
from headcount.mechanisms.batches.domain import Domain, Held, PartDomain, domain_digest, sorted_distinct
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.shards import Shard, consolidate
from headcount.mechanisms.columns.key_column import KeyColumn
from headcount.mechanisms.columns.keys import JOINT, Keys, joined
from headcount.mechanisms.domains.domain import MOST_KEYS, Given, KeyList, values_of_product
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release

#: Combinations of the public columns, each of which is counted for every named part.
MOST_COMBINATIONS = 100_000


class PartlyPublic(PartDomain):
    """The public parts of keys whose other columns come from the data: `at` has the places of the public columns in a key of so
    many `columns`, and `parts` all of their combinations as they stand in names, sorted."""

    def __init__(self, parts: Names, columns: int, at: Sequence[int], public: Sequence[str]) -> None:
        super().__init__(len(parts), public)
        self._parts, self._columns, self._at = parts, columns, tuple(at)
        self._private = tuple(place for place in range(columns) if place not in self._at)
        self._held = Held(parts)

    def __getstate__(self) -> dict[str, Any]:
        return {"state": (self._parts, self._columns, self._at, self.public)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["state"])  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartlyPublic) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def digest(self) -> str:
        """What stands for the public parts in a report: another list, or other columns, have another."""
        where = f"{self._columns} {self._at} {domain_digest(self._parts)}"
        return hashlib.blake2b(where.encode(), digest_size=32).hexdigest()

    def own_release(self, release: Release) -> Release:
        """That of all draws on these keys, which depend on the public parts: these say which rows count."""
        return release.of_part(self.digest)

    def holds(self, items: Names) -> pa.BooleanArray:
        """Whether the public part of each of the items is one of the combinations."""
        return self._held.holds(_cut(items, self._columns, self._at))

    def is_public(self, place: int) -> bool:
        """Whether the key column at this place is one of the public ones."""
        return place in self._at

    def private_parts(self, items: Names) -> Names:
        """The private part of each of the items."""
        return _cut(items, self._columns, self._private)

    def projected(self, shard: Shard) -> Shard:
        """The same users with the distinct private parts of their items, for naming: from each user's rows alone."""
        parts, place = distinct(self.private_parts(shard.items))
        user = np.repeat(np.arange(len(shard.users)), shard.rows_per_user())
        user, item, count, _ = consolidate(user, place[shard.item], shard.count)
        assert count is not None
        offsets = np.searchsorted(user, np.arange(len(shard.users) + 1)).astype(np.int64)
        return Shard(shard.users, parts, offsets, item, count, shard.bound)

    def of_parts(self, items: Names, named: Names) -> Names:
        """Those of the items whose private part is among the named ones."""
        return items.filter(Held(named).holds(self.private_parts(items)))

    def series(self, items: Names) -> tuple[np.ndarray, np.ndarray]:
        """The places of the private and of the public part of each of the items among the distinct ones."""
        return distinct(self.private_parts(items))[1], distinct(_cut(items, self._columns, self._at))[1]

    def complete(self, named: Names) -> Names:
        """All keys of these private parts, which are public by now: each with every public part, sorted."""
        number = len(named) * len(self._parts)
        if number > MOST_KEYS:
            raise InputError(
                f"the named keys with {len(self._parts):,} combinations of {', '.join(self.public)} are more than "
                f"{MOST_KEYS:,} rows: give shorter ranges or lists, or coarser ones, such as weeks in place of days"
            )
        private, public = (
            np.repeat(np.arange(len(named)), len(self._parts)),
            np.tile(np.arange(len(self._parts)), len(named)),
        )
        columns: list[Any] = [None] * self._columns
        for places, texts, rows in ((self._private, named, private), (self._at, self._parts, public)):
            for number, place in enumerate(places):
                columns[place] = _cut(texts, len(places), (number,)).take(pa.array(rows))
        return sorted_distinct(pc.binary_join_element_wise(*columns, JOINT))[0]


def partly_public(lists: Mapping[str, KeyList], keys: Keys, public: Sequence[str]) -> PartlyPublic:
    """The public parts of these keys: all combinations of the lists of some of their columns. `public` says it in words."""
    size = 1
    for each in lists.values():
        size *= len(each)
    check_combinations(size)
    at = [place for place, name in enumerate(keys.names) if name in lists]
    values = values_of_product(lists, Keys(tuple(keys.fields[place] for place in at)))
    return PartlyPublic(sorted_distinct(joined(values))[0], len(keys.fields), at, public)


def check_windows(keys: Keys, domain: Domain | PartDomain | None) -> None:
    """Refuses windows that overlap (`viewed_at:last7`) unless the days that they end with are public.

    Privacy does not need it, since a user's windows are bounded like any items. But a row is in windows that end after it, so
    that days beyond the data would be named, with fewer users each.
    """
    for place, column in enumerate(field.column for field in keys.fields):
        public = isinstance(domain, Domain) or (isinstance(domain, PartlyPublic) and domain.is_public(place))
        if column.days and not public:
            raise windows_refused(column, True)


def windows_refused(column: KeyColumn, taken: bool) -> ParameterError:
    """The error that a column of windows has no public days; or that what counts does not take it at all."""
    if not taken:
        return ParameterError(
            f"{column.spec} has each row in {column.days} windows that overlap, which histogram and aggregate count alone: "
            f"count by {column.source}:day here",
            "item",
        )
    return ParameterError(
        f"{column.spec} counts in windows of {column.days} days, and the days that they end with must be public: give a range "
        f"of them by domain (--domain), as {column.name}=2026-11-01..2026-11-30, or a list",
        "domain",
    )


def check_combinations(size: int) -> None:
    """Refuses so many public combinations that a few named keys would be too many rows."""
    if size > MOST_COMBINATIONS:
        raise Given().error(
            f"has {size:,} combinations of its columns, and each is counted for every key that is named: give "
            f"{MOST_COMBINATIONS:,} at most"
        )


def _cut(names: Names, columns: int, places: Sequence[int]) -> Names:
    """The columns at these places of names of so many columns, as they stand there."""
    if columns == 1:
        return names
    parts = pc.split_pattern(names, JOINT).flatten()
    first = np.arange(len(names)) * columns
    found = [parts.take(pa.array(first + place)) for place in places]
    return found[0] if len(found) == 1 else pc.binary_join_element_wise(*found, JOINT)
