"""A row of a typed column has the name and the bin that it has alone, so no other row of its column matters.

Decimals have one name and one bin in every type: their digits are often taken from the rows before Headcount sees them.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches import decimals
from headcount.mechanisms.batches.frames import table_of
from headcount.mechanisms.columns import fields
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError

D = decimal.Decimal
NOON = datetime.datetime(2026, 3, 1, 12)
LATE = datetime.datetime(2026, 2, 28, 23, 30)  # in Tokyo, already the next day and month
MADE = ["x", "x:0,0.1,0.3,1.5", "x:0,9007199254740996", "x:int", "x:hour", "x:day", "x:month"]
DECIMALS = [
    *([pa.decimal32(9, 3), pa.decimal64(15, 9)] if hasattr(pa, "decimal32") else []),
    *(pa.decimal128(10, 6), pa.decimal128(38, 30), pa.decimal256(60, 40)),
]
# Columns of every type, with values that are odd among the others.
TYPED: dict[str, pa.Array] = {
    **{f"int{bits}": pa.array([0, 1, 5, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1], f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": pa.array([0, 1, 5, 2**bits - 1], f"uint{bits}") for bits in (8, 16, 32, 64)},
    "bool": pa.array([True, False]),
    **{
        f"float{bits}": pa.array(np.array([0.1, 0.3, 1.5, -0.0, 6e4, np.nan, np.inf, -np.inf], f"f{bits // 8}"))
        for bits in (16, 32, 64)
    },
    **{
        str(found): pa.array([D("0.1"), D("0.3"), D("1.5"), D(0), D(-2), D("99.99")], found)
        for found in DECIMALS
    },
    "wide decimals": pa.array([D("0.1"), D("1E+30"), D("-1E+30"), D("1.5"), D("1E-6")], pa.decimal128(38, 6)),
    "coarse decimals": pa.array([D("1E+3"), D(0), D("-2E+5")], pa.decimal128(9, -3)),
    "date32": pa.array([NOON.date(), LATE.date(), datetime.date.min, datetime.date.max]),
    "date64": pa.array([NOON.date(), LATE.date()], pa.date64()),
    **{
        f"timestamp {unit} {zone}": pa.array([LATE, NOON, datetime.datetime(1970, 1, 1), datetime.datetime(1950, 5, 5)]).cast(
            pa.timestamp(unit, zone)
        )
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "America/Lima")
    },
    "time32": pa.array([datetime.time(1), datetime.time(23)], pa.time32("s")),
    "time64": pa.array([datetime.time(1), datetime.time(23)], pa.time64("ns")),
    "duration": pa.array([1, 2], pa.duration("ms")),
    "uuid": pa.array([uuid.UUID(int=k).bytes for k in (1, 2)], pa.uuid()),
    **{str(found): pa.array(["a", "1.5", ""]).cast(found) for found in (pa.string(), pa.large_string(), pa.string_view())},
    "texts of numbers": pa.array(["0.1", "0.3", "1e400", "-7", "nan"]),
    "texts of times": pa.array(["2026-03-01", "2026-02-28T23:30:00Z", "2026-02-28 23:30", "1950-01-01T00:00+09:00"]),
}  # fmt: skip


def names_of(column: pa.Array, spec: str) -> tuple[pa.Schema, list[Any]]:
    """The schema, and each row's name and what is shown of it."""
    keys = asked("user", spec, time_zone="Asia/Tokyo").of_types({"x": column.type}).keys
    names = keys.encode({"x": column})
    names = names.dictionary_decode() if isinstance(names, pa.DictionaryArray) else names
    return keys.schema, list(zip(names.to_pylist(), map(str, keys.decode(names)[0]), strict=True))


@pytest.mark.parametrize("kind", TYPED)
def test_a_row_of_a_typed_column_has_the_name_that_it_has_alone(kind):
    """So no row beside it matters; also in a dictionary, and with nulls."""
    plain = TYPED[kind]
    forms = [plain, pa.concat_arrays([pa.nulls(1, plain.type), plain]), pa.chunked_array([plain, plain])]
    indices = pa.array(np.arange(len(plain), dtype=np.int8))
    forms.append(pa.DictionaryArray.from_arrays(indices, plain))
    taken = 0
    for spec, column in itertools.product(MADE, forms):
        try:
            schema, names = names_of(column, spec)
        except InputError:
            continue
        alone = [names_of(column.slice(row, 1), spec) for row in range(len(column))]
        assert names == [name for _, (name,) in alone] and all(schema == each for each, _ in alone)
        taken += 1
    assert taken >= 2


AS_FLOATS_AND_TEXTS = {
    "decimal_bins": lambda array, edges: np.searchsorted(edges, array.cast(pa.float64()), side="right"),
    "decimal_names": lambda array: array.cast(pa.string()),
}


NUMBERS = ["0", "0.1", "0.3", "1.5", "-2", "99.99", "0.01", "-0.1", "18"]
EDGES = "x:-2,-0.1,0,0.01,0.1,0.3,1.5,18,99.99"


def labels_of_decimals() -> set[tuple[Any, ...]]:
    """What names, and bins that begin at these very numbers, are made of the same numbers in every type of decimals."""
    numbers = list(map(D, NUMBERS))
    columns = [pa.array(numbers, found) for found in DECIMALS] + [table_of({"x": numbers}).column("x").combine_chunks()]
    wide = pa.array([*numbers, D("1E+25")], pa.decimal128(38, 12)).slice(0, len(numbers))
    return {(*names_of(column, "x")[1], *names_of(column, EDGES)[1]) for column in [*columns, wide]}


def test_a_decimal_has_one_name_and_one_bin_whatever_digits_its_column_keeps():
    (labels,) = labels_of_decimals()
    assert [name for name, _ in labels[: len(NUMBERS)]] == NUMBERS
    assert [label for _, label in labels[len(NUMBERS) :]] == [
        *("[0, 0.01)", "[0.1, 0.3)", "[0.3, 1.5)", "[1.5, 18)", "[-2, -0.1)", ">= 99.99", "[0.01, 0.1)", "[-0.1, 0)"),
        "[18, 99.99)",
    ]


def test_the_audit_sees_decimals_that_are_read_as_floats_or_named_with_their_zeros(monkeypatch):
    for part, known_bug in AS_FLOATS_AND_TEXTS.items():
        with monkeypatch.context() as patch:
            patch.setattr(fields, part, known_bug)
            assert len(labels_of_decimals()) > 1


def test_bins_of_wide_decimals_are_exact():
    """Beyond 64 bits too, against Python's own comparison."""
    rng = np.random.default_rng(7)
    digits = ["".join(map(str, rng.integers(0, 10, rng.integers(1, 33)))) for _ in range(500)]
    numbers = [D(f"{'-' * int(rng.integers(0, 2))}{each}E-4") for each in digits]
    edges = sorted({int(number) for number in numbers[::50]} | {0, 10**25})
    column = pa.array(numbers, pa.decimal128(38, 4))
    expected = [sum(number >= edge for edge in edges) for number in numbers]
    assert decimals.decimal_bins(column, edges).tolist() == expected
    assert decimals.decimal_bins(column.slice(7), edges).tolist() == expected[7:]
