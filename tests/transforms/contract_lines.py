"""One line for each transform that runs under the contract, and what it releases of a table by the pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.choice.run import choose_bound
from headcount.mechanisms.columns.value_ranges import value_columns
from headcount.mechanisms.counting.noisy import bounded_batches, noisy_counts
from headcount.mechanisms.shape.estimators import EntropyQuestion
from headcount.transforms import (
    Actives,
    Activity,
    Aggregate,
    AnonymizedHistogram,
    Bound,
    Budget,
    ChooseBound,
    ClipNorm,
    DebiasedCount,
    DistinctItems,
    Entropy,
    Funnel,
    HeavyHitters,
    Histogram,
    LearnDistribution,
    LimitItems,
    LimitPerItem,
    NoisyCounts,
    Plume,
    PrivateCountRelease,
    Quantile,
    Quantiles,
    RandClip,
    Release,
    Retention,
    SampledHistogram,
    SelectPartitions,
    SupportCoverage,
    SupportSize,
    TopItems,
    Total,
    Zcdp,
)
from tests.transforms.test_contract import LINES

BUDGET, ZCDP = Budget(2, 1e-4), Zcdp(2, 1e-4)
ITEMS = {str: [f"i{k}" for k in range(30)], int: list(range(30))}
QUANTILES = [0.1, 0.5]
Rows = list[tuple[Any, ...]]

# Transforms with another contract: what they take is no contributions, or their noise comes from no key.
ELSEWHERE = {"Contributions", "PropertiesOfShape", "ShuffledReports", "PanPrivateCounts"}


def table(rows: int = 8000) -> pa.Table:
    """600 users, items by their rank (as texts and as numbers), and numbers to take quantiles of."""
    random = np.random.default_rng(3)
    item = (random.pareto(1, rows) * 3).astype(int) % 100
    columns = {"user": [f"u{u}" for u in random.integers(0, 600, rows)], "item": [f"i{i}" for i in item]}
    at = pa.array(1_790_000_000 + item * 5_000, pa.timestamp("s"))
    return pa.table(columns | {"number": item, "value": random.normal(5, 3, rows), "at": at})


def batches(rows: pa.Table, column: str = "item") -> list[pa.RecordBatch]:
    """The contributions of a table for the pure function: one batch, or none."""
    made = contribution_batch(rows["user"].combine_chunks(), rows[column].combine_chunks())
    return [made] if rows.num_rows else []


def tuples(batch: pa.RecordBatch) -> Rows:
    return [tuple(row.values()) for row in batch.to_pylist()]


def mechanism(transform: beam.PTransform) -> Any:
    return getattr(transform, LINES[type(transform).__name__].mechanism)


# What a transform releases of a table, by the pure functions.


def run_of(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    return tuples(mechanism(transform).run(batches(rows, column), release, label))


def chosen(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    return [tuple(choose_bound(batches(rows, column), mechanism(transform).choice, release, label))]


def kept(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    bounded = bounded_batches(batches(rows, column), mechanism(transform), release, label)
    return [row for batch in bounded for row in tuples(batch)]


def of_leaves(transform: beam.PTransform, rows: pa.Table, release: Release, label: str) -> pa.RecordBatch:
    """What the mechanism makes of the parts of its grid that a table's values lie in."""
    leaves = pa.array(mechanism(transform).leaves.index(np.asarray(rows["value"])))
    return mechanism(transform).run(batches(rows.append_column("leaf", leaves), "leaf"), release, label)


def seen(found: pa.RecordBatch) -> Rows:
    """Without those of which nothing was seen, such as quantiles of no rows."""
    return [row for row in tuples(found) if not any(entry != entry for entry in row)]


