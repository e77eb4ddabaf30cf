"""What a release draws, seen where it is drawn: the scale that a sampler was given, and never the one that a plan says.

An audit that takes a scale from a plan and draws by itself passes whatever the product draws with. Here the product draws, and
each call of a sampler is written down: its kind, its scale and its result. What was released, less that noise, is what the
noise was added to. So the loss of two neighbours is known exactly, without a single false alarm. The samplers' own laws are
tested in `tests/mechanisms/randomness`.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import headcount.mechanisms
from headcount.mechanisms.choice.exponential import select_by_excess
from headcount.mechanisms.randomness.noise import discrete_gaussian, discrete_laplace, truncated_laplace
from headcount.mechanisms.shape.tallies import Tally
from headcount.mechanisms.shape.tally_noise import noisy_positions, noisy_tally

_SAMPLERS = (discrete_laplace, discrete_gaussian, truncated_laplace, noisy_tally, noisy_positions, select_by_excess)

# Who has which of them. A module that is loaded later would keep what is put in its place.
_MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(headcount.mechanisms.__path__, "headcount.mechanisms.")
]
_HOLDERS = {
    real: [(module, name) for module in _MODULES for name, value in vars(module).items() if value is real]
    for real in _SAMPLERS
}


@dataclasses.dataclass(frozen=True)
class Noise:
    """One call of a sampler of noise."""

    kind: str
    scale: Fraction
    drawn: np.ndarray


@dataclasses.dataclass(frozen=True)
class Selected:
    """One draw of a candidate: each has a probability proportional to exp(-exponent)."""

    exponents: np.ndarray
    place: int


@dataclasses.dataclass(frozen=True)
class Cells:
    """One call of the noise on all cells of a tally, as they were before it."""

    cells: np.ndarray
    scale: Fraction


class Draws:
    """Writes down what the product draws. Selections may be told what to give, so that neighbours take the same course."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noise: list[Noise] = []
        self.selected: list[Selected] = []
        self.cells: list[Cells] = []
        self._course: list[int] = []
        for sampler in (discrete_laplace, discrete_gaussian, truncated_laplace):
            replace_everywhere(monkeypatch, sampler, self._noise(sampler))
        for of_cells in (noisy_tally, noisy_positions):
            replace_everywhere(monkeypatch, of_cells, self._cells(of_cells))
        replace_everywhere(monkeypatch, select_by_excess, self._select)

    def forget(self, course: Sequence[int] = ()) -> None:
        """Starts anew; the next selections give these places, and later ones draw."""
        self.noise.clear()
        self.selected.clear()
        self.cells.clear()
        self._course = list(course)

    def _noise(self, sampler: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def recorded(lanes: Any, scale: Fraction, *more: Any) -> np.ndarray:
            drawn = sampler(lanes, scale, *more)
            self.noise.append(Noise(sampler.__name__, Fraction(scale), drawn.copy()))
            return drawn

        return recorded

    def _cells(self, sampler: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(tally: Tally, scale: Fraction, subkey: bytes) -> Any:
            self.cells.append(Cells(np.sort(np.repeat(tally.values, tally.cells)), Fraction(scale)))
            return sampler(tally, scale, subkey)

        return recorded

    def _select(self, excess: np.ndarray, denominator: int, lanes: Any) -> int:
        place = self._course.pop(0) if self._course else select_by_excess(excess, denominator, lanes)
        exponents = np.array([int(each) / denominator for each in excess])
        self.selected.append(Selected(exponents, place))
        return place


def replace_everywhere(monkeypatch: pytest.MonkeyPatch, real: Any, other: Any) -> None:
    """Puts `other` in the place of `real` in every module of the mechanisms that has it."""
    for module, attribute in _HOLDERS[real]:
        monkeypatch.setattr(module, attribute, other)


def laplace_loss(one: Any, other: Any, noise: Sequence[Noise]) -> float:
    """The loss of two neighbours whose values, before one noise on both, were these: infinite where there is no noise."""
    moved = np.abs(np.asarray(one) - np.asarray(other)).sum()
    if not moved:
        return 0.0
    if not noise:
        return math.inf
    (only,) = noise
    assert only.kind == "discrete_laplace"
    return float(moved) / float(only.scale)


def selection_range(one: Selected, other: Selected) -> float:
    """How far the log-probabilities of all candidates move against each other between two neighbours."""
    return float(np.ptp(one.exponents - other.exponents))
