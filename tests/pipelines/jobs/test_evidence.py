"""The digest of an input as a step of a pipeline: that of the pure function, and no key in the graph."""

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.counting.input_digest import InputDigest
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.pipelines.jobs.evidence import DigestOfInput
from headcount.transforms.core.contributions import ContributionBatch
from tests.fixed_key import write_fixed_key
from tests.key_search import found_in_graph


@pytest.mark.parametrize("batches", [3, 0])
@pytest.mark.parametrize("keyed", [True, False])
def test_it_is_that_of_the_function(tmp_path, batches, keyed):
    write_fixed_key(tmp_path / "key")
    release = Release(KeyFile(tmp_path / "key"), "r1")
    rows = [contribution_batch(pa.array([f"u{k}"] * 3), pa.array(["a", "b", "a"])) for k in range(batches)]
    made = InputDigest(release.key_source.fetch() if keyed else None, "r1")
    with beam.Pipeline("FnApiRunner") as pipeline:
        read = pipeline | beam.Create(rows).with_output_types(ContributionBatch)
        assert_that(read | DigestOfInput(release, keyed), equal_to([made.whole(map(made.of, rows))]))
    assert not found_in_graph(pipeline.to_runner_api(), release.key_source.fetch())
