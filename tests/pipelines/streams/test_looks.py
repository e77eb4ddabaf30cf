"""Which files and rows a stream takes, and when its windows close: functions of public numbers, and of each row alone."""

import argparse
import datetime
import pickle

import pyarrow as pa
import pytest

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.windows import Windows
from headcount.pipelines.streams.arriving import in_windows
from headcount.pipelines.streams.flags import of_one_window, stream_of
from headcount.pipelines.streams.looks import Coming, Looks, OneClock

WINDOWS = Windows(1000, 100, 3)
FILE = {b"headcount.file": b"f.csv", b"headcount.first_row": b"1"}


def clocks(looks, now, every):
    """How far the clock is from one step to the next, for a worker that comes when it is asked to, or `every` so much later."""
    clock = looks.windows.start
    while clock < looks.windows.last:
        clock = looks.next(clock, now)
        yield now, clock
        now = max(looks.resumes(clock, now), now) + every


@pytest.mark.parametrize("first", [0, 995, 1000, 1001, 1250, 1309, 1310, 5000])
@pytest.mark.parametrize("every", [1, 7, 60])
@pytest.mark.parametrize("late", [0, 0.3, 100])
def test_the_clock_goes_on_by_public_numbers_and_stands_still_at_each_end(first, every, late):
    looks = Looks(WINDOWS, first, every, 10)
    found = list(clocks(looks, first, late))
    assert len(found) <= looks.steps
    told = [clock for _, clock in found]
    assert told == sorted(told) and {1100, 1200, 1300} <= {*told}
    assert all(clock <= max(WINDOWS.start, now - looks.wait) for now, clock in found), (
        "none closes before its wait is over"
    )
    last = looks.number - 1
    assert looks.at(last) >= 1310 and (last == 0 or looks.at(last - 1) < 1310)
    assert looks.due(first - 1) < 0 and looks.due(10**9) == last and looks.target(10**9) >= WINDOWS.last


def test_a_path_is_new_once_and_what_is_to_come_is_never_divided():
    """A runner that divides the steps of a slow look would have each file read twice."""
    coming = Coming(0, 9, set())
    tracker = OneClock(coming)
    new = coming.new(["a", "b"])
    assert [*new.values()] == ["a", "b"] and tracker.try_claim((0, new)) and tracker.try_split(0.5) is None
    _, rest = tracker.try_split(0)
    again = pickle.loads(pickle.dumps(rest))
    assert (again.start, again.stop) == (1, 9) and [*again.new(["a", "b", "c"]).values()] == ["c"]
    assert tracker.try_split(0) is None, "there is one clock"


def rows(times, **columns):
    return pa.RecordBatch.from_pydict({"at": times, **columns}).replace_schema_metadata(FILE)


@pytest.mark.parametrize("kind", ["s", "ms", "us", "ns", "zoned", "text"])
def test_rows_are_in_the_window_of_their_time(kind):
    seconds = [999, 1000, 1099, 1100, 1299, 1300, -5]
    moments = [datetime.datetime.fromtimestamp(each, datetime.UTC) for each in seconds]
    if kind == "text":
        times = pa.array([f"{each:%Y-%m-%dT%H:%M:%S}Z" for each in moments])
    else:
        times = pa.array(moments, pa.timestamp("us", "Europe/Berlin") if kind == "zoned" else pa.timestamp(kind))
    found = {
        end: part.column("row").to_pylist() for end, part in in_windows(rows(times, row=range(7)), "at", WINDOWS, False)
    }
    assert found == {1100: [1, 2], 1200: [3], 1300: [4]}


def test_a_row_without_a_time_is_refused_or_dropped_and_rows_keep_their_numbers_only_if_all_are_there():
    times = pa.array([1000, None, 1001], pa.timestamp("s"))
    with pytest.raises(InputError, match=r"f.csv: column 'at', row 2: holds a null"):
        list(in_windows(rows(times), "at", WINDOWS, False))
    [(end, part)] = in_windows(rows(times), "at", WINDOWS, True)
    assert (end, part.num_rows) == (1100, 2) and b"headcount.first_row" not in part.schema.metadata
    [(_, whole)] = in_windows(rows(pa.array([1000, 1001], pa.timestamp("s"))), "at", WINDOWS, False)
    assert whole.schema.metadata == FILE
    assert list(in_windows(rows(pa.nulls(2)), "at", WINDOWS, True)) == []
    with pytest.raises(InputError, match="f.csv: column 'at'"):
        list(in_windows(rows(pa.array([1.5])), "at", WINDOWS, False))


def flags(**given):
    usual = {"time": "at", "every": "day", "from_": "2026-11-18", "windows": 30, "wait": "1h", "look_every": None}
    usual |= {"protect": "user", "period": None, "overwrite": False, "memory_limit": None, "epsilon": 1.0}
    return argparse.Namespace(**usual | given)


def test_flags_of_a_stream():
    stream = stream_of(flags())
    assert (stream.windows, stream.wait, stream.look_every) == (Windows("2026-11-18", 86_400, 30), 3600, 60)
    assert stream_of(flags(every="30s", wait="0s")).look_every == 3
    assert stream_of(flags(every="week", from_="2026-11-16T00:00+01:00", look_every="2s")).look_every == 2
    own = of_one_window(flags())
    assert own.time is None and own.windows is None and own.epsilon == 1 and not hasattr(own, "every")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": "month"}, "span of fixed length"),
        ({"every": "0s"}, "at least 1 s"),
        ({"every": "soon"}, "every must be a span of time"),
        ({"wait": None}, "missing --wait"),
        ({"from_": "tomorrow"}, "start of windows"),
    ],
)
def test_wrong_flags_of_a_stream(given, message):
    with pytest.raises(ParameterError, match=message):
        stream_of(flags(**given))


@pytest.mark.parametrize("given", [{"protect": "user-day"}, {"period": "x"}, {"overwrite": True}, {"memory_limit": 5}])
def test_flags_that_a_stream_does_not_have(given):
    with pytest.raises(ParameterError, match=f"--{[*given][0].replace('_', '-')} is not for streams"):
        of_one_window(flags(**given))
