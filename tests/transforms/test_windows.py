"""Fixed windows: each is a release of its own, with the rows of the job that has its id, also where nobody was there.

What a job of its own gives is what the mechanism's `run` gives for the window's rows and release (test_contract_runs holds both
together): so whatever draws must know its window. Two windows have the same rows, which the mutation that shares lanes shows.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.transforms import trigger
from apache_beam.transforms.window import (
    BoundedWindow,
    FixedWindows,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
)
from apache_beam.utils.timestamp import Timestamp

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns.level_keys import LevelKeys
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.estimators import EntropyQuestion
from headcount.transforms import (
    Aggregate,
    Bound,
    Budget,
    Contributions,
    Histogram,
    NoisyCounts,
    PropertiesOfShape,
    RandClip,
    ShuffledReports,
    Windows,
)
from headcount.transforms.core import windows as of_windows
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.contributions import _ToBatches
from tests.transforms import test_levels, test_partly_public
from tests.transforms.contract_lines import TABLE, table, tuples
from tests.transforms.test_contract_runs import Bench, plain

SIZE = 60
WINDOWS = Windows(120, SIZE, 4)
ENDS = [start + SIZE for start in WINDOWS.starts()]
BUDGET = Budget(2, 1e-4)

# One of each way that draws are wired; the others are slow.
WAYS = [
    "Histogram, one stage",
    "Histogram, public domain, bound chosen",
    "SelectPartitions",
    "Total, bound chosen",
    "Funnel",
    "SampledHistogram",
    "AnonymizedHistogram, hashed",
]


def rows_by_end() -> dict[int, pa.Table]:
    """The rows of each window: the second has none, and the last has those of the first."""
    every = table(4000)
    first, other = every.slice(0, 2000), every.slice(2000)
    return dict(zip(ENDS, (first, first.slice(0, 0), other, first), strict=True))


def stamped() -> list[TimestampedValue]:
    """Batches of all windows in turn, and some beyond the public ones."""
    parts = [
        [TimestampedValue(batch, end - 1 - k) for k, batch in enumerate(rows.to_batches(500))]
        for end, rows in rows_by_end().items()
    ]
    beyond = [TimestampedValue(table(100).to_batches()[0], at) for at in (WINDOWS.start - 1, WINDOWS.last)]
    return [*beyond, *(batch for turn in zip(*(part for part in parts if part), strict=True) for batch in turn)]


@pytest.fixture
def release(make_release) -> Release:
    plain = make_release()
    return Release(plain.key_source, plain.id, windows=WINDOWS).of_rows("any")


class _Tagged(beam.DoFn):
    def __init__(self, name: str) -> None:
        self._name = name

    def process(
        self, row: Any, window: BoundedWindow = beam.DoFn.WindowParam, at: Timestamp = beam.DoFn.TimestampParam
    ) -> Iterator[tuple[str, int, Any]]:
        # Timestamps go from step to step in milliseconds.
        assert at.micros // 1000 == window.max_timestamp().micros // 1000, "else it would tell when somebody was there"
        yield self._name, int(window.end), row


def windowed(collect, release: Release, names: list[str], is_bounded: bool = True) -> dict[str, dict[int, list[Any]]]:
    """{name: {end: sorted rows}} of all transforms on one collection in windows; each decides once in each window."""
    bench = Bench(None, release)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        # Of any type: Beam's own is that of stamped batches, which come without their stamps.
        batches = beam.Create(stamped(), reshuffle=False).with_output_types(Any)
        source = pipeline | batches | beam.WindowInto(FixedWindows(SIZE))
        source.is_bounded = is_bounded
        found = {}
        for name in names:
            transform = bench.made(name, shards=3)
            if TABLE[name].decides:
                found[name], found[f"decision of {name}"] = bench.applied(source, name, transform.with_decision(), str)
            else:
                found[name] = bench.applied(source, name, transform, str)
        tagged = [rows | f"Tagged {name}" >> beam.ParDo(_Tagged(name)) for name, rows in found.items()]
        whole = tagged | beam.Flatten() | "Whole" >> beam.WindowInto(GlobalWindows())
        whole.is_bounded = True
        return whole

    every = collect(build)
    assert {end for _, end, _ in every} <= set(ENDS), "rows beyond the public windows are dropped"
    for name in names:
        decided = sorted(end for at, end, _ in every if at == f"decision of {name}")
        assert decided == (ENDS if TABLE[name].decides else [])
    return {
        name: {end: sorted(plain(row for at, when, row in every if (at, when) == (name, end))) for end in ENDS}
        for name in names
    }


def expected(release: Release, name: str) -> dict[int, list[Any]]:
    """What jobs of their own give, each with the id of its window."""
    found = {}
    for end, rows in rows_by_end().items():
        own = release.of_window(end)
        found[end] = sorted(TABLE[name].pure(Bench(None, own).made(name), rows, "item", own, name))
    return found


def check_rows(collect, release: Release, names: list[str]) -> None:
    found = windowed(collect, release, names)
    assert [name for name in names if found[name] != expected(release, name)] == []


@pytest.mark.seconds
def test_rows_of_a_window_are_those_of_a_job_of_its_own(collect, release, soon_planned):
    check_rows(collect, release, WAYS)


@pytest.mark.slow("jobs")
def test_rows_of_a_window_are_those_of_a_job_of_its_own_for_all_others(collect, release, soon_planned):
    check_rows(collect, release, [name for name in TABLE if name not in WAYS])


@pytest.mark.seconds
def test_a_lane_that_windows_share_is_caught(collect, release, monkeypatch):
    """The mutation: every window draws from the one release. Equal rows then have equal noise, which their difference shows."""
    monkeypatch.setattr(of_windows, "release_in", lambda release, window: release)
    name = "Histogram, one stage"
    found, (first, *_, last) = windowed(collect, release, [name])[name], ENDS
    assert found != expected(release, name) and found[first] == found[last]


@pytest.mark.seconds
def test_every_window_has_all_files_and_rows_may_be_single_ones(collect, release):
    """Also the one without rows. Tuples of all windows come in turn, and are those of the frames."""
    name = "Histogram, one stage"
    single = [
        TimestampedValue((row["user"], row["item"]), end - 1)
        for end, rows in rows_by_end().items()
        for row in rows.select(["user", "item"]).to_pylist()
    ]
    random.Random(1).shuffle(single)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(single, reshuffle=False) | beam.WindowInto(FixedWindows(SIZE))
        made = Bench(None, release).made(name, output_files=2)
        files = rows | name >> made | beam.ParDo(_Tagged(name))
        return files | "Whole" >> beam.WindowInto(GlobalWindows())

    found = sorted(((end, *file) for _, end, file in collect(build)), key=lambda found: found[:2])
    assert [(end, number) for end, number, _ in found] == [(end, number) for end in ENDS for number in (0, 1)]
    counts = {at: sorted(row for end, _, batch in found if end == at for row in tuples(batch)) for at in ENDS}
    assert counts == expected(release, name)


LEVELS = {
    "levels": lambda release: Histogram(BUDGET, levels=True, release=release, shards=3),
    "levels at home": lambda release: Histogram(BUDGET, levels=True, home=True, release=release, shards=3),
    "levels of metrics": lambda release: Aggregate(BUDGET, ["users", "events"], levels=True, release=release, shards=3),
}


@pytest.mark.slow("jobs")
def test_keys_in_levels_and_partly_public_ones_have_the_rows_of_jobs_of_their_own(collect, release):
    """In the first and the third window; the second and the last have none."""
    here = (ENDS[0], ENDS[2])
    logs = {"levels": test_levels.log(), "partly": test_partly_public.table()}
    halves = {what: [log.slice(0, 3000), log.slice(3000, 3000)] for what, log in logs.items()}
    item = ["country", "at"]

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        made = []
        for what, parts in halves.items():
            stamps = [TimestampedValue(part.combine_chunks(), end - 1) for part, end in zip(parts, here, strict=True)]
            source = pipeline | f"Rows {what}" >> beam.Create(stamps, reshuffle=False)
            source = source | f"Windows {what}" >> beam.WindowInto(FixedWindows(SIZE))
            if what == "levels":
                rows = source | Contributions(item=item, schema=parts[0].schema)
                made += [
                    rows | name >> make(release) | f"Tagged {name}" >> beam.ParDo(_Tagged(name))
                    for name, make in LEVELS.items()
                ]
            else:
                rows = source | f"Contributions {what}" >> Contributions(
                    item=test_partly_public.ITEM, schema=parts[0].schema
                )
                transform = test_partly_public.MAKE["histogram"](output_files=1, release=release)
                made.append(rows | "It" >> transform | "Tagged It" >> beam.ParDo(_Tagged("It")))
        return made | beam.Flatten() | "Whole" >> beam.WindowInto(GlobalWindows())

    every = collect(build)
    for name, make in LEVELS.items():
        transform, schema = make(release), asked("user", item).of_schema(logs["levels"].schema)
        for end, part in zip(here, halves["levels"], strict=True):
            batches = [schema.batch(batch, Place()) for batch in part.to_batches()]
            pure = transform.mechanism.of_depth(2).run(batches, release.of_window(end), name)
            rows = [dict(row._asdict()) for at, when, row in every if (at, when) == (name, end)]
            assert sorted(map(repr, rows)) == sorted(map(repr, LevelKeys(schema.keys.fields).restore(pure).to_pylist()))
            assert len(rows) > 5
    files = {when: file[1] for at, when, file in every if at == "It"}
    assert sorted(files) == ENDS
    for end, part in zip(here, halves["partly"], strict=True):
        assert files[end].num_rows and files[end].equals(
            test_partly_public.expected(part, "histogram", release.of_window(end))
        )


class _Twice(Ahead):
    def process(self, number: int, window: BoundedWindow = beam.DoFn.WindowParam) -> Iterator[Any]:
        return self.ahead(window, number)

    def compute(self, number: int) -> Iterator[Any]:
        yield number
        yield beam.pvalue.TaggedOutput("beside", number)


def test_what_is_computed_ahead_comes_out_in_its_own_window():
    step, given = _Twice(), [(IntervalWindow(60 * (k % 3), 60 * (k % 3) + 60), k) for k in range(7)]
    step.start_bundle()
    found = [each for window, number in given for each in step.process(number, window)] + list(step.finish_bundle())
    main = [each for each in found if not isinstance(each, beam.pvalue.TaggedOutput)]
    assert [(*each.windows, each.value) for each in main] == given
    assert [(*each.value.windows, each.value.value) for each in found if each not in main] == given


def test_single_rows_wait_for_those_of_their_own_window():
    step, (one, other) = _ToBatches(asked("user", "item")), (IntervalWindow(0, 60), IntervalWindow(60, 120))
    step.start_bundle()
    for window, row in ((one, ("u", "a")), (other, ("u", "b")), (one, ("v", "c"))):
        assert list(step.process(row, window)) == []
    found = {each.windows[0]: each.value.column("item").to_pylist() for each in step.finish_bundle()}
    assert found == {one: ["a", "c"], other: ["b"]}


def rows(windowing: beam.PTransform) -> beam.PCollection:
    return beam.Pipeline(runner="FnApiRunner") | beam.Create([("u", "i")]) | windowing


@pytest.mark.parametrize(
    ("windowing", "words"),
    [
        (lambda: beam.WindowInto(SlidingWindows(60, 30)), "each row in several.*FixedWindows"),
        (lambda: beam.WindowInto(Sessions(60)), "begin and end where the data say.*FixedWindows"),
        (
            lambda: beam.WindowInto(
                FixedWindows(60),
                trigger=trigger.AfterWatermark(early=trigger.AfterCount(1)),
                accumulation_mode=trigger.AccumulationMode.DISCARDING,
            ),
            "leave the trigger out",
        ),
        (
            lambda: beam.WindowInto(FixedWindows(60), accumulation_mode=trigger.AccumulationMode.ACCUMULATING),
            "leave the accumulation_mode out",
        ),
        (lambda: beam.WindowInto(FixedWindows(60), allowed_lateness=30), "leave allowed_lateness out"),
        (
            lambda: beam.WindowInto(FixedWindows(60), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST),
            "leave the timestamp_combiner out",
        ),
        (lambda: beam.WindowInto(FixedWindows(30)), r"other windows than the release: .*FixedWindows\(60\)"),
        (lambda: beam.WindowInto(FixedWindows(60, 7)), r"other windows than the release: .*FixedWindows\(60\)"),
        (lambda: beam.WindowInto(GlobalWindows()), r"the collection has none: .*FixedWindows\(60\)"),
    ],
)
def test_other_windowings_are_refused(windowing, words, release):
    with pytest.raises(ParameterError, match=words):
        rows(windowing()) | Histogram(BUDGET, release=release)
    with pytest.raises(ParameterError, match=words):
        rows(windowing()) | Contributions() | RandClip(3, release=release)


def test_windows_must_be_told_and_are_refused_where_they_cannot_be(make_release):
    fixed = beam.WindowInto(FixedWindows(60))
    for given in (None, make_release()):
        with pytest.raises(ParameterError, match=r"this one is windowed.*Windows\(start, size, number\)"):
            rows(fixed) | Histogram(BUDGET, release=given)
    for whole in (PropertiesOfShape([EntropyQuestion()]), ShuffledReports(BUDGET, users=1000, buckets=10)):
        with pytest.raises(ParameterError, match="over the whole collection"):
            rows(fixed) | whole


def test_users_bounded_in_other_windows_are_refused(release, make_release):
    bounded = rows(beam.WindowInto(GlobalWindows())) | RandClip(3, release=make_release())
    noisy = NoisyCounts(BUDGET, Bound(l0=3, l1=3, linf=3), release=release)
    with pytest.raises(ParameterError, match="bounded in other windows"):
        bounded | "Late" >> beam.WindowInto(FixedWindows(60)) | noisy
    fewer = Release(release.key_source, release.id, windows=Windows(WINDOWS.start, SIZE, 3))
    with pytest.raises(ParameterError, match="give both the same windows"):
        rows(beam.WindowInto(FixedWindows(60))) | RandClip(3, release=fewer) | noisy


def test_windows_are_public_numbers():
    day = datetime.timedelta(days=1)
    november = Windows("2026-11-01", day, 30)
    assert november == Windows(datetime.date(2026, 11, 1), 86400, 30) == Windows(1793491200, 86400, 30)
    assert november.has(1793491200, 1793491200 + 86400) and not november.has(1793491200, 1793491200 + 3600)
    assert not november.has(1793491200 - 86400, 1793491200) and not november.has(november.last, november.last + 86400)
    assert Windows("2026-11-01T02:00:00+02:00", 60, 1).start == 1793491200
    for start, size, number, words in (
        ("soon", 60, 1, "start of windows"),
        (0.5, 60, 1, "start of windows"),
        (0, 0, 1, "size of windows"),
        (0, datetime.timedelta(milliseconds=5), 1, "size of windows"),
        (0, 60, 0, "number of windows"),
        ("9998-12-01", 86400 * 400, 2, "between the years"),
    ):
        with pytest.raises(ParameterError, match=words):
            Windows(start, size, number)


def test_the_id_of_a_window_is_that_of_the_release_and_its_end(make_release):
    key = make_release().key_source
    release = Release(key, "a" * 47, windows=WINDOWS)
    assert release.of_window(180) == Release(key, "a" * 47 + ".19700101T000300Z")
    assert len(release.of_window(180).id) == 64
    assert (
        release.of_part("x").windows == WINDOWS and release.of_part("x").of_window(180).id == release.of_window(180).id
    )
    with pytest.raises(ParameterError, match="at most 47 characters"):
        Release(key, "a" * 48, windows=WINDOWS)
    with pytest.raises(ParameterError, match=r"Windows\(start, size, number\)"):
        Release(key, windows=30)


def test_the_unit_is_a_user_in_one_window_and_who_is_there_in_more_is_charged_for_each(release):
    one = Histogram(Budget(1), domain=["a"], method="one-stage", bound=1, release=release)
    assert one.guarantee().unit == "user-window" and one.guarantee().epsilon == 1
    assert "adding or removing one user's data of one window" in one.guarantee().description()
    # One count with Laplace noise in each window: a user who is in n of them attains n epsilon, so no less may be stated.
    assert [one.guarantee(windows=n).epsilon for n in (1, 2, 4)] == [1, 2, 4]
    assert one.guarantee(windows=4).unit == "user"
    some = Histogram(Budget(1, 1e-6), release=release).guarantee(windows=3)
    assert 1 < some.epsilon <= 3 and some.delta == pytest.approx(3e-6)
    with pytest.raises(ParameterError, match="from 1 to 4"):
        one.guarantee(windows=5)
    with pytest.raises(ParameterError, match="leave out windows"):
        Histogram(BUDGET).guarantee(windows=2)
    with pytest.raises(ParameterError, match="leave out windows"):
        Histogram(BUDGET, relation="replace", release=release).guarantee(windows=2)
    assert Histogram(BUDGET, relation="replace", release=release).guarantee().unit == "user-window"
