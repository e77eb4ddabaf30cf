"""`ShuffledReports` (the shuffle model): noise that users add themselves, and the analyst's sum of what they send.

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

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.shape.anonymized import Estimate
from headcount.mechanisms.shape.hashed import BucketMode
from headcount.mechanisms.shape.papers.shuffled import Shuffled, shuffled
from headcount.mechanisms.shape.tallies import add_tallies, check_cells, make_tally, pack_tally
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import item_shards
from headcount.transforms.core.windows import check_whole
from headcount.transforms.papers.bucket_sums import Hashing, SumByBucket, check_salt, read_sums
from headcount.transforms.shape.answers import AnsweringTransform

#: The columns of a file of messages.
MESSAGE = ("bucket", "sign")


class ShuffledReports(AnsweringTransform):
    """How many items have which number of users, from messages that hold enough noise already (the paper).

    Guarantee: what the shuffler gives out, and so the result, is (epsilon, delta)-differentially private under REPLACE to
    each of at least `users` users who follow the protocol: each sends the messages of `randomizer()` for one item, once.
    Others may do what they like.

    Messages (bucket, +1 or -1) go in, stored and shuffled, or record batches with the columns bucket and sign. The result is
    `ItemsWithCount` rows, all of them in the first output file. What follows from them costs nothing: `with_answers()`, or
    `Entropy.of_shape()` and the like on the rows.

    Parameters:
        budget: what a user's messages may cost; it needs a delta.
        users: how many users follow the protocol at least: their noise is relied on. More need less of it each.
        buckets: how many there are, about four for each user. Fewer bring collisions, more bring noise.
        salt: a public text that all share, chosen before the data: items are hashed to buckets by it, and collisions are taken
            out of the result (default: None, items are the numbers of their buckets).
        reports: how many users did send, if far more than `users`: more of them bring more noise, which the estimate undoes
            (default: None, `users`).
        mode: "l1" (default), or "l2", which keeps every single count near its true one besides (Corollary 3): for hashed items
            by a second report of each user, at half of the budget each.
        estimate: "auto" (default), "likelihood" or "algorithm-1", the paper's own.
        relation: "replace", the only one in this model.
        shards, output_files: as for `Histogram`.
    """

    mechanism: Shuffled

    def __init__(
        self,
        budget: Budget,
        *,
        users: int,
        buckets: int,
        salt: str | None = None,
        reports: int | None = None,
        mode: BucketMode = "l1",
        estimate: Estimate = "auto",
        relation: Relation | str = Relation.REPLACE,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        made = shuffled(
            budget,
            users=users,
            buckets=buckets,
            hashed=check_salt(salt) is not None,
            mode=mode,
            estimate=estimate,
            relation=Relation.parse(relation),
        )
        super().__init__(made, release=None, shards=shards, output_files=output_files)  # nothing is drawn here
        self._salt = salt
        self._reports = (
            None if reports is None else check_cells("reports", reports, "it is that of the messages' senders")
        )

    def randomizer(self) -> beam.DoFn:
        """The users' side: the item of one user -> its messages (bucket, +1 or -1), in random order.

        Store what it gives before anything else sees it, and never run it again for the same user: see this module.
        """
        return _Randomizer(self.mechanism, self._salt)

    def expand(self, messages: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        check_whole(messages)
        plan, shards = self.mechanism, item_shards(self._shards)
        sums = messages | "SumByBucket" >> beam.ParDo(_SumMessages(plan.cells, shards)).with_output_types(
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
            | "Tally" >> beam.FlatMap(_tally, plan, shards).with_output_types(tuple[int, tuple[int, bytes]])
            | "Gather" >> beam.GroupByKey()  # (0, (number, packed part of a tally) of all)
            | "Shape" >> beam.Map(_shape, plan, self._salt is not None, self._reports).with_output_types(pa.RecordBatch)
        )
        return self._answered(shape)


class _Randomizer(beam.DoFn):
    def __init__(self, plan: Shuffled, salt: str | None) -> None:
        self._plan, self._hashing = plan, Hashing(plan.buckets, salt, plan.ranks)

    def process(self, item: Any) -> Iterator[tuple[int, int]]:
        bucket, sign = self._plan.report(self._hashing.buckets([item]))
        yield from zip(bucket.tolist(), sign.tolist(), strict=True)


class _SumMessages(SumByBucket):
    def arrays(self, elements: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        bucket, sign = np.array(elements, dtype=np.int64).T
        if not np.isin(sign, (-1, 1)).all():
            raise InputError("a message is not (bucket, +1 or -1)")
        return bucket, sign

    def batch_arrays(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        bucket, sign = (_integers(batch, name) for name in MESSAGE)
        if not np.isin(sign, (-1, 1)).all():
            raise InputError("a message is not (bucket, +1 or -1)")
        return bucket, sign


def _integers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    if name not in batch.schema.names:
        raise InputError(f"no column {name!r}; messages have the columns {' and '.join(map(repr, MESSAGE))}")
    try:
        column = batch.column(name).cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(f"column {name!r} of the messages holds something else than whole numbers") from None
    if column.null_count:
        raise InputError(f"column {name!r} of the messages holds a null")
    return np.asarray(column)


def _tally(group: tuple[int, Iterable[bytes]], plan: Shuffled, shards: int) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """How many buckets of a shard have which sum, and how many of the second report; b is in shard b mod their number."""
    shard, chunks = group
    sums = np.zeros(len(range(shard, plan.cells, shards)), dtype=np.int64)
    for chunk in filter(None, chunks):
        bucket, amount = read_sums(chunk)
        np.add.at(sums, bucket // shards, amount)
    first = len(range(shard, plan.buckets, shards))
    for number, part in enumerate((sums[:first], sums[first:])):
        yield 0, (number, pack_tally(make_tally(part)))


def _shape(
    group: tuple[int, Iterable[tuple[int, bytes]]], plan: Shuffled, hashed: bool, reports: int | None
) -> pa.RecordBatch:
    parts: tuple[list[bytes], list[bytes]] = [], []
    for number, tally in group[1]:
        parts[number].append(tally)
    sums, ranks = map(add_tallies, parts)
    return plan.shape_of_tally(sums, hashed, reports, ranks)
