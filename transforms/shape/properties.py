"""Single numbers that say something of all items, as transforms: `DistinctItems`, of all that users have, and of the shape
`Entropy`, `SupportSize` and `SupportCoverage`.
"""

from __future__ import annotations

from typing import Literal

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.auto import shape_histogram
from headcount.mechanisms.shape.distinct import DistinctAnswer, DistinctItemsMechanism, NoisyDistinct, distinct_items
from headcount.mechanisms.shape.estimators import (
    CoverageQuestion,
    EntropyKind,
    EntropyQuestion,
    Question,
    SupportQuestion,
)
from headcount.mechanisms.shape.properties import (
    CentralProperty,
    CentralShape,
    PropertyAnswers,
    ShapeProperties,
    central_property,
)
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import DistinctCount, ShapeProperty, ToShapeRows
from headcount.transforms.core.user_shards import UserShards
from headcount.transforms.shape.answers import PropertiesOfShape
from headcount.transforms.shape.release import FromTalliesTransform


class DistinctItems(PrivateTransform):
    """How many distinct items all users have together, where a user may have many.

    Guarantee: user-level epsilon-differential privacy under `relation`, delta 0. Every item of every user counts; a user of
    more than `max_items` gives each a part of its weight. The result is one `DistinctCount` row. Its `low` is a lower limit
    whatever the data are; items of nobody but users of more than `max_items` may be missing. Rows or `Contributions` go in.
    `with_decision()` gives a `DistinctAnswer` beside, the row in words.

    Parameters:
        budget: what all of it may cost.
        max_items: from how many items on a user gives parts of its weight (default: None, chosen with a tenth of epsilon, so
            that few users have more). More take more noise. Where no user has more, the row has a `high`, too.
        relation, release, shards, output_files: as for `Histogram`.
    """

    mechanism: DistinctItemsMechanism

    def __init__(
        self,
        budget: Budget,
        *,
        max_items: int | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        made = distinct_items(budget, max_items=max_items, relation=Relation.parse(relation))
        super().__init__(made, release=release, shards=shards, output_files=output_files)

    def _given(self) -> str | None:
        return None

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, label = self._drawn(rows)
        plan = self.mechanism
        shards = as_contributions(rows) | "UserShards" >> UserShards(self._shards, release.windows)
        drawn = choose(shards, plan, release, self._shards, f"{label}/Noisy", keep=False, result=NoisyDistinct).chosen
        found = drawn | "Answer" >> beam.Map(plan.rows).with_output_types(pa.RecordBatch)
        shown = found | "ToRows" >> ToShapeRows(DistinctCount, self._output_files)
        return self._result(shown, drawn | "Decision" >> beam.Map(plan.decided).with_output_types(DistinctAnswer))


class _Property(FromTalliesTransform):
    """One question: to the curator, or to a shape. `with_decision()` gives its `PropertyAnswers` beside."""

    mechanism: CentralProperty | ShapeProperties[CentralShape]

    def _given(self) -> str | None:
        return None

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        plan = self.mechanism
        if isinstance(plan, CentralProperty):
            found = self._released(rows, plan)
        else:
            found = self._released(rows, plan.source) | "Answer" >> beam.Map(plan.of_rows).with_output_types(
                pa.RecordBatch
            )
        shown = found | "ToRows" >> ToShapeRows(ShapeProperty, self._output_files)
        if not self._decides:
            return shown
        answer = found | "Decision" >> beam.Map(PropertyAnswers.of, self._promise()).with_output_types(PropertyAnswers)
        return self._result(shown, answer)


def _asked(
    budget: Budget,
    question: Question,
    *,
    mode: Literal["central", "shape"],
    samples: int | None,
    domain_size: int | None,
    buckets: int | None,
    max_items: int,
    relation: Relation | str,
) -> CentralProperty | ShapeProperties[CentralShape]:
    """The mechanism that answers a question in a mode; refuses the parameters of the other mode."""
    relation = Relation.parse(relation)
    if mode == "central":
        if domain_size is not None or buckets is not None:
            raise ParameterError(
                f"domain_size = {domain_size!r} and buckets = {buckets!r} are for mode 'shape', got mode 'central': leave "
                "them out, or take mode 'shape'"
            )
        return central_property(budget, question, samples=samples, max_items=max_items, relation=relation)
    if mode == "shape":
        if samples is not None:
            raise ParameterError(f"samples = {samples!r} is for mode 'central': a shape tells its own number")
        shape = shape_histogram(
            budget, domain_size=domain_size, buckets=buckets, max_items=max_items, relation=relation
        )
        return ShapeProperties(shape, (question,))
    raise ParameterError(f"mode must be 'central' or 'shape', got {mode!r}", "mode")


class Entropy(_Property):
    """The Shannon entropy, in nats, of the distribution that users' items are samples of.

    Guarantee: user-level epsilon-differential privacy under `relation`; each user has at most `max_items` of its items
    in it, a uniform choice. The result is one `ShapeProperty` row. Rows or `Contributions` go in.

    Parameters:
        budget: what all of it may cost.
        kind: the estimator: "polynomial" (default), which knows of items not seen, "miller-madow" or "plug-in", simpler and
            with more bias.
        accuracy: noise may cost half of it, else the degree of "polynomial" is lowered (default: 0.1).
        mode: "central" (default) adds noise to the exact estimate, which is the most accurate; in mode "shape" it follows from
            an `AnonymizedHistogram`.
        samples: users' items in all, for mode "central": public, never counted from the data (default: None, counted with a
            tenth of epsilon).
        domain_size, buckets: for mode "shape", as for `AnonymizedHistogram`.
        max_items: the items of one user that count, a uniform choice (default: 1). More are more samples, with more noise.
        relation, release, shards, output_files: as for `Histogram`.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        kind: EntropyKind = "polynomial",
        accuracy: float = 0.1,
        mode: Literal["central", "shape"] = "central",
        samples: int | None = None,
        domain_size: int | None = None,
        buckets: int | None = None,
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        super().__init__(
            _asked(
                budget,
                EntropyQuestion(kind, accuracy),
                mode=mode,
                samples=samples,
                domain_size=domain_size,
                buckets=buckets,
                max_items=max_items,
                relation=relation,
            ),
            release=release,
            shards=shards,
            output_files=output_files,
        )

    @staticmethod
    def of_shape(*, kind: EntropyKind = "polynomial", accuracy: float = 0.1) -> PropertiesOfShape:
        """The same of the released rows of a shape, in any model; see `PropertiesOfShape`."""
        return PropertiesOfShape([EntropyQuestion(kind, accuracy)])


class SupportSize(_Property):
    """How many items there are, if each is at least one in `most` of all samples: also those that nobody has yet.

    Guarantee and result are those of `Entropy`. Without a row in the result, there were too few samples to say.

    Parameters:
        budget: what all of it may cost.
        most: no item is rarer than one in this number of samples; public. The more, the more samples are needed.
        accuracy: noise may cost half of it, as a share of the result (default: 0.1).
        mode: "central" (default) adds noise to the exact estimate, which is the most accurate; in mode "shape" it follows from
            an `AnonymizedHistogram`.
        samples: users' items in all, for mode "central": public, never counted from the data (default: None, counted with a
            tenth of epsilon).
        domain_size, buckets: for mode "shape", as for `AnonymizedHistogram`.
        max_items: the items of one user that count, a uniform choice (default: 1). More are more samples, with more noise.
        relation, release, shards, output_files: as for `Histogram`.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        most: int,
        accuracy: float = 0.1,
        mode: Literal["central", "shape"] = "central",
        samples: int | None = None,
        domain_size: int | None = None,
        buckets: int | None = None,
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        super().__init__(
            _asked(
                budget,
                SupportQuestion(most, accuracy),
                mode=mode,
                samples=samples,
                domain_size=domain_size,
                buckets=buckets,
                max_items=max_items,
                relation=relation,
            ),
            release=release,
            shards=shards,
            output_files=output_files,
        )

    @staticmethod
    def of_shape(*, most: int, accuracy: float = 0.1) -> PropertiesOfShape:
        """The same of the released rows of a shape, in any model; see `PropertiesOfShape`."""
        return PropertiesOfShape([SupportQuestion(most, accuracy)])


