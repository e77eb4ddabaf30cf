"""Private answers to the questions of `estimators`: from a released shape at no cost, or by a trusted curator with noise.

Guarantee: epsilon-differential privacy for the relation, per user; the proof stands in `estimators`. The rows are property,
value, noise_stddev, which is that of the noise alone (from a shape: a bound on its effect). An estimate's own error, which a
larger sample would lower, is not in it. A question about a sample too large to say anything has no row: an error would come
after the noise was drawn, and whoever runs the job again pays twice. Proof: docs/proofs/shape.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_parts, sum_up
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Laplace, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import Step, check_bound, one_each
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.intervals import half_range
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Mechanism, Promise
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_laplace
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey
from headcount.mechanisms.shape.anonymized import FromTallies, noise_plan, run_from_tallies
from headcount.mechanisms.shape.estimators import (
    MOST_SAMPLES,
    MOST_SPREAD,
    CoverageQuestion,
    DistinctQuestion,
    EntropyQuestion,
    Estimator,
    Question,
    TooFarError,
)
from headcount.mechanisms.shape.tallies import Tally

# Fewer samples have no entropy, and no logarithm to divide by.
_LEAST_SAMPLES = 3


class ShapeSource(Promise, Protocol):
    """A mechanism that releases rows count, items, error, in whichever model: of users' data, of their reports, of counters."""

    def notes(self, shape: Tally) -> tuple[str, ...]:
        """What a released shape tells of public numbers that do not fit the data."""


class CentralShape(ShapeSource, FromTallies, Mechanism, Protocol):
    """One that sees users' data itself."""


Source_co = TypeVar("Source_co", bound=ShapeSource, covariant=True)


