"""Candidate bounds for a histogram of an unknown domain, with the threshold and noise that each would bring.

Threshold and noise are public functions of the candidate. Here they are estimates, to within a few percent, so that all
candidates are known at once; a choice is private whatever they are, and the noise of the chosen one is calibrated exactly.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting import gaussian
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.thresholds import Spread
from headcount.mechanisms.batches.run_sums import INT64_MAX
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.expected_sums import FRACTION_BITS, CandidateGrid, merged_sums, split_sums
from headcount.mechanisms.choice.base import ExponentialChoice
from headcount.mechanisms.choice.protocol import ChosenBound


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to release the histogram: its bounds, its noise, its threshold, and its mean absolute noise in whole counts."""

    bound: int
    cap: int | None
    noise: str
    threshold: int
    mean_noise: int

    def chosen(self) -> ChosenBound:
        """The candidate as the result of a choice."""
        return ChosenBound(self.bound, self.cap or 0, self.noise)


class SumsChoice(ExponentialChoice[ChosenBound]):
    """What the choices by the expected sums of items have in common: candidates for the bounds of a `ladder`, and a table of
    what each saves over all items."""

    by_item = True
    distinct = False  # whether a user's distinct items count in place of its events

    @property
    def candidate_grid(self) -> CandidateGrid:
        """The bounds and caps that are looked at."""
        raise NotImplementedError

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What can be chosen."""
        raise NotImplementedError

    @property
    def outcomes(self) -> Sequence[ChosenBound]:
        """The same as results."""
        return [candidate.chosen() for candidate in self.candidates]

    def item_chunks(self, shard: Shard, shards: int) -> Iterator[tuple[int, bytes]]:
        """What the users of a shard add to their items, by item shard."""
        if self.distinct:
            shard = dataclasses.replace(shard, count=np.ones(len(shard.count), dtype=np.int64))
        return split_sums(shard, self.candidate_grid, shards)


def make_candidates(
    budget: Budget, relation: Relation, grid: CandidateGrid, noise: str, always_capped: bool = False
) -> tuple[Candidate, ...]:
    """All (bound, cap, noise): each cap up to the bound, and no cap (unless `always_capped`, if there is a cap).

    A cap of the bound itself brings no lower noise, but keeps one item from crowding others out of the sample.
    """
    found = []
    for bound in grid.bounds:
        caps: list[int | None] = [cap for cap in grid.caps if cap <= bound]
        if not (always_capped and caps):
            caps.append(None)
        for cap in caps:
            for kind in ("laplace", "gaussian") if noise == "auto" else (noise,):
                found.append(_candidate(bound, cap, kind, budget, relation))
    return tuple(found)


def score_items(
    chunks: Iterable[bytes],
    grid: CandidateGrid,
    candidates: Sequence[Candidate],
    least: Callable[[Candidate], int],
    score: Callable[[Candidate, np.ndarray, np.ndarray], int],
) -> list[int]:
    """For each candidate, the sum of `score` over the items of one item shard.

    `score` gets the sums (whole, fraction * 2**-30) of some items; it must be zero for sums below `least`, since items
    that stay there may be left out.
    """
    place = {bound: number for number, bound in enumerate(grid.bounds)}
    of_cap: dict[int | None, list[int]] = {cap: [] for cap in (*grid.caps, None)}
    lowest = {cap: [INT64_MAX] * len(grid.bounds) for cap in of_cap}
    for number, candidate in enumerate(candidates):
        of_cap[candidate.cap].append(number)
        column = place[candidate.bound]
        lowest[candidate.cap][column] = min(lowest[candidate.cap][column], least(candidate))
    leasts = np.array([least(candidate) for candidate in candidates])
    scores = [0] * len(candidates)
    for sums in merged_sums(chunks, grid, lowest):
        numbers = of_cap[sums.cap]
        reached = np.searchsorted(-sums.most, 1 - leasts[numbers], side="right").tolist()
        for number, items in zip(numbers, reached, strict=True):
            if items:
                candidate = candidates[number]
                column = place[candidate.bound]
                scores[number] += score(candidate, sums.whole[column, :items], sums.fraction[column, :items])
    return scores


def above(candidate: Candidate, whole: np.ndarray, fraction: np.ndarray) -> int:
    """The sum of (H - t)^+ over items, in units of 2**-30, for H = whole + fraction * 2**-30 and the threshold t."""
    over = whole >= candidate.threshold
    counts = int((whole[over] - candidate.threshold).sum())
    return (counts << FRACTION_BITS) + int(fraction[over].sum())


def _candidate(bound: int, cap: int | None, noise: str, budget: Budget, relation: Relation) -> Candidate:
    """The candidate with its threshold: the one that hides a user with ones, or with as much as can be, on items alone."""
    spread = Spread.of_mass(bound, bound if cap is None else cap)
    shares = [(count, -math.expm1(math.log1p(-budget.delta) * count / bound)) for count in (1, spread.cap)]
    if noise == "laplace":
        mean = relation.users * bound / budget.epsilon
        threshold = max(count + mean * -math.log((1 + math.exp(-1 / mean)) * share) for count, share in shares)
    else:
        unit = gaussian.gaussian_sigma(budget.epsilon, tuning.GAUSSIAN_NOISE_DELTA * budget.delta)
        sigma = unit * math.sqrt(relation.users * spread.shared_l2_squared(0))
        mean = math.sqrt(2 / math.pi) * sigma
        normal = statistics.NormalDist()
        threshold = max(count - sigma * normal.inv_cdf(share) for count, share in shares)
    return Candidate(bound, cap, noise, max(1, math.ceil(threshold)), math.ceil(mean))
