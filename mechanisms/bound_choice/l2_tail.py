"""An l2 bound for a public domain with Gaussian noise, from the weighted tail of the users' norms (the paper, Theorem 4.3).

With d items, l2 norms a and w = l1 norm / l2 norm, the error is at most G(C) = sum of w (a - C)^+ + M C, where M =
d sigma sqrt(2/pi). It is lowest where W(C), the sum of w over the users with a > C, falls to M. w is *capped* at sqrt(s), for a
public sparsity s. The paper only assumes that no user has more than s items, and one dense user then breaks its guarantee:
one with 90,000 items costs 25 times the claimed epsilon at s = 9. All methods look at one table of W:

    "em": the exponential mechanism on |W(C) - M|, whose range is 2 sqrt(s).
    "gem": the generalised mechanism on q(C) = C M - sum of w min(C, a), which a further user lowers by at most sqrt(s) C
        and never raises.
    "dp-gd": the paper's C_DPSGD, as gradient descent with T Gaussian steps on the whole table. W(C) has sensitivity
        sqrt(s), so T adaptive steps cost what one with sqrt(T s) does. The only method that needs a delta.
    "output-perturbation" (Algorithm 2): the C where W(C) falls to M + L C, with Laplace noise. The slopes of two
        neighbours' objectives differ by at most sqrt(s), and the objective is L-strongly convex, so this C moves by at most
        sqrt(s)/L (the paper's sensitivity is four times that). The result is clamped to the grid.
    "m-quantile": the baseline that lets M users be above C: the exponential mechanism on | #{a > C} - M |, of range 2.

Guarantee: epsilon-differential privacy of the choice with delta 0 ("dp-gd": (epsilon, delta)), for either relation. All
sums are integers; w is rounded down to a multiple of 2**-20, and squared norms are compared with squared grid points.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from headcount.mechanisms.accounting import gaussian, thresholds
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import squared_norms
from headcount.mechanisms.choice.exponential import em_exponents, gem_exponents, select
from headcount.mechanisms.choice.norm_bins import GRID, NormChoice, clipped, enough, in_bins, tails
from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian, discrete_laplace

METHODS = ("em", "gem", "dp-gd", "output-perturbation", "m-quantile")

# No part of any proof: the steps of the descent, and how they shrink.
_STEPS = 16
_STRIDE, _DECAY = 0.25, -0.75
_WEIGHT_BITS = 20
_FINEST = 1 << 10  # parts of a count that output perturbation keeps


@dataclasses.dataclass(frozen=True)
class TailChoice(NormChoice):
    """The l2 bound of a histogram with Gaussian noise over `domain_size` public items, counts capped at `max_per_item` first.

    `sparsity` is s; `users` is a public guess of how many there are, which only output perturbation uses.
    """

    budget: Budget
    release_budget: Budget
    relation: Relation
    domain_size: int
    sparsity: int
    name: str = "gem"
    users: int = 100_000
    grid: tuple[int, ...] = GRID
    max_per_item: int | None = None

    noise = "gaussian"

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise ParameterError(f"the method for Gaussian noise must be one of {METHODS}, got {self.name!r}")
        if self.name == "dp-gd" and self.budget.delta == 0:
            raise ParameterError("the method 'dp-gd' adds Gaussian noise and needs a delta above 0, got 0")

    @property
    def draws(self) -> int:
        """One lane for each step of the descent, and one for everything else."""
        return _STEPS if self.name == "dp-gd" else 1

    @cached_property
    def noise_weight(self) -> Fraction:
        """M: the expected error from noise at a bound of 1."""
        sigma = gaussian.gaussian_sigma(self.release_budget.epsilon, self.release_budget.delta)
        weight = self.domain_size * sigma * math.sqrt(self.relation.users * 2 / math.pi)
        return Fraction(round(weight * 1024), 1024)

    @property
    def cap(self) -> int:
        """sqrt(s) in units of 2**-20, rounded down: what no weight exceeds."""
        return math.isqrt(self.sparsity << 2 * _WEIGHT_BITS)

    def user_table(self, shard: Shard) -> list[int]:
        """The weight in each bin, in units of 2**-20; for the baseline the users in it."""
        shard = self.capped(shard)
        squared = squared_norms(shard)
        last = self.grid[-1] ** 2
        step = np.searchsorted(np.array(self.grid) ** 2, np.minimum(squared, last + 1).astype(np.int64))
        if self.name == "m-quantile":
            return in_bins(self.grid, step)
        ratio = shard.totals() / np.sqrt(squared.astype(np.float64))
        weight = np.minimum((ratio * 2.0**_WEIGHT_BITS).astype(np.int64), self.cap)
        return in_bins(self.grid, step, weight)

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the bounds: each is chosen with a probability proportional to exp(-exponent)."""
        epsilon = self.budget.epsilon_fraction
        if self.name == "m-quantile":
            return em_exponents([abs(above - self.noise_weight) for above in tails(table)], 2, epsilon)
        unit = Fraction(1, 1 << _WEIGHT_BITS)
        if self.name == "em":
            losses = [abs(above * unit - self.noise_weight) for above in tails(table)]
            return em_exponents(losses, 2 * self.cap * unit, epsilon)
        kept = clipped(self.grid, table)
        losses = [c * self.noise_weight - sum_ * unit for c, sum_ in zip(self.grid, kept, strict=True)]
        sensitivities = [c * self.cap * unit for c in self.grid]
        return gem_exponents(losses, sensitivities, epsilon, self.relation is Relation.ADD_REMOVE)

    def choose(self, table: Sequence[int], lanes: Lanes) -> ChosenBound:
        """The private choice."""
        if self.name == "dp-gd":
            bound = self._descended(table, lanes)
        elif self.name == "output-perturbation":
            bound = self._perturbed(table, lanes)
        else:
            bound = self.grid[select(self.exponents(table), lanes)]
        return self.chosen(bound)

    def parameters(self) -> Mapping[str, Any]:
        """What defines the choice, in canonical form."""
        return {
            "method": self.name,
            "items": self.domain_size,
            "weight": self.noise_weight,
            "sparsity": self.sparsity,
            "users": self.users,
            "delta": repr(self.budget.delta),
            "grid": self.grid,
            "max_per_item": self.max_per_item,
        }

    def details(self) -> Mapping[str, str | int | float]:
        """What a reader of the guarantee should know of it."""
        return {**super().details(), "sparsity": self.sparsity}

    def crossing(self, table: Sequence[int]) -> Fraction:
        """The C in [0, largest] where the weight above C falls to M + L C: the regularised optimum."""
        slope, unit = self.strong_convexity, Fraction(1, 1 << _WEIGHT_BITS)
        before, above = Fraction(0), sum(table)
        for c, weight in zip(self.grid, table, strict=False):
            best = (above * unit - self.noise_weight) / slope
            if best < c:
                return max(best, before)
            before, above = Fraction(c), above - weight
        return before

    @property
    def strong_convexity(self) -> Fraction:
        """L, which balances regularisation and noise for the guessed number of users."""
        return Fraction(math.sqrt(2 * self.users * self.sparsity / self.budget.epsilon) / self.grid[-1])

    def _perturbed(self, table: Sequence[int], lanes: Lanes) -> int:
        # Rounded down to the finest part, the optimum moves by at most the rounded-up sensitivity.
        moves = math.ceil(self.cap * _FINEST / (self.strong_convexity * (1 << _WEIGHT_BITS)))
        noise = int(discrete_laplace(lanes, moves / self.budget.epsilon_fraction)[0])
        noisy = Fraction(math.floor(self.crossing(table) * _FINEST) + noise, _FINEST)
        return min(max(math.ceil(noisy), self.grid[0]), self.grid[-1])

    def _descended(self, table: Sequence[int], lanes: Lanes) -> int:
        unit = gaussian.gaussian_sigma(self.budget.epsilon, thresholds.TOTAL_SHARE * self.budget.delta)
        sigma = math.ceil(self.cap * math.sqrt(_STEPS) * unit)
        noise = discrete_gaussian(lanes, Fraction(sigma)).tolist()
        above, scale = tails(table), 1 << _WEIGHT_BITS
        weight, low, high = float(self.noise_weight), math.log(self.grid[0]), math.log(self.grid[-1])
        widest = max(weight, 2 * sigma / scale)
        place, visited = (low + high) / 2, []
        for step in range(_STEPS):
            nearest = min(range(len(self.grid)), key=lambda k: abs(math.log(self.grid[k]) - place))
            slope = ((above[nearest] + noise[step]) / scale - weight) / widest
            place += (high - low) * _STRIDE * (1 + step) ** _DECAY * min(max(slope, -1.0), 1.0)
            place = min(max(place, low), high)
            visited.append(place)
        half = visited[_STEPS // 2 :]
        return max(1, round(math.exp(sum(half) / len(half))))


def favoured(
    choice_budget: Budget,
    release_budget: Budget,
    relation: Relation,
    domain_size: int,
    sparsity: int,
    grid: Sequence[int],
) -> str:
    """The method that public numbers favour: tails if much weight is left above the best bound."""
    probe = TailChoice(choice_budget, release_budget, relation, domain_size, sparsity)
    needed = math.sqrt(sparsity) * enough(choice_budget, len(grid))
    return "em" if probe.noise_weight >= needed else "gem"
