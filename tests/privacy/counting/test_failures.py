"""No count makes a job fail, or makes its result depend on the shards: that would tell of other users than who wrote it.

The attack: sums of all counts of a shard were checked against 2**63 - 1, so that two planted rows of 2**62 and 2**62 - 1 - T
made the job fail if and only if the others had more than T events. One victim's ordinary row then decided whether
anything is published. Here every mechanism that reads counts runs beside the two planted rows, with the victim and without. It
must give what it gives if they count 10^9 each, the public ceiling.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.packing import concat
from headcount.mechanisms.batches.shards import MOST_COUNT, gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice.by_name.methods import METHODS, choose_public_domain, choose_unknown_domain
from headcount.mechanisms.bounding.steps import (
    ClipNormStep,
    LimitItemsStep,
    LimitPerItemStep,
    RandClipStep,
    bound_shard,
    step_subkeys,
)
from headcount.mechanisms.choice.run import add_tables, choose_bound, encode_table
from headcount.mechanisms.count_release.papers.plume import plume
from headcount.mechanisms.count_release.release import count_release
from headcount.mechanisms.count_release.top_names import top_items
from headcount.mechanisms.counting.evidence import check_bounded
from headcount.mechanisms.distribution.learn import learn_distribution
from headcount.mechanisms.distribution.tables import ExactSamplesStep
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.histogram.auto import auto_bounded_histogram, auto_unbounded_histogram
from headcount.mechanisms.histogram.factory import estimates, histogram
from headcount.mechanisms.histogram.fixed import bounded_histogram, unbounded_histogram
from headcount.mechanisms.histogram.papers.debiased import debiased_count
from headcount.mechanisms.partitions.auto import auto_partitions
from headcount.mechanisms.partitions.select import select_partitions
from headcount.mechanisms.sampled.auto import heavy_hitters, sampled_histogram
from headcount.mechanisms.shape.anonymized import anonymized_histogram
from headcount.mechanisms.shape.hashed import hashed_histogram
from headcount.pipelines.main import main
from headcount.transforms import Histogram

BUDGET = Budget(2, 1e-3)
DOMAIN = [f"i{number}" for number in range(8)]
VICTIM = ("victim", "i1", 1)

# What both a planted row of 2**62 and one of nearly as much count.
CUT = [("planted 1", "i0", MOST_COUNT), ("planted 2", "i0", MOST_COUNT)]


def everybody_else() -> list[tuple[str, str, int]]:
    generator = np.random.default_rng(1)
    pairs = {
        (int(u), int(i))
        for u, i in zip(generator.integers(0, 120, 500), generator.geometric(0.4, 500) % 8, strict=True)
    }
    rows = [(f"u{user}", f"i{item}", 1 + (user + item) % 4) for user, item in sorted(pairs)]
    return rows + rows[:5]  # so that there are equal pairs to be added up


def planted() -> list[tuple[str, str, int]]:
    """Two rows that with T further events, and no more, add up to 2**63 - 1."""
    events = sum(count for *_, count in everybody_else())
    return [("planted 1", "i0", 2**62), ("planted 2", "i0", 2**62 - 1 - events)]


def batch_of(rows: list[tuple[str, str, int]]) -> pa.RecordBatch:
    user, item, count = (list(column) for column in zip(*rows, strict=True))
    return contribution_batch(pa.array(user), pa.array(item), pa.array(count, pa.int64()))


def raw_batch_of(rows: list[tuple[str, str, int]]) -> pa.RecordBatch:
    """The same without `contribution_batch`: what reaches a shard in other ways is cut there."""
    user, item, count = (list(column) for column in zip(*rows, strict=True))
    return pa.RecordBatch.from_pydict({"user": user, "item": item, "count": pa.array(count, pa.int64())})


def unknown(method: str = "auto", objective: str = "error") -> object:
    return choose_unknown_domain(Budget(1), Budget(1, 1e-3), Relation.ADD_REMOVE, method, objective)


def public(method: str, noise: str) -> object:
    budget = Budget(1, 1e-6) if method == "dp-gd" else Budget(1)
    return choose_public_domain(budget, Budget(1, 1e-3), Relation.ADD_REMOVE, len(DOMAIN), noise, method)


# Made by the test of each: all of them take seconds.
CHOICES: dict[str, Callable[[], Any]] = {
    "kept": lambda: estimates(BUDGET, of="events").stages.clip_choice,
    "kept, domain": lambda: estimates(Budget(2), of="events", domain=DOMAIN).stages.clip_choice,
    "names": lambda: estimates(BUDGET, of="events").stages.names_choice,
    "joint, error": lambda: unknown(),
    "joint, items": lambda: unknown(objective="items"),
    "gem": lambda: unknown("gem"),
    "em": lambda: unknown("em"),
    "quantile-gem": lambda: public("quantile-gem", "laplace"),
    "quantile-rank": lambda: public("quantile-rank", "laplace"),
    **{
        f"tail, {name}": functools.partial(public, name, "gaussian")
        for name in METHODS
        if name not in ("joint", "auto") and "quantile-" not in name
    },
}

MECHANISMS: dict[str, Callable[[], Any]] = {
    "histogram": lambda: unbounded_histogram(BUDGET, bound=3, noise="laplace"),
    "histogram, Gaussian": lambda: unbounded_histogram(BUDGET, bound=5, max_per_item=2, noise="gaussian"),
    "histogram, auto": lambda: auto_unbounded_histogram(BUDGET),
    "histogram, items": lambda: auto_unbounded_histogram(BUDGET, objective="items"),
    "histogram, gem": lambda: auto_unbounded_histogram(BUDGET, method="gem"),
    "histogram, domain": lambda: bounded_histogram(BUDGET, DOMAIN, bound=3),
    "histogram, domain, large bound": lambda: bounded_histogram(BUDGET, DOMAIN, bound=10**9),
    "histogram, domain, Gaussian": lambda: bounded_histogram(BUDGET, DOMAIN, bound=3, noise="gaussian"),
    "histogram, domain, auto": lambda: auto_bounded_histogram(BUDGET, DOMAIN),
    "histogram, domain, auto, Gaussian": lambda: auto_bounded_histogram(BUDGET, DOMAIN, noise="gaussian"),
    "estimates": lambda: estimates(BUDGET, of="events"),
    "estimates, Gaussian": lambda: estimates(BUDGET, of="events", noise="gaussian"),
    "estimates, Laplace": lambda: estimates(BUDGET, of="events", noise="laplace"),
    "estimates, users": lambda: estimates(BUDGET, of="users"),
    "estimates, domain": lambda: estimates(BUDGET, of="events", domain=DOMAIN),
    "estimates, large bound": lambda: estimates(Budget(1000, 1e-3), of="events", domain=DOMAIN, bound=10**9),
    "count": lambda: debiased_count(BUDGET, DOMAIN, max_per_item=2),
    "release": lambda: count_release(BUDGET, max_per_item=3),
    "top": lambda: top_items(BUDGET, 3, k_bar=5),
    "partitions": lambda: auto_partitions(BUDGET),
    "partitions, sips": lambda: select_partitions(BUDGET, strategy="sips", max_items=3),
    "partitions, weighted": lambda: select_partitions(BUDGET, strategy="weighted-gaussian", max_items=3),
    "plume": lambda: plume(Zcdp(1, 1e-3)),
    "sampled": lambda: sampled_histogram(BUDGET, max_items=2),
    "heavy-hitters": lambda: heavy_hitters(BUDGET, 0.1, users=100, max_items=1),
    "sampled, auto": lambda: sampled_histogram(BUDGET),
    "shape": lambda: anonymized_histogram(BUDGET, domain_size=20),
    "shape, hashed": lambda: hashed_histogram(BUDGET, users=200, buckets=2000),
    "distribution": lambda: learn_distribution(BUDGET, DOMAIN, samples_per_user=3),
    "distribution, auto": lambda: learn_distribution(BUDGET, DOMAIN),
    "distribution, buckets": lambda: learn_distribution(BUDGET, DOMAIN, samples_per_user="buckets"),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_two_planted_counts_do_not_tell_whether_a_user_is_there(name, make_release):
    mechanism = MECHANISMS[name]()

    for rows in (everybody_else(), [*everybody_else(), VICTIM]):
        expected = mechanism.run([batch_of(rows + CUT)], make_release())
        assert mechanism.run([batch_of(rows + planted())], make_release()) == expected


@pytest.mark.parametrize("name", CHOICES)
def test_two_planted_counts_do_not_stop_the_choice_of_a_bound(name, make_release):
    """Nor do the shards change its table."""
    choice = CHOICES[name]()
    rows = [*everybody_else(), VICTIM]
    batch = batch_of(rows + planted())
    assert choose_bound([batch], choice, make_release(), "L") == choose_bound(
        [batch_of(rows + CUT)], choice, make_release(), "L"
    )

    def table(shards):
        tables, by_item = [encode_table([0] * choice.entries)], []
        for _, chunk in split_by_user(batch, shards):
            shard = gather([chunk])
            tables.append(encode_table(choice.user_table(shard)))
            by_item += [part for _, part in choice.item_chunks(shard, 1)]
        return add_tables([*tables, encode_table(choice.item_table(by_item))] if by_item else tables)

    assert table(1) == table(2) == table(7)


STEPS = {
    "RandClip": [RandClipStep(3)],
    "LimitItems": [LimitItemsStep(1), LimitPerItemStep(2)],
    "ClipNorm 1": [ClipNormStep(3, 1)],
    "ClipNorm 2": [ClipNormStep(3, 2)],
    "ExactSamples": [ExactSamplesStep(3)],
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("planting", [planted(), [("planted 1", f"i{n % 8}", 2**63 - 1 - n) for n in range(50)]])
def test_bounding_does_not_depend_on_shards_batches_or_order(name, planting):
    rows = [*everybody_else(), VICTIM, *planting]
    steps, found = STEPS[name], []
    subkeys = step_subkeys(bytes(32), "r", "L", steps)
    for shards, batches, backwards in itertools.product((1, 2, 7), (1, 5), (False, True)):
        ordered, groups = rows[::-1] if backwards else rows, {}
        for part in range(batches):
            for shard, chunk in split_by_user(raw_batch_of(ordered[part::batches]), shards):
                groups.setdefault(shard, []).append(chunk)
        bounded = [bound_shard(gather(chunks), steps, subkeys, "L").to_batch() for chunks in groups.values()]
        found.append(sorted(tuple(row.values()) for batch in bounded for row in batch.to_pylist()))
    assert all(each == found[0] for each in found)


def test_what_is_cut_in_a_shard_does_not_pass_for_bounded():
    """A batch that claims a bound of 10^9: a count beyond it, or two rows of one user that add up to more, is seen."""
    steps = [RandClipStep(10**9)]
    good = bound_shard(
        gather([chunk for _, chunk in split_by_user(batch_of(CUT), 1)]), steps, [bytes(32)], "L"
    ).to_batch()
    assert check_bounded(good) is good
    for counts in ([2 * 10**9, 5], [2**62, 2**62]):
        with pytest.raises(InputError, match="are not bounded by"):
            check_bounded(good.set_column(2, "count", pa.array(counts)))
    twice = concat([good, good]).replace_schema_metadata(good.schema.metadata)
    with pytest.raises(InputError, match="are not bounded by"):
        check_bounded(twice)


def test_a_user_under_two_codes_does_not_pass_for_two():
    """Rows lie as a shard lays them, and codes ascend; the names that they stand for are the same one."""
    rows = batch_of([("a", "x", 1), ("b", "x", 1)])
    made = bound_shard(gather([chunk for _, chunk in split_by_user(rows, 1)]), [RandClipStep(1)], [bytes(32)], "L")
    good = made.to_batch()
    assert check_bounded(good) is good
    one = pa.DictionaryArray.from_arrays(good.column("user").indices, pa.array(["a", "a"]))
    with pytest.raises(InputError, match="are not bounded by"):
        check_bounded(good.set_column(0, "user", one))


@pytest.mark.parametrize("method", ["estimates", "one-stage"])
@pytest.mark.parametrize("domain", [None, DOMAIN])
def test_a_pipeline_of_any_number_of_shards_gives_the_rows_of_the_function(domain, method, collect, make_release):
    rows, how = (
        [*everybody_else(), VICTIM, *planted()],
        {"of": "events", "domain": domain, "method": method, "bound": 3},
    )
    expected = histogram(BUDGET, **how).run([batch_of(rows)], make_release()).to_pylist()
    for shards in (1, 7):
        transform = Histogram(BUDGET, **how, release=make_release(), shards=shards)
        found = collect(lambda pipeline, transform=transform: pipeline | beam.Create(rows) | transform)
        assert sorted(tuple(row) for row in found) == [tuple(row.values()) for row in expected]


COMMANDS = {
    "histogram": "--epsilon 2 --delta 1e-3",
    "histogram, domain": "--epsilon 2 --delta 1e-3 --domain {domain}",
    "choose-bound": "--epsilon 0.1 --for-epsilon 0.9 --for-delta 1e-6",
    "total": "--epsilon 2 --domain {domain}",
    "total, debiased": "--epsilon 2 --method debiased --max-per-item 2 --domain {domain}",
    "count-release": "--epsilon 5 --delta 1e-4",
    "distribution": "--epsilon 2 --delta 1e-3 --domain {domain}",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_succeeds_beside_planted_counts(name, tmp_path, capsys):
    rows = [*everybody_else(), VICTIM, *planted()]
    columns = dict(zip(("user", "item", "count"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "events.parquet")
    (tmp_path / "domain").write_text("\n".join(DOMAIN) + "\n")
    flags = COMMANDS[name].format(domain=tmp_path / "domain").split()
    where = ["--input", tmp_path / "events.parquet", "--output", tmp_path / "out", "--shards", 1]
    words = [name.split(",")[0], *where, "--user", "user", "--item", "item", "--count", "count", *flags]
    assert main([str(word) for word in words]) == 0, capsys.readouterr().err
