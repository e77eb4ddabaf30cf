"""Sample and threshold as transforms: equal to the pure functions, replay-stable, and what goes in and is refused."""

from __future__ import annotations

import datetime
import math
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.checks import check_share
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.axis import Axis
from headcount.mechanisms.sampled.quantiles import quantile_hierarchy, quantile_search
from headcount.transforms import Budget, Contributions, LimitItems
from headcount.transforms.core.rows import (
    QuantileTime,
    QuantileValue,
    RangeCount,
    RangeTimeCount,
    SampledCount,
    SampledIntCount,
)
from headcount.transforms.quantiles import Quantile, Quantiles
from headcount.transforms.sampled import HeavyHitters, SampledHistogram

pytestmark = pytest.mark.usefixtures("soon_planned")

BUDGET = Budget(2, 1e-4)
N = 20_000
QUANTILES = (0.1, 0.5, 0.9)
RANGES = [(-5.0, 3.25), (3.25, 8.0), (0.0, 100.0)]


def _table(rows: int = N) -> pa.Table:
    """Users with ten rows each, on items and with values; the same user has several values."""
    random = np.random.default_rng(3)
    users, items = random.integers(0, rows // 10, rows), (random.pareto(1, rows) * 3).astype(int) % 300
    values = random.normal(5, 3, rows)
    columns = {"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items], "number": items}
    return pa.table(columns | {"value": values, "whole": np.round(values * 10).astype(int)})


def _items(table: pa.Table, item: str = "item") -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), table[item].combine_chunks())


def _leaves(table: pa.Table, leaves, value: str = "value") -> pa.RecordBatch:
    return contribution_batch(table["user"].combine_chunks(), pa.array(leaves.index(np.asarray(table[value]))))


def _of_items(collect, table: pa.Table, transform: beam.PTransform, size: int = 6000, *options: str) -> list:
    item = "number" if transform.mechanism.item_type is int else "item"

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | beam.Create(table.to_batches(size)) | Contributions(item=item) | "Mine" >> transform

    return collect(build, *options)


def _of_values(collect, rows: list, transform: beam.PTransform, *options: str) -> list:
    return collect(lambda pipeline: pipeline | beam.Create(rows) | "Mine" >> transform, *options)


