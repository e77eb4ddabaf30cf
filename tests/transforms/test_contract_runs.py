"""Every transform keeps the contract where it runs: one line for each, and one more for each further path that it has.

What is run is the mechanism that the transform holds (test_contract has that it holds the right one). Its `run` gives the rows
that come out, however they are cut into batches and shards and however often a bundle is repeated; also of no rows, and of
integer items. The key is nowhere in the graph, the transform can be pickled, a decision tells what was chosen, and
batches that are not bounded as the noise was calibrated for are refused. All lines share a pipeline where they can.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.bounding.steps import bound_shard
from headcount.transforms import (
    Contributions,
    RandClip,
    Release,
)
from tests.key_search import Careless, found_in_graph
from tests.transforms.contract_lines import (
    BEFORE,
    ELSEWHERE,
    FURTHER,
    OF_VALUES,
    TABLE,
    WEIGHED,
    Rows,
    aggregated,
    chosen,
    column_of,
    kept,
    mechanism,
    table,
    tuples,
)
from tests.transforms.test_contract import public_transforms


class Bench:
    """All lines on one table: made, run in one pipeline, and asked of the pure functions."""

    def __init__(self, collect: Callable[..., list[Any]], release: Release) -> None:
        self._collect, self._release = collect, release

    def made(self, name: str, item_type: type = str, **given: Any) -> beam.PTransform:
        line = TABLE[name]
        given |= {"release": self._release}
        given |= {"item_type": item_type} if line.typed else {}
        return line.make(**given | ({"sample": name} if line.sampled else {}))

    def applied(self, rows: beam.PCollection, name: str, transform: beam.PTransform, item_type: type) -> Any:
        """The transform on batches of a table, under its name."""
        if TABLE[name].pure not in OF_VALUES:
            values = mechanism(transform).metrics.values if TABLE[name].pure is aggregated else ()
            rows = rows | f"Contributions of {name}" >> Contributions(item=column_of(item_type), values=values)
        if name == "NoisyCounts":
            rows = rows | BEFORE >> RandClip(3, release=self._release)
        return rows | name >> transform

    def found(self, rows: pa.Table, size: int, shards: int, item_type: type, names: list[str], *options: str) -> Any:
        """{name: sorted rows}, and {name: decisions} where the line decides."""

        def build(pipeline: beam.Pipeline) -> beam.PCollection:
            source = pipeline | beam.Create(rows.to_batches(size))
            tagged = []
            for name in names:
                transform = self.made(name, item_type, shards=shards)
                if TABLE[name].decides:
                    released, decision = self.applied(source, name, transform.with_decision(), item_type)
                    tagged.append(
                        decision | f"Decision of {name}" >> beam.Map(lambda one, n=name: ("decision", n, one))
                    )
                else:
                    released = self.applied(source, name, transform, item_type)
                tagged.append(released | f"Rows of {name}" >> beam.Map(lambda one, n=name: ("row", n, one)))
            return tagged | beam.Flatten()

        every = self._collect(build, *options)
        released = {name: sorted(plain(one for kind, n, one in every if (kind, n) == ("row", name))) for name in names}
        decisions = [name for name in names if TABLE[name].decides]
        return released, {
            name: [one for kind, n, one in every if (kind, n) == ("decision", name)] for name in decisions
        }

    def expected(self, rows: pa.Table, item_type: type, names: list[str]) -> dict[str, Rows]:
        return {
            name: sorted(TABLE[name].pure(self.made(name, item_type), rows, column_of(item_type), self._release, name))
            for name in names
        }


def plain(found: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples, those of batches (what a bounding step gives) among them."""
    for one in found:
        yield from tuples(one) if isinstance(one, pa.RecordBatch) else [tuple(one)]


@pytest.fixture
def bench(collect, make_release, soon_planned) -> Bench:
    return Bench(collect, make_release().of_rows("any"))  # which no other way to read rows changes


def test_every_public_transform_has_a_line():
    assert {name.partition(",")[0] for name in TABLE} | ELSEWHERE == {each.__name__ for each in public_transforms()}


@pytest.mark.slow("cuts")
def test_all_equal_the_pure_functions_however_the_rows_are_cut_and_tell_what_they_decided(bench):
    rows, names = table(), list(TABLE)
    expected = bench.expected(rows, str, names)
    assert [name for name in names if not expected[name]] == [], "equal to nothing says nothing"
    shuffled = rows.take(np.random.default_rng(1).permutation(rows.num_rows))
    released, decisions = bench.found(shuffled, 777, 7, str, names, "--direct_runner_bundle_repeat=1")
    assert [name for name in names if released[name] != expected[name]] == []
    for name, decided in decisions.items():
        (decision,) = decided
        assert decision.guarantee.epsilon == pytest.approx(bench.made(name).guarantee().epsilon), name
        assert decision.description() and decision.report_fields(), name


@pytest.mark.slow("cuts")
def test_all_equal_the_pure_functions_of_integers_and_of_no_rows(bench):
    """Here in one shard. Noise is drawn for no rows as for some: where a domain is public, all of it is released."""
    of_items = [name for name, line in TABLE.items() if line.pure not in OF_VALUES]
    for rows, names in ((table(3000), of_items), (table(10).slice(0, 0), list(TABLE))):
        expected = bench.expected(rows, int, names)
        released, _ = bench.found(rows, 3000, 1, int, names)
        assert [name for name in names if released[name] != expected[name]] == []


@pytest.mark.slow("jobs")
def test_the_key_is_nowhere_in_the_graph_and_the_search_would_find_it(make_release, soon_planned):
    release = make_release("graph", key=0xAB)
    bench, key = Bench(None, release), release.key_source.fetch()
    pipeline = beam.Pipeline(runner="FnApiRunner")
    rows = pipeline | beam.Create(table(10).to_batches())
    for name in TABLE:
        bench.applied(rows, name, bench.made(name), str)
    contributions = rows | "Contributions" >> Contributions()
    for name, further in FURTHER.items():
        (rows if name == "Ranges" else contributions) | name >> further(release)
    assert not found_in_graph(pipeline.to_runner_api(), key)
    rows | "Careless" >> beam.ParDo(Careless(key))
    graph = pipeline.to_runner_api()
    assert key not in graph.SerializeToString(), "a search of the raw bytes is blind"
    assert found_in_graph(graph, key)


@pytest.mark.parametrize("name", TABLE)
def test_it_pickles(name, bench):
    transform = bench.made(name)
    copy = pickle.loads(pickle.dumps(transform))
    assert type(copy) is type(transform) and mechanism(copy) == mechanism(transform)


def one_step_less(shard, steps, subkeys, label):
    return bound_shard(shard, steps[:-1], subkeys[:-1], label)


@pytest.mark.slow("jobs")
@pytest.mark.parametrize(
    "name", [name for name, line in TABLE.items() if line.pure not in (kept, chosen) and name not in WEIGHED]
)
def test_a_wrong_bound_is_refused(name, bench, collect, monkeypatch):
    """The mutation: the last of the steps that bound a user is left out, so that the batches carry less than was promised."""
    for module in [each for path, each in sys.modules.items() if path.startswith("headcount.transforms")]:
        if hasattr(module, "bound_shard"):
            monkeypatch.setattr(module, "bound_shard", one_step_less)
    with pytest.raises(Exception, match="bounded by"):
        bench.found(table(300), 300, 2, str, [name])
