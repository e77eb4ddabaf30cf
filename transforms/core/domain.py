"""Contributions to the items of a public domain alone."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.batches.domain import only_domain
from headcount.mechanisms.batches.names import Names


class OnlyDomain(beam.PTransform):
    """Drops rows whose item is not in the domain: what lies outside must not use up a user's bound."""

    def __init__(self, domain: Names) -> None:
        super().__init__()
        self._domain = domain

    def expand(self, contributions: beam.PCollection) -> beam.PCollection:
        return contributions | "Filter" >> beam.ParDo(_OnlyDomain(self._domain)).with_output_types(
            contributions.element_type
        )


class _OnlyDomain(beam.DoFn):
    def __init__(self, domain: Names) -> None:
        self._domain = domain

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield only_domain(batch, self._domain)
