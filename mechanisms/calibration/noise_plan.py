"""The noise of one release, as the integers that the sampler works with, and what it costs in an account."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from fractions import Fraction
from typing import Literal

from headcount.mechanisms.accounting import gaussian, thresholds
from headcount.mechanisms.accounting.guarantee import MechanismStep
from headcount.mechanisms.accounting.losses import Laplace, Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.bound import Bound, most_l1, most_l2_squared, most_on_one
from headcount.mechanisms.calibration.shared_noise import SharedNoise
from headcount.mechanisms.errors import ParameterError


@dataclasses.dataclass(frozen=True)
class NoisePlan:
    """The noise, and for an unknown domain the threshold, that make one histogram (epsilon, delta) private.

    A sum, as an integer in units of 2**-grid, gets discrete `kind` noise of `scale` in the same units; it is
    released iff the noisy value is at least `threshold` (None: the domain is public, and all is released).
    `stddev` is the noise's standard deviation in counts. The kind "truncated-geometric" is Laplace noise that
    stays below the threshold in size, so that an item without a user never reaches it.

    The kind "law" is for names alone: a sum x is released with the chance `law[x]` of 2**-128, each 16 bytes, little endian,
    and rising. The noise is what makes x reach `threshold`, the curve's median, that often; the noisy sum is private for
    nobody.

    With `shared` every sum gets one more draw, the same for all of them, of its scale: `scale` is that of each sum's own noise,
    and `stddev` that of both together. Gaussian noise for a public domain only, and for adding or removing a user.

    `one_item` says that the domain is one public item, on which replaced users move less (`Relation.apart`).
    """

    kind: Literal["laplace", "gaussian", "truncated-geometric", "law"]
    grid: int
    scale: Fraction
    threshold: int | None
    stddev: float
    epsilon: float
    delta: float
    relation: Relation
    bound: Bound
    law: bytes = b""
    shared: SharedNoise | None = None
    one_item: bool = False

    def __post_init__(self) -> None:
        if self.shared is not None and not (
            self.kind == "gaussian" and self.threshold is None and self.relation is Relation.ADD_REMOVE
        ):
            raise ParameterError("a shared draw is of Gaussian noise, without a threshold, for users added or removed")

    @property
    def shared_stddev(self) -> float:
        """The standard deviation of the draw that all counts share, in counts; 0 if there is none."""
        return 0.0 if self.shared is None else float(self.shared.scale) / 2**self.grid

    @property
    def difference_stddev(self) -> float:
        """The standard deviation of the noise of a difference of two counts: a shared draw is in both."""
        return math.sqrt(2 * (self.stddev**2 - self.shared_stddev**2))

    def sum_stddev(self, items: int) -> float:
        """The standard deviation of the noise of a sum of this number of counts."""
        return math.sqrt(items * self.stddev**2 + items * (items - 1) * self.shared_stddev**2)

    @property
    def threshold_in_counts(self) -> Fraction | None:
        """The threshold in the units of the counts."""
        return None if self.threshold is None else Fraction(self.threshold, 2**self.grid)

    def losses(self) -> Losses:
        """What composition needs to know of this noise, and of this threshold.

        Laplace noise is for an l1 distance in steps of the grid, or for steps of one user in one item each where it is
        truncated. Gaussian noise has a mu where the grid is so fine that the continuous formulas hold, and else its zCDP.
        A threshold hides items of one user alone but for delta, or for what the joint accounting leaves of it.
        """
        if self.kind == "law":
            return Losses.of_promise(self.epsilon, self.delta)
        hiding, users = 0.0 if self.threshold is None else self.delta, self.relation.apart(self.one_item)
        if self.kind == "gaussian":
            mu = self._mu()
            hiding *= thresholds.TOTAL_SHARE
            if self.scale >= gaussian.STEPS:
                return Losses(mu=mu, hiding=hiding)
            return Losses(rho=mu**2 / 2, hiding=hiding)
        l1 = most_l1(self.bound)
        assert l1 is not None
        if self.kind == "truncated-geometric":
            return Losses(hiding=hiding, parts=((Laplace(_up(1 / self.scale)), users * l1),))
        steps = users * l1 * 2**self.grid
        return Losses.of(Laplace(_up(steps / self.scale), steps), hiding=hiding)

    def _mu(self) -> float:
        """The most that a user moves Gaussian noise by, in its standard deviations, and a little more."""
        squared = most_l2_squared(self.bound)
        assert squared is not None
        if self.shared is None:
            return (
                math.sqrt(self.relation.apart(self.one_item) * squared) / float(self.scale / 2**self.grid) * (1 + 1e-12)
            )
        most = most_on_one(self.bound) << self.grid
        return math.sqrt(self.shared.mu_squared(self.scale, squared << 2 * self.grid, most)) * (1 + 1e-12)

    def step(self, name: str) -> MechanismStep:
        """The step of a guarantee that adds this noise; scale and threshold are given in counts."""
        details: dict[str, str | int | float] = {
            "noise": f"discrete {self.kind.capitalize()}",
            "scale": float(self.scale / 2**self.grid),
            "grid": f"2^-{self.grid}" if self.grid else "1",
            "stddev": self.stddev,
        }
        if self.shared is not None:
            details |= {
                "shared by all items": f"a draw of scale {self.shared_stddev:.8g}",
                "stddev of a difference": self.difference_stddev,
                f"stddev of the sum of {self.shared.items} items": self.sum_stddev(self.shared.items),
            }
        if self.threshold_in_counts is not None:
            details["threshold"] = float(self.threshold_in_counts)
        return MechanismStep(name, self.epsilon, self.delta, details)

    def to_json(self) -> dict[str, str | int]:
        """What defines the mechanism, exactly and in one form only: two plans that differ in it differ here.
        (The standard deviation is left out, as it follows from the scale.)"""
        more: dict[str, str | int] = {}
        if self.law:
            more["law"] = hashlib.blake2b(self.law, digest_size=32).hexdigest()
        if self.shared is not None:
            more["shared"] = f"{self.shared.scale} around {self.shared.centre} on {self.shared.items}"
        if self.one_item:
            more["items"] = "one"
        return more | {
            "kind": self.kind,
            "grid": self.grid,
            "scale": f"{self.scale.numerator}/{self.scale.denominator}",
            "threshold": "none" if self.threshold is None else self.threshold,
            "epsilon": repr(self.epsilon),
            "delta": repr(self.delta),
            "relation": self.relation.value,
            "bound": self.bound.to_json(),
        }


def _up(exact: Fraction) -> float:
    number = float(exact)
    return number if Fraction(number) >= exact else math.nextafter(number, math.inf)
