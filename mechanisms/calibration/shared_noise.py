"""Gaussian noise on a public domain of which one draw is shared by all items (Lebeda, arXiv 2408.06853, rederived here).

With d items, y_i = c_i + Z_i + W for independent Z_i and one W, of standard deviations s and t. Where a user may have much of
the domain this is less noise on each count than d independent draws: half of it at d = 1,000 where users may have all items.
Errors are correlated: differences of counts have less noise than those of independent draws, and sums of many counts have more.

Guarantee: when one user is added or removed, whose counts lie in [0, m] and have an l2 norm of at most b, that of Gaussian
noise of a ratio mu of distance to standard deviation with, for any c on the grid with 2c <= m,

    mu^2 <= (b^2 (1 - 2c/m) + d c^2) / s^2 + c^2 / t^2.                                                                  (1)

Where users are replaced it gains nothing, and is not taken. Proof, and the best s, t and c: docs/proofs/calibration.md.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from headcount.mechanisms.accounting import gaussian

_LARGEST = 2**38  # scale for which the grid is made finer, well below what can be sampled


@dataclasses.dataclass(frozen=True)
class SharedNoise:
    """One draw of Gaussian noise of this `scale` that all of at most `items` items share; `centre` is the c of the proof.
    Both are whole, in units of the plan's grid."""

    scale: Fraction
    centre: int
    items: int

    def mu_squared(self, own: Fraction, squared: int, most: int) -> Fraction:
        """(1), for noise of the scale `own` on each item, a squared norm and a largest count in the same units."""
        c = self.centre
        assert 0 <= 2 * c <= most
        moved = min(squared, self.items * most**2) * (1 - Fraction(2 * c, most)) + self.items * c**2
        return moved / own**2 + (c / self.scale) ** 2


@dataclasses.dataclass(frozen=True)
class Split:
    """How noise for a mu of 1 and counts of at most 1 is split: standard deviations on each item and of the shared draw."""

    centre: float
    own: float
    shared: float

    @property
    def stddev(self) -> float:
        """That of one count."""
        return math.hypot(self.own, self.shared)

    def on_grid(
        self, deviation: float, squared: int, most: int, items: int, grid: int
    ) -> tuple[int, Fraction, SharedNoise]:
        """A grid, the given one or finer, the scale of each item's own noise in its units, and the draw that is shared: for a
        mu of 1 / deviation, and counts of at most `most` with a norm of this square."""
        own, shared = (deviation * most * part * (1 + 1e-9) for part in (self.own, self.shared))
        grid, _ = gaussian.whole_sigma(min(own, shared), grid)
        # So fine that c, of 64 steps or more, costs less than a thousandth by its rounding: at 0 the shared draw is of no use.
        while self.centre * (most << grid) < gaussian.STEPS / 16 and max(own, shared) * 2**grid < _LARGEST:
            grid += 1
        centre = math.floor(self.centre * (most << grid))
        scale, common = (Fraction(math.ceil(part * 2**grid)) for part in (own, shared))
        # Scales are rounded up, and c to the grid. Whatever the latter costs is paid for by larger scales.
        while True:
            found = SharedNoise(common, centre, items)
            above = found.mu_squared(scale, squared << 2 * grid, most << grid) * Fraction(deviation) ** 2
            if above <= 1:
                return grid, scale, found
            scale, common = (part + max(1, int(part * (above - 1) / 2)) for part in (scale, common))


def best_split(items: int, squared: float) -> Split | None:
    """The split of the least variance for this number of items and this squared norm in units of the largest count; None if
    nothing is shared, as for one item, or users of one."""
    r = min(squared, float(items))
    if items < 2 or r <= 1:
        return None
    root = math.sqrt(items)
    if 2 * r >= items + root:
        centre, ratio = 0.5, root
    else:
        ratio = (items - r + math.sqrt(r * (items - 1) * (items - r))) / (r - 1)
        centre = r / (items + ratio)
    own = math.sqrt(r * (1 - 2 * centre) + (items + ratio) * centre**2)
    return Split(centre, own, own / math.sqrt(ratio))
