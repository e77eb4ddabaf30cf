"""The sampled histogram as a value: what it releases, what it promises, and what its sample depends on."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.counting.evidence import Origin
from headcount.mechanisms.counting.noisy import bounded_batches
from headcount.mechanisms.counting.sums import sum_items
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.sampled.estimates import with_estimates
from headcount.mechanisms.sampled.histogram import SampledHistogramMechanism
from headcount.mechanisms.sampled.plan import SamplePlan

BUDGET = Budget(1, 1e-6)


def crowd(sizes, prefix="i"):
    """A batch in which item k has sizes[k] users, each of them with that item twice."""
    items = [f"{prefix}{k}" for k, size in enumerate(sizes) for _ in range(size)] * 2
    users = [f"u{k}" for k in range(sum(sizes))] * 2
    return contribution_batch(pa.array(users), pa.array(items))


def found(rows):
    return dict(zip(rows.column("item").to_pylist(), rows.column("sampled").to_pylist(), strict=True))


SIZES = [500] * 40


def test_rows_are_estimates_of_distinct_users_with_their_standard_deviation(make_release):
    histogram = sampled_histogram(BUDGET, max_items=1)
    rows = histogram.run([crowd([10_000, 2000, 3])], make_release())
    assert rows.schema.names == ["item", "count", "noise_stddev", "low", "high", "sampled"]
    assert rows.column("item").to_pylist() == ["i0", "i1"]
    wanted = with_estimates(rows.select(["item", "sampled"]), histogram.plan.rate, histogram.plan.threshold)
    assert rows.equals(wanted)
    count, stddev = np.asarray(rows.column("count")), np.asarray(rows.column("noise_stddev"))
    assert (np.abs(count - [10_000, 2000]) < 6 * stddev).all()


def test_any_order_and_batching_gives_the_same_rows(make_release):
    histogram, batch = sampled_histogram(BUDGET, max_items=1), crowd(SIZES)
    whole = histogram.run([batch], make_release())
    shuffled = batch.take(pa.array(np.random.default_rng(0).permutation(batch.num_rows)))
    parts = [shuffled.slice(start, 7001) for start in range(0, shuffled.num_rows, 7001)]
    assert histogram.run(parts, make_release()).equals(whole)


def test_the_sample_depends_on_what_defines_it_and_the_whole_input(make_release):
    """40 items of 500 users: two independent samples agree on more than 15 of them with probability below 1e-9."""
    histogram, batch = sampled_histogram(BUDGET, max_items=1), crowd(SIZES)
    base = found(histogram.run([batch], make_release(), "A"))
    rate = dataclasses.replace(histogram.plan, rate=histogram.plan.rate - Fraction(1, 2**32))
    threshold = dataclasses.replace(histogram.plan, threshold=histogram.plan.threshold - 1)
    two = dataclasses.replace(histogram, plan=dataclasses.replace(histogram.plan, compositions=2), max_items=2)
    others = {
        "key": histogram.run([batch], make_release(key=8), "A"),
        "id": histogram.run([batch], make_release("other"), "A"),
        "sample": histogram.run([batch], make_release(), "B"),
        "rate": dataclasses.replace(histogram, plan=rate).run([batch], make_release(), "A"),
        "threshold": dataclasses.replace(histogram, plan=threshold).run([batch], make_release(), "A"),
        "items per user": two.run([batch], make_release(), "A"),
        "input": histogram.run([crowd([*SIZES, 1])], make_release(), "A"),
    }
    assert found(histogram.run([batch], make_release(), "A")) == base
    for name, rows in others.items():
        other = found(rows)
        assert sum(base[item] == other[item] for item in base) < 16, name


def test_what_is_shown_and_promised_is_no_part_of_the_sample(make_release):
    """Heavy hitters at any share and of any number of users, other names, and another promise that has the same rate and
    threshold: all show the same sampled users, also where users choose one of their items."""
    items = [f"i{k % 7}" for k in range(4000)]
    batch = contribution_batch(pa.array([f"u{k // 2}" for k in range(4000)]), pa.array(items))
    histogram = sampled_histogram(BUDGET, max_items=1)
    base = found(histogram.run([batch], make_release()))
    assert len(base) == 7
    for phi, users in ((0.13, 2000), (0.14, 2000), (0.0001, 17)):
        hitters = heavy_hitters(BUDGET, phi, users=users, max_items=1)
        shown = found(hitters.run([batch], make_release()))
        assert shown == {item: sampled for item, sampled in base.items() if sampled >= hitters.least}
    assert {
        len(found(heavy_hitters(BUDGET, phi, users=2000, max_items=1).run([batch], make_release())))
        for phi in (0.01, 0.5)
    } == {
        0,
        7,
    }
    plan = dataclasses.replace(histogram.plan, epsilon=2, delta=1e-5, relation=Relation.REPLACE, compositions=3)
    other = SampledHistogramMechanism("Other", plan, 1, plan.threshold, str)
    assert found(other.run([batch], make_release())) == base


def test_a_user_counts_with_few_items_and_once_each(make_release):
    """At a rate near one and a threshold of one, what is shown is what was kept."""
    plan = SamplePlan(Fraction(2**32 - 1, 2**32), 1, 1.0, 1e-6, Relation.ADD_REMOVE, 3)
    batch = contribution_batch(pa.array(np.repeat(np.arange(200), 40)), pa.array(np.tile(np.arange(20), 400)))
    for items in (1, 3):
        rows = SampledHistogramMechanism("S", plan, items, 1, int).run([batch], make_release())
        assert sum(found(rows).values()) == 200 * items


def test_nothing_in_gives_nothing_out(make_release):
    for item_type, kind in ((str, pa.string()), (int, pa.int64())):
        rows = sampled_histogram(BUDGET, item_type=item_type, max_items=1).run([], make_release())
        assert rows.num_rows == 0 and rows.schema.field("item").type == kind
        assert rows.schema.names == ["item", "count", "noise_stddev", "low", "high", "sampled"]


def test_what_was_bounded_otherwise_is_refused(make_release):
    release, histogram = make_release(), sampled_histogram(BUDGET, max_items=1)
    bounded = [bounded_batches([crowd([50])], histogram.steps, release, label)[0] for label in ("One", "Two")]
    chunks = [chunk for batch in bounded for _, chunk in sum_items(batch, 1)]
    with pytest.raises(InputError, match="may count twice"):
        histogram.sampled_counts(chunks, map(Origin.of, bounded), bytes(32))
    wider = SampledHistogramMechanism("S", dataclasses.replace(histogram.plan, compositions=2), 2, histogram.least, str)
    (twice,) = bounded_batches([crowd([50])], wider.steps, release, "Three")
    with pytest.raises(InputError, match="calibrated for"):
        histogram.sampled_counts(chunks[:1], [Origin.of(twice)], bytes(32))


def test_guarantee_says_rate_threshold_and_what_is_found():
    histogram = sampled_histogram(Budget(1, 1e-8), max_items=1)
    words, told = histogram.guarantee().description(), json.dumps(histogram.guarantee().as_dict())
    assert "(epsilon = 1, delta = 1e-08)" in words and "rate 0.28824267, threshold 23" in words
    assert "with 0.95 from 104" in words and '"threshold": 23' in told


def test_heavy_hitters_are_a_higher_threshold_on_public_users(make_release):
    """phi p n of 0.01 x 0.35 x 100,000, rounded up; items far above and far below are told apart."""
    hitters = heavy_hitters(BUDGET, 0.01, users=100_000, max_items=1)
    assert (
        hitters.least == -(-hitters.plan.rate * 1000 // 1)
        and hitters.plan == sampled_histogram(BUDGET, max_items=1).plan
    )
    assert "at least" in hitters.guarantee().description()
    assert set(found(hitters.run([crowd([2000, 1500, 500, 100])], make_release()))) == {"i0", "i1"}
    assert heavy_hitters(BUDGET, 0.01, users=100, max_items=1).least == hitters.plan.threshold


@pytest.mark.parametrize(
    "call",
    [
        lambda: heavy_hitters(BUDGET, 0, users=100, max_items=1),
        lambda: heavy_hitters(BUDGET, 1.5, users=100, max_items=1),
        lambda: heavy_hitters(BUDGET, 0.1, users=0, max_items=1),
        lambda: heavy_hitters(BUDGET, 0.1, users=2.5, max_items=1),
        lambda: sampled_histogram(BUDGET, max_items=0),
        lambda: sampled_histogram(BUDGET, item_type=float, max_items=1),
        lambda: dataclasses.replace(sampled_histogram(BUDGET, max_items=1), least=1),
        lambda: dataclasses.replace(sampled_histogram(BUDGET, max_items=1), max_items=2),
    ],
)
def test_wrong_parameters_are_named(call):
    with pytest.raises(ParameterError):
        call()
