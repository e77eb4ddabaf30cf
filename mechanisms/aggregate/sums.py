"""Sums by key of what users add, and their noise: every named key gets noise on every measure, and no other key may be there.

Each measure has a subkey of its own, so that no two of them share a lane. A lane is known by the key with its exact sum, and
its words depend on a digest of all sums of all measures: a changed input changes all noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.aggregate.measures import MeasuresPlan
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.counting.sums import split_sums
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.randomness.lane_ids import item_lane_ids, lane_sum
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey

# Beyond this, sums are cut: it takes more users than there are people.
_LARGEST_BITS = 61


def measure_subkeys(key: bytes, release_id: str, label: str, plan: MeasuresPlan, metrics: Sequence[str]) -> list[bytes]:
    """The subkey of the noise of each measure, from the label, the plan, and what is asked for."""
    shared = {"plan": plan.to_json(), "metrics": list(metrics)}
    return [subkey(key, release_id, label, shared | {"measure": measure.name}) for measure in plan.measures]


def sum_measures(batch: pa.RecordBatch, shards: int) -> Iterator[tuple[int, bytes]]:
    """Sums a bounded batch by key and cuts the sums into (shard, Arrow stream) chunks by a hash of the key."""
    item = batch.column("item")
    codes = np.asarray(item.indices).astype(np.int64)
    names = [name for name in batch.schema.names if name not in ("user", "item")]
    sums = {name: np.zeros(len(item.dictionary), dtype=np.int64) for name in names}
    for name, column in sums.items():
        np.add.at(column, codes, np.asarray(batch.column(name)))
    present = np.flatnonzero(np.bincount(codes, minlength=len(item.dictionary)))
    kept = {name: column[present] for name, column in sums.items()}
    return split_sums(item.dictionary.take(pa.array(present)), kept, shards)


def merge_measures(
    chunks: Iterable[bytes], named: Names, plan: MeasuresPlan, subkeys: Sequence[bytes]
) -> tuple[pa.RecordBatch, int]:
    """The sums of all `named` keys of one shard, as a batch `item` and for each measure its sum and its lane; and its part of
    the digest. A key that was not named is refused: it would be released without a threshold."""
    sums = {measure.name: np.zeros(len(named), dtype=np.int64) for measure in plan.measures}
    for chunk in chunks:
        held, _ = unpack(chunk)
        if held["item"].type != named.type:
            raise InputError(f"keys are of type {held['item'].type}, not {named.type}; set item_type to match")
        place = pc.index_in(held["item"], value_set=named)
        if place.null_count:
            raise RuntimeError("a key that was not named reached the noise")  # a bug, and never to be released
        for name, column in sums.items():
            column[np.asarray(place)] += np.asarray(held[name])
    columns: dict[str, pa.Array] = {"item": named}
    digest = 0
    for (name, column), own in zip(sums.items(), subkeys, strict=True):
        ids = item_lane_ids(lane_key(own), named, column)
        digest += lane_sum(ids)
        columns |= {name: pa.array(column), f"{name}/hi": pa.array(ids[:, 0]), f"{name}/lo": pa.array(ids[:, 1])}
    return pa.RecordBatch.from_pydict(columns), digest % 2**128


def noisy_measures(
    merged: pa.RecordBatch, plan: MeasuresPlan, subkeys: Sequence[bytes], evidence: Evidence
) -> pa.RecordBatch:
    """The noisy sums of one shard of keys, in users, rows and half ranges."""
    evidence.check(plan.bound)
    columns = {"item": merged.column("item")}
    for measure, own in zip(plan.measures, subkeys, strict=True):
        ids = np.stack([np.asarray(merged.column(f"{measure.name}/{half}")) for half in ("hi", "lo")], axis=1)
        lanes = Lanes(block_key(own, evidence.digest.to_bytes(16, "little")), ids)
        shift = measure.grid - measure.bits
        most = 2**_LARGEST_BITS >> shift
        sums = np.clip(np.asarray(merged.column(measure.name)), -most, most)
        noisy = (sums << shift) + discrete_gaussian(lanes, measure.sigma)
        columns[measure.name] = pa.array(noisy * 2.0**-measure.grid)
    return pa.RecordBatch.from_pydict(columns)
