"""BigQuery takes 16,384 characters of a table's description, which is the report."""

import json

from headcount.mechanisms import Budget, sampled_histogram
from headcount.pipelines.sinks.bigquery import description


def test_what_samples_say_of_their_losses_fits_in():
    """It is the longest part: beside it 10,000 characters are left."""
    losses = sampled_histogram(Budget(1, 1e-6), max_items=2).guarantee().as_dict()["losses"]
    assert len(description(json.dumps(losses, indent=2).encode())) < 6_000
