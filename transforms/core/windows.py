"""Fixed windows: which windowings are taken, the release of each window, and what is there in every one of them.

Each window is a release with an id of its own (`Release.of_window`), and its rows are those of a job with that id on the rows
of that window. So every step that draws asks for the release of its element's window. In the global window that is the one
release there is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import (
    BoundedWindow,
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
)
from apache_beam.utils.windowed_value import WindowedValue

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.randomness.windows import Windows
from headcount.transforms.core.coders import typed

_MOST_HELD = 64  # windows whose keys a step remembers: a stream has no end of them
_MICROS = 10**6
_WAY_OUT = "apply beam.WindowInto(FixedWindows(size)) or beam.WindowInto(GlobalWindows()) first"
_IN_STREAMS = "Histogram and Aggregate without levels, SelectPartitions and Total"
_NO_WINDOWS = {
    SlidingWindows: "sliding windows have each row in several, so that a user would be counted again in each",
    Sessions: "sessions begin and end where the data say, but windows must be public",
}


def check_windowing(rows: beam.PCollection) -> None:
    """Refuses a collection that may come in pieces: each would be one more release of the same users."""
    windowing = rows.windowing
    kind = type(windowing.windowfn)
    if kind not in (GlobalWindows, FixedWindows):
        why = _NO_WINDOWS.get(kind, f"{kind.__name__} is not known to have each row in one public window")
        raise ParameterError(f"Headcount counts over fixed windows or the whole collection, but {why}: {_WAY_OUT}")
    if not isinstance(windowing.triggerfn, DefaultTrigger):
        raise ParameterError("Headcount counts a window once, but this collection has a trigger; leave the trigger out")
    if kind is FixedWindows and windowing.accumulation_mode == AccumulationMode.ACCUMULATING:
        raise ParameterError(
            "Headcount counts a window once, but this collection accumulates panes; leave the accumulation_mode out"
        )
    if kind is FixedWindows and windowing.allowed_lateness.micros:
        raise ParameterError(
            "Headcount counts a window once, but late rows would make it fire again, for one more release of the same users; "
            "leave allowed_lateness out"
        )
    if windowing.timestamp_combiner != TimestampCombiner.OUTPUT_AT_EOW:
        raise ParameterError("times of rows would show in the results' timestamps; leave the timestamp_combiner out")
    if kind is GlobalWindows and not rows.is_bounded:
        raise ParameterError(
            "this collection is unbounded (streaming), so that its one window never ends: apply "
            "beam.WindowInto(FixedWindows(size)) first, and give Release(key, id, windows=Windows(start, size, number))"
        )


def check_stream(rows: beam.PCollection, closes: bool) -> None:
    """Refuses an unbounded collection, unless windows are known to close while the stream goes on."""
    if not (rows.is_bounded or closes):
        raise ParameterError(
            "this collection is unbounded (streaming), and this transform is not known to close windows before a stream ends; "
            f"{_IN_STREAMS} do, or give it a bounded collection, such as the rows of a window that has ended"
        )


def check_whole(rows: beam.PCollection) -> None:
    """The same, and refuses windows: for what counts over the whole collection alone."""
    check_windowing(rows)
    if is_windowed(rows):
        raise ParameterError(
            "this transform counts over the whole collection, but this one is windowed; apply "
            "beam.WindowInto(GlobalWindows()) first"
        )


def check_release(rows: beam.PCollection, release: Release | None) -> None:
    """Refuses windows that the release does not tell: which there are is public, and never taken from the data."""
    check_windowing(rows)
    windows = None if release is None else release.windows
    if not is_windowed(rows):
        if windows is not None:
            raise ParameterError(
                f"the release has windows, but the collection has none: apply beam.{_into(windows)} first, or leave them out"
            )
        return
    if windows is None:
        raise ParameterError(
            "each window is a release, and must be there also without rows, but this one is windowed and the release does not "
            "tell which windows there are; give Release(key, windows=Windows(start, size, number)), or apply "
            "beam.WindowInto(GlobalWindows()) first"
        )
    found = rows.windowing.windowfn
    if (
        found.size.micros != windows.size * _MICROS
        or (windows.start * _MICROS - found.offset.micros) % found.size.micros
    ):
        raise ParameterError(f"the collection has other windows than the release: apply beam.{_into(windows)}")


def _into(windows: Windows) -> str:
    offset = windows.start % windows.size
    return f"WindowInto(FixedWindows({windows.size}{f', {offset}' if offset else ''}))"


def is_windowed(rows: beam.PCollection) -> bool:
    """Whether a collection is in windows."""
    return not isinstance(rows.windowing.windowfn, GlobalWindows)


def release_in(release: Release, window: BoundedWindow) -> Release:
    """The release of one window; in the global one, the release itself."""
    return release if isinstance(window, GlobalWindow) else release.of_window(int(window.end))


class WindowKey(NamedTuple):
    """What one window draws from: the key, and the id of its release."""

    key: bytes
    id: str


def window_keys(release: Release) -> Callable[[BoundedWindow], WindowKey]:
    """What gives the key and the id of a window. It is made on the worker, so that no key is ever part of the pipeline."""

    @functools.lru_cache(maxsize=_MOST_HELD)
    def of(window: BoundedWindow) -> WindowKey:
        own = release_in(release, window)
        return WindowKey(own.key_source.fetch(), own.id)

    return of


def in_window(value: Any, window: BoundedWindow) -> WindowedValue | beam.pvalue.TaggedOutput:
    """A result that belongs to this window, whichever element is at work when it comes."""
    if isinstance(value, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(value.tag, in_window(value.value, window))
    return WindowedValue(value, window.max_timestamp(), [window])


def every(near: beam.PCollection, label: str, values: Sequence[Any], of: Any = None) -> beam.PCollection:
    """These values, of the type `of` if they do not tell it: once in the global window, else once in each public window.

    `near` is a collection made of shards of users. Windows come from the clock in the users' shuffle (`Ticks`) and from no
    other source, so that no step waits for one that runs ahead.
    """
    made = beam.Create(values, reshuffle=False)
    kind = of or made.infer_output_type(None)
    if not is_windowed(near):
        return near.pipeline | label >> made.with_output_types(kind)
    return _apart(near).outputs[_Apart.CLOCK] | label >> beam.FlatMap(_copies, list(values)).with_output_types(kind)


def _copies(_: tuple[int, bytes], values: list[Any]) -> list[Any]:
    return values


class Ticks(beam.PTransform):
    """(TICK, b"") in each of the windows, beside the chunks of their users."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self._windows = windows

    def expand(self, chunks: beam.PCollection) -> beam.PCollection:
        return (
            chunks.pipeline
            | "Starts" >> beam.Create([self._windows], reshuffle=False)
            | "Stamped" >> beam.FlatMap(_ticks).with_output_types(tuple[int, bytes])
            | "InWindows" >> beam.WindowInto(chunks.windowing)
        )