def searched(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    return seen(of_leaves(transform, rows, release, label))


def read_off(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    tree = mechanism(transform).tree(of_leaves(transform, rows, release, label))
    return seen(tree.quantiles([check_share("q", q) for q in QUANTILES]))


def noisy(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    bounded = bounded_batches(batches(rows, column), mechanism(RandClip(3)), release, BEFORE)
    item_type = int if column == "number" else str
    return tuples(
        noisy_counts(bounded, mechanism(transform).plan, release, f"{label}/NoisyCounts", item_type=item_type)
    )


def aggregated(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    """With the values that rows carry."""
    made = mechanism(transform)
    values = value_columns(made.metrics.values, {"value": rows["value"].combine_chunks()})
    columns = (rows[name].combine_chunks() for name in ("user", column))
    return tuples(made.run([contribution_batch(*columns, values=values)] if rows.num_rows else [], release, label))


def of_people(transform: beam.PTransform, rows: pa.Table, column: str, release: Release, label: str) -> Rows:
    """With what the question needs of rows."""
    asked = transform._people._row_schema.of_schema(rows.schema)
    held = [asked.batch(batch, Place()) for batch in rows.to_batches()]
    return tuples(mechanism(transform).run(held, release, label))


BEFORE = "Before"  # the label of what bounds the rows of NoisyCounts
OF_VALUES = (searched, read_off, of_people)  # these take rows and their columns, not contributions
STEPS, DAYS = ["number < 20", "number > 2", "number > 5"], ("day", "2026-09-21", "2026-09-26")


class Line(NamedTuple):
    """How a transform is made of an item type and what goes to all (release, shards), and what it has to equal."""

    make: Callable[..., beam.PTransform]
    pure: Callable[[beam.PTransform, pa.Table, str, Release, str], Rows] = run_of
    typed: bool = True  # whether it is told the type of items
    decides: bool = False
    sampled: bool = False  # whether it reads a sample that has a name


TABLE = {
    "RandClip": Line(lambda **g: RandClip(3, **g), kept, typed=False),
    "ClipNorm": Line(lambda **g: ClipNorm(3, p=2, **g), kept, typed=False),
    "LimitItems": Line(lambda **g: LimitItems(3, **g), kept, typed=False),
    "LimitPerItem": Line(lambda **g: LimitPerItem(2, **g), kept, typed=False),
    "NoisyCounts": Line(lambda **g: NoisyCounts(BUDGET, Bound(l0=3, l1=3, linf=3), **g), noisy),
    "Histogram": Line(lambda **g: Histogram(BUDGET, of="events", **g), decides=True),
    "Histogram, named by five items of a user": Line(lambda **g: Histogram(BUDGET, max_items=5, **g), decides=True),
    "Histogram, named by one item of a user": Line(lambda **g: Histogram(BUDGET, max_items=1, **g), decides=True),
    "Histogram, estimates of a domain": Line(
        lambda **g: Histogram(BUDGET, of="events", domain=ITEMS[g["item_type"]], **g), decides=True
    ),
    "Histogram, one stage": Line(lambda **g: Histogram(BUDGET, of="events", method="one-stage", bound=5, **g)),
    "Histogram, bound chosen": Line(lambda **g: Histogram(BUDGET, of="events", method="one-stage", **g), decides=True),
    "Histogram, public domain": Line(
        lambda **g: Histogram(BUDGET, of="events", method="one-stage", domain=ITEMS[g["item_type"]], bound=5, **g)
    ),
    "Histogram, public domain, bound chosen": Line(
        lambda **g: Histogram(BUDGET, of="events", method="one-stage", domain=ITEMS[g["item_type"]], **g), decides=True
    ),
    "Aggregate": Line(
        lambda **g: Aggregate(BUDGET, ["users", "mean:value:0:10", "sum:value:0:10"], **g), aggregated, decides=True
    ),
    "Aggregate, ratios": Line(
        lambda **g: Aggregate(BUDGET, ["ratio:r=value:0:5/value:0:10"], **g), aggregated, decides=True
    ),
    "Aggregate, shares": Line(
        lambda **g: Aggregate(BUDGET, ["share:many=value>3", "share:some=value in (1, 2)"], **g),
        aggregated,
        decides=True,
    ),
    "Aggregate, domain": Line(
        lambda **g: Aggregate(
            BUDGET, ["events", "variance:value:-5:10", "quantile:0.5:value:0:10"], domain=ITEMS[g["item_type"]], **g
        ),
        aggregated,
        decides=True,
    ),
    "ChooseBound": Line(lambda **g: ChooseBound(Budget(0.1), BUDGET, **g), chosen, typed=False),
    "Total": Line(lambda **g: Total(BUDGET, bound=5, **g)),
    "Total, bound chosen": Line(lambda **g: Total(BUDGET, domain=ITEMS[g["item_type"]][:9], **g), decides=True),
    "Funnel": Line(lambda **g: Funnel(Budget(2), STEPS, time="at", within="30h", **g), of_people, typed=False),
    "Funnel, by named values": Line(
        lambda **g: Funnel(BUDGET, STEPS, time="at", by=column_of(g["item_type"]), **g), of_people
    ),
    "Actives": Line(lambda **g: Actives(BUDGET, *DAYS[1:], time="at", **g), of_people, typed=False),
    "Activity": Line(lambda **g: Activity(BUDGET, [1, 3, 9], noise="gaussian", **g), of_people, typed=False),
    "Activity, by a domain": Line(
        lambda **g: Activity(BUDGET, [1, 9], by=column_of(g["item_type"]), domain=ITEMS[g["item_type"]], **g), of_people
    ),
    "Retention": Line(lambda **g: Retention(BUDGET, *DAYS, time="at", noise="gaussian", **g), of_people, typed=False),
    "DebiasedCount": Line(lambda **g: DebiasedCount(BUDGET, ITEMS[g["item_type"]][:4], max_per_item=2, **g)),
    "SelectPartitions": Line(lambda **g: SelectPartitions(BUDGET, strategy="sips", max_items=3, **g)),
    "SelectPartitions, auto": Line(lambda **g: SelectPartitions(BUDGET, **g), decides=True),
    "PrivateCountRelease": Line(lambda **g: PrivateCountRelease(ZCDP, **g), decides=True),
    "TopItems": Line(lambda **g: TopItems(BUDGET, k=4, **g)),
    "TopItems, named first": Line(lambda **g: TopItems(BUDGET, k=14, **g), decides=True),
    "Plume": Line(lambda **g: Plume(ZCDP, max_items=5, **g)),
    "Plume, bound chosen": Line(lambda **g: Plume(ZCDP, selection="sips", **g), decides=True),
    "SampledHistogram": Line(lambda **g: SampledHistogram(BUDGET, max_items=1, **g), sampled=True),
    "SampledHistogram, items chosen": Line(lambda **g: SampledHistogram(BUDGET, **g), decides=True, sampled=True),
    "HeavyHitters": Line(lambda **g: HeavyHitters(BUDGET, phi=0.05, users=600, max_items=1, **g), sampled=True),
    "HeavyHitters, users counted": Line(lambda **g: HeavyHitters(BUDGET, phi=0.05, max_items=1, **g), sampled=True),
    "HeavyHitters, items chosen": Line(lambda **g: HeavyHitters(BUDGET, phi=0.05, **g), decides=True, sampled=True),
    "Quantile": Line(lambda **g: Quantile(BUDGET, q=0.3, lo=0, hi=10, rounds=4, **g), searched, typed=False),
    "Quantiles": Line(
        lambda **g: Quantiles(BUDGET, quantiles=QUANTILES, lo=-5, hi=15, levels=4, **g),
        read_off,
        typed=False,
        sampled=True,
    ),
    "AnonymizedHistogram": Line(lambda **g: AnonymizedHistogram(BUDGET, domain_size=200, **g), typed=False),
    "AnonymizedHistogram, hashed": Line(
        lambda **g: AnonymizedHistogram(BUDGET, buckets=4000, mode="l2", **g), typed=False
    ),
    "DistinctItems": Line(lambda **g: DistinctItems(BUDGET, **g), typed=False, decides=True),
    "DistinctItems, bound given": Line(lambda **g: DistinctItems(BUDGET, max_items=3, **g), typed=False, decides=True),
    "Entropy": Line(lambda **g: Entropy(BUDGET, **g), typed=False, decides=True),
    "Entropy, of the shape": Line(
        lambda **g: Entropy(BUDGET, mode="shape", domain_size=200, **g), typed=False, decides=True
    ),
    "SupportSize": Line(lambda **g: SupportSize(BUDGET, most=100, **g), typed=False, decides=True),
    "SupportCoverage": Line(lambda **g: SupportCoverage(BUDGET, target=4000, **g), typed=False, decides=True),
    "LearnDistribution": Line(lambda **g: LearnDistribution(BUDGET, ITEMS[g["item_type"]], samples_per_user=5, **g)),
    "LearnDistribution, samples chosen": Line(
        lambda **g: LearnDistribution(BUDGET, ITEMS[g["item_type"]], **g), decides=True
    ),
}


# What bounds users by weights within its one table, as a choice does: no bounded batches come before the noise.
WEIGHED = {"DistinctItems", "DistinctItems, bound given"}

# Further paths of the graph, which no line runs.
FURTHER = {
    "Buckets": lambda release: LearnDistribution(BUDGET, ITEMS[str], samples_per_user="buckets", release=release),
    "Answers": lambda release: AnonymizedHistogram(BUDGET, domain_size=10, release=release).with_answers(
        EntropyQuestion()
    ),
    "Ranges": lambda release: Quantiles(BUDGET, quantiles=[0.5], lo=0, hi=1, ranges=[(0, 0.5)], release=release),
}


def column_of(item_type: type) -> str:
    return "number" if item_type is int else "item"
