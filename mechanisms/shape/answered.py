"""A shape with what it says of some questions: the rows of the shape, and the answers beside, which cost nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pyarrow as pa

from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.properties import CentralShape, ShapeAnswers, ShapeProperties, Source_co


@dataclasses.dataclass(frozen=True)
class AnsweredShape(ShapeProperties[Source_co]):
    """The same as `ShapeProperties`, but the rows that it releases are those of the shape itself.

    Guarantee: that of the shape; answers are post-processing.
    """

    def run(
        self: AnsweredShape[CentralShape],
        batches: Iterable[pa.RecordBatch],
        release: Release,
        label: str | None = None,
    ) -> pa.RecordBatch:
        """The released rows count, items, error of contribution batches."""
        return self.source.run(batches, release, label)

    def run_decided(
        self: AnsweredShape[CentralShape],
        batches: Iterable[pa.RecordBatch],
        release: Release,
        label: str | None = None,
    ) -> tuple[pa.RecordBatch, ShapeAnswers]:
        """The same, and the answers."""
        rows = self.run(batches, release, label)
        return rows, self.answers(rows)