WAYS = {
    "one item": (
        lambda **g: SampledHistogram(BUDGET, **g),
        lambda **g: sampled_histogram(BUDGET, **g),
        {"max_items": 1},
    ),
    "three items, replaced": (
        lambda **g: SampledHistogram(BUDGET, **g),
        lambda **g: sampled_histogram(BUDGET, **g),
        {"max_items": 3, "relation": "replace", "objective": "w50"},
    ),
    "integers": (
        lambda **g: SampledHistogram(BUDGET, **g),
        lambda **g: sampled_histogram(BUDGET, **g),
        {"item_type": int, "max_items": 1},
    ),
    "heavy hitters": (
        lambda **g: HeavyHitters(BUDGET, 0.05, users=2000, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, users=2000, **g),
        {"max_items": 1},
    ),
    "heavy hitters, users counted": (
        lambda **g: HeavyHitters(BUDGET, 0.05, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, **g),
        {"users_share": 0.02, "max_items": 1},
    ),
    "items chosen": (lambda **g: SampledHistogram(BUDGET, **g), lambda **g: sampled_histogram(BUDGET, **g), {}),
    "items chosen, replaced": (
        lambda **g: HeavyHitters(BUDGET, 0.05, users=2000, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, users=2000, **g),
        {"relation": "replace"},
    ),
    "items chosen, users counted": (
        lambda **g: HeavyHitters(BUDGET, 0.05, **g),
        lambda **g: heavy_hitters(BUDGET, 0.05, **g),
        {"users_share": 0.02},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_items_equal_the_pure_function(collect, make_release, way):
    make, pure, given = WAYS[way]
    table, release = _table(), make_release()
    item = "number" if given.get("item_type") is int else "item"
    expected = pure(**given).run([_items(table, item)], release, "Mine").to_pylist()
    assert len(expected) > 3
    found = _of_items(collect, table, make(**given, release=release, shards=5, sample="Mine"))
    assert {type(row) for row in found} == {SampledIntCount if item == "number" else SampledCount}
    assert [row._asdict() for row in sorted(found)] == expected


def test_the_same_rows_for_any_order_batches_shards_and_repeats(collect, make_release):
    table, release = _table(), make_release()
    expected = sampled_histogram(BUDGET, max_items=2).run([_items(table)], release, "Mine").to_pylist()
    shuffled = table.take(np.random.default_rng(1).permutation(table.num_rows))
    for shards, size, options in ((1, N, ()), (7, 777, ("--direct_runner_bundle_repeat=2",))):
        transform = SampledHistogram(BUDGET, max_items=2, release=release, shards=shards, output_files=1, sample="Mine")
        ((_, counts),) = _of_items(collect, shuffled, transform, size, *options)
        assert counts.to_pylist() == expected
    forty = SampledHistogram(BUDGET, max_items=2, release=release, shards=3, output_files=40, sample="Mine")
    partitions = dict(_of_items(collect, table, forty))
    assert sorted(partitions) == list(range(40)) and min(counts.num_rows for counts in partitions.values()) == 0
    rows = [row for counts in partitions.values() for row in counts.to_pylist()]
    assert sorted(rows, key=lambda row: row["item"]) == expected


def test_steps_on_one_collection_read_one_sample_and_those_on_others_do_not(collect, make_release):
    """Whatever they are called and show; a second collection of the same rows has a sample of its own, or else equal results
    would tell that two collections are equal. Two samples agree on an item with probability 0.15 at most, and on half of more
    than 40 with one below 1e-6."""
    table, release = _table(), make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        events = pipeline | beam.Create(table.to_batches())
        rows, again = (events | name >> Contributions() for name in ("Rows", "Again"))
        given = {"release": release, "max_items": 5}
        shown = {
            "all": rows | "All" >> SampledHistogram(BUDGET, shards=3, **given),
            "phi": rows | "Phi" >> HeavyHitters(BUDGET, 0.02, users=2000, **given),
            "higher": rows | "Higher" >> HeavyHitters(BUDGET, 0.05, users=2000, **given),
            "again": again | "OfAgain" >> SampledHistogram(BUDGET, **given),
            "named": rows | "Named" >> SampledHistogram(BUDGET, sample="x", **given),
            "named again": again | "NamedAgain" >> SampledHistogram(BUDGET, sample="x", **given),
        }
        tagged = [each | f"Tag{name}" >> beam.Map(lambda row, n=name: (n, row)) for name, each in shown.items()]
        return tuple(tagged) | beam.Flatten()

    found: dict[str, dict[str, int]] = {}
    for name, row in collect(build):
        found.setdefault(name, {})[row.item] = row.sampled
    base = found["all"]
    assert 5 < len(found["higher"]) < len(found["phi"]) < len(base) and len(base) > 40
    assert found["phi"].items() <= base.items() and found["higher"].items() <= found["phi"].items()
    for name in ("again", "named"):
        other = found[name]
        assert sum(base[item] == other.get(item) for item in base) < len(base) / 2, name
    assert found["named again"] == found["named"]


def test_a_choice_is_the_same_for_any_shards_and_repeats_and_is_given_beside(collect, make_release):
    """Two steps on one collection, the one with repeated bundles: one choice, and one sample."""
    table, release = _table(), make_release()
    expected = sampled_histogram(BUDGET).run([_items(table)], release, "Mine").to_pylist()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(table.to_batches(1777)) | Contributions()
        given = {"release": release, "sample": "Mine"}
        both = rows | "Mine" >> SampledHistogram(BUDGET, shards=7, **given).with_decision()
        hitters = rows | "Other" >> HeavyHitters(BUDGET, 0.01, users=2000, shards=2, **given)
        tagged = {"all": both.counts, "decision": both.decision, "hitters": hitters}
        return (
            tuple(each | f"Tag{name}" >> beam.Map(lambda row, n=name: (n, row)) for name, each in tagged.items())
            | beam.Flatten()
        )

    found: dict[str, list] = {}
    for name, row in collect(build, "--direct_runner_bundle_repeat=1"):
        found.setdefault(name, []).append(row)
    assert [row._asdict() for row in sorted(found["all"])] == expected
    (decided,) = found["decision"]
    assert decided.sample.max_items == 10 and decided.guarantee.epsilon == 2  # users have 8 items on average
    sampled = {row.item: row.sampled for row in found["all"]}
    assert 5 < len(found["hitters"]) and all(sampled[row.item] == row.sampled for row in found["hitters"])


def test_nothing_comes_of_nothing(collect, make_release):
    empty = _table(10).slice(0, 0)
    found = sorted(_of_items(collect, empty, SampledHistogram(BUDGET, output_files=2)), key=lambda element: element[0])
    assert [(k, rows.num_rows) for k, rows in found] == [(0, 0), (1, 0)]
    for rows in ([], [("u", 0.5)]):
        for make in (Quantile(BUDGET, 0.5, 0, 1, output_files=2), Quantiles(BUDGET, [0.5], 0, 1, output_files=2)):
            found = sorted(_of_values(collect, rows, make), key=lambda element: element[0])
            assert [(k, rows.num_rows) for k, rows in found] == [(0, 0), (1, 0)]


def test_a_search_equals_the_pure_function(collect, make_release):
    table, release = _table(), make_release()
    plan = quantile_search(BUDGET, 0.3, 0, 10, rounds=8)
    expected = plan.run([_leaves(table, plan.leaves)], release, "Mine").to_pylist()
    assert not math.isnan(expected[0]["value"])
    shuffled = table.take(np.random.default_rng(1).permutation(N))
    for rows, shards, options in (
        (table.to_batches(6000), 5, ()),
        (shuffled.to_batches(777), 1, ("--direct_runner_bundle_repeat=2",)),
    ):
        transform = Quantile(BUDGET, 0.3, 0, 10, rounds=8, release=release, shards=shards)
        (row,) = _of_values(collect, rows, transform, *options)
        assert isinstance(row, QuantileValue) and [row._asdict()] == expected


def test_quantiles_and_ranges_equal_the_pure_function(collect, make_release):
    table, release = _table(), make_release()
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
    partitions = dict(_of_values(collect, table.to_batches(), only))
    assert partitions[0].to_pylist() == ranges and partitions[1].num_rows == 0


def test_rows_of_every_kind_give_the_same(collect, make_release):
    """Also contributions, and leaves that the caller has made."""
    table, release = _table(4000), make_release()
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
        assert [row._asdict() for row in _of_values(collect, elements, make())] == expected, kind

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
    (row,) = _of_values(collect, [times], Quantile(BUDGET, 0.5, *ends, release=release))
    assert abs(datetime.datetime.fromisoformat(row.value) - datetime.datetime(2024, 7, 1)).days <= 4


def test_values_outside_count_as_the_ends_and_each_user_once(collect, make_release):
    """3000 users with one value far outside lo .. hi each, three times over: three quarters are at the lower end."""
    rows = [(f"u{k}", math.inf if k % 4 == 0 else -1e300) for k in range(3000)] * 3
    transform = Quantiles(BUDGET, (), 0, 1, ranges=[(-5, 0.5), (0.5, 9)], levels=3, release=make_release())
    low, high = _of_values(collect, rows, transform)
    assert abs(low.count - 2250) < 6 * low.noise_stddev and abs(high.count - 750) < 6 * high.noise_stddev


def test_rows_count_by_their_number_in_every_form(collect, make_release):
    """1,500 users with 30 rows of 2 and one of 8: as rows, with a count, and as contributions. By leaves it were 750 users at
    8, where 48 of stddev 7 are drawn, and then sampled."""
    rows = [(f"u{k}", 2, 30) for k in range(1500)] + [(f"u{k}", 8, 1) for k in range(1500)]
    user, value, count = zip(*rows, strict=True)
    make = lambda **more: Quantiles(  # noqa: E731
        BUDGET, (), 0, 10, ranges=[(0, 5), (5, 10)], levels=3, release=make_release(), sample="Mine", **more
    )
    table = pa.table({"user": user, "value": value, "times": count})
    expected = _of_values(collect, [table], make(count="times"))
    assert abs(expected[1].count - 48) < 6 * math.hypot(7, expected[1].noise_stddev or 30)
    assert _of_values(collect, rows, make()) == expected
    assert _of_values(collect, [(u, v) for u, v, c in rows for _ in range(c)], make()) == expected
    held = [contribution_batch(pa.array(user), pa.array(value), pa.array(count))]
    assert _of_values(collect, held, make(value="item")) == expected


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("u", 0.5), ("v", math.nan)], r"column 'value': is not a number \(NaN\)"),
        ([(None, 0.5)], "column 'user': is null"),
        ([{"user": "u", "what": 1}], "has not the fields 'user', 'value'"),
        ([pa.table({"user": ["u"], "age": [1]})], "column 'value': is missing; the columns are 'user', 'age'"),
    ],
)
def test_wrong_rows_are_refused(collect, rows, said):
    with pytest.raises(Exception, match=said):
        _of_values(collect, rows, Quantile(BUDGET, 0.5, 0, 1))


