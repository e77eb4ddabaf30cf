"""`Plume` (the baseline of the paper): items are named first, and then the named ones are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.calibration import NoisePlan
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.count_release.plume import PlumePlan, PlumeRelease, plume
from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.partitions.rounds import Round
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.noise import Noise
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import UserShards, item_shards
from headcount.transforms.partitions import NamedItems, PackShards


class Plume(PrivateTransform):
    """How many users have each item, for items that are not known before: named first, then counted.

    Guarantee: user-level delta-approximate rho-zCDP under `relation`; a `Budget` is converted, with half of its delta. Each
    user has a part in naming with a uniform sample of its items, and counts for a uniform sample of the named ones. What
    "auto" chooses, it chooses privately, within the budget.

    The result is `NoisyCount` rows (`NoisyIntCount` with `item_type=int`), sorted by item in each output file. Rows or
    `Contributions` go in. `with_decision()` gives the `PlumePlan` beside, where something is chosen.

    Parameters:
        budget: what all of it may cost, as a `Zcdp` or a `Budget`; it needs a delta.
        max_items: the items of one user that count in naming (default: "auto"). More name items of users who have many, and
            take more noise.
        max_counted_items: the named items of one user that are counted (default: None, as many). "auto" chooses it.
        alpha: the share of rho that naming takes (default: 0.5). More names more items, with worse counts.
        selection: how items are named: "gaussian" (default), "weighted-gaussian" or "sips", which names the most.
        max_relative_error, suppress_below, relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: PlumeRelease

    def __init__(
        self,
        budget: Zcdp | Budget,
        *,
        max_items: int | Literal["auto"] = "auto",
        max_counted_items: int | Literal["auto"] | None = None,
        alpha: float = 0.5,
        selection: str = "gaussian",
        max_relative_error: float | None = None,
        suppress_below: int | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        made = plume(
            budget,
            max_items=max_items,
            max_counted_items=max_counted_items,
            alpha=alpha,
            selection=selection,
            relation=Relation.parse(relation),
            item_type=item_type,
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files)
        self._quality = Quality(max_relative_error, suppress_below)

    def _given(self) -> str | None:
        return "the bounds are" if self.mechanism.choice is None else None

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, label = self._drawn(rows)
        shards = as_contributions(rows) | "UserShards" >> UserShards(self._shards)
        plan, counted = self.mechanism, _Counted(release, f"{label}/Counted", self._shards)
        if plan.choice is None:
            packed, decided = shards | "PackShards" >> PackShards(), plan.plan()
            return self._counts(packed, decided.rounds, decided, decided.plan, counted, release)
        choice = choose(shards, plan.choice, release, self._shards, f"{label}/ChooseBound")
        decision = choice.chosen | "Plan" >> beam.Map(plan.plan).with_output_types(PlumePlan)
        known = beam.pvalue.AsSingleton(decision)
        return self._result(self._counts(choice.shards, decision, known, decision, counted, release), decision)

    def _counts(
        self,
        packed: beam.PCollection,
        rounds: tuple[Round, ...] | beam.PCollection[PlumePlan],
        known: PlumePlan | beam.pvalue.AsSingleton,
        noise: NoisePlan | beam.PCollection[PlumePlan],
        counted: _Counted,
        release: Release,
    ) -> beam.PCollection:
        """Noisy counts of packed shards of users; the plan is given, or will be decided."""
        item_type, shards = self.mechanism.item_type, self._shards
        named = packed | "NamedItems" >> NamedItems(
            rounds, release, shards, item_type, item_shards(shards), self.mechanism.most_rounds
        )  # (k, named items), beyond a barrier
        return (
            packed
            | "Counted" >> beam.ParDo(counted, known, beam.pvalue.AsList(named)).with_output_types(ContributionBatch)
            | "NoisyCounts"
            >> Noise(noise, None, item_type, release, shards, self._output_files, named, quality=self._quality)
        )


class _Counted(beam.DoFn):
    """Packed shards -> each user's sample of the named items. The key is fetched on the worker."""

    def __init__(self, release: Release, label: str, number: int) -> None:
        self._release, self._label, self._number = release, label, number

    def setup(self) -> None:
        self._key = self._release.key_source.fetch()

    def process(
        self, packed: tuple[int, bytes], decided: PlumePlan, named: list[tuple[int, pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        number, data = packed
        names = pa.concat_arrays([batch.column("item") for _, batch in named])
        subkeys = step_subkeys(self._key, self._release.id, self._label, decided.steps)
        # As with every bound that is decided: shards that were bounded differently never meet in one noise step.
        origin = provenance(f"{self._label} at {decided.counted}", self._release.id, self._number)
        yield bound_shard(unpack_shard(data).with_items(names), decided.steps, subkeys, origin).to_batch(number)
