"""What each user adds to the sums: at most m keys, of at most c rows each, as whole numbers by (user, key).

Keys and rows are uniform samples. The sums of a range see a sample of the rows that have a value of it: only the room that
these leave is for rows without one. The lane of a user's keys is known by its keys and their numbers of rows, that of the rows
on one key by the user, the key and their number: so a repeated run draws the same sample, and no value has a part in who is
drawn, but whether it is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.aggregate.measures import HALVES, Measure, MeasuresPlan
from headcount.mechanisms.aggregate.trees import LEAVES, leaf_of
from headcount.mechanisms.batches.run_sums import run_sums
from headcount.mechanisms.batches.shards import MISSING
from headcount.mechanisms.batches.value_rows import ValueShard
from headcount.mechanisms.bounding.clipping import sample_units, sampled_items
from headcount.mechanisms.bounding.steps import promise_of
from headcount.mechanisms.columns.value_ranges import VALUE_BITS
from headcount.mechanisms.randomness.lane_ids import user_lane_ids
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.subkeys import block_key, lane_key

_WHOLE = 2**VALUE_BITS
_MISSING = HALVES[-1]


@dataclasses.dataclass(frozen=True)
class Sample:
    """At most c rows of each (user, key), and likewise for each range those that have a value of it: other numbers of the same
    rows."""

    rows: ValueShard
    of_values: Mapping[int, ValueShard]

    def missing(self, value: int) -> np.ndarray:
        """How many rows without a value of this range each (user, key) has room for beside those with one."""
        return self.rows.pairs.count - self.of_values[value].pairs.count


def bounded_rows(shard: ValueShard, plan: MeasuresPlan, subkeys: Sequence[bytes]) -> Sample:
    """At most m keys of each user, and of each samples of at most c rows; `subkeys` are those of the plan's steps."""
    kept = shard.keep(sampled_items(shard.pairs, plan.max_items, subkeys[0]))
    rows, of_values = limit_rows(kept, plan.max_per_item, subkeys[1]), {}
    for value in {measure.value for measure in plan.measures if measure.kind != "flag"} - {-1}:
        lacking = kept.values[value] == MISSING
        valued = dataclasses.replace(kept, count=np.where(lacking, 0, kept.count))
        of_values[value] = limit_rows(valued, plan.max_per_item, subkeys[1]) if lacking.any() else rows
    return Sample(rows, of_values)


def limit_rows(shard: ValueShard, rows: int, subkey: bytes) -> ValueShard:
    """At most this number of rows of each (user, key), chosen uniformly: rows that are there several times count as several."""
    totals = run_sums(shard.count, shard.starts[:-1])
    above = np.flatnonzero(totals > rows)
    count = shard.count
    if len(above):
        each = shard.rows_per_pair()
        chosen = np.zeros(len(totals), dtype=bool)
        chosen[above] = True
        places = np.flatnonzero(np.repeat(chosen, each))
        pairs = shard.pairs
        user = np.repeat(np.arange(len(pairs.users)), pairs.rows_per_user())[above]
        ids = user_lane_ids(
            lane_key(subkey),
            pairs.users.take(pa.array(user)),
            np.arange(len(above) + 1),
            pairs.items.take(pa.array(pairs.item[above])),
            totals[above],
        )
        count = count.copy()
        offsets = np.append(0, np.cumsum(each[above]))
        count[places] = sample_units(Lanes(block_key(subkey), ids), count[places], offsets, rows)
    totals = run_sums(count, shard.starts[:-1])
    return dataclasses.replace(shard, pairs=dataclasses.replace(shard.pairs, count=totals), count=count)


def measured(sample: Sample, measures: Sequence[Measure]) -> dict[str, np.ndarray]:
    """What each (user, key) adds to each measure, in units of 2**-bits. Sums and what stands beside them are rounded towards 0:
    rounding makes no contribution longer. To a tree it adds its rows, each on its leaf: one leaf for each row, pair after pair.
    A row without a value adds to what is missing, and to nothing else of its range.
    """
    found = {}
    for measure in measures:
        shard = sample.of_values.get(measure.value, sample.rows)
        if measure.kind == "tree":
            own = shard.values[measure.value]
            found[measure.name] = np.repeat(leaf_of(own), np.where(own == MISSING, 0, shard.count))
        elif measure.kind == _MISSING:
            found[measure.name] = sample.missing(measure.value) << measure.bits
        elif measure.kind == "users":
            found[measure.name] = np.ones(len(shard.pairs.item), dtype=np.int64)
        elif measure.kind == "flag":
            found[measure.name] = _met(shard.values[measure.value], shard.starts)
        elif measure.kind == "rows":
            found[measure.name] = shard.pairs.count
        else:
            own = shard.values[measure.value]
            sums = run_sums(_of_rows(measure.kind, own) * shard.count, shard.starts[:-1])
            found[measure.name] = np.sign(sums) * (np.abs(sums) >> (VALUE_BITS - measure.bits))
    return found


