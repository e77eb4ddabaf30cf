"""The paper's other choices of an l2 bound, which "auto" never takes: kept to be compared with those of `l2_tail`.

All look at the table of `l2_tail`, whose words W, M, w and s are used here too, or at one of users in place of weights:

    "dp-gd": the paper's C_DPSGD, as gradient descent with T Gaussian steps on the whole table. W(C) has sensitivity
        sqrt(s), so T adaptive steps cost what one with sqrt(T s) does. The only method that needs a delta.
    "output-perturbation" (Algorithm 2): the C where W(C) falls to M + L C, with Laplace noise. The slopes of two
        neighbours' objectives differ by at most sqrt(s), and the objective is L-strongly convex, so this C moves by at most
        sqrt(s)/L (the paper's sensitivity is four times that). The result is clamped to the grid.
    "m-quantile": lets M users be above C: the exponential mechanism on | #{a > C} - M |, of range 2.

Guarantee: epsilon-differential privacy of the choice with delta 0 ("dp-gd": (epsilon, delta)), for either relation.
Proof: docs/proofs/bound-choice.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting import gaussian, thresholds
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.l2_tail import WEIGHT_BITS, TailChoice
from headcount.mechanisms.bounding.clipping import squared_norms
from headcount.mechanisms.choice.exponential import em_exponents
from headcount.mechanisms.choice.norm_bins import in_bins, tails
from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian, discrete_laplace

_FINEST = 1 << 10  # parts of a count that output perturbation keeps


@dataclasses.dataclass(frozen=True)
class DescentChoice(TailChoice):
    """Noisy gradient descent."""

    name: str = "dp-gd"

    draws = tuning.DESCENT_STEPS  # a lane for each step
    bounded_range = False
    methods = ("dp-gd",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget.delta == 0:
            raise ParameterError("the method 'dp-gd' adds Gaussian noise and needs a delta above 0, got 0")

    def choose(self, table: Sequence[int], lanes: Lanes) -> ChosenBound:
        """The private choice: the mean of the later half of the steps."""
        unit = gaussian.gaussian_sigma(self.budget.epsilon, thresholds.TOTAL_SHARE * self.budget.delta)
        sigma = math.ceil(self.cap * math.sqrt(tuning.DESCENT_STEPS) * unit)
        noise = discrete_gaussian(lanes, Fraction(sigma)).tolist()
        above, scale = tails(table), 1 << WEIGHT_BITS
        weight, low, high = float(self.noise_weight), math.log(self.grid[0]), math.log(self.grid[-1])
        widest = max(weight, 2 * sigma / scale)
        place, visited = (low + high) / 2, []
        for step in range(tuning.DESCENT_STEPS):
            nearest = min(range(len(self.grid)), key=lambda k: abs(math.log(self.grid[k]) - place))
            slope = ((above[nearest] + noise[step]) / scale - weight) / widest
            place += (
                (high - low) * tuning.DESCENT_STRIDE * (1 + step) ** tuning.DESCENT_DECAY * min(max(slope, -1.0), 1.0)
            )
            place = min(max(place, low), high)
            visited.append(place)
        half = visited[tuning.DESCENT_STEPS // 2 :]
        return self.chosen(max(1, round(math.exp(sum(half) / len(half)))))


@dataclasses.dataclass(frozen=True)
class PerturbedChoice(TailChoice):
    """The regularised optimum, with noise."""

    name: str = "output-perturbation"
    bounded_range = False

    methods = ("output-perturbation",)

    def crossing(self, table: Sequence[int]) -> Fraction:
        """The C in [0, largest] where the weight above C falls to M + L C: the regularised optimum."""
        slope, unit = self.strong_convexity, Fraction(1, 1 << WEIGHT_BITS)
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

    def choose(self, table: Sequence[int], lanes: Lanes) -> ChosenBound:
        """The private choice."""
        # Rounded down to the finest part, the optimum moves by at most the rounded-up sensitivity.
        moves = math.ceil(self.cap * _FINEST / (self.strong_convexity * (1 << WEIGHT_BITS)))
        noise = int(discrete_laplace(lanes, moves / self.budget.epsilon_fraction)[0])
        noisy = Fraction(math.floor(self.crossing(table) * _FINEST) + noise, _FINEST)
        return self.chosen(min(max(math.ceil(noisy), self.grid[0]), self.grid[-1]))


@dataclasses.dataclass(frozen=True)
class UsersAboveChoice(TailChoice):
    """The bound that about M users exceed, by the exponential mechanism."""

    name: str = "m-quantile"

    methods = ("m-quantile",)

    def user_table(self, shard: Shard) -> list[int]:
        """The users in each bin."""
        return in_bins(self.grid, self.bins(squared_norms(self.capped(shard))))

    def exponents(self, table: Sequence[int]) -> list[Fraction]:
        """The exponents of the bounds: each is chosen with a probability proportional to exp(-exponent)."""
        losses = [abs(above - self.noise_weight) for above in tails(table)]
        return em_exponents(losses, 2, self.budget.epsilon_fraction)


BASELINES: dict[str, type[TailChoice]] = {
    kind.name: kind for kind in (DescentChoice, PerturbedChoice, UsersAboveChoice)
}