def test_null_and_unclear_values_can_be_dropped(collect, make_release):
    rows = [(f"u{k}", 0.75) for k in range(3000)]
    odd = [("x", math.nan), ("y", None), (None, 0.1)] * 500
    make = lambda: Quantile(BUDGET, 0.5, 0, 1, release=make_release(), drop_null=True)  # noqa: E731
    assert _of_values(collect, rows + odd, make()) == _of_values(collect, rows, make())


def test_a_collection_that_was_bounded_before_is_taken(collect, make_release):
    release = make_release()

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create([(f"u{k}", f"i{k % 3}") for k in range(3000)] * 2)
        return rows | LimitItems(3, release=release) | SampledHistogram(BUDGET, max_items=1, release=release)

    found = collect(build)
    assert sorted(row.item for row in found) == ["i0", "i1", "i2"]
    for row in found:  # repeated rows count once
        assert abs(row.count - 1000) < 6 * row.noise_stddev


def test_guarantees_and_what_is_refused():
    transform = Quantiles(BUDGET, [0.5], 0, 1, levels=5, relation="replace")
    assert (
        transform.guarantee()
        == quantile_hierarchy(BUDGET, 0, 1, levels=5, relation=transform.mechanism.plan.relation).guarantee()
    )
    assert "levels of a user, each with its own coin 5" in transform.guarantee().words()
    assert (
        SampledHistogram(BUDGET, max_items=3).guarantee().epsilon == SampledHistogram(BUDGET).guarantee().epsilon == 2
    )
    assert HeavyHitters(BUDGET, Fraction(1, 10), users=10**6, max_items=1).mechanism.least > 10**4
    date = datetime.date(2024, 1, 1)
    for make, said in (
        (lambda: SampledHistogram(BUDGET, output_files=0), "output_files must be an integer from 1 to 10000, got 0"),
        (lambda: SampledHistogram(BUDGET, shards=0), "shards must be"),
        (lambda: SampledHistogram(BUDGET, max_items="all"), "max_items must be"),
        (lambda: SampledHistogram(BUDGET, max_items=2).with_decision(), "the number of items per user is given"),
        (lambda: SampledHistogram(BUDGET, sample=""), "sample must be a name, as a text that is not empty, got ''"),
        (lambda: SampledHistogram(Budget(1)), "needs a delta"),
        (lambda: Quantile(BUDGET, 0.5, 0, date), "lo and hi must both be numbers, dates or times"),
        (lambda: Quantile(BUDGET, 0.5, "0", 1), "lo must be a number, a date or a time, got '0'"),
        (lambda: Quantiles(BUDGET, [], 0, 1), "give at least one quantile or one range"),
        (lambda: Quantiles(BUDGET, [1.5], 0, 1), "a quantile must be a number between 0 and 1, got 1.5"),
        (lambda: Quantiles(BUDGET, [], 0, 1, ranges=[(0.5, 0.5)]), r"must begin below its end, got \(0.5, 0.5\)"),
        (lambda: Quantiles(BUDGET, [], 0, 9, ranges=[(9, 10)]), r"must overlap with lo .. hi, .* got \(9, 10\)"),
        (
            lambda: Quantiles(BUDGET, [], 0, 9, ranges=[(0.1, 0.2)], levels=4),
            r"smaller than one of the 16 parts .* got \(0.1, 0.2\)",
        ),
        (lambda: Quantiles(BUDGET, [], 0, 1, ranges=[(date, 1)]), "a range must be a number, as lo and hi are"),
        (lambda: Quantiles(BUDGET, [], date, date, ranges=[(0, 1)]), "a range must be a date, as lo and hi are, got 0"),
    ):
        with pytest.raises(ParameterError, match=said):
            make()
    assert Axis.of(0, 1.5).kind == "number"
    with pytest.raises(ParameterError, match="--key-env or --key-file"):
        from apache_beam.options.pipeline_options import PipelineOptions

        remote = beam.Pipeline(options=PipelineOptions(["--runner=FlinkRunner"]))
        remote | beam.Create([("u", "i")]) | SampledHistogram(BUDGET)


@pytest.mark.parametrize("mutation", ["bounded by nothing", "bounded by more"])
def test_a_wrong_bound_is_refused(collect, make_release, monkeypatch, mutation):
    """The check of what bounds the batches sees steps that do not keep each user to one of one item."""
    from headcount.mechanisms.bounding.steps import LimitItemsStep, LimitPerItemStep
    from headcount.mechanisms.sampled import histogram as module

    steps = (LimitItemsStep(1),) if mutation == "bounded by nothing" else (LimitItemsStep(1), LimitPerItemStep(2))
    transform = SampledHistogram(BUDGET, max_items=1, release=make_release())
    bound = transform.mechanism.bound
    monkeypatch.setattr(module.SampledHistogramMechanism, "steps", steps)
    monkeypatch.setattr(module.SampledHistogramMechanism, "bound", bound)
    with pytest.raises(Exception, match="calibrated for contributions bounded by"):
        _of_items(collect, _table(100), transform)
