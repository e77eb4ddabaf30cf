"""Sums by key of what users add, and their noise: every named key gets noise on every measure, and no other key may be there.

Each measure has a subkey of its own, so that no two of them share a lane. A lane is known by the key with its exact sum, and
its words depend on a digest of all sums of all measures: a changed input changes all noise. Trees (`trees`) go as rows of key,
leaf and number of rows, and what comes out of them are quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.aggregate.measures import Measure, MeasuresPlan
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.quantiles import quantile_columns
from headcount.mechanisms.aggregate.trees import BRANCHING, LARGEST_BITS, LEVELS, NoisyTrees, Trees
from headcount.mechanisms.batches.cut import cut_by_item
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import unpack
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.randomness.lane_ids import item_lane_ids, lane_sum
from headcount.mechanisms.randomness.lanes import Lanes
from headcount.mechanisms.randomness.noise import discrete_gaussian, discrete_laplace
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey

_NOT_SUMMED = ("user", "item")


def measure_subkeys(key: bytes, release_id: str, label: str, plan: MeasuresPlan, metrics: Sequence[str]) -> list[bytes]:
    """The subkey of the noise of each measure, from the label, the plan, and what is asked for."""
    shared = {"plan": plan.to_json(), "metrics": list(metrics)}
    of_trees = {"branching": BRANCHING, "levels": LEVELS}
    return [
        subkey(
            key, release_id, label, shared | {"measure": measure.name} | (of_trees if measure.kind == "tree" else {})
        )
        for measure in plan.measures
    ]


def sum_measures(batch: pa.RecordBatch, shards: int) -> Iterator[tuple[int, bytes]]:
    """Sums a bounded batch by key and cuts the sums into (shard, Arrow stream) chunks by a hash of the key."""
    item = batch.column("item")
    codes = np.asarray(item.indices).astype(np.int64)
    columns = [name for name in batch.schema.names if name not in _NOT_SUMMED]
    trees = [name for name in columns if pa.types.is_large_list(batch.schema.field(name).type)]
    names = [name for name in columns if name not in trees]
    sums = {name: np.zeros(len(item.dictionary), dtype=np.int64) for name in names}
    for name, column in sums.items():
        np.add.at(column, codes, np.asarray(batch.column(name)))
    present = np.flatnonzero(np.bincount(codes, minlength=len(item.dictionary)))
    kept = {name: column[present] for name, column in sums.items()}
    cut = cut_by_item(item.dictionary.take(pa.array(present)), shards)
    yield from cut.one_row_each(kept)
    place = np.zeros(len(item.dictionary), dtype=np.int64)
    place[present] = cut.places()
    for name in trees:
        leaves = batch.column(name)
        key, leaf = np.repeat(place[codes], np.asarray(leaves.value_lengths())), np.asarray(leaves.values)
        summed = Trees.of(len(present), [(key, leaf, np.ones_like(leaf))])
        yield from cut.rows(summed.keys, {name: summed.leaf, "often": summed.rows})


def merge_measures(
    chunks: Iterable[bytes], named: Names, plan: MeasuresPlan, subkeys: Sequence[bytes]
) -> tuple[pa.RecordBatch, int]:
    """The sums of all `named` keys of one shard, as a batch `item` and for each measure its sum and its lane; and its part of
    the digest. A key that was not named is refused: it would be released without a threshold."""
    sums = {measure.name: np.zeros(len(named), dtype=np.int64) for measure in plan.measures if measure.kind != "tree"}
    trees: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {
        measure.name: [] for measure in plan.measures if measure.kind == "tree"
    }
    for chunk in chunks:
        held, _ = unpack(chunk)
        items = held["item"]
        of_tree = next((name for name in trees if name in held), None)
        keys = items if of_tree is None else items.dictionary
        if keys.type != named.type:
            raise InputError(f"keys are of type {keys.type}, not {named.type}; set item_type to match")
        place = pc.index_in(keys, value_set=named)
        if place.null_count:
            raise RuntimeError("a key that was not named reached the noise")  # a bug, and never to be released
        if of_tree is not None:
            own_keys = np.asarray(place)[np.asarray(items.indices)].astype(np.int64)
            trees[of_tree].append((own_keys, np.asarray(held[of_tree]), np.asarray(held["often"])))
            continue
        for name, column in sums.items():
            column[np.asarray(place)] += np.asarray(held[name])
    columns: dict[str, pa.Array] = {"item": named}
    digest = 0
    for measure, own in zip(plan.measures, subkeys, strict=True):
        name = measure.name
        if measure.kind == "tree":
            merged = Trees.of(len(named), trees[name])
            ids = merged.lanes(own, named)
            columns[name], columns[f"{name}/often"] = merged.lists()
        else:
            ids = item_lane_ids(lane_key(own), named, sums[name])
            columns[name] = pa.array(sums[name])
        digest += lane_sum(ids)
        columns |= {f"{name}/hi": pa.array(ids[:, 0]), f"{name}/lo": pa.array(ids[:, 1])}
    return pa.RecordBatch.from_pydict(columns), digest % 2**128


def noisy_measures(
    merged: pa.RecordBatch, plan: MeasuresPlan, subkeys: Sequence[bytes], evidence: Evidence, metrics: Metrics
) -> pa.RecordBatch:
    """The noisy sums of one shard of keys, in users, rows and half ranges; and quantiles, in place of the trees."""
    evidence.check(plan.bound)
    columns = {"item": merged.column("item")}
    digest = evidence.digest.to_bytes(16, "little")
    noisy_trees: dict[Measure, NoisyTrees] = {}
    for measure, own in zip(plan.measures, subkeys, strict=True):
        ids = np.stack([np.asarray(merged.column(f"{measure.name}/{half}")) for half in ("hi", "lo")], axis=1)
        if measure.kind == "tree":
            trees = Trees.listed(merged.column(measure.name), merged.column(f"{measure.name}/often"))
            noisy_trees[measure] = NoisyTrees(trees, ids, own, digest, measure.grid, measure.sigma)
            continue
        lanes = Lanes(block_key(own, digest), ids)
        shift = measure.grid - measure.bits
        most = 2**LARGEST_BITS >> shift
        sums = np.clip(np.asarray(merged.column(measure.name)), -most, most)
        draw = discrete_laplace if measure.noise == "laplace" else discrete_gaussian
        noisy = (sums << shift) + draw(lanes, measure.sigma)
        columns[measure.name] = pa.array(noisy * 2.0**-measure.grid)
    for measure, noisy_tree in noisy_trees.items():
        lacking = f"missing{measure.value}"
        counted = np.asarray(columns["rows"]) - np.asarray(columns[lacking])
        noise = math.hypot(plan.stddev("rows"), plan.stddev(lacking))
        columns |= quantile_columns(noisy_tree, measure, metrics, (counted, noise))
    return pa.RecordBatch.from_pydict(columns)
