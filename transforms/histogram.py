"""Private histograms as transforms (paper 000, Algorithms 1 and 3): `UnboundedHistogram`, `BoundedHistogram`, `NoisyCounts`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.bound import Bound
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.calibration import (
    NoisePlan,
    calibrate_public_domain,
    calibrate_unknown_domain,
    public_noise,
)
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import public_domain
from headcount.mechanisms.counting.evidence import check_bounded
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.histogram.auto import AutoHistogram, Decided, auto_bounded_histogram, auto_unbounded_histogram
from headcount.mechanisms.histogram.fixed import Histogram, bounded_histogram, unbounded_histogram
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.choice import BoundAsDecided, choose
from headcount.transforms.core.contributions import ContributionBatch, as_contributions, check_whole
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.noise import Noise
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import UserShards, check_shards


class NoisyCounts(beam.PTransform):
    """Noisy counts by item of contributions that a bounding transform has bounded by `bound`.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, if the input is bounded as `bound` says,
    which is checked: unbounded input, another bound, or two bounded collections flattened together are refused. Without
    a `domain`, only items with a positive bounded sum get noise, and those below the threshold stay hidden.
    """

    def __init__(
        self,
        budget: Budget,
        bound: Bound,
        domain: Iterable[str] | Iterable[int] | None = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        super().__init__()
        relation = Relation.parse(relation)
        names = None if domain is None else public_domain(domain, item_type)
        if names is None:
            self.plan = calibrate_unknown_domain(budget, bound, relation, noise)
        else:
            self.plan = calibrate_public_domain(budget, bound, relation, public_noise(noise))
        self._noise = Noise(self.plan, names, item_type, release, check_shards(shards), output_files)
        self._histogram = Histogram("NoisyCounts", (), self.plan, names, item_type)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._histogram.guarantee()

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        # What comes from other hands is looked at again; the histograms wire bounding and noise together themselves.
        checked = bounded | "CheckBounded" >> beam.Map(_check_bounded).with_output_types(ContributionBatch)
        return checked | "NoisyCounts" >> self._noise


class _PrivateHistogram(beam.PTransform):
    """Contributions, bounding and noise of one histogram; `plan` is its noise, or says how that will be decided."""

    def __init__(
        self,
        histogram: Histogram | AutoHistogram,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
    ) -> None:
        super().__init__()
        self._histogram = histogram
        self._release = release
        self._shards = check_shards(shards)
        self._output_files = output_files
        self._with_decision = False
        self.plan = histogram.plan if isinstance(histogram, Histogram) else histogram.auto

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._histogram.guarantee()

    def with_decision(self) -> _PrivateHistogram:
        """The same transform, but its result has two fields: `counts`, and `decision`, which is one `Decided`: the bound
        that was chosen, and the guarantee in its numbers. Only where the bound is chosen."""
        if isinstance(self.plan, NoisePlan):
            raise ParameterError("nothing is decided where the bound is given: leave out with_decision()")
        self._with_decision = True
        return self

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        check_whole(rows)
        release = release_for(rows.pipeline, self._release)  # one for all steps
        h = self._histogram
        contributions = as_contributions(rows)
        if h.domain is not None:
            contributions = contributions | "OnlyDomain" >> OnlyDomain(h.domain)
        if isinstance(h, Histogram):
            bounded = contributions | "Bounded" >> Bounded(h.steps, release, self._shards)
            return bounded | "NoisyCounts" >> self._noise(h.plan, release)
        label = full_label(rows)
        shards = contributions | "UserShards" >> UserShards(self._shards)
        choice = choose(shards, h.auto.choice, release, self._shards, f"{label}/ChooseBound")
        decided = choice.chosen | "Calibrate" >> beam.Map(h.auto.decided).with_output_types(Decided)
        bounded = choice.shards | "Bounded" >> BoundAsDecided(
            h.auto, decided, release, self._shards, f"{label}/Bounded"
        )
        counts = bounded | "NoisyCounts" >> self._noise(decided, release)
        return CountsAndDecision(counts, decided) if self._with_decision else counts

    def _noise(self, plan: NoisePlan | beam.PCollection[Decided], release: Release) -> Noise:
        h = self._histogram
        return Noise(plan, h.domain, h.item_type, release, self._shards, self._output_files)


class UnboundedHistogram(_PrivateHistogram):
    """How often users did each item, for items that are not known before (paper 000, Algorithm 3, corrected).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts with at most `max_per_item`
    events on one item, and of these with a uniform sample of at most `bound`; items below the threshold stay hidden. With
    `bound="auto"`, bound, cap and noise are chosen privately, for the `objective`: "error" (counts close to the true ones
    in total) or "items" (as many items as can be); the choice takes `bound_share` of epsilon (by default a tenth, for "items" a
    twentieth). The result is `NoisyCount` rows (`NoisyIntCount` with `item_type=int`), or with `output_files=N` one element
    (k, record batch) for each k < N, sorted by item. Rows or `Contributions` go in.
    """

    def __init__(
        self,
        budget: Budget,
        bound: int | Literal["auto"] = "auto",
        max_per_item: int | None = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
        objective: str = "error",
        bound_method: str = "auto",
        bound_share: float | None = None,
    ) -> None:
        relation = Relation.parse(relation)
        histogram: Histogram | AutoHistogram
        if bound == "auto":
            histogram = auto_unbounded_histogram(
                budget, objective, bound_method, bound_share, max_per_item, noise, relation, item_type
            )
        else:
            _refuse_choosing(bound, objective=objective, bound_method=bound_method, bound_share=bound_share)
            histogram = unbounded_histogram(budget, bound, max_per_item, noise, relation, item_type)
        super().__init__(histogram, release, shards, output_files)


class BoundedHistogram(_PrivateHistogram):
    """How often users did each item of a public domain, with all of them in the result (paper 000, Algorithm 1).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`; delta is 0 with Laplace noise. Rows
    outside the domain are dropped first; then each user's counts are cut to `max_per_item` on each item, if it is given (1
    counts users in place of events), and scaled down to a norm of `bound` (l1 for Laplace, l2 for Gaussian noise). With
    `bound="auto"` the bound is chosen privately for the lowest error of what is counted, which takes `bound_share` of epsilon
    (by default a tenth). The result is as for `UnboundedHistogram`. The domain travels with the job's graph, so keep it
    below some hundred thousand items on a remote runner.
    """

    def __init__(
        self,
        budget: Budget,
        domain: Iterable[str] | Iterable[int],
        bound: int | Literal["auto"] = "auto",
        noise: str = "laplace",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
        bound_method: str = "auto",
        bound_share: float | None = None,
        max_per_item: int | None = None,
    ) -> None:
        relation = Relation.parse(relation)
        histogram: Histogram | AutoHistogram
        if bound == "auto":
            histogram = auto_bounded_histogram(
                budget, domain, bound_method, bound_share, noise, relation, item_type, max_per_item
            )
        else:
            _refuse_choosing(bound, bound_method=bound_method, bound_share=bound_share)
            histogram = bounded_histogram(budget, domain, bound, noise, relation, item_type, max_per_item)
        super().__init__(histogram, release, shards, output_files)


def _refuse_choosing(bound: object, **given: object) -> None:
    """Refuses parameters of a choice where there is none."""
    for name, value in given.items():
        if value not in (None, "auto", "error"):
            raise ParameterError(
                f"{name} is for bound='auto', got {name}={value!r} with bound={bound!r}: leave one out"
            )


def _check_bounded(element: object) -> pa.RecordBatch:
    if not isinstance(element, pa.RecordBatch):
        raise InputError(
            "NoisyCounts takes the batches of a bounding transform; put RandClip, or LimitItems and LimitPerItem, before it"
        )
    return check_bounded(element)
