"""Keys partly public in pipelines: every named key has all of the public values, and rows are those of the pure function."""

import datetime

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.bounding.steps import bound_shard
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import ParameterError
from headcount.transforms import Aggregate, Budget, ChooseBound, Contributions, DomainFile, Histogram, LearnDistribution
from headcount.transforms import estimates as wired

BUDGET = Budget(3, 1e-4)
ITEM = ["page", "at:day", "n"]
DOMAIN = {"at_day": ("2026-11-01", "2026-11-05"), "n": [1, 2, 7]}
METRICS = ["users", "events", "sum:price:0:9", "mean:price:0:9", "quantile:0.5:price:0:9"]
DAYS = [datetime.date(2026, 11, day) for day in range(1, 6)]


def table(rows=6000):
    """500 users; some rows on days and numbers that are not public."""
    random = np.random.default_rng(3)
    columns = {
        "user": random.integers(0, 500, rows),
        "page": [f"p{k}" for k in (random.pareto(1, rows) * 2).astype(int) % 50],
    }
    at = pa.array(1_793_491_200 + random.integers(0, 7 * 86_400, rows), pa.timestamp("s"))
    return pa.table(columns | {"at": at, "n": random.integers(1, 4, rows), "price": random.random(rows) * 9})


MAKE = {
    "histogram": lambda **how: Histogram(BUDGET, domain=DOMAIN, **how),
    "of events": lambda **how: Histogram(BUDGET, of="events", domain=DOMAIN, calibrate="none", bound=6, **how),
    "aggregate": lambda **how: Aggregate(BUDGET, METRICS, domain=DOMAIN, **how),
}


def values_of(transform):
    return transform.mechanism.metrics.values if isinstance(transform, Aggregate) else ()


def found(collect, rows, make, *options, size=700, **how):
    """The rows of a pipeline, of one file."""

    def build(pipeline):
        transform = MAKE[make](output_files=1, **how)
        source = pipeline | beam.Create(rows.to_batches(size))
        contributions = source | Contributions(item=ITEM, values=values_of(transform), schema=rows.schema)
        return contributions | "It" >> transform

    ((_, batch),) = collect(build, *options)
    return batch


def expected(rows, make, release):
    """The same by the mechanism alone, of the same keys."""
    transform = MAKE[make]()
    schema = asked(user="user", item=ITEM, values=values_of(transform)).of_schema(rows.schema)
    mechanism = transform._of_domain(DomainFile(DOMAIN).domain(schema.shown), str).mechanism
    contributions = [schema.batch(batch, Place()) for batch in rows.to_batches()]
    return schema.shown.restore(mechanism.run(contributions, release, "It"))


@pytest.mark.parametrize("make", MAKE)
def test_rows_are_those_of_the_pure_function_and_complete(make, collect, make_release):
    rows, release = table(), make_release().of_rows("any")
    shuffled = rows.take(np.random.default_rng(1).permutation(rows.num_rows))
    one = found(collect, shuffled, make, "--direct_runner_bundle_repeat=1", shards=7, release=release)
    assert one.num_rows > 0 and one.equals(expected(rows, make, release))
    pages = one.column("page").unique().to_pylist()
    keys = [tuple(row.values()) for row in one.select(["page", "at_day", "n"]).to_pylist()]
    assert sorted(keys) == sorted((page, day, n) for page in pages for day in DAYS for n in DOMAIN["n"])
    if make != "of events":  # whose counts are not estimates
        name, low = ("count", "low") if make == "histogram" else ("users", "users_low")
        assert min(row[name] for row in one.to_pylist()) >= 0
        assert 0.0 in {row[low] for row in one.to_pylist() if row["n"] == 7}, "of which nobody has any"


@pytest.mark.parametrize("make", ["histogram", "aggregate"])
def test_of_no_rows_nothing_comes_out(make, collect, make_release):
    rows, release = table(5).slice(0, 0), make_release().of_rows("any")
    assert found(collect, rows, make, shards=2, release=release).equals(expected(rows, make, release))


def test_a_domain_of_some_columns_is_refused_where_all_must_be_public(make_release):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    rows = pipeline | beam.Create(table(10).to_batches()) | Contributions(item=ITEM, schema=table(10).schema)
    refused = {
        "learn": LearnDistribution(BUDGET, DOMAIN, samples_per_user=3),
        "choose": ChooseBound(Budget(0.1), BUDGET, domain=DOMAIN),
        "one stage": Histogram(BUDGET, domain=DOMAIN, method="one-stage"),
    }
    for label, transform in refused.items():
        with pytest.raises(ParameterError, match="a list or a range for each key column|each key column"):
            rows | label >> transform


def test_users_that_are_not_bounded_are_refused(collect, make_release, monkeypatch):
    def one_step_less(shard, steps, subkeys, label):
        return bound_shard(shard, steps[:-1], subkeys[:-1], label)

    monkeypatch.setattr(wired, "bound_shard", one_step_less)
    with pytest.raises(Exception, match="bounded by"):
        found(collect, table(500), "histogram", shards=2, release=make_release())
