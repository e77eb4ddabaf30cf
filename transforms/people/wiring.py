"""Questions about people, wired: rows become records, records cells, and cells noisy numbers and what they say.

Users are brought together once and become records, which are small. Records are counted in cells of a public table, and one
worker sees all sums: it adds the noise, and says what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.batches.domain import Domain, arrow_type, sorted_distinct
from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.packing import to_ipc
from headcount.mechanisms.batches.value_rows import gather_values
from headcount.mechanisms.bounding.steps import bound_shard, provenance, step_subkeys
from headcount.mechanisms.columns.person_rows import PersonRows
from headcount.mechanisms.counting.evidence import Origin
from headcount.mechanisms.counting.released import cut
from headcount.mechanisms.people.records import Records
from headcount.mechanisms.people.release import PeopleMechanism
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.barrier import rows_beyond_barrier
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.contributions import (
    ContributionBatch,
    Contributions,
    batches_of,
    is_contributions,
)
from headcount.transforms.core.noise import NamedBatches, names_in, sum_by_item
from headcount.transforms.core.rows import ToRows, in_first
from headcount.transforms.core.user_shards import UserShards
from headcount.transforms.core.windows import WindowKey, check_windowing, every, release_in, window_keys
from headcount.transforms.keyed.rows import ToKeyedRows, keyed_row
from headcount.transforms.partitions import NamedItems


class PeopleRows(Contributions):
    """Turns rows into the contributions of a question about people; the types of columns may be known already."""

    def __init__(self, rows: PersonRows) -> None:
        beam.PTransform.__init__(self)
        self._row_schema, self._known = rows, rows.users is not None

    def contributed(self, rows: beam.PCollection) -> type[ContributionBatch]:
        """The element type of what is made of a collection: it tells the columns of `by`."""
        schema = self._schema_for(rows)
        return batches_of(schema.shown, schema.keys is not None or not schema.items)


class PeopleTransform(PrivateTransform):
    """What questions about people share: their rows, records, table, and the way out."""

    mechanism: PeopleMechanism
    _row: ClassVar[Any]
    _row_by: ClassVar[Any]

    def __init__(
        self,
        mechanism: PeopleMechanism,
        rows: PersonRows,
        *,
        release: Release | None,
        shards: int | None,
        output_files: int | None,
        items: Any,
    ) -> None:
        super().__init__(mechanism, release=release, shards=shards, output_files=output_files, items=items)
        self._people = PeopleRows(rows)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        check_windowing(rows)
        if is_contributions(rows):
            return self._of(rows.element_type)._expand(rows)
        return self._of(self._people.contributed(rows))._expand(rows | "Contributions" >> self._people)

    def _of(self, batches: type[ContributionBatch]) -> Self:
        return super()._of(batches) if self.mechanism.by else self

    def _expand(self, rows: beam.PCollection) -> beam.PCollection:
        release, label = self._drawn(rows)
        m = self.mechanism
        records = (
            rows
            | "UserShards" >> UserShards(self._shards, release.windows)
            | "Records" >> beam.ParDo(_ToRecords(m)).with_output_types(tuple[int, bytes])
        )
        public: Domain | beam.pvalue.AsList
        if m.domain is not None:
            public = m.domain
        else:
            assert m.naming is not None
            own = m.names_release(release)
            named = records | "NamedItems" >> NamedItems(m.naming.rounds, own, self._shards, m.item_type)
            public = beam.pvalue.AsList(named)  # (0, named values), beyond a barrier
        bounded = records | "Bounded" >> beam.ParDo(
            _Bound(m, release, f"{label}/Bounded", self._shards), public
        ).with_output_types(ContributionBatch)
        summed = sum_by_item(bounded, 1, label="SumByCell")
        # Cells get noise also where there are no users.
        nothing = every(records, "Nothing", [(0, b"")])
        cells = (
            (summed.sums, nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, sums of cells)
            | "NoisyCells"
            >> beam.ParDo(
                _NoisyCells(m, release, f"{label}/NoisyCells"), public, beam.pvalue.AsList(summed.origins)
            ).with_output_types(tuple[int, bytes])
        )
        return self._in_files(rows_beyond_barrier(cells, "Rows"))

    def _in_files(self, batch: beam.PCollection) -> beam.PCollection:
        """The released rows as the caller wants them: in files, those of one value of `by` in one; or as rows."""
        files = batch | "ByFile" >> beam.FlatMap(_files, self._output_files or 1, self.mechanism.by).with_output_types(
            tuple[int, pa.RecordBatch]
        )
        if not self.mechanism.by:
            return files if self._output_files is not None else files | "ToRows" >> ToRows(self._row)
        keyed_row(self._row_by, self._keys)  # refuses a column that is there twice
        restored = self._with_key_columns(files)
        return (
            restored if self._output_files is not None else restored | "ToRows" >> ToKeyedRows(self._row_by, self._keys)
        )


class _ToRecords(Ahead):
    """(shard, chunks) -> (shard, packed records): each user by its own rows alone."""

    def __init__(self, mechanism: PeopleMechanism) -> None:
        self._mechanism = mechanism

    def process(
        self, group: tuple[int, Iterable[bytes]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, bytes]]:
        number, chunks = group
        yield from self.ahead(window, (number, list(chunks)))  # a runner may fetch them, which only this thread can do

    def compute(self, group: tuple[int, list[bytes]]) -> Iterator[tuple[int, bytes]]:
        number, chunks = group
        yield number, self._mechanism.recorded(gather_values(chunks)).pack()


class _Bound(Ahead):
    """Packed records -> the cells of each user, bounded. The key is fetched on the worker."""

    def __init__(self, mechanism: PeopleMechanism, release: Release, label: str, shards: int) -> None:
        self._mechanism, self._release, self._label, self._shards = mechanism, release, label, shards

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self,
        packed: tuple[int, bytes],
        public: NamedBatches | Domain,
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[pa.RecordBatch]:
        yield from self.ahead(window, packed, public, self._keys(window))

    def compute(
        self, packed: tuple[int, bytes], public: NamedBatches | Domain, own: WindowKey
    ) -> Iterator[pa.RecordBatch]:
        number, data = packed
        m = self._mechanism
        shard = m.counted(Records.unpack(data), _names(public, m.item_type))
        subkeys = step_subkeys(own.key, own.id, self._label, m.table.steps)
        origin = provenance(self._label, own.id, self._shards)
        yield bound_shard(shard, m.table.steps, subkeys, origin).to_batch(number)


class _NoisyCells(beam.DoFn):
    """(0, sums of cells) -> (0, Arrow stream of the released rows)."""

    def __init__(self, mechanism: PeopleMechanism, release: Release, label: str) -> None:
        self._mechanism, self._release, self._label = mechanism, release, label

    def process(
        self,
        group: tuple[int, Iterable[bytes]],
        public: NamedBatches | Domain,
        origins: list[Origin],
        window: BoundedWindow = beam.DoFn.WindowParam,
    ) -> Iterator[tuple[int, bytes]]:
        names = _names(public, self._mechanism.item_type)
        chunks = [chunk for chunk in group[1] if chunk]
        own = release_in(self._release, window)
        yield 0, to_ipc(self._mechanism.released(chunks, origins, names, own, self._label))


def _names(public: NamedBatches | Domain, item_type: type) -> Names:
    """The values of `by`, sorted, of a domain or as they were named."""
    if isinstance(public, Domain):
        return public.sorted_names
    return sorted_distinct(names_in(public, arrow_type(item_type)))[0]


def _files(batch: pa.RecordBatch, files: int, by: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
    # A generator, as in `core.rows`.
    yield from enumerate(cut(batch, files)) if by else in_first(batch, files)