def _met(own: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """1 for each (user, key) with a row that meets a condition, also one that is not in the sample, and -1 for others."""
    return np.sign(np.maximum.reduceat(own, starts[:-1])) if len(own) else own


def _of_rows(kind: str, own: np.ndarray) -> np.ndarray:
    """What each row adds, by its value, in units of 2**-VALUE_BITS."""
    lacking = own == MISSING
    return np.where(lacking, 0, _OF_ROW[kind](np.where(lacking, 0, own)))


def _variance_moment(x: np.ndarray) -> np.ndarray:
    """1 - x^2, rounded down, in units of 2**-VALUE_BITS."""
    return (_WHOLE * _WHOLE - x * x) >> VALUE_BITS


def _cosine(x: np.ndarray) -> np.ndarray:
    """sin t cos 2t where x is cos t, rounded towards 0, in units of 2**-VALUE_BITS."""
    _, square = _float(x)
    return _rounded(np.sqrt(np.maximum(1 - square, 0.0)) * (2 * square - 1))


def _sine(x: np.ndarray) -> np.ndarray:
    """sin t sin 2t, likewise."""
    cos, square = _float(x)
    return _rounded((1 - square) * (2 * cos))


def _float(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and its square as floats: both are exact, and so is 1 less the square."""
    cos = x / _WHOLE
    return cos, cos * cos


def _rounded(value: np.ndarray) -> np.ndarray:
    """Towards 0, from a little below: so that the rounding of floats makes no contribution longer."""
    return (value * (_WHOLE * (1 - 2.0**-45))).astype(np.int64)


_OF_ROW: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda x: x,
    "upper": lambda x: (_WHOLE + x) >> 1,
    "lower": lambda x: (_WHOLE - x) >> 1,
    "gap": _variance_moment,
    "cosine": _cosine,
    "sine": _sine,
}


def bounded_batch(
    shard: ValueShard, plan: MeasuresPlan, subkeys: Sequence[bytes], label: str, part: int = 0
) -> pa.RecordBatch:
    """The users' contributions by key, as a batch that carries its bound; `label` names what did the bounding."""
    sample = bounded_rows(shard, plan, subkeys)
    added = measured(sample, plan.measures)
    check_kept(sample, added, plan)
    bound = promise_of(plan.steps, shard.pairs.bound, label)
    batch = dataclasses.replace(sample.rows.pairs, bound=bound).to_batch(part).drop_columns("count")
    for measure in plan.measures:
        column = pa.array(added[measure.name])
        if measure.kind == "tree":
            leaves = sample.of_values[measure.value].pairs.count
            column = pa.LargeListArray.from_arrays(pa.array(np.append(0, np.cumsum(leaves))), column)
        batch = batch.append_column(measure.name, column)
    return batch


def check_kept(sample: Sample, added: dict[str, np.ndarray], plan: MeasuresPlan) -> None:
    """Refuses contributions that are beyond what the noise was made for."""
    pairs = sample.rows.pairs
    rows = pairs.count
    kept = int(pairs.rows_per_user().max(initial=0)) <= plan.max_items
    kept &= int(rows.max(initial=0)) <= plan.max_per_item
    for measure in plan.measures:
        own = added[measure.name]
        if measure.value >= 0 and measure.kind != "flag":
            valued = sample.of_values[measure.value].pairs.count
            kept &= bool(np.all(valued <= rows))
        if measure.kind == "tree":
            kept &= len(own) == int(valued.sum())
            kept &= bool(np.all((own >= 0) & (own < LEAVES)))
        elif measure.kind == "flag":
            kept &= bool(np.all(np.abs(own) <= 1))
        elif measure.value >= 0:
            most = rows - valued if measure.kind == _MISSING else valued
            kept &= bool(np.all(np.abs(own) <= most << measure.bits))
    for measure in plan.measures:
        if measure.kind == HALVES[0]:
            halves = [added[f"{kind}{measure.value}"] for kind in HALVES]
            kept &= bool(np.all(np.minimum.reduce(halves) >= 0) and np.all(sum(halves) <= rows << measure.bits))
    if not kept:
        raise RuntimeError("bounding did not keep its bound")  # a bug, and never to be released
