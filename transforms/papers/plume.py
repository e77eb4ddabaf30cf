"""`Plume` as a transform: items are named first, then counted; the baseline of `PrivateCountRelease`."""

from __future__ import annotations

from typing import Literal

import apache_beam as beam

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.count_release.papers.plume import PlumePlan, PlumeRelease, plume
from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.partitions.rounds import Round
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import ContributionBatch, as_contributions
from headcount.transforms.core.noise import Noise
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import count_row
from headcount.transforms.core.user_shards import UserShards
from headcount.transforms.count_release import CountNamed
from headcount.transforms.keyed.domain import given_items
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
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type)
        made = plume(
            budget,
            max_items=max_items,
            max_counted_items=max_counted_items,
            alpha=alpha,
            selection=selection,
            relation=Relation.parse(relation),
            item_type=items.made,
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, items=items)
        self._quality = Quality(max_relative_error, suppress_below)

    def _given(self) -> str | None:
        return "the bounds are" if self.mechanism.choice is None else None

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, label = self._drawn(rows)
        shards = as_contributions(rows) | "UserShards" >> UserShards(self._shards, release.windows)
        plan, counted = self.mechanism, CountNamed(release, f"{label}/Counted", self._shards)
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
        counted: CountNamed,
        release: Release,
    ) -> beam.PCollection:
        """Noisy counts of packed shards of users; the plan is given, or will be decided."""
        item_type, shards = self.mechanism.item_type, self._shards
        named = packed | "NamedItems" >> NamedItems(
            rounds, release, shards, item_type, most_rounds=self.mechanism.most_rounds
        )  # (0, named items), beyond a barrier
        all_named = beam.pvalue.AsList(named)
        counts = (
            packed
            | "Counted" >> beam.ParDo(counted, known, all_named).with_output_types(ContributionBatch)
            | "NoisyCounts"
            >> Noise(noise, None, item_type, release, shards, self._output_files, all_named, quality=self._quality)
        )
        return self._shown(counts, count_row(item_type))
