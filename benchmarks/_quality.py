"""What a release of a histogram is worth: expected error and expected number of items, exact over the noise.

Nothing here is private, and nothing of it belongs into the product. Sums of items come from the shipped bounding steps, and
noise and threshold from the shipped calibration; what is averaged is the noise alone, by its distribution, in place of many
runs. Bounding by a sample is drawn once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _laws import LAWS, demo_log, drawn
from _shared import DATA
from scipy import special

from headcount.mechanisms.accounting import gaussian
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.run_sums import sum_by_code
from headcount.mechanisms.batches.shards import Shard, gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bounding.clipping import limit_per_item, rand_clip
from headcount.mechanisms.bounding.steps import promise_of
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_unknown_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.protocol import Choice
from headcount.mechanisms.histogram.fixed import unknown_domain_steps

# Thousands of plans are calibrated here, and a job needs one: SciPy's function is slow to import, and six times faster.
gaussian._log_normal = special.log_ndtr


@dataclasses.dataclass(frozen=True)
class Worth:
    """A release, told by its expectations: the l1 error over all items, and how many items it shows."""

    error: float
    items: float


def seed(number: int) -> bytes:
    """The key of a sample that bounding draws: a benchmark is to be repeatable."""
    return number.to_bytes(32, "little")


def read_batch(path: Path) -> pa.RecordBatch:
    """A Parquet file with the columns user, item and count, as a contribution batch."""
    table = pq.read_table(path, columns=["user", "item", "count"]).combine_chunks()
    return contribution_batch(*(column.chunk(0) for column in table.columns))


def data_sets(given: Iterable[str]) -> dict[str, Callable[[], pa.RecordBatch]]:
    """What is read or drawn when it is asked for: the log of the demo, NAME=FILE as given, and all laws."""
    sets: dict[str, Callable[[], pa.RecordBatch]] = {"demo": partial(demo_log, DATA)}
    for name, path in (entry.split("=", 1) for entry in given):
        sets[name] = partial(read_batch, Path(path))
    return sets | {law: partial(drawn, law) for law in LAWS}


def as_shard(batch: pa.RecordBatch) -> Shard:
    """All users of a contribution batch in one shard."""
    return gather([chunk for _, chunk in split_by_user(batch, 1)])


def item_totals(shards: Iterable[Shard]) -> np.ndarray:
    """The count of each item over all shards, which must list the same items."""
    return sum(sum_by_code(shard.item, shard.count, len(shard.items)) for shard in shards)


def table_of(choice: Choice, shards: Sequence[Shard]) -> list[int]:
    """The table that the choice looks at, as the pipeline adds it up."""
    tables = [choice.user_table(shard) for shard in shards]
    chunks = [chunk for shard in shards for _, chunk in choice.item_chunks(shard, 1)]
    if chunks:
        tables.append(choice.item_table(chunks))
    return [sum(entries) for entries in zip(*tables, strict=True)]


def bounded_sums(
    shards: Sequence[Shard], bound: int, caps: Iterable[int | None], key: bytes
) -> Iterator[tuple[int | None, np.ndarray]]:
    """For each cap on one item, the sums of a sample of at most `bound` of the events that it leaves each user."""
    for cap in caps:
        held = shards if cap is None else [limit_per_item(shard, cap) for shard in shards]
        yield cap, item_totals([rand_clip(shard, bound, key) for shard in held])


@functools.cache
def plan_for(budget: Budget, bound: int, cap: int | None, noise: str, relation: Relation) -> NoisePlan:
    """Noise and threshold of an unknown domain, as a release with these bounds gets them."""
    promised = promise_of(unknown_domain_steps(bound, cap), Bound(), "")
    return calibrate_unknown_domain(budget, promised, relation, noise)


def tail_and_excess(plan: NoisePlan, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P[Z >= x] and E[(Z - x)^+] of the plan's noise Z in counts.

    Laplace noise is taken as the discrete one that it is, if its grid is whole counts; Gaussian noise, on a grid of a
    thousandth of its stddev, as continuous.
    """
    x = np.asarray(at, float)
    if plan.kind == "laplace" and plan.grid == 0:
        rate = float(1 / plan.scale)
        ratio, size = np.exp(-rate), np.abs(x)
        far = np.exp(-rate * size) / (1 + ratio)  # P[Z >= |x|]
        tail = np.where(x >= 0, far, 1 - far * ratio)
        excess = far * ratio / (1 - ratio) - np.minimum(x, 0)
    elif plan.kind == "laplace":
        scale = float(plan.scale) / 2**plan.grid
        far = np.exp(-np.abs(x) / scale) / 2
        tail, excess = np.where(x >= 0, far, 1 - far), scale * far - np.minimum(x, 0)
    else:
        y = x / plan.stddev
        tail = special.ndtr(-y)
        excess = plan.stddev * np.exp(-y * y / 2) / np.sqrt(2 * np.pi) - x * tail
    return tail, excess


def noise_error(plan: NoisePlan, bias: np.ndarray) -> np.ndarray:
    """E|bias - Z|: the error of an item that is always released, and whose bounded sum is lower by `bias`."""
    return 2 * tail_and_excess(plan, bias)[1] + bias


def worth(plan: NoisePlan, true: np.ndarray, sums: np.ndarray) -> Worth:
    """What the release is worth. An item that is not released, or has no bounded sum, counts as zero.

    With bias D = true - sum and T = threshold - sum, an item costs true where Z < T, and |D - Z| where Z >= T. For T < D that
    is E|D - Z| less E[D - Z; Z < T] = (D - T) P[Z < T] + E[(T - Z)^+], and E[(T - Z)^+] = E[(Z - T)^+] + T.
    """
    held = sums > 0
    missed = float(true[~held].sum())
    true, sums = true[held].astype(float), sums[held].astype(float)
    bias, above = true - sums, float(plan.threshold_in_counts) - sums
    shown, excess = tail_and_excess(plan, above)
    hidden = 1 - shown
    low = noise_error(plan, bias) - (bias - above) * hidden - excess - above
    high = (above - bias) * shown + excess
    error = true * hidden + np.where(above < bias, low, high)
    return Worth(missed + float(error.sum()), float(shown.sum()))
