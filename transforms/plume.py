"""`Plume` (paper 003's baseline): items are named first, and then the named ones are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.calibration import NoisePlan
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import unpack_shard
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.count_release.plume import PlumePlan, plume
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.rounds import Round
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import ContributionBatch, as_contributions, check_whole
from headcount.transforms.core.noise import Noise
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.user_shards import UserShards, check_shards, item_shards
from headcount.transforms.partitions import NamedItems, PackShards


class Plume(beam.PTransform):
    """How many users have each item, for items that are not known before: named first, then counted.

    Guarantee: user-level delta-approximate rho-zCDP under `relation`; a `Budget` is converted, with half of its delta. Each
    user has a part in naming with a uniform sample of at most `max_items` of its items, and counts for at most
    `max_counted_items` of the named ones (default: as many); "auto" chooses both privately. Naming takes the share `alpha`
    of rho, by the strategy `selection`: "gaussian", "weighted-gaussian" or "sips". With `relative_error` r, noisy counts below
    (2 + r) / r standard deviations are left out. The result is as for `UnboundedHistogram`.
    """

    def __init__(
        self,
        budget: Zcdp | Budget,
        max_items: int | Literal["auto"] = "auto",
        max_counted_items: int | Literal["auto"] | None = None,
        alpha: float = 0.5,
        selection: str = "gaussian",
        relative_error: float | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        super().__init__()
        relation = Relation.parse(relation)
        self.plan = plume(budget, max_items, max_counted_items, alpha, selection, relative_error, relation, item_type)
        self._release, self._shards, self._output_files = release, check_shards(shards), output_files
        self._with_decision = False

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.plan.guarantee()

    def with_decision(self) -> Plume:
        """The same transform, but its result has two fields: `counts`, and `decision`, which is one `PlumePlan` with the
        guarantee in the numbers that were chosen. Only where the bounds are chosen."""
        if self.plan.choice is None:
            raise ParameterError("nothing is decided where the bounds are given: leave out with_decision()")
        self._with_decision = True
        return self

    def expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        check_whole(rows)
        release, label = release_for(rows.pipeline, self._release), full_label(rows)  # one release for all steps
        shards = as_contributions(rows) | "UserShards" >> UserShards(self._shards)
        plan, counted = self.plan, _Counted(release, f"{label}/Counted", self._shards)
        if plan.choice is None:
            packed, decided = shards | "PackShards" >> PackShards(), plan.plan()
            return self._counts(packed, decided.rounds, decided, decided.plan, counted, release)
        choice = choose(shards, plan.choice, release, self._shards, f"{label}/ChooseBound")
        decision = choice.chosen | "Plan" >> beam.Map(plan.plan).with_output_types(PlumePlan)
        known = beam.pvalue.AsSingleton(decision)
        counts = self._counts(choice.shards, decision, known, decision, counted, release)
        return CountsAndDecision(counts, decision) if self._with_decision else counts

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
        item_type, shards = self.plan.item_type, self._shards
        named = packed | "NamedItems" >> NamedItems(
            rounds, release, shards, item_type, item_shards(shards), self.plan.most_rounds
        )  # (k, named items), beyond a barrier
        return (
            packed
            | "Counted" >> beam.ParDo(counted, known, beam.pvalue.AsList(named)).with_output_types(ContributionBatch)
            | "NoisyCounts" >> Noise(noise, None, item_type, release, shards, self._output_files, named)
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
