"""A public domain: the items that a histogram is over, known before the data is looked at."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names, first_hash, hash64, shard_of, string_buffers
from headcount.mechanisms.errors import InputError, ParameterError


class Held:
    """Distinct names in memory, in any order, and what finds one among millions: their places in the order of their hashes.

    A hash only says where to look: whether a name is there is settled by the name itself.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self._ordering = threading.Lock()

    @property
    def _order(self) -> tuple[np.ndarray, np.ndarray, bool]:
        with self._ordering:
            return self._ordered

    @cached_property
    def _ordered(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """The places by hash, the hashes, and whether two names share theirs, which hardly ever is."""
        hashes = hash64(self.names)
        place = np.argsort(hashes)
        hashes = hashes[place]
        return place, hashes, bool((hashes[1:] == hashes[:-1]).any())

    def places(self, items: Names) -> tuple[np.ndarray, pa.BooleanArray]:
        """The place of each of the items among the names, and whether it is one of them; for others any place."""
        place, hashes, tied = self._order
        if tied or len(place) == 0:
            known = pc.index_in(items, value_set=self.names)
            return np.asarray(known.fill_null(0)), known.is_valid()
        wanted = hash64(items)
        if (wanted[1:] >= wanted[:-1]).all():
            found = np.searchsorted(hashes, wanted)
        else:
            by_hash = np.argsort(wanted)  # neighbours lie close together: far fewer misses of the cache
            found = np.empty(len(wanted), dtype=np.int64)
            found[by_hash] = np.searchsorted(hashes, wanted[by_hash])
        found = place[np.minimum(found, len(place) - 1)]
        return found, pc.equal(self.names.take(pa.array(found)), items)

    def holds(self, items: Names) -> pa.BooleanArray:
        """Whether each of the items is one of the names."""
        return self.places(items)[1]

    def in_shard(self, shard: int, shards: int) -> Names:
        """The names of one item shard: a stretch of the hashes."""
        place, hashes, _ = self._order
        least = [first_hash(each, shards) for each in (shard, shard + 1)]
        first, end = (len(hashes) if hash_ >> 64 else np.searchsorted(hashes, np.uint64(hash_)) for hash_ in least)
        return self.names.take(pa.array(np.sort(place[first:end])))


class Domain:
    """The names of a public domain, each once, in memory: it travels with whatever holds it."""

    def __init__(self, names: Names) -> None:
        """The names must be sorted, each once."""
        self._held = Held(names)

    def __len__(self) -> int:
        return len(self.held.names)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sorted_names.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __getstate__(self) -> dict[str, Any]:
        return {"names": self._held.names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._held = Held(state["names"])

    @property
    def held(self) -> Held:
        """The names in memory."""
        return self._held

    def holds(self, items: Names) -> pa.BooleanArray:
        """Whether each of the items is one of the names."""
        return self.held.holds(items)

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the names."""
        return self.held.names.type

    @property
    def names(self) -> Names:
        """All names, in no particular order."""
        return self.held.names

    @property
    def sorted_names(self) -> Names:
        """All names, sorted."""
        return self.names

    @cached_property
    def digest(self) -> str:
        """What stands for the names in the randomness: the same wherever they are held."""
        return domain_digest(self.names)


_loaded: weakref.WeakValueDictionary[str, Held] = weakref.WeakValueDictionary()
_loading = threading.Lock()


class StoredDomain(Domain):
    """A public domain that stays where it is stored: only `load`, its size, type and digest travel.

    `load` reads the names, in any order, or raises an InputError if they are not those of the digest any more. A process loads
    them once, whoever uses them.
    """

    def __init__(self, load: Callable[[], Names], names: Names) -> None:
        """The names as they are now must be sorted, each once."""
        self._load, self._size, self._type = load, len(names), names.type
        self.digest = domain_digest(names)
        self._found: Held | None = Held(names)
        _loaded[self.digest] = self._found

    def __len__(self) -> int:
        return self._size

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_found"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _found=None)

    @property
    def held(self) -> Held:
        """The names, loaded if this process has not done so."""
        if self._found is None:
            with _loading:
                self._found = _loaded.get(self.digest) or _loaded.setdefault(self.digest, Held(self._load()))
        return self._found

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the names."""
        return self._type

    @property
    def sorted_names(self) -> Names:
        """All names, sorted."""
        return sorted_distinct(self.names)[0]


class UnnamedDomain(Domain):
    """A public domain of key columns whose types are not known yet: a size for what is planned, which has no names."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnnamedDomain) and self._size == other._size

    def __hash__(self) -> int:
        return hash(self._size)

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self._size}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._size = state["size"]

    @property
    def held(self) -> Held:
        """None: whoever plans with it must put another in its place."""
        raise RuntimeError("the keys of the domain have no names yet")


class PartDomain:
    """Keys of which some columns are public and the others come from the data, before the types of the columns are known.

    It has what a plan needs: how many combinations of the public columns there are, and which columns these are, in words.
    `domains.partly_public` has the one with names, which takes its place.
    """

    type = pa.string()  # keys of several columns are texts

    def __init__(self, size: int, public: Sequence[str]) -> None:
        self.size, self.public = size, tuple(public)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartDomain) and (self.size, self.public) == (other.size, other.public)

    def __hash__(self) -> int:
        return hash((self.size, self.public))

    def holds(self, items: Names) -> pa.BooleanArray:
        """Whether the public columns of each of the items are one of the combinations."""
        raise RuntimeError("the keys of the domain have no names yet")


def domain_digest(names: Names) -> str:
    """A digest of sorted names, which is part of the randomness."""
    if pa.types.is_integer(names.type):
        fields = [b"i", np.asarray(names).astype("<i8").tobytes()]
    else:
        ends, text = string_buffers(names)
        fields = [b"s", np.diff(ends).astype("<i8").tobytes(), text[ends[0] : ends[-1]].tobytes()]
    digest = hashlib.blake2b(len(names).to_bytes(8, "little"), digest_size=32)
    for field in fields:
        digest.update(field)
    return digest.hexdigest()


def sorted_distinct(names: Names) -> tuple[Names, tuple[int, int] | None]:
    """The names, sorted, and the places of two that are equal: the first place that repeats an earlier one."""
    if pc.all(pc.less(names[:-1], names[1:]), min_count=0).as_py():
        return names, None  # a pass over names that are sorted already takes a tenth of the time
    order = pc.sort_indices(names)  # keeps equal ones in their order
    names = names.take(order)
    equal = np.flatnonzero(np.asarray(pc.equal(names[:-1], names[1:])))
    if not len(equal):
        return names, None
    places = np.asarray(order)
    again = equal[np.argmin(places[equal + 1])]
    return names, (int(places[again]), int(places[again + 1]))


def public_domain(items: Iterable[Any] | Domain | PartDomain, item_type: type) -> Domain:
    """A public domain of items, or an error that says what is wrong with it; one that is made already is taken as it is."""
    if isinstance(items, PartDomain):
        raise ParameterError(
            f"the domain is of {', '.join(items.public)} alone, and all keys must be public here: give a list or a range for "
            "each key column; only histograms of estimates and aggregates name the other columns from the data",
            "domain",
        )
    if isinstance(items, Domain):
        if not isinstance(items, UnnamedDomain) and items.type != arrow_type(item_type):
            raise ParameterError(f"the items of the domain are {items.type}, but item_type is {item_type.__name__}")
        return items
    if isinstance(items, str | bytes):
        raise ParameterError("the domain must be a list of items, got one text")
    values = list(items)
    if not values:
        raise ParameterError("the domain is empty; give at least one item")
    if not all(isinstance(value, item_type) and not isinstance(value, bool) for value in values):
        raise ParameterError(f"the items of the domain must all be of type {item_type.__name__}")
    if len(set(values)) < len(values):
        raise ParameterError(f"the domain holds {len(values) - len(set(values))} items more than once; give each once")
    return Domain(pa.array(sorted(values), arrow_type(item_type)))


def arrow_type(item_type: type) -> pa.DataType:
    """The Arrow type of items given as str or int."""
    types = {str: pa.string(), int: pa.int64()}
    if item_type not in types:
        raise ParameterError(f"item_type must be str or int, got {item_type!r}", "item_type")
    return types[item_type]


def only_domain(batch: pa.RecordBatch, domain: Domain | PartDomain) -> pa.RecordBatch:
    """The rows whose item is in the domain: what lies outside must not use up a user's bound."""
    item = batch.column("item")
    if (item.type.value_type if isinstance(item, pa.DictionaryArray) else item.type) != domain.type:
        raise InputError(f"items are not of the domain's type {domain.type}; give domain and items one type")
    if isinstance(item, pa.DictionaryArray):
        known = domain.holds(item.dictionary).take(item.indices)
    else:
        known = domain.holds(item)
    return batch.filter(known)


def in_shard(public: Domain | Names, shard: int, shards: int) -> Names:
    """The part of a domain, or of other public names, that belongs to one item shard."""
    if isinstance(public, Domain):
        return public.held.in_shard(shard, shards)
    return public.filter(pa.array(shard_of(hash64(public), shards) == shard))
