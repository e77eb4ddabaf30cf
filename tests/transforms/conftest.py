"""What tests of transforms share."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from headcount.mechanisms.sampled import plan


@pytest.fixture
def soon_planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For tests to which any sampling plan will do: the search for one takes seconds for more than one item."""
    monkeypatch.setattr(plan, "_search_walk", lambda *arguments: (Fraction(1, 3), 8))
    plan.calibrate_sample.cache_clear()
    yield
    plan.calibrate_sample.cache_clear()
