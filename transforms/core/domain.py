"""Public domains in a pipeline: their files, wherever Beam reads, and contributions to their items alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from headcount.mechanisms.batches.domain import Domain, PartDomain, only_domain
from headcount.mechanisms.domains import domain_files


def read_file(path: str) -> bytes:
    """The content of a file on any filesystem that Beam knows."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        return bytes(file.read())


@dataclasses.dataclass(frozen=True)
class DomainFile(domain_files.DomainFile):
    """A public domain in a file: `Histogram(budget, domain=DomainFile("gs://bucket/keys.parquet"))`.

    `path` names a Parquet or CSV file with the key columns, as they are called in the output, or a text file with the values of
    one column, one per line. A mapping from each key column to such a file, a range or a list stands for all combinations; of
    some key columns, the others are named from the data (`Histogram` by estimates, and `Aggregate`). A large domain does not
    travel with the job, up to ten million keys: workers read the files, which must lie where they can, and must not change.
    """

    read: Callable[[str], bytes] = read_file


class OnlyDomain(beam.PTransform):
    """Drops rows whose item is not in the domain: what lies outside must not use up a user's bound."""

    def __init__(self, domain: Domain | PartDomain) -> None:
        super().__init__()
        self._domain = domain

    def expand(self, contributions: beam.PCollection) -> beam.PCollection:
        return contributions | "Filter" >> beam.ParDo(_OnlyDomain(self._domain)).with_output_types(
            contributions.element_type
        )


class _OnlyDomain(beam.DoFn):
    def __init__(self, domain: Domain | PartDomain) -> None:
        self._domain = domain

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield only_domain(batch, self._domain)