@dataclasses.dataclass(frozen=True)
class ShapeProperties(Generic[Source_co]):
    """Answers from the rows of one anonymized histogram: as many as wanted, for the budget of the histogram alone.

    It sees the released rows and nothing else, so that it serves every model alike (the paper, Theorem 4).
    """

    source: Source_co
    questions: tuple[Question, ...]

    @property
    def name(self) -> str:
        """That of the histogram, whose randomness this is."""
        return self.source.name

    def guarantee(self) -> Guarantee:
        """That of the histogram, and which questions are answered from it."""
        own = self.source.guarantee()
        asked = {question.name: "from the shape" for question in self.questions}
        return dataclasses.replace(own, mechanisms=(*own.mechanisms, MechanismStep("properties", 0.0, 0.0, asked)))

    def run(
        self: ShapeProperties[CentralShape],
        batches: Iterable[pa.RecordBatch],
        release: Release,
        label: str | None = None,
    ) -> pa.RecordBatch:
        """The released rows property, value, noise_stddev of contribution batches."""
        return self.of_rows(self.source.run(batches, release, label))

    def run_decided(
        self: ShapeProperties[CentralShape],
        batches: Iterable[pa.RecordBatch],
        release: Release,
        label: str | None = None,
    ) -> tuple[pa.RecordBatch, PropertyAnswers | ShapeAnswers]:
        """The same, and the answers for a report."""
        rows = self.run(batches, release, label)
        return rows, PropertyAnswers.of(rows, self.guarantee())

    def answers(self, rows: pa.RecordBatch) -> ShapeAnswers:
        """All that is said of the rows of a shape, for a report."""
        shape, errors = _shape(rows)
        found = []
        for question, value, stddev in _answered(rows, self.questions):
            row: dict[str, str | int | float] = {"property": question.name, "value": value, "noise_stddev": stddev}
            if isinstance(question, CoverageQuestion):
                row["samples"] = question.samples(samples_of(shape))
            found.append(row)
        notes = self.source.notes(shape)
        return ShapeAnswers(self.guarantee(), shape.total, tuple(found), binned(shape, errors), notes)

    def of_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The answers from the rows of a shape."""
        return shape_properties(rows, self.questions)


@dataclasses.dataclass(frozen=True)
class ShapeAnswers:
    """What a shape says, for a report: all of it follows from the released rows, at no further cost.

    `samples` is the sum of all counts, `found` the rows of properties, `bins` the shape in few lines, and `notes` say what is
    wrong with the public numbers.
    """

    guarantee: Guarantee
    samples: int
    found: tuple[dict[str, Any], ...]
    bins: tuple[dict[str, int | float], ...]
    notes: tuple[str, ...] = ()

    def description(self) -> str:
        """All answers in one line, and the notes."""
        parts = [f"samples {self.samples:,}"]
        for row in self.found:
            name, digits = row["property"], ",.4f" if row["property"] == EntropyQuestion.name else ",.0f"
            if name == DistinctQuestion.name:
                name = "distinct items among them"
            elif "samples" in row:
                name = f"among {row['samples']:,} samples"
            parts.append(f"{name} {row['value']:{digits}} +- {half_range(row['noise_stddev']):{digits}}")
        return "\n".join(["; ".join(parts), *self.notes])

    def report_fields(self) -> dict[str, Any]:
        """The same for a machine, and the shape in bins."""
        found = {"samples": self.samples, "properties": [*map(dict, self.found)], "shape": [*map(dict, self.bins)]}
        return found | ({"notes": list(self.notes)} if self.notes else {})


@dataclasses.dataclass(frozen=True)
class PropertyAnswers:
    """Single answers for a report."""

    guarantee: Guarantee
    found: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, rows: pa.RecordBatch, guarantee: Guarantee) -> PropertyAnswers:
        """Those that the rows property, value, noise_stddev hold."""
        return cls(guarantee, tuple(rows.to_pylist()))

    def description(self) -> str:
        """All answers in one line."""
        if not self.found:
            return "no answer: too few samples, or too much noise, for this question"
        return "; ".join(
            f"{row['property']} {row['value']:,.6g} +- {half_range(row['noise_stddev']):,.2g}" for row in self.found
        )

    def report_fields(self) -> dict[str, Any]:
        """The same for a machine."""
        return {"properties": [*map(dict, self.found)]}


def shape_properties(rows: pa.RecordBatch, questions: Iterable[Question]) -> pa.RecordBatch:
    """The rows property, value, noise_stddev that answer the questions from rows count, items, error of any model."""
    return property_rows((question.name, value, stddev) for question, value, stddev in _answered(rows, questions))


def _answered(rows: pa.RecordBatch, questions: Iterable[Question]) -> Iterator[tuple[Question, float, float]]:
    shape, errors = _shape(rows)
    samples, distinct = samples_of(shape), int(shape.cells.sum())
    for question in questions:
        if shape.total < _LEAST_SAMPLES and not isinstance(question, DistinctQuestion):
            continue
        with contextlib.suppress(TooFarError):
            estimator = question.estimator(samples, float(errors.sum()))
            value = question.limited(estimator.value(estimator.exact(shape)), samples, distinct)
            yield question, value, effect(estimator, shape, errors)


def binned(shape: Tally, errors: np.ndarray) -> tuple[dict[str, int | float], ...]:
    """The items with counts from 1, 2, 3, 4, 5, 6 to 10, 11 to 20, 21 to 50 and so on; without bins that have none."""
    if len(shape.values) == 0:
        return ()
    ends = [1, 2, 3, 4, 5]
    while ends[-1] < int(shape.values[-1]):
        ends += [2 * ends[-1], 4 * ends[-1], 10 * ends[-1]]
    place = np.searchsorted(ends, shape.values)
    return tuple(
        {
            "from": ends[bin - 1] + 1 if bin else 1,
            "to": ends[bin],
            "items": int(shape.cells[place == bin].sum()),
            "error": float(errors[place == bin].sum()),
        }
        for bin in np.unique(place).tolist()
    )


def _shape(rows: pa.RecordBatch) -> tuple[Tally, np.ndarray]:
    shape = Tally(np.asarray(rows.column("count")), np.asarray(rows.column("items")))
    return shape, np.asarray(rows.column("error"))


def samples_of(shape: Tally) -> int:
    """The number of samples that a shape's estimators are made for."""
    return min(max(shape.total, _LEAST_SAMPLES), MOST_SAMPLES)


