"""How a plan names items, by the code that draws: `add_noise` with forced words, and nothing of the plan's own numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting import noisy
from headcount.mechanisms.counting.evidence import Evidence

WHOLE = 1 << 128


class _Forced:
    """Lanes that draw given integers below 2**128, the high word first."""

    def __init__(self, draws: Sequence[int]) -> None:
        self.n = len(draws)
        self._left = [[draw >> 64, draw % 2**64] for draw in draws]

    def words(self, index) -> np.ndarray:
        return np.array([self._left[lane].pop(0) for lane in np.asarray(index).tolist()], dtype=np.uint64)


def named(monkeypatch, plan: NoisePlan, sums: Sequence[int], draws: Sequence[int]) -> np.ndarray:
    """Which of these sums a plan names, if each draws the integer beside it."""
    zeros = pa.array(np.zeros(len(sums), dtype=np.uint64))
    columns = {"item": pa.array(np.arange(len(sums))), "sum": pa.array(sums, pa.int64())}
    histogram = pa.RecordBatch.from_pydict(columns | {"lane_hi": zeros, "lane_lo": zeros})
    with monkeypatch.context() as patch:
        patch.setattr(noisy, "Lanes", lambda key, ids: _Forced(draws))
        rows = noisy.add_noise(histogram, plan, bytes(32), Evidence(0, ()))
    return np.isin(np.arange(len(sums)), np.asarray(rows.column("item")))


def law_of(plan: NoisePlan, total: int) -> int:
    """How many draws are meant to name a sum."""
    last = len(plan.law) // 16 - 1
    return int.from_bytes(plan.law[16 * min(total, last) :][:16], "little")


def named_as_meant(monkeypatch, plan: NoisePlan, sums: Sequence[int]) -> np.ndarray:
    """For each sum, whether the last draw that is meant to name it does, and the next one does not."""
    meant = [law_of(plan, total) for total in sums]
    yes = named(monkeypatch, plan, sums, [max(0, number - 1) for number in meant])
    no = named(monkeypatch, plan, sums, [min(WHOLE - 1, number) for number in meant])
    return (yes == [number > 0 for number in meant]) & (~no | [number == WHOLE for number in meant])


def naming_draws(monkeypatch, plan: NoisePlan, sums: Sequence[int]) -> list[int]:
    """For each sum, how many of the 2**128 integers that its lane may draw name it: the least ones; found by halving, where it
    is not the number that is meant."""
    found = [law_of(plan, total) for total in sums]
    wrong = np.flatnonzero(~named_as_meant(monkeypatch, plan, sums)).tolist()
    low, high = [0] * len(wrong), [WHOLE] * len(wrong)  # all below `low` name, none from `high` on
    while any(a < b for a, b in zip(low, high, strict=True)):
        middle = [min((a + b) // 2, WHOLE - 1) for a, b in zip(low, high, strict=True)]
        for place, here in enumerate(named(monkeypatch, plan, [sums[each] for each in wrong], middle).tolist()):
            if low[place] < high[place]:
                low[place], high[place] = (middle[place] + 1, high[place]) if here else (low[place], middle[place])
    for place, number in zip(wrong, low, strict=True):
        found[place] = number
    return found
