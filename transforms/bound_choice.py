"""The private choice of a bound as a transform (the paper: Algorithms 2 and 4, Lemma 4.2, Theorem 4.3, and beyond).

One pass over the users feeds every candidate at once: each shard of users adds up a table of some hundred integers, and
where items matter sends what they need to shards of items, which add up the same table. Only tables reach the one worker
that chooses.
"""

from __future__ import annotations

from typing import Any, Self

import apache_beam as beam

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import public_domain
from headcount.mechanisms.bound_choice.methods import ChoiceAlone, choose_public_domain, choose_unknown_domain
from headcount.mechanisms.choice.protocol import Choice, ChosenBound
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import choose
from headcount.transforms.core.contributions import as_contributions
from headcount.transforms.core.domain import OnlyDomain
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

    mechanism: ChoiceAlone

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
        users: int = 100_000,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        self._domain = None if domain is None else public_domain(items.domain, items.made)
        relation = Relation.parse(relation)
        choice: Choice[ChosenBound]
        if self._domain is None:
            choice = choose_unknown_domain(
                budget, release_budget, relation, method, objective, noise, max_per_item, kappa
            )
        else:
            size = len(self._domain)
            choice = choose_public_domain(
                budget, release_budget, relation, size, noise, method, sparsity, users, max_per_item
            )
        super().__init__(ChoiceAlone(choice), release=release, shards=shards, items=items)

    def _of_domain(self, names: list[Any] | None, item_type: type) -> Self:
        return self if names is None else self._but(_domain=public_domain(names, item_type))

    def _expand(self, rows: beam.PCollection) -> beam.PCollection[ChosenBound]:
        release, label = self._drawn(rows)
        contributions = as_contributions(rows)
        if self._domain is not None:
            contributions = contributions | "OnlyDomain" >> OnlyDomain(self._domain)
        shards = contributions | "UserShards" >> UserShards(self._shards)
        return choose(shards, self.mechanism.choice, release, self._shards, label, keep=False).chosen
