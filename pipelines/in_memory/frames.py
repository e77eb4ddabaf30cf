"""What a call is given, as contributions: a frame of any library, or columns or rows of plain Python."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.batches.domain import Domain, PartDomain
from headcount.mechanisms.batches.frames import FRAMES, collected, frame_reader, frame_schema, is_frame, table_of
from headcount.mechanisms.batches.python_values import fields_of
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.nested import column_at, found_type, is_list
from headcount.mechanisms.columns.preparation import Preparation
from headcount.mechanisms.columns.row_schema import RowSchema, asked, user_keys
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.domains.given_domain import GivenDomain
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.sampled.axis import Axis, leaf_column
from headcount.mechanisms.sampled.leaves import Leaves
from headcount.pipelines.flags import options
from headcount.pipelines.flags.people import person_rows
from headcount.pipelines.flags.protection import window
from headcount.pipelines.storage import stores
from headcount.pipelines.suggestions import each_of

_Rows = TypeVar("_Rows", bound=RowSchema)

_GIVE = f"{FRAMES}, a dict of lists, or a list of dicts"


class Events(NamedTuple):
    """Contributions that are yet to be read, and the key columns, where there are some."""

    batches: Iterator[pa.RecordBatch]
    keys: Keys | None


def counted(data: Any, args: argparse.Namespace) -> Events:
    """Users, items and counts."""
    row_schema = asked(**options.rows(args), prepare=options.preparation(args))
    reader, row_schema = _typed(data, row_schema)
    read = (part for batch in reader for part in row_schema.parts(batch))
    return Events((row_schema.batch(batch, place) for batch, place in _placed(read)), row_schema.shown)


def people(data: Any, args: argparse.Namespace) -> Events:
    """Users with what a question about people needs: times, steps, and values that they are told apart by."""
    reader, rows = _typed(data, person_rows(args))
    return Events((rows.batch(batch, place) for batch, place in _placed(reader)), rows.shown if rows.items else None)


def named_domain(given: Any, keys: Keys | None, max_item_bytes: int) -> Domain | PartDomain:
    """A public domain by the names of its keys: items, tuples or a frame, or a file, or for key columns by their names files,
    ranges and lists."""
    if isinstance(given, str | os.PathLike):
        given = DomainFile(os.fspath(given), max_item_bytes, stores.read)
    elif isinstance(given, Mapping):
        given = DomainFile(given, max_item_bytes, stores.read)
    return GivenDomain(given).named(keys)


def every_row(data: Any, args: argparse.Namespace) -> Events:
    """Users and counts alone: all rows are of one item."""
    from headcount.mechanisms.counting.users import (
        EVERYBODY,  # the first array makes Arrow import pandas, if it is there
    )

    reader, users = _reader_and_users(data, args)

    def batches() -> Iterator[pa.RecordBatch]:
        for columns, place in reader:
            item = pa.repeat(EVERYBODY.names[0], len(columns[args.user]))
            yield _contributions(columns, users, item, args, place)

    return Events(batches(), None)


def values(data: Any, args: argparse.Namespace, axis: Axis, leaves: Leaves) -> Events:
    """Users with numbers, dates or times, which become the leaves of a public grid."""
    reader, users = _reader_and_users(data, args, args.value)

    def batches() -> Iterator[pa.RecordBatch]:
        for columns, place in reader:
            leaf = leaf_column(columns[args.value], axis, leaves, args.value, args.drop_null, place)
            yield _contributions(columns, users, leaf, args, dataclasses.replace(place, item=args.value))

    return Events(batches(), None)


def _typed(data: Any, rows: _Rows) -> tuple[pa.RecordBatchReader, _Rows]:
    """The columns that rows are made of, and the same schema with their types."""
    reader = _reader(data, rows.columns, rows.prepare, rows.named)
    for column in rows.items:
        found = found_type(reader.schema, column.source)
        plain = found.value_type if found is not None and column.source == rows.explode and is_list(found) else found
        # The result has the column in its own type: were that a text until a row tells more, the first row would be seen.
        if plain is not None and pa.types.is_null(plain) and not column.unit and not column.edges:
            raise InputError(
                f"column {column.source!r} holds no value that tells its type: give a frame whose schema says it"
            )
    return reader, rows.of_schema(reader.schema)


def _reader_and_users(
    data: Any, args: argparse.Namespace, *more: str
) -> tuple[Iterator[tuple[Mapping[str, pa.Array], Place]], Keys]:
    """The user's column, the count's and others, of rows that are prepared; and who is protected."""
    column, prepare = window(args), options.preparation(args)
    prepare.check_user(args.user)
    given = [args.user, *more, *([] if column is None else [column.source]), args.count]
    names = [name for name in given if name is not None]
    reader = _reader(data, prepare.read(names), prepare, names)
    found = {name: found_type(reader.schema, name) for name in prepare.read(names)}
    known = {name: type_ for name, type_ in found.items() if type_ is not None}
    prepare, types = prepare.of_types(known)
    users = user_keys(args.user, column, dict.fromkeys(names, pa.string()) | types, args.time_zone)
    assert users is not None

    def prepared() -> Iterator[tuple[Mapping[str, pa.Array], Place]]:
        for batch, place in _placed(reader):
            yield prepare.prepared({name: column_at(batch, name) for name in prepare.read(names)}, names, place)

    return prepared(), users


def _contributions(
    columns: Mapping[str, pa.Array], users: Keys, item: pa.Array, args: argparse.Namespace, place: Place
) -> pa.RecordBatch:
    place = dataclasses.replace(place, user=args.user, count=args.count or "count")
    names = users.encode({name: columns[name] for name in users.sources}, place)
    count = None if args.count is None else columns[args.count]
    return contribution_batch(names, item, count, drop_null=args.drop_null, place=place)


def _placed(reader: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, Place]]:
    """Batches with the number of their first row, from 0, as frames count."""
    first = 0
    for batch in reader:
        yield batch, Place(first_row=first)
        first += batch.num_rows


def _reader(data: Any, columns: Collection[str], prepare: Preparation, names: Collection[str]) -> pa.RecordBatchReader:
    """The columns of these names, or the objects that hold them, which must be there, and not in a table that is joined.

    Rows have no columns that this table could have, too: what one of them holds beside says nothing of the others.
    """
    if prepare.join is not None and not _are_rows(data):
        prepare.refuse_twice(_known(data), names)
    reader = frame_reader(data if is_frame(data) else table_of(_columns(data, columns), columns), columns)
    for name in columns:
        if found_type(reader.schema, name) is None:
            known = _known(data)
            near, parts = difflib.get_close_matches(name, known, n=1), each_of(name, known)
            hint = f"give a list, {parts!r}; " if parts else f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"no column {name!r}; {hint}the columns are {', '.join(map(repr, known))}")
    return reader


def _columns(data: Any, paths: Iterable[str]) -> Mapping[str, Any]:
    """Columns by their names, of columns or of rows in plain Python: each row tells by itself what lies at a path."""
    if isinstance(data, Mapping):
        return data
    if _are_rows(data):
        found = ((path, fields_of(data, path, path.partition(".")[0], Place(first_row=0))) for path in paths)
        return {path: values for path, values in found if values is not None}
    if isinstance(data, str | os.PathLike):
        raise InputError("a path is no frame: read the file first, for instance by pyarrow.parquet.read_table")
    raise InputError(f"{type(data).__name__} is no frame; {collected(data) or f'give {_GIVE}'}")


def _are_rows(data: Any) -> bool:
    return isinstance(data, Sequence) and bool(data) and all(isinstance(row, Mapping) for row in data)


def _known(data: Any) -> list[str]:
    """The names of the columns; of rows, those that each has, since what a single one has is its own."""
    if is_frame(data):
        return frame_schema(data).names
    return list(map(str, data if isinstance(data, Mapping) else [x for x in data[0] if all(x in row for row in data)]))
