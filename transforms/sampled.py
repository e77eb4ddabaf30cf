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
from headcount.mechanisms.counting.quality import EVERY_ROW, Quality
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.heavy_hitters import CountedHitters, heavy_hitters
from headcount.mechanisms.sampled.histogram import CHOICES, SampledHistogramMechanism, SampleKey, sampled_histogram
from headcount.mechanisms.sampled.plan import Objective
from headcount.mechanisms.sampled.quantiles import (
    Hierarchy,
    QuantileSearch,
)
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.rows import (
    KeepGood,
    SampledCount,
    SampledIntCount,
)
from headcount.transforms.core.sampling import NumberOfUsers, Sampled, check_sample, sample_name
from headcount.transforms.core.user_shards import item_shards


class _Sampling(PrivateTransform):
    """What all that read a sample share."""

    def __init__(
        self,
        mechanism: SampledHistogramMechanism | QuantileSearch | Hierarchy,
        *,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
        sample: str | None = None,
    ) -> None:
        super().__init__(mechanism, release=release, shards=shards, output_files=output_files)
        self._sample = check_sample(sample)


class _Items(_Sampling):
    """Contributions, bounding and sampling of one histogram."""

    mechanism: SampledHistogramMechanism
    _quality = EVERY_ROW

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        release, _ = self._drawn(rows)
        plan = self.mechanism
        key = SampleKey(plan, release, sample_name(rows, self._sample))
        contributions = as_contributions(rows)
        counts = (
            contributions
            | "Bounded" >> Bounded(plan.steps, key.choices, self._shards, CHOICES)  # each (user, item) pair once
            | "Sampled" >> Sampled(plan, key, self._shards, self._output_files or item_shards(self._shards))
        )
        if isinstance(plan, CountedHitters):  # this works on released numbers only
            users = contributions | "Users" >> NumberOfUsers(plan.users, key, self._shards)
            counts = counts | "Report" >> beam.Map(_reported, plan, beam.pvalue.AsSingleton(users)).with_output_types(
                tuple[int, pa.RecordBatch]
            )
        counts = counts | "KeepGood" >> KeepGood(self._quality)
        return self._shown(counts, SampledIntCount if plan.item_type is int else SampledCount)


def _reported(file: tuple[int, pa.RecordBatch], plan: CountedHitters, users: int) -> tuple[int, pa.RecordBatch]:
    number, rows = file
    return number, plan.reported(rows, users)


class SampledHistogram(_Items):
    """How many users have each item, for items that are not known before, from a sample and without noise (the paper).

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. Each user counts once for each of at most
    `max_items` of its items, a uniform choice, with a coin of its own for each; an item is shown if as many users as the
    threshold were sampled, or more. An item that nobody has cannot appear.

    The result is `SampledCount` rows (`SampledIntCount` with `item_type=int`), sorted by item in each output file. Rows or
    `Contributions` go in.

    Parameters:
        budget: what all of it may cost; it needs a delta.
        max_items: the items of one user that count (default: 1). More show items of users who have many, at a lower rate.
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
        max_items: int = 1,
        objective: Objective = "w95",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
        sample: str | None = None,
        max_relative_error: float | None = None,
        suppress_below: int | None = None,
    ) -> None:
        made = sampled_histogram(
            budget, max_items=max_items, objective=objective, relation=Relation.parse(relation), item_type=item_type
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, sample=sample)
        self._quality = Quality(max_relative_error, suppress_below)


class HeavyHitters(_Items):
    """The items that a share `phi` of all `users` have, with the estimates of their users (the paper).

    Guarantee and result are those of `SampledHistogram` with the same budget, `max_items`, objective and relation: of the
    same sample less is shown. On the same collection and with the same `release`, both, and any number of shares,
    together cost no more than one of them.

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
        max_items: int = 1,
        objective: Objective = "w95",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
        sample: str | None = None,
    ) -> None:
        made = heavy_hitters(
            budget,
            phi,
            users=users,
            users_share=users_share,
            max_items=max_items,
            objective=objective,
            relation=Relation.parse(relation),
            item_type=item_type,
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, sample=sample)
