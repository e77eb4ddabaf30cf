"""What a step must know of the whole bounded data before it draws: where it comes from, and a digest of it.

Noise is calibrated for a bound on each user. So every bounded batch carries what bounds it and which part of which bounded
collection it is (`Origin`), and the noise step looks at all of them together (`Evidence`). It refuses batches that are bounded
by more than it was calibrated for, by nothing, in two steps side by side, or that arrive twice: in each of these cases a user
could count for more than the noise covers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.shards import MOST_COUNT, PART, Shard, bound_of, one_shard
from headcount.mechanisms.bounding.steps import (
    check_kept,
    not_kept,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.errors import InputError

MIXED_USERS = "users are strings in some rows and integers in others; give them one type"


@dataclasses.dataclass(frozen=True)
class Origin:
    """One bounded batch: what bounds it, which part of the bounded collection it is, and the type of its users."""

    bound: Bound
    part: str
    users: str

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Origin:
        """The origin of a batch that a bounding step made."""
        bound = bound_of(batch)
        if bound == Bound():
            raise InputError(
                "contributions reached the noise bounded by nothing; put RandClip, or LimitItems and LimitPerItem, "
                "before it"
            )
        user = batch.schema.field("user").type
        users = str(user.value_type if pa.types.is_dictionary(user) else user)
        return cls(bound, (batch.schema.metadata or {})[PART].decode(), users)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the noise step must know of the whole bounded histogram before it draws.

    `digest` stands for the histogram: the sum of all lane ids mod 2**128, the same however items are sharded. `origins`
    are those of all batches in it.
    """

    digest: int
    origins: tuple[Origin, ...]

    @classmethod
    def of(cls, digests: Iterable[int], origins: Iterable[Origin]) -> Evidence:
        """The evidence of all item shards and all batches together."""
        return cls(sum(digests) % 2**128, tuple(origins))

    def check(self, bound: Bound) -> None:
        """Refuses a histogram in which a user may count more than the `bound` that the mechanism was calibrated for."""
        if len({origin.bound.label for origin in self.origins}) > 1:
            raise InputError(
                "contributions that were bounded separately reached one noise step, where a user may count twice; "
                "flatten first, then bound"
            )
        if len({origin.part for origin in self.origins}) < len(self.origins):
            raise InputError("a bounded collection arrives twice, so that every user would count twice; use it once")
        if len({origin.users for origin in self.origins}) > 1:
            raise InputError(MIXED_USERS)
        for origin in self.origins:
            if not origin.bound.within(bound):
                raise InputError(
                    f"the noise was calibrated for contributions bounded by {bound.describe()}, but they are "
                    f"bounded by {origin.bound.describe()}; give the noise step the bound of the step before it"
                )


def check_bounded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, if every user in it keeps the bound that it carries; for batches that passed through other hands."""
    Origin.of(batch)
    if batch.num_rows:
        count = np.asarray(batch.column("count"))
        shard = _as_made(batch) or one_shard([batch])
        assert shard is not None  # it has rows
        check_kept(shard)
        # No bounding step leaves a user more than MOST_COUNT on an item: what `one_shard` has cut, it must not have promised.
        if int(count.max()) > MOST_COUNT or int(count.sum()) != int(shard.count.sum()):
            raise not_kept(shard.bound)
    return batch


def _as_made(batch: pa.RecordBatch) -> Shard | None:
    """The shard of a batch whose rows lie as `Shard.to_batch` lays them: by user, each pair once; None if they do not.

    Names are compared, and not believed to be distinct: a user under two codes would be two.
    """
    user, item = batch.column("user"), batch.column("item")
    if not (isinstance(user, pa.DictionaryArray) and isinstance(item, pa.DictionaryArray)):
        return None
    users, items = (np.asarray(column.indices).astype(np.int64) for column in (user, item))
    count = np.asarray(batch.column("count"))
    distinct = all(pc.count_distinct(names).as_py() == len(names) for names in (user.dictionary, item.dictionary))
    if not distinct or int(count.min()) < 1 or not (np.diff((users << 32) | items) > 0).all():
        return None
    offsets = np.append(0, np.cumsum(np.bincount(users, minlength=len(user.dictionary))))
    return Shard(user.dictionary, item.dictionary, offsets, items, count, bound_of(batch))
