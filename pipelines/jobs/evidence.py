"""The digest of a job's input as a step of its pipeline, whatever runner has it: for a release that goes on an account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from headcount.mechanisms.counting.input_digest import NOTHING, InputDigest, add_up
from headcount.mechanisms.randomness.keys import KeySource, Release


class DigestOfInput(beam.PTransform):
    """Batches of rows -> the one digest of all of them.

    Rows that hold noise of their own are digested without a key, as a job of them has none.
    """

    def __init__(self, release: Release, keyed: bool) -> None:
        super().__init__()
        self._id, self._key_source = release.id, release.key_source if keyed else None

    def expand(self, batches: beam.PCollection) -> beam.PCollection[str]:
        return (
            batches
            | "Sums" >> beam.ParDo(_Sums(self._id, self._key_source))
            | "AddUp" >> beam.CombineGlobally(_add_up).with_output_types(bytes)  # of no batch it is that of nothing
            | "Digest" >> beam.ParDo(_Whole(self._id, self._key_source))
        )


class _Keyed(beam.DoFn):
    """Fetches the key where it runs, and holds none before."""

    def __init__(self, release_id: str, key_source: KeySource | None) -> None:
        self._id, self._key_source = release_id, key_source

    def setup(self) -> None:
        self._digest = InputDigest(None if self._key_source is None else self._key_source.fetch(), self._id)


@beam.typehints.with_output_types(bytes)
class _Sums(_Keyed):
    def start_bundle(self) -> None:
        self._sum = NOTHING

    def process(self, batch: pa.RecordBatch) -> None:
        self._sum = add_up([self._sum, self._digest.of(batch)])

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield WindowedValue(self._sum, GlobalWindow().max_timestamp(), [GlobalWindow()])


@beam.typehints.with_output_types(str)
class _Whole(_Keyed):
    def process(self, found: bytes) -> Iterator[str]:
        yield self._digest.whole([found])


def _add_up(sums: Iterable[bytes]) -> bytes:
    return add_up(sums)
