"""The private choice of a bound as a transform (the paper: Algorithms 2 and 4, Lemma 4.2, Theorem 4.3, and beyond).

One pass over the users feeds every candidate at once: each shard of users adds up a table of some hundred integers, and
where items matter sends what they need to shards of items, which add up the same table. Only tables reach the one worker
that chooses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Self

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, PartDomain, public_domain
from headcount.mechanisms.bound_choice.by_name.standalone import StandaloneChoice, chosen_row, standalone_choice
from headcount.mechanisms.choice.protocol import ChosenBound, Decision
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import in_first
from headcount.transforms.core.user_shards import UserShards
from headcount.transforms.keyed.domain import given_items


class ChooseBound(PrivateTransform):
    """The bound that suits the users' contributions best, chosen privately: one `ChosenBound` for a later release.

    Guarantee: user-level (epsilon, delta)-differential privacy of the choice alone, for `budget` under `relation`. A release of
    the same data costs its own budget besides.

    Parameters:
        budget: what the choice may cost.
        release_budget: that of the later release, which the choice is made for.
        domain: the public items of the release; the bound is then a norm that counts are scaled to (default: None, items
            come from the data).
        method: "auto" (default) takes the best for the case. For items that come from the data: "joint" (bound, cap on one
            item and noise together), "em" and "gem" (the paper's Algorithm 4). For a domain with Laplace noise:
            "quantile-rank" and "quantile-gem"; with Gaussian noise: "em", "gem", "dp-gd", "output-perturbation", "m-quantile".
        objective: "error" (default), counts close to the true ones in total, or "items", as many items as can be.
        noise: of the later release (default: "auto").
        max_per_item: events on one item that will count (default: None, "joint" chooses it).
        kappa: what a dropped event weighs against noise, for "em" and "gem" (default: 2). More gives a larger bound.
        sparsity: how many items of a domain a user's weight may stand for, with Gaussian noise (default: a tenth of the
            domain, 10 at least). Any number keeps the guarantee; one that most users exceed makes the bound too small.
        users: about how many users there are, for "output-perturbation" (default: 100,000); a wrong guess, a worse bound.
        relation, release, item_type, shards: as for `Histogram`.
    """

    mechanism: StandaloneChoice

    def __init__(
        self,
        budget: Budget,
        release_budget: Budget,
        *,
        domain: Any = None,
        method: str = "auto",
        objective: str = "error",
        noise: str = "auto",
        max_per_item: int | None = None,
        kappa: float = 2,
        sparsity: int | None = None,
        users: int = tuning.GUESSED_USERS,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        made = standalone_choice(
            budget,
            release_budget,
            domain=items.domain,
            method=method,
            objective=objective,
            noise=noise,
            max_per_item=max_per_item,
            kappa=kappa,
            sparsity=sparsity,
            users=users,
            relation=Relation.parse(relation),
            item_type=items.made,
        )
        super().__init__(made, release=release, shards=shards, items=items)

    def _of_domain(self, domain: Domain | PartDomain | None, item_type: type) -> Self:
        known = None if domain is None else public_domain(domain, item_type)
        return self if known is None else self._but(mechanism=dataclasses.replace(self.mechanism, domain=known))

    def _expand(self, rows: beam.PCollection) -> beam.PCollection[ChosenBound]:
        release, label = self._drawn(rows)
        contributions = as_contributions(rows)
        if self.mechanism.domain is not None:
            contributions = contributions | "OnlyDomain" >> OnlyDomain(self.mechanism.domain)
        shards = contributions | "UserShards" >> UserShards(self._shards, release.windows)
        return choose(shards, self.mechanism.choice, release, self._shards, label, keep=False).chosen


class ChooseRow(beam.PTransform):
    """Contributions -> the choice as the one row of an output, and as the decision for its report."""

    def __init__(self, choose: ChooseBound, files: int) -> None:
        super().__init__()
        self.mechanism = choose.mechanism
        self._choose, self._files = choose, files

    def expand(self, contributions: beam.PCollection) -> CountsAndDecision:
        chosen = contributions | "ChooseBound" >> self._choose
        rows = chosen | "ToRow" >> beam.FlatMap(_to_row, self._files).with_output_types(tuple[int, pa.RecordBatch])
        decision = chosen | "WithGuarantee" >> beam.Map(Decision, self.mechanism.guarantee()).with_output_types(
            Decision
        )
        return CountsAndDecision(rows, decision)


def _to_row(chosen: ChosenBound, files: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    return in_first(chosen_row(chosen), files)
