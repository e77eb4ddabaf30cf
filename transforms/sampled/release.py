"""Sample and threshold as transforms: `SampledHistogram` and `HeavyHitters`; `quantiles` has the others.

No noise is added: users are sampled, and what too few sampled users have stays hidden. The number of sampled users, of hidden
items or of all users is never part of a result: each would give a sampled user away.

A sample is defined by the release (key and id), the collection, and what is sampled with which rate and threshold. Transforms
that agree in these read the same sample, in one pipeline or in several, and together are one release, whose guarantee is that
of any one of them: a `SampledHistogram` and `HeavyHitters` at any number of shares, of the same budget, items per user,
objective and relation; `Quantiles` with any quantiles and ranges over one tree. The collection is known by the label of the
step that made it, or by `sample`, a name for one column of one input: give the same in pipelines (or steps of Beam YAML) that
make the same collection in other ways, and never for two inputs.
"""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.quality import EVERY_ROW, Quality
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.auto import (
    CHOSEN,
    AutoSampled,
    DecidedSample,
    MaxItems,
    heavy_hitters,
    sampled_histogram,
)
from headcount.mechanisms.sampled.heavy_hitters import CountedHitters
from headcount.mechanisms.sampled.histogram import CHOICES, SampledHistogramMechanism, SampleKey
from headcount.mechanisms.sampled.plan import Objective
from headcount.mechanisms.sampled.quantiles import (
    Hierarchy,
    QuantileSearch,
)
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import (
    KeepGood,
    SampledCount,
    SampledIntCount,
)
from headcount.transforms.core.user_shards import UserShards, item_shards
from headcount.transforms.keyed.domain import GivenItems, given_items
from headcount.transforms.sampled.sampling import BoundAsSampled, NumberOfUsers, Sampled, check_sample, sample_name


class _Sampling(PrivateTransform):
    """What all that read a sample share."""

    def __init__(
        self,
        mechanism: SampledHistogramMechanism | AutoSampled | QuantileSearch | Hierarchy,
        *,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
        sample: str | None = None,
        items: GivenItems | None = None,
    ) -> None:
        super().__init__(mechanism, release=release, shards=shards, output_files=output_files, items=items)
        self._sample = check_sample(sample)


class _Items(_Sampling):
    """Contributions, the choice of the items per user unless they are given, bounding and sampling of one histogram."""

    mechanism: SampledHistogramMechanism | AutoSampled
    _quality = EVERY_ROW

    def _given(self) -> str | None:
        return None if isinstance(self.mechanism, AutoSampled) else "the number of items per user is"

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, _ = self._drawn(rows)
        made = self.mechanism
        key = SampleKey(made, release, sample_name(rows, self._sample))
        contributions = as_contributions(rows)
        files = self._output_files or item_shards(self._shards)
        if isinstance(made, SampledHistogramMechanism):
            bounded = contributions | "Bounded" >> Bounded(made.steps, key.choices, self._shards, CHOICES)
            shown = bounded | "Sampled" >> Sampled(made, key, self._shards, files)
            return self._reported(contributions, shown, made, key)
        shards = contributions | "UserShards" >> UserShards(self._shards, release.windows)
        choice = choose(shards, made.choice, key.choices, self._shards, CHOSEN)
        decided = choice.chosen | "Calibrate" >> beam.Map(made.decided).with_output_types(DecidedSample)
        sample = decided | "Sample" >> beam.Map(_sample).with_output_types(SampledHistogramMechanism)
        bounded = choice.shards | "Bounded" >> BoundAsSampled(sample, key, self._shards)
        shown = bounded | "Sampled" >> Sampled(made, key, self._shards, files, sample)
        return self._result(self._reported(contributions, shown, sample, key), decided)

    def _reported(
        self,
        contributions: beam.PCollection,
        shown: beam.PCollection,
        sample: SampledHistogramMechanism | beam.PCollection,
        key: SampleKey,
    ) -> beam.PCollection:
        """What is reported of what the sample shows, with the number of users where it is counted: all of it is released."""
        made, number = self.mechanism, None
        if isinstance(made, AutoSampled | CountedHitters) and isinstance(made.users, NoisePlan):
            counted = contributions | "Users" >> NumberOfUsers(made.users, key, self._shards)
            number = beam.pvalue.AsSingleton(counted)
        drawn = beam.pvalue.AsSingleton(sample) if isinstance(sample, beam.PCollection) else sample
        reported = shown | "Report" >> beam.Map(_report, drawn, number).with_output_types(tuple[int, pa.RecordBatch])
        good = reported | "KeepGood" >> KeepGood(self._quality)
        return self._shown(good, SampledIntCount if made.item_type is int else SampledCount)


