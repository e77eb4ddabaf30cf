"""A shape with what it says of some questions: the rows of the shape, and the answers beside, which cost nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Generic, TypeVar

import pyarrow as pa

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.estimators import Question
from headcount.mechanisms.shape.properties import CentralShape, ShapeAnswers, ShapeProperties, ShapeSource

Source_co = TypeVar("Source_co", bound=ShapeSource, covariant=True)


@dataclasses.dataclass(frozen=True)
class AnsweredShape(Generic[Source_co]):
    """A mechanism that releases a shape, in whichever model, and the questions that its rows answer.

    Guarantee: that of the shape; answers are post-processing.
    """

    source: Source_co
    questions: tuple[Question, ...]

    @property
    def name(self) -> str:
        """That of the shape, whose randomness this is."""
        return self.source.name

    def guarantee(self) -> Guarantee:
        """That of the shape, and which questions are answered from it."""
        return self._properties().guarantee()

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
        return rows, self._properties().answers(rows)

    def _properties(self) -> ShapeProperties[Source_co]:
        return ShapeProperties(self.source, self.questions)