def effect(estimator: Estimator, shape: Tally, errors: np.ndarray) -> float:
    """About the largest stddev that the errors of a shape's rows give the estimate.

    A row's error is spread over the r above the count of the row before, up to its own. An item taken for one of r in place of
    r - 1 moves the estimate by G(r) - G(r - 1). Of rows that span many r, the first few are looked at. (Errors are means of
    sizes; a normal error's stddev is that times sqrt(pi/2).)
    """
    total, before = 0.0, 0
    for count, error in zip(shape.values.tolist(), errors.tolist(), strict=True):
        last = min(count, before + tuning.STEPS_OF_ROW)
        values = [estimator.on_grid(r) for r in range(before, last + 1)]
        moved = sum(abs(after - value) for value, after in zip(values, values[1:], strict=False))
        total += error * moved / (last - before)
        before = count
    return math.sqrt(math.pi / 2) * total / 2.0**estimator.grid


@dataclasses.dataclass(frozen=True)
class CentralProperty:
    """One answer by a trusted curator: the exact estimate, with noise for its largest step.

    `samples` is the number of all users' items that are counted, if it is public, or the noise with which it is counted.
    That noise and `budget`, which is for the answer, cost no more than the `whole`.
    """

    question: Question
    budget: Budget
    relation: Relation
    max_items: int
    samples: int | NoisePlan
    whole: Budget
    tallied = (None,)
    name = "CentralProperty"

    def __post_init__(self) -> None:
        counted = [Budget(self.samples.epsilon)] if isinstance(self.samples, NoisePlan) else []
        check_parts(self.whole, self.budget, *counted)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What bounds a user's contribution: a number of distinct items, each counted once."""
        return one_each(self.max_items)

    @property
    def bound(self) -> Bound:
        """What the steps promise of every user."""
        return noise_plan(self.budget, self.max_items, self.relation).bound

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs. The noise's scale follows from the number of samples."""
        noise: dict[str, str | int | float]
        if isinstance(self.samples, NoisePlan):
            number = self.samples.step("number of samples")
            losses = self.samples.losses() + Losses.of(Laplace(self.budget.epsilon))  # in steps that the number decides
            noise = {"noise": "discrete Laplace", "scale": "the largest step at the counted samples, over epsilon"}
        else:
            number = MechanismStep("number of samples", 0.0, 0.0, {"public": self.samples})
            estimator, plan = self.plan(self.samples)
            noise = {"noise": "discrete Laplace", "stddev": plan.stddev / 2.0**estimator.grid}
            losses = plan.losses()
        bounding = MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": self.bound.description()})
        steps = (bounding, number, MechanismStep(self.question.name, self.budget.epsilon, 0.0, noise))
        costs = [self.budget.epsilon, *([self.samples.epsilon] if isinstance(self.samples, NoisePlan) else [])]
        return Guarantee(sum_up(costs), 0.0, self.relation, steps, losses=losses)

    def plan(self, samples: int) -> tuple[Estimator, NoisePlan]:
        """The estimator for this number of samples, and its noise in units of the estimator's grid."""
        spread = math.sqrt(2) * self.relation.users * self.max_items / self.budget.epsilon
        estimator = self.question.estimator(samples, spread)
        moved = Bound(l1=self.max_items * estimator.step)
        return estimator, calibrate_public_domain(self.budget, moved, self.relation, "laplace")

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released row property, value, noise_stddev of contribution batches."""
        return run_from_tallies(self, batches, release, self.name if label is None else label)

    def run_decided(
        self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None
    ) -> tuple[pa.RecordBatch, PropertyAnswers]:
        """The same, and the answer for a report."""
        rows = self.run(batches, release, label)
        return rows, PropertyAnswers.of(rows, self.guarantee())

    def released(self, tallies: Sequence[Tally], key: bytes, release_id: str, label: str) -> pa.RecordBatch:
        """The released row of the one tally."""
        return self.of_tally(tallies[0], key, release_id, label)

    def of_tally(self, tally: Tally, key: bytes, release_id: str, label: str) -> pa.RecordBatch:
        """The released row of the tally of all items' counts."""
        samples = self.samples
        if isinstance(samples, NoisePlan):
            own = subkey(key, release_id, f"{label}/Samples", {"plan": samples.to_json()})
            samples = min(max(tally.total + _draw(tally, samples.scale, own), _LEAST_SAMPLES), MOST_SAMPLES)
        try:
            estimator, plan = self.plan(samples)
        except (
            ParameterError
        ):  # too far, or too much noise, for the noisy number of samples, which is all that this tells
            return property_rows([])
        parameters = {"property": self.question.name, "plan": plan.to_json(), "items": self.max_items}
        chosen = {
            "samples": samples,
            "grid": estimator.grid,
            "table": list(estimator.table),
            "ratio": repr(estimator.ratio),
            "beside": [repr(estimator.extra), repr(estimator.constant)],
        }
        own = subkey(key, release_id, f"{label}/Noise", parameters, chosen)
        value = self.question.limited(estimator.value(estimator.exact(tally) + _draw(tally, plan.scale, own)), samples)
        stddev = plan.stddev / 2.0**estimator.grid
        if isinstance(self.samples, NoisePlan):
            stddev = math.hypot(stddev, self.samples.stddev * self.question.per_sample(value, samples))
        return property_rows([(self.question.name, value, stddev)])


