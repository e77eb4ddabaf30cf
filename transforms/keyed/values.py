"""Python values of rows as Arrow columns, of the types that are known for them."""

from __future__ import annotations

import decimal
import uuid
from typing import Any

import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.batches.contributions import Place, column_of
from headcount.mechanisms.keys.keys import Keys


def array_of(
    values: list[Any], keys: Keys | None, source: str, place: Place, *, counts: bool = False, nested: bool = False
) -> pa.Array:
    """The column `source` of values, with its type in `keys`; without them of strings or integers alone, and `counts` of
    integers. A `nested` column holds lists of such values."""
    if keys is None and not nested:
        return column_of(values, source, place, counts)
    fields = () if keys is None else keys.fields
    # Units and bins are made of several types: what the values are is seen here, and the output is the same.
    known = next(
        (
            each.found
            for each in fields
            if each.column.source == source and each.column.unit is None and not each.column.edges
        ),
        None,
    )
    if nested:
        plain = [None if each is None else list(map(plain_value, each)) for each in values]
    else:
        plain = list(map(plain_value, values))
    try:
        return pa.array(plain, pa.list_(known) if nested and known is not None else known)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        words = "; give its type by schema" if known is not None else ""
        raise place.error(
            source, f"holds values of several types, or other than {known or 'plain ones'}{words}"
        ) from None


def numbers_of(values: list[Any], source: str, place: Place) -> pa.Array:
    """The column `source` of numbers, or of None."""
    try:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    except (TypeError, ValueError, OverflowError):
        raise place.error(source, "holds what is no number") from None


def plain_value(value: Any) -> Any:
    """A value of a type that Arrow has none for as the one that stands for it."""
    if isinstance(value, Timestamp):
        return value.to_utc_datetime(has_tz=True)
    if isinstance(value, decimal.Decimal):
        return format(value.normalize(), "f")  # equal numbers are one key
    return str(value) if isinstance(value, uuid.UUID) else value
