"""Users' counts of symbols as matrices, as rows and as tables: shared by the tests of learning a distribution."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.distribution.tables import (
    ValueCounts,
)

BUDGET = Budget(1, 1e-6)


def names(k: int) -> list[str]:
    return [f"s{i:04d}" for i in range(k)]


def rows_of(counts: np.ndarray) -> pa.RecordBatch:
    """A contribution batch from a matrix of counts, a row for each user."""
    user, item = np.nonzero(counts)
    users = pa.array([f"u{u}" for u in user])
    return contribution_batch(
        users, pa.array(names(counts.shape[1])).take(pa.array(item)), pa.array(counts[user, item])
    )


def table_of(counts: np.ndarray) -> ValueCounts:
    """The tables of a matrix of counts, by counting in another way than the mechanism does."""
    found = [np.unique(column[column > 0], return_counts=True) for column in counts.T]
    offsets = np.append(0, np.cumsum([len(value) for value, _ in found]))
    value, users = (np.concatenate([pair[i] for pair in found]).astype(np.int64) for i in (0, 1))
    return ValueCounts(pa.array(names(counts.shape[1])), offsets, value, users)


def off(rows: pa.RecordBatch, p: np.ndarray) -> float:
    return float(np.abs(np.asarray(rows.column("probability")) - p).sum())