def _sample(decided: DecidedSample) -> SampledHistogramMechanism:
    return decided.sample


def _report(
    file: tuple[int, pa.RecordBatch], sample: SampledHistogramMechanism, users: int | None
) -> tuple[int, pa.RecordBatch]:
    number, shown = file
    return number, sample.reported(shown, users)


class SampledHistogram(_Items):
    """How many users have each item, for items that are not known before, from a sample and without noise (the paper).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts once for each of at most
    `max_items` of its distinct items, a uniform choice, however many rows it has on each, with a coin of its own for each item.
    An item is shown if as many users as the threshold were sampled, or more. An item that nobody has cannot appear. How many
    items count is chosen privately, within the budget, unless it is given.

    The result is `SampledCount` rows (`SampledIntCount` with `item_type=int`), sorted by item in each output file. Rows or
    `Contributions` go in. `with_decision()` gives the `DecidedSample` beside, where the items per user are chosen.

    Parameters:
        budget: what all of it may cost; it needs a delta.
        max_items: the distinct items of one user that count (default: "auto", chosen privately by a tenth of epsilon, so that
            most users count in all). With fewer than users have, counts are too low; more take a lower rate.
        objective: rate and threshold are chosen so that an item of few users is shown with probability 0.95 ("w95", default)
            or 0.5 ("w50"), which shows smaller items now and then.
        sample: a name for the input's column, which all that read one sample share (default: None, the step that made the
            collection); see this module.
        max_relative_error, suppress_below, relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        max_items: MaxItems = "auto",
        objective: Objective = "w95",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
        sample: str | None = None,
        max_relative_error: float | None = None,
        suppress_below: int | None = None,
    ) -> None:
        items = given_items(item_type)
        made = sampled_histogram(
            budget, max_items=max_items, objective=objective, relation=Relation.parse(relation), item_type=items.made
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, sample=sample, items=items)
        self._quality = Quality(max_relative_error, suppress_below)


class HeavyHitters(_Items):
    """The items that a share `phi` of all `users` have, with the estimates of their users (the paper).

    Guarantee and result are those of `SampledHistogram` with the same budget, `max_items`, objective and relation: of the
    same sample less is shown, and estimates and intervals take that into account. On the same collection and with the same
    `release`, both, and any number of shares, together cost no more than one of them.

    Parameters:
        budget: what all of it may cost; it needs a delta.
        phi: the share of all users that an item must have.
        users: how many users there are, if that is public, which "replace" needs; never the exact number of the data's
            (default: None, they are counted).
        users_share: the share of epsilon that counting them takes (default: a tenth); the sample is that of the rest.
        max_items, objective, sample: as for `SampledHistogram`.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    def __init__(
        self,
        budget: Budget,
        phi: float,
        *,
        users: int | None = None,
        users_share: float | None = None,
        max_items: MaxItems = "auto",
        objective: Objective = "w95",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
        sample: str | None = None,
    ) -> None:
        items = given_items(item_type)
        made = heavy_hitters(
            budget,
            phi,
            users=users,
            users_share=users_share,
            max_items=max_items,
            objective=objective,
            relation=Relation.parse(relation),
            item_type=items.made,
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, sample=sample, items=items)
