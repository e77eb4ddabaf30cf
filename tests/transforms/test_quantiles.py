"""Quantiles and ranges as transforms: equal to the pure functions, whatever the rows are, and what is refused."""

from __future__ import annotations

import datetime
import math

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy, quantile_search
from headcount.transforms import Contributions
from headcount.transforms.core.rows import (
    QuantileTime,
    QuantileValue,
    RangeCount,
    RangeTimeCount,
)
from headcount.transforms.sampled.quantiles import Quantile, Quantiles
from tests.transforms.sampled_rows import BUDGET, N, of_values, rows_table

pytestmark = pytest.mark.usefixtures("soon_planned")

QUANTILES = (0.1, 0.5, 0.9)
RANGES = [(-5.0, 3.25), (3.25, 8.0), (0.0, 100.0)]


def _leaves(table: pa.Table, leaves, value: str = "value") -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), pa.array(leaves.index(np.asarray(table[value]))))


def test_a_search_equals_the_pure_function(collect, make_release):
    table, release = rows_table(), make_release()
    plan = quantile_search(BUDGET, 0.3, 0, 10, rounds=8)
    expected = plan.run([_leaves(table, plan.leaves)], release, "Mine").to_pylist()
    assert not math.isnan(expected[0]["value"])
    shuffled = table.take(np.random.default_rng(1).permutation(N))
    for rows, shards, options in (
        (table.to_batches(6000), 5, ()),
        (shuffled.to_batches(777), 1, ("--direct_runner_bundle_repeat=2",)),
    ):
        transform = Quantile(BUDGET, 0.3, 0, 10, rounds=8, release=release, shards=shards)
        (row,) = of_values(collect, rows, transform, *options)
        assert isinstance(row, QuantileValue) and [row._asdict()] == expected


def test_quantiles_and_ranges_equal_the_pure_function(collect, make_release):
    table, release = rows_table(), make_release()
    plan = quantile_hierarchy(BUDGET, -5, 15, levels=6, branching=3)
    tree = plan.tree(plan.run([_leaves(table, plan.leaves)], release, "Mine"))
    quantiles = tree.quantiles([check_share("q", q) for q in QUANTILES]).to_pylist()
    ranges = tree.range_counts(RANGES).to_pylist()
    given = {"levels": 6, "branching": 3, "release": release, "sample": "Mine"}
    shuffled = table.take(np.random.default_rng(1).permutation(N))

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(shuffled.to_batches(1777))
        both = rows | "Mine" >> Quantiles(BUDGET, QUANTILES, -5, 15, ranges=RANGES, shards=5, **given)
        return (both.quantiles, both.ranges) | beam.Flatten()

    found = collect(build, "--direct_runner_bundle_repeat=1")
    assert [row._asdict() for row in found if isinstance(row, QuantileValue)] == quantiles
    assert [row._asdict() for row in found if isinstance(row, RangeCount)] == ranges
    only = Quantiles(BUDGET, (), -5, 15, ranges=RANGES, output_files=2, shards=1, **given)
    partitions = dict(of_values(collect, table.to_batches(), only))
    assert partitions[0].to_pylist() == ranges and partitions[1].num_rows == 0


@pytest.mark.slow("cuts")
def test_rows_of_every_kind_give_the_same(collect, make_release):
    """Also contributions, and leaves that the caller has made."""
    table, release = rows_table(4000), make_release()
    whole = pa.table({"user": table["user"], "value": table["whole"]})
    rows = whole.to_pylist()
    make = lambda: Quantiles(BUDGET, QUANTILES, -50, 150, levels=3, release=release, sample="Mine")  # noqa: E731
    plan = make().mechanism
    tree = plan.tree(plan.run([_leaves(whole, plan.leaves)], release, "Mine"))
    expected = tree.quantiles([check_share("q", q) for q in QUANTILES]).to_pylist()
    kinds = {
        "tuples of floats": [(row["user"], float(row["value"])) for row in rows],
        "dicts": rows,
        "rows": [beam.Row(**row) for row in rows],
        "frames": [whole.to_pandas()],
    }
    for kind, elements in kinds.items():
        assert [row._asdict() for row in of_values(collect, elements, make())] == expected, kind

    def contributed(pipeline: beam.Pipeline) -> beam.PCollection:
        named = pipeline | beam.Create([whole.rename_columns(["who", "age"])]) | Contributions("who", "age")
        return named | "Mine" >> make()

    assert [row._asdict() for row in collect(contributed)] == expected
    leaves = _leaves(whole, make().mechanism.leaves)
    found = collect(lambda p: p | beam.Create([leaves]) | Contributions() | "Mine" >> make().of_leaves())
    assert [row._asdict() for row in found] == expected


