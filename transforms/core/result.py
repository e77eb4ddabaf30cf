"""What a transform gives that decides something itself."""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam

from headcount.mechanisms.histogram.auto import Decided


class CountsAndDecision(NamedTuple):
    """The result of a histogram whose bound was chosen."""

    counts: beam.PCollection
    decision: beam.PCollection[Decided]