def central_property(
    budget: Budget,
    question: Question,
    *,
    samples: int | None = None,
    max_items: int = 1,
    relation: Relation = Relation.ADD_REMOVE,
) -> CentralProperty:
    """One question to a trusted curator. `samples` is public, or None: then it is counted, by a share of epsilon.

    A number that was counted from the data is not public, and neither is it under REPLACE: a user who is replaced may have had
    fewer items.
    """
    check_budget(budget)
    items = check_bound("max_items", max_items)
    noise = math.sqrt(2) * relation.users * items / budget.epsilon
    if noise > MOST_SPREAD:
        raise ParameterError(
            f"epsilon = {budget.epsilon} is too small for max_items = {items}: with noise of {noise:.3g} items nothing "
            "can be said; raise epsilon, or take fewer items per user"
        )
    whole = Budget(budget.epsilon)
    if samples is not None:
        samples = check_whole("samples", samples, _LEAST_SAMPLES, MOST_SAMPLES)
        made = CentralProperty(question, whole, relation, items, samples, whole)
        made.plan(samples)  # a question about too large a sample is refused now
        return made
    share = Fraction(repr(tuning.USERS_SHARE))
    counted, rest = whole.split(share.numerator, share.denominator - share.numerator)
    return CentralProperty(question, rest, relation, items, noise_plan(counted, items, relation), whole)


def property_rows(answers: Iterable[tuple[str, float, float]]) -> pa.RecordBatch:
    """Released rows: the property, its value, and the stddev of the noise in it."""
    schema = pa.schema({"property": pa.string(), "value": pa.float64(), "noise_stddev": pa.float64()})
    rows = [dict(zip(schema.names, answer, strict=True)) for answer in answers]
    return pa.RecordBatch.from_pylist(rows, schema)


def _draw(tally: Tally, scale: Fraction, own: bytes) -> int:
    """One noise, from a lane that depends on the whole tally."""
    table = np.concatenate([tally.values, tally.cells]).astype("<i8").tobytes()
    return int(discrete_laplace(Lanes(block_key(own), decision_lane_ids(lane_key(own), table, 1)), scale)[0])
