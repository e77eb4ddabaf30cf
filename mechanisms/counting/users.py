"""The number of users, or of their events, counted as the total of one item that everybody has.

Guarantee: that of a histogram over the public domain of this one item, with a bound of 1: Laplace noise of scale 1 / epsilon.
It is only for ADD_REMOVE: under REPLACE the number of users is public. Proof: docs/proofs/histogram.md.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep, Step

EVERYBODY = Domain(pa.array(["everybody"]))
EVERYBODY_STEPS: tuple[Step, ...] = (LimitItemsStep(1), LimitPerItemStep(1))


def one_row_per_user(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The users of a contribution batch, each with one event of the item that everybody has."""
    user = batch.column("user").unique()
    item = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(user), dtype=np.int32)), EVERYBODY.names)
    return pa.RecordBatch.from_pydict({"user": user, "item": item}, metadata=batch.schema.metadata)


def all_as_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a contribution batch with their counts, all of them on the one item that everybody has."""
    item = pa.DictionaryArray.from_arrays(pa.array(np.zeros(batch.num_rows, dtype=np.int32)), EVERYBODY.names)
    columns = {name: batch.column(name) for name in batch.schema.names} | {"item": item}
    return pa.RecordBatch.from_pydict(columns, metadata=batch.schema.metadata)


def number_of_users(counts: pa.RecordBatch) -> int:
    """The noisy number of users in the released counts of the item that everybody has; it may be below 1."""
    (count,) = counts.column("bounded_count").to_pylist()
    return int(count)
