"""Where a result goes: files of rows and report.json, all or nothing.

An output is complete if and only if report.json is there. Files are written under `<output>.tmp-<release id>`
with names unique to the attempt, and one last step beyond a GroupByKey moves them into place and writes
report.json at the end; so the commit needs no driver that waits, and any step may run twice. The number of
files and their names follow from public options alone, and the bytes from the rows alone.

One job at a time may write to an output: a second one takes the first one's temporary files for leftovers,
and the first then fails without output.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import apache_beam as beam
import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines import progress, storage

REPORT = "report.json"
REPORT_MARK = "headcount"  # the key of report.json by which we know our own

_EXTENSIONS = "parquet|avro|csv|jsonl"
_ATTEMPT = re.compile(rf"(?:[a-z-]+-[0-9]{{5}}-of-[0-9]{{5}}|report|probe)\.[0-9a-f]{{32}}\.(?:{_EXTENSIONS}|json)")
# fastavro draws a random one by default; the same rows must give the same bytes.
_AVRO_SYNC_MARKER = hashlib.blake2b(b"headcount", digest_size=16).digest()


@dataclasses.dataclass(frozen=True)
class Target:
    """One output: its directory (in normal form), and what is public about its files."""

    directory: str
    release_id: str
    files: int
    format: str
    overwrite: bool
    prefix: str = "counts"

    @property
    def temporary(self) -> str:
        """Where the files of this release lie before the commit."""
        return f"{self.directory}.tmp-{self.release_id}"

    def stem(self, k: int) -> str:
        """The name of file k without its extension."""
        return f"{self.prefix}-{k:05d}-of-{self.files:05d}"

    def is_ours(self, name: str) -> bool:
        """Whether a file of the output directory can be of a job like this one."""
        return re.fullmatch(rf"{self.prefix}-[0-9]{{5}}-of-[0-9]{{5}}\.(?:{_EXTENSIONS})", name) is not None


class Written(NamedTuple):
    """One file under the temporary name of the attempt that wrote it."""

    k: int
    name: str
    digest: bytes


def prepare(target: Target) -> None:
    """Before the run: refuse an output that exists or cannot be written, and remove what killed runs left."""
    try:
        present = _refuse_existing(target)
        if REPORT not in present:
            storage.remove_files(target.directory, present)
        for other in storage.siblings(target.directory, ".tmp-"):
            left = storage.names(other)
            if all(_ATTEMPT.fullmatch(name) for name in left):
                storage.remove_files(other, left)
        _probe(target)
    except ParameterError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ParameterError(f"cannot write to --output {target.directory!r}: {reason}") from error


def commit(target: Target, written: Iterable[Written], report: bytes) -> None:
    """The last step of a job: move the files into place, then write report.json. It may run again any time.

    While every temporary file is there nothing has been moved, and an old output may be removed. A file that
    is not there any more must lie in its place, with the bytes that were written.
    """
    files = sorted(written)
    if [file.k for file in files] != list(range(target.files)):
        raise RuntimeError(f"expected the {target.files} files of the output once each, got {len(files)}")
    sources = [storage.join(target.temporary, file.name) for file in files]
    if all(storage.exists(source) for source in sources):
        _remove_old(target)
    storage.make_directory(target.directory)
    for file, source in zip(files, sources, strict=True):
        place = storage.join(target.directory, f"{target.stem(file.k)}.{target.format}")
        if storage.exists(source):
            storage.move(source, place)
        elif not (storage.exists(place) and _digest(storage.read(place)) == file.digest):
            raise ParameterError(
                f"another job removed the files of this one: let one at a time write to {target.directory!r}"
            )
    draft = storage.join(target.temporary, f"report.{uuid.uuid4().hex}.json")
    storage.write(draft, report)
    storage.move(draft, storage.join(target.directory, REPORT))
    discard(target)


def discard(target: Target) -> None:
    """Remove the temporary files of this release."""
    present = storage.names(target.temporary)
    storage.remove_files(target.temporary, [name for name in present if _ATTEMPT.fullmatch(name)])


def abandon(target: Target) -> None:
    """After a failure: remove the temporary files, and what an interrupted commit had moved."""
    discard(target)
    present = storage.names(target.directory)
    if REPORT not in present and present and all(target.is_ours(name) for name in present):
        storage.remove_files(target.directory, present)


def encode(batch: pa.RecordBatch, format: str) -> bytes:
    """The bytes of one file: a function of the rows and their types alone; without rows, the schema."""
    table = pa.Table.from_batches([batch]).replace_schema_metadata(None)
    return _ENCODERS[format](table)


@beam.typehints.with_input_types(tuple[int, pa.RecordBatch])
class WriteOutput(beam.PTransform):
    """Write batches (k, rows) for every k in 0..files-1, then commit them with the report.

    The input must lie beyond a barrier after the noise, so that every attempt writes the same rows.
    """

    def __init__(self, target: Target, report: bytes) -> None:
        super().__init__()
        self._target = target
        self._report = report

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return (
            batches
            | "Write" >> beam.ParDo(_WriteFile(self._target))  # (0, (k, name, digest))
            | "Gather" >> beam.GroupByKey()
            | "Commit" >> beam.ParDo(_Commit(self._target, self._report))
        )


@beam.typehints.with_output_types(tuple[int, tuple[int, str, bytes]])
class _WriteFile(beam.DoFn):
    def __init__(self, target: Target) -> None:
        self._target = target

    def process(self, element: tuple[int, pa.RecordBatch]) -> Iterator[tuple[int, tuple[int, str, bytes]]]:
        progress.stage("writing")
        k, batch = element
        content = encode(batch, self._target.format)
        name = f"{self._target.stem(k)}.{uuid.uuid4().hex}.{self._target.format}"
        storage.write(storage.join(self._target.temporary, name), content)
        yield 0, (k, name, _digest(content))


class _Commit(beam.DoFn):
    def __init__(self, target: Target, report: bytes) -> None:
        self._target = target
        self._report = report

    def process(self, element: tuple[int, Iterable[tuple[int, str, bytes]]]) -> None:
        progress.stage("committing")
        commit(self._target, [Written(*file) for file in element[1]], self._report)


def _refuse_existing(target: Target) -> list[str]:
    """What lies in the output directory, if it is all ours and may be replaced."""
    where = f"--output {target.directory!r}"
    if storage.is_local(target.directory):
        if os.path.dirname(target.directory) == target.directory:
            raise ParameterError(f"{where} must be a directory of its own")
        if os.path.lexists(target.directory) and not os.path.isdir(target.directory):
            raise ParameterError(f"{where} is there and is not a directory")
    present = storage.names(target.directory)
    foreign = [name for name in present if name != REPORT and not target.is_ours(name)]
    if REPORT in present and not _is_our_report(storage.join(target.directory, REPORT)):
        foreign.append(REPORT)
    if foreign:
        raise ParameterError(
            f"{where} holds other files ({foreign[0]!r}), which are never touched: give another directory"
        )
    if REPORT in present and not target.overwrite:
        raise ParameterError(f"{where} holds an output already: give another directory, or --overwrite")
    return present


def _is_our_report(path: str) -> bool:
    try:
        content = json.loads(storage.read(path))
    except ValueError:
        return False
    return isinstance(content, Mapping) and REPORT_MARK in content


def _probe(target: Target) -> None:
    """Fail with the reason if the temporary or the output directory cannot be written."""
    places = [target.temporary]
    if storage.is_local(target.directory) and os.path.isdir(target.directory):
        places.append(target.directory)
    for place in places:
        name = f"probe.{uuid.uuid4().hex}.json"
        try:
            storage.write(storage.join(place, name), b"")
        finally:
            storage.remove_files(place, [name])


def _remove_old(target: Target) -> None:
    """Make way for the new output: first report.json, so that a half-removed output is no output."""
    present = storage.names(target.directory)
    if REPORT in present:
        if not target.overwrite:
            raise ParameterError(f"another job wrote to --output {target.directory!r} meanwhile")
        storage.remove(storage.join(target.directory, REPORT))
    for name in present:
        if target.is_ours(name):
            storage.remove(storage.join(target.directory, name))


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32).digest()


def _parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def _avro(table: pa.Table) -> bytes:
    types = {pa.string(): "string", pa.int64(): "long", pa.float64(): "double"}
    schema = {
        "type": "record",
        "name": "Row",
        "namespace": "headcount",
        "fields": [{"name": field.name, "type": types[field.type]} for field in table.schema],
    }
    file = io.BytesIO()
    fastavro.writer(file, schema, table.to_pylist(), codec="deflate", sync_marker=_AVRO_SYNC_MARKER)
    return file.getvalue()


def _csv(table: pa.Table) -> bytes:
    file = io.BytesIO()
    file.write((",".join(table.column_names) + "\n").encode())
    pyarrow.csv.write_csv(_whole_as_int(table), file, pyarrow.csv.WriteOptions(include_header=False))
    return file.getvalue()


def _jsonl(table: pa.Table) -> bytes:
    rows = _whole_as_int(table).to_pylist()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _whole_as_int(table: pa.Table) -> pa.Table:
    """Columns of numbers that are all whole, as integers: text shows 5 and not 5.0."""
    for at, field in enumerate(table.schema):
        column = table.column(at)
        if field.type == pa.float64() and pc.all(pc.equal(column, pc.trunc(column)), min_count=0).as_py():
            if len(column) == 0 or pc.max(pc.abs(column)).as_py() < 2**53:
                table = table.set_column(at, field.name, column.cast(pa.int64()))
    return table


_ENCODERS = {"parquet": _parquet, "avro": _avro, "csv": _csv, "jsonl": _jsonl}
