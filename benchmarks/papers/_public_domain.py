"""The paper on bounding contribution, section 7.1 and appendix D: Figures 2, 5 and 6, Gaussian noise over a public domain."""

from __future__ import annotations

import dataclasses
import secrets
from functools import cached_property

import numpy as np
from _quality import noise_error

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.by_name.methods import GAUSSIAN, choose_public_domain
from headcount.mechanisms.bound_choice.l2_tail import TailChoice
from headcount.mechanisms.bounding.clipping import squared_norms
from headcount.mechanisms.bounding.steps import promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.choice.run import decide, split_budget
from headcount.mechanisms.histogram.fixed import public_domain_steps

RELATION = Relation.ADD_REMOVE
DRAWS = 200  # of the methods whose law has no closed form


@dataclasses.dataclass(frozen=True)
class Domain:
    """Users over a public domain, which is all items of the shard, and the budget (1, 1/2n) of their release."""

    shard: Shard
    release: Budget

    @cached_property
    def norms(self) -> np.ndarray:
        """The l2 norms of the users."""
        return np.sqrt(squared_norms(self.shard).astype(float))

    @property
    def size(self) -> int:
        """The number of items."""
        return len(self.shard.items)

    @cached_property
    def errors(self) -> np.ndarray:
        """The expected relative error at each bound of the grid: counts scaled as Algorithm 1 does, and its noise."""
        shard, grid = self.shard, np.array(tuning.NORMS_OF_PUBLIC_DOMAIN)
        norm = np.repeat(self.norms, shard.rows_per_user())
        step = np.searchsorted(grid, norm)
        place, shape = shard.item * (len(grid) + 1) + step, (self.size, len(grid) + 1)
        cells = shape[0] * shape[1]
        whole = np.bincount(place, weights=shard.count, minlength=cells).reshape(shape)
        scaled = np.bincount(place, weights=shard.count / norm, minlength=cells).reshape(shape)
        true = whole.sum(axis=1)
        kept = np.cumsum(whole, axis=1)[:, :-1]
        kept += grid * (scaled.sum(axis=1, keepdims=True) - np.cumsum(scaled, axis=1)[:, :-1])
        found = []
        for k, bound in enumerate(tuning.NORMS_OF_PUBLIC_DOMAIN):
            promised = promise_of(public_domain_steps(bound, "gaussian"), Bound(), "")
            plan = calibrate_public_domain(self.release, promised, RELATION, "gaussian")
            found.append(noise_error(plan, true - kept[:, k]).sum() / true.sum())
        return np.array(found)

    def error_at(self, bounds: np.ndarray | float) -> np.ndarray:
        """The relative error between the points of the grid."""
        return np.interp(np.log(bounds), np.log(tuning.NORMS_OF_PUBLIC_DOMAIN), self.errors)

    @cached_property
    def weight(self) -> float:
        """M of Theorem 4.3."""
        return float(self._choice("gem", Budget(1.0), self.size).noise_weight)

    @cached_property
    def _tail(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The norms in descending order, the sum of the weights w down to each, and that of w times the norm."""
        order = np.argsort(-self.norms)
        norms, weights = self.norms[order], (self.shard.totals() / self.norms)[order]
        return norms, np.append(0, np.cumsum(weights)), np.append(0, np.cumsum(weights * norms))

    def surrogate(self, bounds: np.ndarray | float) -> np.ndarray:
        """G(C) = sum of w (a - C)^+ + M C, of which the expected error is at least half and at most all."""
        norms, weights, products = self._tail
        above = np.searchsorted(-norms, -np.asarray(bounds, float), side="left")  # how many norms exceed C
        return products[above] + (self.weight - weights[above]) * bounds

    @cached_property
    def optimum(self) -> float:
        """C*: the least C above which the users weigh at most M. Not private."""
        norms, weights, _ = self._tail
        held = int(np.searchsorted(weights, self.weight, side="right")) - 1  # that many users may be above
        return float(norms[held]) if held < len(norms) else float(tuning.NORMS_OF_PUBLIC_DOMAIN[0])

    @cached_property
    def quantile(self) -> float:
        """The M-th largest norm. Not private."""
        norms = self._tail[0]
        return float(norms[min(int(self.weight), len(norms) - 1)])

    def _choice(
        self, name: str, budget: Budget, sparsity: int, grid: tuple[int, ...] = tuning.NORMS_OF_PUBLIC_DOMAIN
    ) -> TailChoice:
        users = max(1, round(1 / (2 * self.release.delta)))
        return GAUSSIAN[name](budget, self.release, RELATION, self.size, sparsity, name, users, grid)

    def exactly(self, name: str, epsilon: float, sparsity: int) -> float:
        """The expected error with a method that draws from the grid."""
        choice = self._choice(name, Budget(epsilon), sparsity)
        return float(probabilities(choice.exponents(choice.user_table(self.shard))) @ self.errors)

    def by_descent(self, epsilon: float, sparsity: int) -> float:
        """The mean error with C_DPSGD over some draws."""
        choice = self._choice("dp-gd", Budget(epsilon, self.release.delta), sparsity)
        table = choice.user_table(self.shard)
        return float(np.mean(self.error_at(np.array([_drawn(choice, table) for _ in range(DRAWS)]))))

    def by_perturbation(self, epsilon: float, sparsity: int, most: int | None) -> float:
        """The mean error with C_output over some draws; without `most`, half of epsilon goes into a private one."""
        first = self._choice("m-quantile", Budget(epsilon / 2), sparsity)
        counts = first.user_table(self.shard)
        weights = self._choice("output-perturbation", Budget(epsilon), sparsity).user_table(self.shard)
        bounds = []
        for _ in range(DRAWS):
            end = _drawn(first, counts) if most is None else most
            cut = int(np.searchsorted(tuning.NORMS_OF_PUBLIC_DOMAIN, end, side="right"))
            spent = epsilon / 2 if most is None else epsilon
            choice = self._choice("output-perturbation", Budget(spent), sparsity, tuning.NORMS_OF_PUBLIC_DOMAIN[:cut])
            bounds.append(_drawn(choice, [*weights[:cut], sum(weights[cut:])]))
        return float(np.mean(self.error_at(np.array(bounds))))


def domain_of(shard: Shard, users: int) -> Domain:
    """The shard's items as a public domain, with the budget of the paper's release."""
    return Domain(shard, Budget(1.0, 1 / (2 * users)))


def auto_ratio(shard: Shard, users: int, method: str = "auto") -> tuple[float, str]:
    """G(C) / G(C*) of Histogram(auto, Gaussian) at (1, 1/2n), a tenth of it for the choice: its mean, its method.

    A mean over the exact probabilities: a bound that is far too high counts even if it is never seen in 200 draws.
    """
    costs, rest = split_budget(Budget(1.0, 1 / (2 * users)), 0.1, "auto")
    domain = Domain(shard, rest)
    choice = choose_public_domain(costs, rest, RELATION, domain.size, "gaussian", method)
    chances = probabilities(choice.exponents(choice.user_table(shard)))
    ratio = chances @ domain.surrogate(np.array(tuning.NORMS_OF_PUBLIC_DOMAIN)) / domain.surrogate(domain.optimum)
    return float(ratio), choice.name


def _drawn(choice: TailChoice, table: list[int]) -> int:
    return decide(choice, table, secrets.token_bytes(32)).bound