def test_dates_and_times(collect, make_release):
    """A date is the first moment of its day; what comes out is text of the same kind as lo and hi."""
    random, release = np.random.default_rng(0), make_release()
    start = datetime.date(2024, 1, 1)
    days = random.integers(0, 366, 30_000)
    dates = [start + datetime.timedelta(int(day)) for day in days]
    rows = pa.table({"user": np.arange(30_000), "day": pa.array(dates, pa.date32())})
    lo, hi = start, datetime.date(2024, 12, 31)
    first = (datetime.date(2024, 3, 1), datetime.date(2024, 4, 1))

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        made = Quantiles(BUDGET, [0.5], lo, hi, ranges=[first], value="day", release=release)
        both = pipeline | beam.Create([rows]) | "Mine" >> made
        return (both.quantiles, both.ranges) | beam.Flatten()

    found = collect(build)
    (median,) = (row for row in found if isinstance(row, QuantileTime))
    (march,) = (row for row in found if isinstance(row, RangeTimeCount))
    assert abs(datetime.date.fromisoformat(median.value) - datetime.date(2024, 7, 1)).days <= 4
    assert (march.low, march.high) == ("2024-03-01", "2024-04-01")
    true = sum(first[0] <= date < first[1] for date in dates)
    assert abs(march.count - true) < 5 * march.noise_stddev  # a part is a third of a day: no day is on the wrong side
    times = pa.table({"user": rows["user"], "value": rows["day"].cast(pa.timestamp("ns", "UTC"))})
    ends = [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 12, 31, tzinfo=datetime.UTC)]
    (row,) = of_values(collect, [times], Quantile(BUDGET, 0.5, *ends, release=release))
    assert abs(datetime.datetime.fromisoformat(row.value) - datetime.datetime(2024, 7, 1)).days <= 4


def test_values_outside_count_as_the_ends_and_each_user_once(collect, make_release):
    """3000 users with one value far outside lo .. hi each, three times over: three quarters are at the lower end."""
    rows = [(f"u{k}", math.inf if k % 4 == 0 else -1e300) for k in range(3000)] * 3
    transform = Quantiles(BUDGET, (), 0, 1, ranges=[(-5, 0.5), (0.5, 9)], levels=3, release=make_release())
    low, high = of_values(collect, rows, transform)
    assert abs(low.count - 2250) < 6 * low.noise_stddev and abs(high.count - 750) < 6 * high.noise_stddev


@pytest.mark.slow("cuts")
def test_rows_count_by_their_number_in_every_form(collect, make_release):
    """1,500 users with 30 rows of 2 and one of 8: as rows, with a count, and as contributions. By leaves it were 750 users at
    8, where 48 of stddev 7 are drawn, and then sampled."""
    rows = [(f"u{k}", 2, 30) for k in range(1500)] + [(f"u{k}", 8, 1) for k in range(1500)]
    user, value, count = zip(*rows, strict=True)
    make = lambda **more: Quantiles(  # noqa: E731
        BUDGET,
        (),
        0,
        10,
        ranges=[(0, 5), (5, 10)],
        levels=3,
        release=make_release().of_rows("any"),
        sample="Mine",
        **more,
    )
    table = pa.table({"user": user, "value": value, "times": count})
    expected = of_values(collect, [table], make(count="times"))
    assert abs(expected[1].count - 48) < 6 * math.hypot(7, expected[1].noise_stddev or 30)
    assert of_values(collect, rows, make()) == expected
    assert of_values(collect, [(u, v) for u, v, c in rows for _ in range(c)], make()) == expected
    held = [contribution_batch(pa.array(user), pa.array(value), pa.array(count))]
    assert of_values(collect, held, make(value="item")) == expected


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("u", 0.5), ("v", math.nan)], "column 'value': is null"),
        ([(None, 0.5)], "column 'user': is null"),
        ([{"user": "u", "what": 1}], "lacks one of the fields 'user', 'value'"),
        ([pa.table({"user": ["u"], "age": [1]})], "column 'value': is missing; of those asked for there are 'user'"),
    ],
)
def test_wrong_rows_are_refused(collect, rows, said):
    with pytest.raises(Exception, match=said):
        of_values(collect, rows, Quantile(BUDGET, 0.5, 0, 1))


def test_null_and_unclear_values_can_be_dropped(collect, make_release):
    rows = [(f"u{k}", 0.75) for k in range(3000)]
    odd = [("x", math.nan), ("y", None), (None, 0.1)] * 500
    make = lambda: Quantile(BUDGET, 0.5, 0, 1, release=make_release(), drop_null=True)  # noqa: E731
    assert of_values(collect, rows + odd, make()) == of_values(collect, rows, make())
