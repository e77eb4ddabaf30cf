"""Counts in levels as a transform: equal to the pure function, for any number of shards, in rows with the key columns."""

from __future__ import annotations

import dataclasses

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.level_keys import LevelKeys
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import RowsKey
from headcount.transforms import Aggregate, Budget, Contributions, Histogram

BUDGET = Budget(2, 1e-6)


def log() -> pa.Table:
    random = np.random.default_rng(3)
    user = random.integers(0, 2500, 12_000)
    country = pa.array(["de", "fr", "it"]).take(pa.array(user % 3))
    columns = {"country": country, "at": random.geometric(0.3, 12_000), "times": random.integers(1, 3, 12_000)}
    return pa.table({"user": user, **columns})


@pytest.mark.parametrize("kind", [{}, {"of": "events"}, {"home": True}, {"max_items": 7}])
def test_rows_are_those_of_the_pure_function(kind, make_release, collect):
    table, release, schema = (
        log(),
        make_release("levels"),
        asked("user", ["country", "at"], "times").of_schema(log().schema),
    )
    transform = Histogram(BUDGET, levels=True, release=release, shards=3, **kind)

    def rows(pipeline: beam.Pipeline) -> beam.PCollection:
        batches = pipeline | beam.Create(table.to_batches(max_chunksize=5000), reshuffle=False)
        return batches | Contributions(user="user", item=["country", "at"], count="times") | "Levels" >> transform

    found = collect(rows)
    batches = [schema.batch(batch, Place()) for batch in table.to_batches()]
    own = dataclasses.replace(release, key_source=RowsKey(release.key_source, schema.reading))
    pure = LevelKeys(schema.keys.fields).restore(transform.mechanism.run(batches, own, "Levels"))
    assert found[0]._fields[:4] == ("level", "country", "at", "other") and len(found) > 20
    assert sorted(map(repr, map(tuple, found))) == sorted(repr(tuple(row.values())) for row in pure.to_pylist())


def test_metrics_are_those_of_the_pure_function(make_release, collect):
    table, release = log(), make_release("metrics")
    metrics = ["users", "events", "sum:times:0:5", "mean:times:0:5", "quantile:0.5:times:0:5"]
    transform = Aggregate(BUDGET, metrics, levels=True, release=release, shards=3)
    values = transform.mechanism.metrics.values
    schema = asked("user", ["country", "at"], values=values).of_schema(table.schema)

    def rows(pipeline: beam.Pipeline) -> beam.PCollection:
        batches = pipeline | beam.Create(table.to_batches(max_chunksize=5000), reshuffle=False)
        return batches | Contributions(user="user", item=["country", "at"], values=values) | "Levels" >> transform

    found = collect(rows)
    batches = [schema.batch(batch, Place()) for batch in table.to_batches()]
    own = dataclasses.replace(release, key_source=RowsKey(release.key_source, schema.reading))
    pure = (
        LevelKeys(schema.keys.fields).restore(transform.mechanism.of_depth(2).run(batches, own, "Levels")).to_pylist()
    )
    assert sorted(repr(row._asdict()) for row in found) == sorted(map(repr, pure)) and len(found) > 20
    by = {(row["level"], row["country"], row["at"], row["other"]): row for row in pure}
    for name in ("events", "sum_times", "users"):
        countries = [row[name] for (level, *_), row in by.items() if level == "country"]
        whole = by["all", None, None, False][name]
        # Sums have the digits that their noise tells, each its own.
        assert max(countries) <= whole if name == "users" else sum(countries) == pytest.approx(whole, rel=1e-4)


def test_levels_are_those_of_the_key_columns():
    rows = pa.table({"user": ["a"], "item": ["b"]})
    with pytest.raises(ParameterError, match="levels are 2 to 9 columns, from the widest to the finest, got 1"):
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            _ = pipeline | beam.Create([rows]) | Contributions() | Histogram(BUDGET, levels=True)
    with pytest.raises(ParameterError, match="rows in levels add up"):
        Histogram(BUDGET, levels=True, suppress_below=5)
