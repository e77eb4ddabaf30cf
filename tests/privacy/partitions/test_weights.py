"""What each item of a user weighs is rounded down: the norms that the noise is for hold in integers, as the steps apply them.

Exact, for users of 1 to 400 items: by the rows that reach the sums, and not by the function that weighs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.shards import Shard, one_shard
from headcount.mechanisms.partitions import selection_curve, weights
from headcount.mechanisms.partitions.selection_curve import LawWeighStep, curve_weight
from headcount.mechanisms.partitions.weights import GRID, WeighStep, weight_of

MOST = 400

# Each step, with the power of the weights that adds up to one for every user, and the bits of its grid.
STEPS = {
    "l1": (WeighStep("l1"), 1, GRID),
    "l2": (WeighStep("l2"), 2, GRID),
    "law": (LawWeighStep(12), 4, 12),
}


def everybody() -> Shard:
    """One user of each number of items."""
    sizes = np.arange(1, MOST + 1)
    users = np.repeat(sizes, sizes)
    items = np.concatenate([np.arange(size) for size in sizes])
    shard = one_shard([contribution_batch(pa.array(users), pa.array(items))])
    assert shard is not None
    return shard


def largest(name: str) -> float:
    """The largest sum of a user's weights to the power, over that of one whole item."""
    step, power, grid = STEPS[name]
    weighed = step.apply(everybody(), bytes(32))
    sums = [
        sum(int(weight) ** power for weight in weighed.count[first:last])
        for first, last in zip(weighed.offsets, weighed.offsets[1:], strict=False)
    ]
    return max(sums) / (1 << power * grid)


@pytest.mark.parametrize("name", STEPS)
def test_the_weights_of_a_user_of_any_number_of_items_are_one_at_most(name):
    assert largest(name) == 1


@pytest.mark.parametrize("name", STEPS)
def test_weights_that_are_rounded_up_are_caught(name, monkeypatch):
    def up(items: int, kind: str) -> int:
        power, down = {"l1": 1, "l2": 2}[kind], weight_of(items, kind)
        return down if items * down**power == 1 << power * GRID else down + 1

    def curve_up(items: int, grid: int) -> int:
        down = curve_weight(items, grid)
        return down if items * down**4 == 16**grid else down + 1

    monkeypatch.setattr(weights, "weight_of", up)
    monkeypatch.setattr(selection_curve, "curve_weight", curve_up)
    assert largest(name) > 1
