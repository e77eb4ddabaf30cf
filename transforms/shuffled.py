"""`ShuffledReports` (paper 002, shuffle model): noise that users add themselves, and the analyst's sum of what they send.

The randomizer draws from the operating system, so that nobody can ever take its noise off. What it draws cannot be
repeated: run again, it sends other noise, and who sees both sees less of it. So it has no place in the analyst's pipeline.
It runs where the users are, each of them once, and what it gives is stored before anybody reads it; the analyst's transform
takes stored messages, draws nothing, and may run as often as a runner likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from headcount.mechanisms.budget import Budget
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.guarantee import Guarantee
from headcount.mechanisms.relation import Relation
from headcount.mechanisms.shuffled import Shuffled, shuffled
from headcount.mechanisms.tallies import add_tallies, check_cells, make_tally, pack_tally
from headcount.transforms.bucket_sums import Hashing, SumByBucket, read_sums
from headcount.transforms.contributions import check_whole
from headcount.transforms.shape_rows import ItemsWithCount, ToShapeRows
from headcount.transforms.user_shards import check_shards, item_shards


class ShuffledReports(beam.PTransform):
    """How many items have which number of users, from messages that hold enough noise already (paper 002).

    Guarantee: what the shuffler gives out, and so the result, is (epsilon, delta)-differentially private under REPLACE to
    each of at least `users` users who follow the protocol: each sends the messages of `randomizer()` for one item, once.
    Others may do what they like. With a `salt`, a public text that all share and that was chosen before the data, items are
    hashed to `buckets`, and collisions are taken out of the result; without one, items are the numbers of their buckets.
    `reports` says how many users did send, if far more than `users`: more of them bring more noise, which the estimate undoes.
    Messages (bucket, +1 or -1) go in, stored and shuffled; the result is `ItemsWithCount` rows, or with `partitions=N` one
    element (k, record batch) for each k < N, all rows in the first.
    """

    def __init__(
        self,
        budget: Budget,
        users: int,
        buckets: int,
        salt: str | None = None,
        relation: Relation | str = Relation.REPLACE,
        shards: int | None = None,
        partitions: int | None = None,
        reports: int | None = None,
    ) -> None:
        super().__init__()
        if salt is not None and not isinstance(salt, str):
            raise ParameterError(f"salt must be a public text, got {salt!r}")
        self.plan = shuffled(budget, users, buckets, Relation.parse(relation))
        self._salt, self._shards, self._partitions = salt, item_shards(check_shards(shards)), partitions
        self._reports = (
            None if reports is None else check_cells("reports", reports, "it is that of the messages' senders")
        )

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.plan.guarantee()

    def randomizer(self) -> beam.DoFn:
        """The users' side: the item of one user -> its messages (bucket, +1 or -1), in random order.

        Store what it gives before anything else sees it, and never run it again for the same user: see this module.
        """
        return _Randomizer(self.plan, self._salt)

    def expand(self, messages: beam.PCollection) -> beam.PCollection:
        check_whole(messages)
        buckets, shards = self.plan.buckets, self._shards
        sums = messages | "SumByBucket" >> beam.ParDo(_SumMessages(buckets, shards)).with_output_types(
            tuple[int, bytes]
        )
        # Every shard gets a turn: a bucket without a message has the sum 0.
        every = messages.pipeline | "EveryShard" >> beam.Create(
            [(shard, b"") for shard in range(shards)], reshuffle=False
        )
        shape = (
            (sums, every)
            | "WithEveryShard" >> beam.Flatten()
            | "GroupByBucketShard" >> beam.GroupByKey()
            | "Tally" >> beam.Map(_tally, buckets, shards).with_output_types(tuple[int, bytes])
            | "Gather" >> beam.GroupByKey()  # (0, tallies)
            | "Shape"
            >> beam.Map(_shape, self.plan, self._salt is not None, self._reports).with_output_types(pa.RecordBatch)
        )
        return shape | "ToRows" >> ToShapeRows(ItemsWithCount, self._partitions)


class _Randomizer(beam.DoFn):
    def __init__(self, plan: Shuffled, salt: str | None) -> None:
        self._plan, self._hashing = plan, Hashing(plan.buckets, salt)

    def process(self, item: Any) -> Iterator[tuple[int, int]]:
        bucket, sign = self._plan.report(self._hashing.buckets([item]))
        yield from zip(bucket.tolist(), sign.tolist(), strict=True)


class _SumMessages(SumByBucket):
    def arrays(self, elements: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        bucket, sign = np.array(elements, dtype=np.int64).T
        if not np.isin(sign, (-1, 1)).all():
            raise InputError("a message is not (bucket, +1 or -1)")
        return bucket, sign


def _tally(group: tuple[int, Iterable[bytes]], buckets: int, shards: int) -> tuple[int, bytes]:
    """How many buckets of a shard have which sum; bucket b is in shard b mod the number of shards."""
    shard, chunks = group
    sums = np.zeros(len(range(shard, buckets, shards)), dtype=np.int64)
    for chunk in filter(None, chunks):
        bucket, amount = read_sums(chunk)
        np.add.at(sums, bucket // shards, amount)
    return 0, pack_tally(make_tally(sums))


def _shape(group: tuple[int, Iterable[bytes]], plan: Shuffled, hashed: bool, reports: int | None) -> pa.RecordBatch:
    return plan.shape_of_tally(add_tallies(group[1]), hashed, reports)