class SupportCoverage(_Property):
    """How many distinct items `target` samples would have, of users like these.

    Guarantee and result are those of `Entropy`. Without a row in the result, the target was too far: from some four times the
    samples on.

    Parameters:
        budget: what all of it may cost.
        target: the number of samples to look ahead to (default: None, twice as many as there are). Further is less sure.
        accuracy: noise may cost half of it, as a share of the result (default: 0.1).
        mode: "central" (default) adds noise to the exact estimate, which is the most accurate; in mode "shape" it follows from
            an `AnonymizedHistogram`.
        samples: users' items in all, for mode "central": public, never counted from the data (default: None, counted with a
            tenth of epsilon).
        domain_size, buckets: for mode "shape", as for `AnonymizedHistogram`.
        max_items: the items of one user that count, a uniform choice (default: 1). More are more samples, with more noise.
        relation, release, shards, output_files: as for `Histogram`.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        target: int | None = None,
        accuracy: float = 0.1,
        mode: Literal["central", "shape"] = "central",
        samples: int | None = None,
        domain_size: int | None = None,
        buckets: int | None = None,
        max_items: int = 1,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        super().__init__(
            _asked(
                budget,
                CoverageQuestion(target, accuracy),
                mode=mode,
                samples=samples,
                domain_size=domain_size,
                buckets=buckets,
                max_items=max_items,
                relation=relation,
            ),
            release=release,
            shards=shards,
            output_files=output_files,
        )

    @staticmethod
    def of_shape(*, target: int | None = None, accuracy: float = 0.1) -> PropertiesOfShape:
        """The same of the released rows of a shape, in any model; see `PropertiesOfShape`."""
        return PropertiesOfShape([CoverageQuestion(target, accuracy)])
