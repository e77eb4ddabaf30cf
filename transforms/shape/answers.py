"""Questions to a shape, in whichever model it was released: post-processing of its rows, which costs nothing.

What is here sees rows count, items, error and public numbers; no data, no messages, no counters and no key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.estimators import Question
from headcount.mechanisms.shape.properties import ShapeAnswers, ShapeProperties, ShapeSource, shape_properties
from headcount.transforms.core.base import PrivateTransform, check_files
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import ItemsWithCount, ShapeProperty, ToShapeRows
from headcount.transforms.core.windows import check_whole

_ROWS = {"count": pa.int64(), "items": pa.int64(), "error": pa.float64()}


class PropertiesOfShape(beam.PTransform):
    """What a released shape says of some questions (the paper, Theorem 4): post-processing, in every model.

    The rows of one shape go in, all of them: `ItemsWithCount`, or any rows with the fields count, items and error. They may
    come from `AnonymizedHistogram`, `ShuffledReports` or what `PanPrivateCounts.release` gave. Guarantee: that of the shape;
    answers cost nothing beyond it. The questions are those of `mechanisms.shape.estimators`; the result is a
    `ShapeProperty` row for each that has an answer.

    Parameters:
        questions: what is asked; any number costs no more.
        output_files: as for `Histogram`; all rows are in the first.
    """

    def __init__(self, questions: Iterable[Question], *, output_files: int | None = None) -> None:
        super().__init__()
        self._questions, self._output_files = check_questions(tuple(questions)), check_files(output_files)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        check_whole(rows)
        # One element at least: a shape without rows has answers, too.
        nothing = rows.pipeline | "Nothing" >> beam.Create([(0, None)], reshuffle=False)
        return (
            (rows | "Keyed" >> beam.Map(_keyed), nothing)  # (0, (count, items, error))
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()
            | "Answer" >> beam.Map(_answered, self._questions).with_output_types(pa.RecordBatch)
            | "ToRows" >> ToShapeRows(ShapeProperty, self._output_files)
        )


class AnsweringTransform(PrivateTransform):
    """A transform that releases a shape, in whichever model, and says what follows from it."""

    mechanism: ShapeSource

    def __init__(
        self, mechanism: ShapeSource, *, release: Release | None, shards: int | None, output_files: int | None
    ) -> None:
        super().__init__(mechanism, release=release, shards=shards, output_files=output_files)
        self._questions: tuple[Question, ...] = ()

    def _promise(self) -> Guarantee:  # answers from the shape cost nothing
        own = self.mechanism
        return ShapeProperties(own, self._questions).guarantee() if self._questions else own.guarantee()

    def with_answers(self, *questions: Question) -> Self:
        """The same transform, but its result has two fields: `counts`, the shape, and `decision`, which is one `ShapeAnswers`:
        what the shape says of these questions (`mechanisms.shape.estimators`), as any number of them costs no more."""
        return self._but(_questions=check_questions(questions))

    def _answered(self, shape: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        """The rows of a released shape, and its answers."""
        return rows_and_answers(shape, self.mechanism, self._questions, self._output_files)


def check_questions(questions: tuple[Question, ...]) -> tuple[Question, ...]:
    """The questions, if there are any."""
    if not questions:
        raise ParameterError("give at least one question")
    return questions


def rows_and_answers(
    shape: beam.PCollection, plan: ShapeSource, questions: tuple[Question, ...], output_files: int | None
) -> beam.PCollection | CountsAndDecision:
    """The rows of a released shape, which is one record batch; and its answers to the questions, if there are any."""
    rows = shape | "ToRows" >> ToShapeRows(ItemsWithCount, output_files)
    if not questions:
        return rows
    answers = shape | "Answers" >> beam.Map(ShapeProperties(plan, questions).answers).with_output_types(ShapeAnswers)
    return CountsAndDecision(rows, answers)


def _keyed(row: object) -> tuple[int, tuple[int, int, float]]:
    try:
        return 0, (row.count, row.items, row.error)  # type: ignore[attr-defined]
    except AttributeError:
        raise InputError("a row lacks one of the fields count, items and error, so it is not of a shape") from None


def _answered(
    group: tuple[int, Iterable[tuple[int, int, float] | None]], questions: tuple[Question, ...]
) -> pa.RecordBatch:
    found = sorted(row for row in group[1] if row is not None)
    columns = zip(*found, strict=True) if found else ([], [], [])
    arrays = {name: pa.array(column, type) for (name, type), column in zip(_ROWS.items(), columns, strict=True)}
    if any(before[0] == after[0] for before, after in zip(found, found[1:], strict=False)):
        raise InputError("two rows have the same count: these are the rows of more than one shape")
    return shape_properties(pa.RecordBatch.from_pydict(arrays), questions)
