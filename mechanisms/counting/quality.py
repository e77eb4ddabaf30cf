"""Rows of poor quality are left out: counts that are mostly noise, and small ones.

Guarantee: what is done to released rows costs nothing (post-processing), and neither does telling how many were left out.
Proof: docs/proofs/histogram.md.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headcount.mechanisms.calibration.intervals import DEVIATIONS
from headcount.mechanisms.checks import check_whole, is_real, wrong

# Where a batch says how many of its rows were left out, and why.
_LEFT_OUT = b"headcount.left_out"
_LARGEST = 10**18


@dataclasses.dataclass(frozen=True)
class Quality:
    """What a released row must keep; None is no limit.

    `max_relative_error` limits the noise, at 1.96 standard deviations, as a share of the count; `suppress_below` is the least
    count.
    """

    max_relative_error: float | None = None
    suppress_below: int | None = None

    def __post_init__(self) -> None:
        error = self.max_relative_error
        if error is not None and not (is_real(error) and 0 < error <= 10):
            raise wrong("max_relative_error", "must be a number above 0 and up to 10", error)
        if self.suppress_below is not None:
            check_whole("suppress_below", self.suppress_below, 1, _LARGEST)

    @property
    def limits(self) -> bool:
        """Whether there is a limit at all."""
        return self.max_relative_error is not None or self.suppress_below is not None

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The released rows that are good enough; how many are not, and why, is in the metadata of their schema."""
        count = size_of(rows)
        noisy = small = np.zeros(len(count), dtype=bool)
        if self.max_relative_error is not None:
            noisy = DEVIATIONS * np.asarray(rows.column("noise_stddev")) > self.max_relative_error * count
        if self.suppress_below is not None:
            small = ~noisy & (count < self.suppress_below)
        why = {}
        if self.max_relative_error is not None:
            why[f"their noise is above {self.max_relative_error:g} of the count"] = int(noisy.sum())
        if self.suppress_below is not None:
            why[f"their count is below {self.suppress_below:,}"] = int(small.sum())
        return kept_rows(rows, ~(noisy | small), why)


#: No limit.
EVERY_ROW = Quality()


def size_of(rows: pa.RecordBatch) -> np.ndarray:
    """The number that rows are about."""
    return np.asarray(rows.column("count" if "count" in rows.schema.names else "bounded_count"))


def kept_rows(rows: pa.RecordBatch, kept: np.ndarray, why: Mapping[str, int]) -> pa.RecordBatch:
    """Some rows of a batch, which say how many others were left out, and why, besides those that were before."""
    told = json.dumps({**left_out(rows), **why}).encode()
    return rows.filter(pa.array(kept)).replace_schema_metadata({**(rows.schema.metadata or {}), _LEFT_OUT: told})


def left_out(rows: pa.RecordBatch) -> Mapping[str, int]:
    """{why: how many rows were left out of a batch for that}; nothing, where there was no limit."""
    found: dict[str, int] = json.loads((rows.schema.metadata or {}).get(_LEFT_OUT, b"{}"))
    return found
