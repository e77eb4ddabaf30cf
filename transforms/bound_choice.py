"""The private choice of a bound as a transform (paper 000: Algorithms 2 and 4, Lemma 4.2, Theorem 4.3, and beyond).

One pass over the users feeds every candidate at once: each shard of users adds up a table of some hundred integers, and
where items matter sends what they need to shards of items, which add up the same table. Only tables reach the one worker
that chooses.
"""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import public_domain
from headcount.mechanisms.bound_choice.methods import choose_public_domain, choose_unknown_domain
from headcount.mechanisms.choice.protocol import Choice, ChosenBound
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import as_contributions, check_whole
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.user_shards import UserShards, check_shards


class ChooseBound(beam.PTransform):
    """The bound that suits the users' contributions best, chosen privately: one `ChosenBound` for a later release.

    Guarantee: user-level (epsilon, delta)-differential privacy of the choice alone, for `budget` under `relation`. A release of
    the same data costs its own budget besides; `release_budget` is that one, which the choice is made for. With a public
    `domain` the bound is a norm that counts, cut to `max_per_item` first, are scaled to. Methods: "joint" (bound, cap on one
    item and noise together, for the `objective` "error" or "items"), "em" and "gem" (the paper's Algorithm 4, with `kappa`)
    for items that come from the data; "quantile-rank" and "quantile-gem" for a domain with Laplace noise; "em", "gem", "dp-gd",
    "output-perturbation" and "m-quantile" for one with Gaussian noise.
    """

    def __init__(
        self,
        budget: Budget,
        release_budget: Budget,
        domain: Iterable[str] | Iterable[int] | None = None,
        method: str = "auto",
        objective: str = "error",
        noise: str = "auto",
        max_per_item: int | None = None,
        kappa: float = 2,
        sparsity: int | None = None,
        users: int = 100_000,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
    ) -> None:
        super().__init__()
        self._relation = Relation.parse(relation)
        self._domain = None if domain is None else public_domain(domain, item_type)
        self._release, self._shards = release, check_shards(shards)
        self._choice: Choice[ChosenBound]
        if self._domain is None:
            self._choice = choose_unknown_domain(
                budget, release_budget, self._relation, method, objective, noise, max_per_item, kappa
            )
        else:
            size = len(self._domain)
            self._choice = choose_public_domain(
                budget, release_budget, self._relation, size, noise, method, sparsity, users, max_per_item
            )

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        budget = self._choice.budget
        step = MechanismStep("choice of the bound", budget.epsilon, budget.delta, self._choice.details())
        return Guarantee(budget.epsilon, budget.delta, self._relation, (step,))

    def expand(self, rows: beam.PCollection) -> beam.PCollection[ChosenBound]:
        check_whole(rows)
        contributions = as_contributions(rows)
        if self._domain is not None:
            contributions = contributions | "OnlyDomain" >> OnlyDomain(self._domain)
        shards = contributions | "UserShards" >> UserShards(self._shards)
        release = release_for(rows.pipeline, self._release)
        return choose(shards, self._choice, release, self._shards, full_label(rows), keep=False).chosen
