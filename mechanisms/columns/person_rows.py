"""The schema of rows for questions about people: users with times, steps that rows meet, and a column to tell people apart by.

Rows become contribution batches, as `RowSchema` makes them: the item is the value of `by`, or the one item that everybody has,
and rows carry numbers for what is asked. A row's time is a whole number of microseconds since 1970 (UTC), rounded down; or,
with a unit, the first day of the period that it lies in, in days since 1970.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES, Place, contribution_batch
from headcount.mechanisms.columns.conditions import Condition, parse_condition
from headcount.mechanisms.columns.fields import field_of, is_string
from headcount.mechanisms.columns.key_column import KeyColumn, parse_columns
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.preparation import Preparation, filtered
from headcount.mechanisms.columns.row_schema import RowSchema, names_of, user_keys
from headcount.mechanisms.columns.times import UTC, check_zone, floored, microseconds
from headcount.mechanisms.errors import InputError, ParameterError

EVERYBODY = "everybody"  # the item where people are not told apart


@dataclasses.dataclass(frozen=True)
class PersonRows(RowSchema):
    """Which columns hold users, times and what people are told apart by, and the conditions of steps.

    Only rows that meet a step are kept, where there are steps. They must have a time, and those that meet the first step a
    value of `by`, which is not looked at elsewhere. Rows without are refused, or dropped with `drop_null`.
    """

    at: str | None = None
    unit: str | None = None
    steps: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at is not None and self.at in (self.user, self.count):
            raise ParameterError("time must be another column than those of the users and the counts", "time")
        for column in self.items:
            if column.days:
                raise ParameterError(
                    f"by = {column.spec!r} has a user in several windows, but a user counts for one value of by: give another "
                    "column; users by windows are counted by headcount histogram and headcount actives",
                    "by",
                )

    @property
    def carried(self) -> tuple[str, ...]:
        """The columns of times and of steps."""
        of_steps = [column for step in self.steps for column in step.columns]
        return tuple(dict.fromkeys([*([] if self.at is None else [self.at]), *of_steps]))

    @property
    def reading(self) -> str:
        """How rows are read, for the key of their release."""
        said = {"at": self.at, "unit": self.unit, "steps": [step.text for step in self.steps]}
        told = [f"{name}={value!r}" for name, value in said.items() if value]
        return f"{super().reading} {' '.join(told)}"

    @property
    def shown(self) -> Keys:
        """The columns of `by` in the output."""
        return super().shown if self.items else Keys.plain(str)

    def of_types(self, found: Mapping[str, pa.DataType], where: str = "") -> Self:
        """The same for types by the path of a column, some of which may be missing."""
        prepare, types = self.prepare.of_types(found, where)
        if self.count in types and not pa.types.is_integer(types[self.count]):
            raise InputError(f"{where}column {self.count!r} is {types[self.count]}; counts are whole numbers")
        if self.at in types:
            field_of(KeyColumn(self.at, "day"), types[self.at], where, self.time_zone)
        for step in self.steps:
            step.check({path: types.get(path, pa.null()) for path in step.columns})
        users = user_keys(self.user, None, types, self.time_zone, where)
        known = not self.is_plain or self.sources[0] in types
        fields = (
            field_of(column, types.get(column.source, pa.string()), where, self.time_zone) for column in self.items
        )
        keys = Keys(tuple(fields)) if self.items and known else None
        return dataclasses.replace(self, prepare=prepare, users=users, keys=keys)

    def contributions(self, columns: Mapping[str, pa.Array], place: Place) -> pa.RecordBatch:
        """The contributions of columns, by their paths; they are all there."""
        columns, place = self.prepare.prepared(columns, self.named, place)
        place = dataclasses.replace(
            place, user=self.user, item=(*self.sources, EVERYBODY)[0], count=self.count or "count"
        )
        met: np.ndarray | None = None
        if self.steps:
            met = np.stack([np.asarray(step.mask(columns, place)) for step in self.steps], axis=1)
            columns, met, place = _kept(columns, np.asarray(met.any(axis=1)), met, place)
        if self.at is not None:
            absent = np.flatnonzero(np.asarray(columns[self.at].is_null()))
            if len(absent) and not self.drop_null:
                raise place.error(
                    self.at, "is null; fill it in, or drop such rows with drop_null (--drop-null)", int(absent[0])
                )
            if len(absent):
                there = np.asarray(columns[self.at].is_valid())
                columns, met, place = _kept(columns, there, met, place)
        values = [] if self.at is None else [self._time(columns[self.at], place)]
        if met is not None:
            values.append(pa.array(step_codes(met)))
        return contribution_batch(
            names_of(self.users, (self.user,), columns, place),
            self._by(columns, met, place),
            None if self.count is None else columns[self.count],
            values=values,
            drop_null=self.drop_null,
            max_item_bytes=self.max_item_bytes,
            place=place,
        )

    def _time(self, column: pa.Array, place: Place) -> pa.Array:
        assert self.at is not None
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        if not pa.types.is_null(
            column.type
        ):  # batches may differ, and what holds no times is refused without a value of it
            field_of(KeyColumn(self.at, "day"), column.type, f"{place.file}: " if place.file else "", self.time_zone)
        if is_string(column.type) or pa.types.is_null(column.type):
            column = column.cast(pa.string())
        if self.unit is None:
            return microseconds(column, self.at, place)
        return floored(column, self.unit, self.time_zone, self.at, place)

    def _by(self, columns: Mapping[str, pa.Array], met: np.ndarray | None, place: Place) -> pa.Array:
        rows = len(columns[self.user])
        if not self.items:
            return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([EVERYBODY]))
        made = names_of(self.keys, self.sources, columns, place)
        if met is None or not made.null_count:
            return made
        if isinstance(made, pa.DictionaryArray):
            made = made.dictionary_decode()
        # What lies on the way needs no value: it is told at the start.
        nothing = pa.scalar(0 if pa.types.is_integer(made.type) else "", made.type)
        return pc.if_else(pa.array(met[:, 0]), made, pc.fill_null(made, nothing))


def step_codes(met: np.ndarray) -> np.ndarray:
    """One number for the steps that each row meets (rows x steps, of which each row meets one at least): ascending, they are
    in the order in which rows of equal time count. Its last bits are the steps, the first of them the last bit."""
    steps = met.shape[1]
    return (np.argmax(met, axis=1).astype(np.int64) << steps) | (met @ (1 << np.arange(steps, dtype=np.int64)))


def _kept(
    columns: Mapping[str, pa.Array], kept: np.ndarray, met: np.ndarray | None, place: Place
) -> tuple[Mapping[str, pa.Array], np.ndarray | None, Place]:
    """Some rows, which have other numbers then."""
    if kept.all():
        return columns, met, place
    chosen = pa.array(kept)
    columns = {name: filtered(column, chosen) for name, column in columns.items()}
    return columns, None if met is None else met[kept], dataclasses.replace(place, first_row=None)


def asked_of_people(
    user: str,
    by: str | Iterable[str] | None = None,
    *,
    time: str | None = None,
    unit: str | None = None,
    steps: Iterable[str] = (),
    count: str | None = None,
    drop_null: bool = False,
    max_item_bytes: int = MAX_ITEM_BYTES,
    time_zone: str = UTC,
    prepare: Preparation | None = None,
) -> PersonRows:
    """The schema of rows that these words ask for, with no types known yet."""
    zone = check_zone(time_zone)
    conditions = tuple(parse_condition(step, zone=zone, parameter="step") for step in steps)
    columns = () if by is None else parse_columns(by)
    return PersonRows(
        user,
        columns,
        count,
        drop_null,
        max_item_bytes,
        time_zone=zone,
        prepare=prepare or Preparation(),
        at=time,
        unit=unit,
        steps=conditions,
    )
