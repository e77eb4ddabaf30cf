"""All noises of one shape cost epsilon together, by the scales that are drawn with: exact, on neighbours' cells.

A plan's scale says nothing of what is drawn: ranks of a hashed shape that got half of their noise cost 1.5 in all, and no test
of the plan sees it. Here the mechanism draws, and each call of a sampler tells its cells and its scale.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.shape import anonymized, hashed
from headcount.mechanisms.shape.anonymized import anonymized_histogram
from headcount.mechanisms.shape.hashed import HashedHistogram, hashed_histogram
from headcount.mechanisms.shape.tallies import Tally
from tests.privacy.draws import Draws

KEY = bytes(range(32))
SHAPES: dict[str, Callable[..., Any]] = {
    **{mode: partial(anonymized_histogram, domain_size=30, mode=mode) for mode in ("l1", "l2", "central")},
    **{f"hashed, {mode}": partial(hashed_histogram, users=6, mode=mode) for mode in ("l1", "l2")},
}
Sampler = Callable[[Tally, Fraction, bytes], Any]


def cells(values: list[int], numbers: list[int]) -> Tally:
    return Tally(np.array(values, dtype=np.int64), np.array(numbers, dtype=np.int64))


@pytest.fixture
def recorded(monkeypatch) -> Draws:
    """The draws, without what follows the last of them."""
    for module in (anonymized, hashed):
        monkeypatch.setattr(module, "rehearsed_errors", lambda shape, *_, **__: np.zeros(len(shape.values)))
    return Draws(monkeypatch)


def cost(histogram: Any, one: Tally, other: Tally, draws: Draws) -> float:
    """The loss of two neighbours over all noises of a release: what the cells move by in sum, over the scale."""
    found = []
    for tally in (one, other):
        draws.forget()
        if isinstance(histogram, HashedHistogram):
            histogram.shape(tally, tally, KEY, KEY[::-1])
        else:
            histogram.shape(tally, KEY)
        found.append(list(draws.cells))
    moved = [(np.abs(a.cells - b.cells).sum(), min(a.scale, b.scale)) for a, b in zip(*found, strict=True)]
    return sum(float(size / scale) for size, scale in moved)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("items", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_all_noises_of_a_shape_cost_epsilon_together(name, items, relation, recorded):
    """One user more with items that nobody else has, or that another one has; or one of the first in place of the second."""
    histogram = SHAPES[name](Budget(1), max_items=items, relation=relation)
    base, alone, shared = cells([1, 4], [items, 2]), cells([1, 4], [2 * items, 2]), cells([2, 4], [items, 2])
    if relation is Relation.REPLACE:
        assert cost(histogram, alone, shared, recorded) == pytest.approx(1)
    else:
        assert [cost(histogram, base, other, recorded) for other in (alone, shared)] == pytest.approx([1, 1])


@pytest.mark.parametrize("name", SHAPES)
def test_half_the_scale_in_any_of_the_noises_is_caught(name, recorded, monkeypatch):
    module = hashed if name.startswith("hashed") else anonymized
    sampler = "noisy_positions" if name == "central" else "noisy_tally"
    noises = 2 if name == "hashed, l2" else 1
    real: Sampler = getattr(module, sampler)

    def halved(which: int) -> float:
        calls: list[Tally] = []

        def bug(tally: Tally, scale: Fraction, key: bytes) -> Any:
            calls.append(tally)
            return real(tally, scale / 2 if len(calls) % noises == which else scale, key)

        monkeypatch.setattr(module, sampler, bug)
        return cost(SHAPES[name](Budget(1)), cells([1, 4], [1, 2]), cells([1, 4], [2, 2]), recorded)

    assert [halved(which) for which in range(noises)] == pytest.approx([2.0] if noises == 1 else [1.5, 1.5])
