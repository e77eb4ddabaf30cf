"""Values of every type as leaves: exact at the edges, and refused without telling them."""

import datetime
import math

import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.sampled.axis import Axis, is_value_type, leaf_column
from headcount.mechanisms.sampled.leaves import Leaves

DAY = datetime.date(2024, 1, 1)
TENTHS = Axis("number"), Leaves(0, 1, 10)
DAYS = Axis.of(DAY, datetime.date(2024, 2, 1))
GRID = Leaves(DAYS.number("lo", DAY), DAYS.number("hi", datetime.date(2024, 2, 1)), 31)


def leaves(column, axis=TENTHS[0], grid=TENTHS[1], **given):
    return leaf_column(column, axis, grid, "value", **given).to_pylist()


def test_numbers_of_every_type():
    for kind in (pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()):
        column = pa.array([0, 1, None, 100]).cast(pa.float32() if kind == pa.float16() else kind).cast(kind)
        assert leaves(column) == [0, 9, None, 9], kind
    assert leaves(pa.array([2**64 - 1, 0], pa.uint64())) == [9, 0]
    assert leaves(pa.chunked_array([[0.1], [0.3]])) == [1, 2]  # the float next to 3/10 is below it
    assert leaves(pa.array([0.1, 0.95, 0.1]).dictionary_encode()) == [1, 9, 1]
    assert leaves(pa.array([None, None])) == [None, None]
    assert leaves(pa.array([0.05, math.nan, -math.inf, math.inf]), drop_null=True) == [0, None, 0, 9]


def test_texts_are_read_as_the_nearest_float():
    texts = ["0.1", "1e-400", "+.5", "3.", "1e999", None, "-0", "0.30000000000000004"]
    assert leaves(pa.array(texts)) == [1, 0, 5, 9, 9, None, 0, 3]
    assert leaves(pa.array(texts, pa.large_string())) == leaves(pa.array(texts))


def test_a_date_is_the_first_moment_of_its_day():
    days = [datetime.date(2024, 1, 31), DAY, None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
    assert leaves(pa.array(days), DAYS, GRID) == [30, 0, None, 0, 30]
    assert leaves(pa.array(days, pa.date64()), DAYS, GRID) == [30, 0, None, 0, 30]
    assert leaves(pa.array([2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32()), DAYS, GRID) == [30, 0]


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_times_in_every_unit(unit, per_second, zone):
    """The moment a day begins belongs to it, the one before to the day before; what int64 holds at most, to the ends."""
    start = int(datetime.datetime(2024, 1, 15, tzinfo=datetime.UTC).timestamp()) * per_second
    column = pa.array([start, start - 1, 2**63 - 1, -(2**63), None], pa.timestamp(unit, zone))
    assert leaves(column, DAYS, GRID) == [14, 13, 30, 0, None]


def test_texts_of_times():
    texts = ["2024-01-02", "2024-01-02T23:59:59.999999Z", "2024-01-03 00:00", None]
    assert leaves(pa.array(texts), DAYS, GRID) == [1, 1, 2, None]


@pytest.mark.parametrize(
    ("column", "axis", "said"),
    [
        (pa.array(["1", "secret"]), TENTHS, "column 'value', row 8: is not a decimal number"),
        (pa.array(["1", "0x10"]), TENTHS, "row 8: is not a decimal number"),
        (pa.array(["1", ""]), TENTHS, "row 8: is not a decimal number"),
        (pa.array([1.0, math.nan]), TENTHS, "row 8: is not a number .NaN.; drop such rows"),
        (pa.array([True]), TENTHS, "is of type bool; values must be numbers, as lo and hi are"),
        (pa.array([DAY]), TENTHS, "give lo and hi .--lo, --hi. as dates or times"),
        (pa.array([1.5]), (DAYS, GRID), "is of type double; values must be dates or times, as lo and hi are"),
        (pa.array(["2024-01-01", "2024-02-30"]), (DAYS, GRID), "row 8: is not a date or time such as"),
        (pa.array(["2024-01-01", "2024-01-01T25:00:00"]), (DAYS, GRID), "row 8: is not a date or time such as"),
        (pa.array(["2024-01-01", "yesterday"]), (DAYS, GRID), "row 8: is not a date or time such as"),
        (pa.array([b"\xff\xfe"]).view(pa.binary()).cast(pa.string(), safe=False), TENTHS, "no valid UTF-8"),
    ],
)
def test_wrong_values_are_refused_with_their_row_and_not_told(column, axis, said):
    with pytest.raises(InputError, match=said) as caught:
        leaves(column, *axis, place=Place("file", 7))
    assert not any(word in str(caught.value) for word in ("secret", "0x10", "yesterday", "2024-02-30"))


def test_which_columns_can_hold_values():
    good = (
        pa.int8(),
        pa.float32(),
        pa.date32(),
        pa.timestamp("ns"),
        pa.string(),
        pa.dictionary(pa.int32(), pa.string()),
    )
    assert all(map(is_value_type, good))
    assert not any(map(is_value_type, (pa.bool_(), pa.binary(), pa.list_(pa.int8()), pa.time32("s"))))


def test_released_rows_of_times_are_text_without_the_unknown():
    rows = pa.RecordBatch.from_pydict({"quantile": [0.1, 0.5], "value": [GRID.edge(14) + 0.25, math.nan]})
    assert DAYS.shown(rows).to_pylist() == [{"quantile": 0.1, "value": "2024-01-15"}]
    assert Axis("time").shown(rows).to_pylist() == [{"quantile": 0.1, "value": "2024-01-15T00:00:00.000000"}]
    assert TENTHS[0].shown(rows).num_rows == 1
    counts = pa.RecordBatch.from_pydict({"low": [float(GRID.lo)], "high": [float(GRID.hi)], "count": [3.0]})
    assert DAYS.shown(counts).to_pylist() == [{"low": "2024-01-01", "high": "2024-02-01", "count": 3.0}]


def test_ends_of_different_kinds_are_refused():
    assert [Axis.of(0, 1.5).kind, Axis.of(DAY, DAY).kind] == ["number", "date"]
    zone = datetime.timezone(datetime.timedelta(hours=9))
    time = Axis.of(datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 9, tzinfo=zone))
    assert time.number("hi", datetime.datetime(2024, 1, 1, 9, tzinfo=zone)) == GRID.lo
    for lo, hi in ((0, DAY), (DAY, datetime.datetime(2024, 1, 1)), ("0", 1), (True, 2)):
        with pytest.raises(ParameterError, match="lo"):
            Axis.of(lo, hi)
    with pytest.raises(ParameterError, match="a range must be a number, as lo and hi are, got True"):
        TENTHS[0].number("a range", True)
