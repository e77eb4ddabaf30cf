"""A public domain: the items that a histogram is over, known before the data is looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.names import Names, hash64, shard_of, string_buffers
from headcount.mechanisms.errors import InputError, ParameterError


def domain_digest(domain: Names | None) -> str | None:
    """A digest of a public domain, which is part of the randomness; None where the domain is unknown."""
    if domain is None:
        return None
    if pa.types.is_integer(domain.type):
        fields = [b"i", np.asarray(domain).astype("<i8").tobytes()]
    else:
        ends, text = string_buffers(domain)
        fields = [b"s", np.diff(ends).astype("<i8").tobytes(), text[ends[0] : ends[-1]].tobytes()]
    digest = hashlib.blake2b(len(domain).to_bytes(8, "little"), digest_size=32)
    for field in fields:
        digest.update(field)
    return digest.hexdigest()


def public_domain(items: Iterable[Any], item_type: type) -> Names:
    """A public domain as a sorted column, each item once, or an error that says what is wrong with it."""
    if isinstance(items, str | bytes):
        raise ParameterError("the domain must be a list of items, got one text")
    values = list(items)
    if not values:
        raise ParameterError("the domain is empty; give at least one item")
    if not all(isinstance(value, item_type) and not isinstance(value, bool) for value in values):
        raise ParameterError(f"the items of the domain must all be of type {item_type.__name__}")
    if len(set(values)) < len(values):
        raise ParameterError(f"the domain holds {len(values) - len(set(values))} items more than once; give each once")
    return pa.array(sorted(values), arrow_type(item_type))


def arrow_type(item_type: type) -> pa.DataType:
    """The Arrow type of items given as str or int."""
    types = {str: pa.string(), int: pa.int64()}
    if item_type not in types:
        raise ParameterError(f"item_type must be str or int, got {item_type!r}", "item_type")
    return types[item_type]


def only_domain(batch: pa.RecordBatch, domain: Names) -> pa.RecordBatch:
    """The rows whose item is in the domain: what lies outside must not use up a user's bound."""
    item = batch.column("item")
    if (item.type.value_type if isinstance(item, pa.DictionaryArray) else item.type) != domain.type:
        raise InputError(f"items are not of the domain's type {domain.type}; give domain and items one type")
    if isinstance(item, pa.DictionaryArray):
        known = pc.is_in(item.dictionary, value_set=domain).take(item.indices)
    else:
        known = pc.is_in(item, value_set=domain)
    return batch.filter(known)


def in_shard(domain: Names, shard: int, shards: int) -> Names:
    """The part of the domain that belongs to one item shard."""
    return domain.filter(pa.array(shard_of(hash64(domain), shards) == shard))
