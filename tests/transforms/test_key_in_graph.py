"""The key never enters the pipeline."""

from __future__ import annotations

import apache_beam as beam
import pytest

from headcount.transforms import (
    Budget,
    ChooseBound,
    Histogram,
    LimitItems,
    LimitPerItem,
    RandClip,
)
from tests.key_search import Careless, found_in_graph


@pytest.fixture
def graph(make_release) -> tuple[beam.Pipeline, bytes]:
    release = make_release("graph", key=0xAB)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    rows = pipeline | beam.Create([("u", "i")])
    rows | "U" >> Histogram(Budget(1, 1e-6), bound=3, release=release)
    rows | "B" >> Histogram(Budget(1), domain=["i"], bound=3, release=release)
    rows | "A" >> Histogram(Budget(1, 1e-6), release=release)
    rows | "C" >> ChooseBound(Budget(0.1), Budget(0.9, 1e-6), release=release)
    rows | "R" >> RandClip(3, release=release) | LimitItems(2, release=release) | LimitPerItem(1)
    return pipeline, release.key_source.fetch()


def test_the_key_is_nowhere_in_the_graph(graph):
    pipeline, key = graph
    assert not found_in_graph(pipeline.to_runner_api(), key)


def test_the_search_finds_a_key_that_a_dofn_holds(graph):
    pipeline, key = graph
    pipeline | "More" >> beam.Create([1]) | "Careless" >> beam.ParDo(Careless(key))
    assert key not in pipeline.to_runner_api().SerializeToString(), "a search of the raw bytes is blind"
    assert found_in_graph(pipeline.to_runner_api(), key)