TICK = -1  # the shard of nobody, which tells that there is a window


def _ticks(windows: Windows) -> Iterator[WindowedValue]:
    # Not Beam's TimestampedValue, which --runtime_type_check takes for the value itself.
    return (WindowedValue((TICK, b""), start, [GlobalWindow()]) for start in windows.starts())


class ApartFromClock(beam.PTransform):
    """Groups of the users' shuffle -> those of users; what is there in every window is kept apart for `every`."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self._windows = windows

    def expand(self, grouped: beam.PCollection) -> beam.PCollection:
        made = grouped | "Apart" >> beam.ParDo(_Apart(self._windows)).with_output_types(
            grouped.element_type
        ).with_outputs(_Apart.CLOCK, main="users")
        return typed(made, **{_Apart.CLOCK: tuple[int, bytes]}).users


class _Apart(beam.DoFn):
    CLOCK = "clock"

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def process(self, group: tuple[int, Any]) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput(self.CLOCK, (TICK, b"")) if group[0] == TICK else group


def check_bounded_in(bounded: beam.PCollection, release: Release) -> None:
    """Refuses noise for other windows than those that users were bounded in: its guarantee would speak of too few."""
    if release.windows is not None and _apart(bounded).transform.fn.windows != release.windows:
        raise ParameterError("users were bounded in other windows than these: give both the same windows")


def _apart(near: beam.PCollection) -> Any:
    """The step that keeps the clock of the nearest users' shuffle that a collection was made of."""
    todo, seen = [near], set()
    for each in todo:
        part = each.producer
        if part is None or part in seen:
            continue
        seen.add(part)
        if isinstance(getattr(part.transform, "fn", None), _Apart) and _same_windows(each, near):
            return part
        inputs = (*part.inputs, *(side.pvalue for side in part.side_inputs))
        todo.extend(more for more in inputs if isinstance(more, beam.PCollection))
    raise ParameterError(
        "users were bounded in other windows than these: apply beam.WindowInto before they are bounded"
    )


def _same_windows(one: beam.PCollection, other: beam.PCollection) -> bool:
    return bool(one.windowing.windowfn == other.windowing.windowfn)
