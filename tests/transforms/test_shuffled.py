"""The shuffle model and pan-private counters as transforms: what is stored once is added up exactly, however often it runs.

The noise is the operating system's, so that tests of it draw anew each time: each bound has a false-alarm rate below 1e-8.
"""

from __future__ import annotations

import math
import os
import pickle
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.shape.buckets import buckets_of, release_salt
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion, SupportQuestion
from headcount.mechanisms.shape.papers.shuffled import shuffled
from headcount.mechanisms.shape.properties import ShapeAnswers, ShapeProperties, shape_properties
from headcount.mechanisms.shape.tallies import Tally
from headcount.mechanisms.shape.tally_noise import noisy_tally
from headcount.transforms import Budget, Entropy, PropertiesOfShape, SupportCoverage, SupportSize
from headcount.transforms.core.rows import ItemsWithCount, ShapeProperty
from headcount.transforms.papers.pan_private import PanPrivateCounts, _AddToState
from headcount.transforms.papers.shuffled import ShuffledReports, _SumMessages

LOUD = Budget(3, 1e-2)
ITEMS = [f"i{k % 40}" for k in range(400)]


def _randomized(reports: ShuffledReports, items: list) -> list[tuple[int, int]]:
    randomizer = reports.randomizer()
    return [message for item in items for message in randomizer.process(item)]


def test_the_analyst_adds_up_what_was_stored_and_draws_nothing(collect):
    """Equal to the pure function on the same messages, for any shards, batches and repeated steps."""
    reports = ShuffledReports(LOUD, users=25, buckets=100, salt="survey 1")
    messages = _randomized(reports, ITEMS[:25])
    bucket, sign = np.array(messages).T
    plan = shuffled(LOUD, users=25, buckets=100)
    assert len(messages) > 250, "the flood of pairs"
    expected = plan.shape(plan.sums(bucket, sign))
    for shards, options in ((1, ()), (7, ("--direct_runner_bundle_repeat=2",))):
        analyst = ShuffledReports(LOUD, users=25, buckets=100, salt="survey 1", shards=shards)
        found = collect(lambda p, analyst=analyst: p | beam.Create(messages) | analyst, *options)
        assert all(isinstance(row, ItemsWithCount) for row in found)
        assert [row._asdict() for row in sorted(found)] == expected.to_pylist()


def test_the_shape_is_that_of_the_users(collect):
    """40 items of 10 users each among 200 buckets: the noise of a bucket is beyond 5 with probability 0.001."""
    reports = ShuffledReports(LOUD, users=400, buckets=200, output_files=2)  # without a salt, items are buckets
    columns = reports.mechanism.report(np.arange(400) % 40)
    messages = list(zip(*(column.tolist() for column in columns), strict=True))
    found = dict(collect(lambda p: p | beam.Create(messages) | reports))
    counts, items = (np.asarray(found[0].column(name)) for name in ("count", "items"))
    assert abs(items[counts > 5].sum() - 40) < 15 and found[1].num_rows == 0


def _no_draw(words: int) -> np.ndarray:
    raise AssertionError("nothing may be drawn by whoever reads what is released")


def test_properties_are_those_of_the_released_rows_and_draw_nothing(collect, monkeypatch):
    """From stored messages to a shape and its answers, of batches of messages; the system's randomness is cut off."""
    reports = ShuffledReports(LOUD, users=400, buckets=200)
    columns = reports.mechanism.report(np.arange(400) % 40)
    batch = pa.RecordBatch.from_pydict({"bucket": columns[0], "sign": pa.array(columns[1], pa.int8())})
    expected = reports.mechanism.shape(reports.mechanism.sums(*columns), hashed=False)
    monkeypatch.setattr("headcount.mechanisms.randomness.system._fresh", _no_draw)
    questions = (EntropyQuestion(), DistinctQuestion(), CoverageQuestion(), SupportQuestion(100, 0.3))

    def build(pipeline):
        shape = pipeline | "Batch" >> beam.Create([batch]) | reports
        asked = {
            "Entropy": Entropy.of_shape(),
            "Coverage": SupportCoverage.of_shape(),
            "Size": SupportSize.of_shape(most=100, accuracy=0.3),
            "All": PropertiesOfShape(questions),
        }
        found = [shape | name >> of_shape for name, of_shape in asked.items()]
        answers = (
            pipeline
            | "Again" >> beam.Create([batch])
            | "Asked" >> ShuffledReports(LOUD, users=400, buckets=200).with_answers(*questions)
        )
        return (*found, answers.counts, answers.decision) | beam.Flatten()

    found = collect(build)
    wanted = [ShapeProperty(**row) for row in shape_properties(expected, questions).to_pylist()]
    assert len(wanted) == 4 and [row for row in found if isinstance(row, ShapeAnswers)] == [
        ShapeProperties(reports.mechanism, questions).answers(expected)
    ]
    properties = sorted(row for row in found if isinstance(row, ShapeProperty))
    assert properties == sorted([*wanted, *(row for row in wanted if row.property != "distinct items")])
    assert sorted(row for row in found if isinstance(row, ItemsWithCount)) == sorted(
        ItemsWithCount(**row) for row in expected.to_pylist()
    )


def test_two_reports_are_added_up_by_themselves(collect):
    """Mode "l2" with a salt: the pure function on the same messages, of both hashes, for any shards."""
    given = {"salt": "survey 1", "mode": "l2", "estimate": "algorithm-1"}
    reports = ShuffledReports(LOUD, users=25, buckets=100, **given)
    messages = _randomized(reports, ITEMS[:25])
    bucket, sign = np.array(messages).T
    assert bucket.max() >= 100 and reports.mechanism.cells == 100 + 126
    expected = reports.mechanism.shape(reports.mechanism.sums(bucket, sign)).to_pylist()
    analyst = ShuffledReports(LOUD, users=25, buckets=100, shards=7, **given)
    found = collect(lambda p: p | beam.Create(messages) | analyst)
    assert [row._asdict() for row in sorted(found)] == expected


def test_rows_of_no_shape_and_no_question_are_refused(collect):
    for rows, said in (([(1, 2)], "it is not of a shape"), ([ItemsWithCount(1, 2, 3.0)] * 2, "more than one shape")):
        with pytest.raises(Exception, match=said):
            collect(lambda p, rows=rows: p | beam.Create(rows) | Entropy.of_shape())
    with pytest.raises(ParameterError, match="give at least one question"):
        PropertiesOfShape([])
    with pytest.raises(ParameterError, match="give at least one question"):
        ShuffledReports(LOUD, users=10, buckets=40).with_answers()


def test_batches_that_are_no_messages_are_refused():
    for columns, said in (
        ({"bucket": [1]}, "no column 'sign'; messages have the columns 'bucket' and 'sign'"),
        ({"bucket": ["x"], "sign": [1]}, "column 'bucket' of the messages holds something else than whole numbers"),
        ({"bucket": [None, 1], "sign": [1, 1]}, "column 'bucket' of the messages holds a null"),
        ({"bucket": [1], "sign": [0]}, "not .bucket, .1 or -1."),
    ):
        with pytest.raises(InputError, match=said):
            list(_SumMessages(10, 1).process(pa.RecordBatch.from_pydict(columns)))


def test_more_reports_than_users_have_more_noise_and_the_estimate_undoes_it():
    """10^5 buckets, 20,000 of them with 5 users, and messages of twice the users that the shares are made for: items are off
    by less than 1000 of 20,000 (30 standard errors), and by more than 5000 if the noise is taken for that of one."""
    plan = shuffled(Budget(1, 1e-2), users=50_000, buckets=100_000)
    scale = Fraction(-1 / math.log(plan.p)).limit_denominator(1 << 20)
    sums = Tally(np.array([0, 5]), np.array([80_000, 20_000]))
    for key in (bytes(32), bytes([1]) * 32):
        sums = noisy_tally(sums, scale, key)
    found = [plan.shape_of_tally(sums, hashed=False, reports=reports) for reports in (100_000, None)]
    items = [np.asarray(rows.column("items")).sum() for rows in found]
    assert abs(items[0] - 20_000) < 1000 and items[1] > 25_000
    with pytest.raises(ParameterError, match="reports must be an integer from 1"):
        ShuffledReports(LOUD, users=25, buckets=100, reports=0)


def test_a_user_who_reports_twice_sends_other_noise():
    """Why messages are stored: the randomizer draws from the operating system, and its own item is in all of its reports."""
    reports = ShuffledReports(LOUD, users=10, buckets=40, salt="s")
    first, second = (sorted(_randomized(reports, ["i"])) for _ in range(2))
    assert first != second
    own = int(buckets_of(pa.array(["i"]), release_salt("s"), 40)[0])
    assert (own, 1) in first and (own, 1) in second
    assert sorted(pickle.loads(pickle.dumps(reports.randomizer())).process("i")) not in (first, second)


def test_no_messages_leave_empty_buckets(collect):
    found = collect(lambda p: p | beam.Create([], reshuffle=False) | ShuffledReports(LOUD, users=10, buckets=40))
    assert found == []


def test_reports_that_are_none_are_refused(collect):
    for message, said in (((40, 1), "a bucket is not between 0 and 39"), ((3, 2), r"not \(bucket, \+1 or -1\)")):
        with pytest.raises(Exception, match=said):
            collect(lambda p, message=message: p | beam.Create([message]) | ShuffledReports(LOUD, users=10, buckets=40))
    with pytest.raises(Exception, match="give one"):
        _randomized(ShuffledReports(LOUD, users=10, buckets=40), ["tea"])
    with pytest.raises(Exception, match="an item is null"):
        _randomized(ShuffledReports(LOUD, users=10, buckets=40, salt="s"), [None])
    with pytest.raises(ParameterError, match="got 'add-remove'"):
        ShuffledReports(LOUD, users=10, buckets=40, relation="add-remove")
    with pytest.raises(ParameterError, match="salt must be a public text, got 7"):
        ShuffledReports(LOUD, users=10, buckets=40, salt=7)
    assert ShuffledReports(LOUD, users=10, buckets=40).guarantee().delta == 1e-2


# Pan-private counters.


def _counters(path) -> np.ndarray:
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        return np.asarray(reader.read_next_batch().column("counter"))


def _add(collect, path, batch, items, *options, **given) -> list:
    transform = PanPrivateCounts(Budget(5), buckets=1000, state=str(path), batch=batch, **given)
    return collect(lambda p: p | beam.Create(items, reshuffle=False) | transform, *options)


def test_each_batch_is_added_once_however_often_its_step_runs(collect, tmp_path):
    """The counters grow by the exact numbers of events; a step that runs again finds the batch there."""
    path, hashing = tmp_path / "state", {"salt": "visits"}
    PanPrivateCounts(Budget(5), buckets=1000, state=str(path), **hashing).start()
    before = _counters(path)
    buckets = buckets_of(pa.array(ITEMS), release_salt("visits"), 1000)
    assert _add(collect, path, "monday", ITEMS, "--direct_runner_bundle_repeat=2", **hashing) == ["monday"]
    assert _add(collect, path, "tuesday", ITEMS * 2, **hashing) == ["tuesday"]
    assert _add(collect, path, "monday", ITEMS, **hashing) == ["monday"]
    assert _add(collect, path, "wednesday", [], **hashing) == ["wednesday"]
    assert np.array_equal(_counters(path) - before, 3 * np.bincount(buckets, minlength=1000))
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("state")] == ["state"]


def test_a_killed_write_leaves_no_second_view(tmp_path):
    """A process that dies before its draft takes the place of the file: the next one that looks at the file removes it."""
    path = tmp_path / "state"
    counts = PanPrivateCounts(Budget(5), buckets=100, state=str(path))
    counts.start()
    child = os.fork()
    if child == 0:
        os.replace = lambda *_: os._exit(0)  # killed here
        counts.announce_intrusion()
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(tmp_path.iterdir())) == 2, "the child was to leave a draft"
    counts.announce_intrusion()
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    path.with_name("state.draft").write_bytes(b"of another one that was killed")
    counts.release()
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("other", [{"protect": "either"}, {"relation": "replace"}, {"buckets": 99}])
def test_a_state_is_released_as_what_it_was_made_for(tmp_path, other):
    given = {"budget": Budget(5), "buckets": 100, "state": str(tmp_path / "state")}
    PanPrivateCounts(**given).start()
    with pytest.raises(ParameterError, match="was not made for counters of"):
        PanPrivateCounts(**given | other).release()


def test_a_step_that_forgets_the_batch_is_caught(collect, tmp_path, monkeypatch):
    """The mutation: without the names of batches, the same events are added twice."""
    path = tmp_path / "state"
    PanPrivateCounts(Budget(5), buckets=1000, state=str(path)).start()
    before = _counters(path)

    def forgetful(self, group):
        stored = self._file.read()
        from headcount.transforms.papers.bucket_sums import read_sums

        for chunk in filter(None, group[1]):
            stored.state.count(*read_sums(chunk))
        self._file.write(stored)
        yield self._batch

    monkeypatch.setattr(_AddToState, "process", forgetful)
    for _ in range(2):
        _add(collect, path, "monday", [3, 3, 5])
    assert (_counters(path) - before)[[3, 5]].tolist() == [4, 2]


def test_a_shape_is_released_once_and_stays(collect, tmp_path):
    """100 items of 20 events each among 1000 counters; noise of scale 1/5 twice is beyond 5 with probability 1e-9."""
    path = tmp_path / "state"
    counts = PanPrivateCounts(Budget(5), buckets=1000, state=str(path))
    counts.start()
    _add(collect, path, "all", [k % 100 for k in range(2000)])
    counts.announce_intrusion()
    rows = counts.release()
    assert counts.release().equals(rows) and PanPrivateCounts(
        Budget(5), buckets=1000, state=str(path)
    ).release().equals(rows)
    count, items = (np.asarray(rows.column(name)) for name in ("count", "items"))
    assert items[count > 10].sum() == 100
    with pytest.raises(Exception, match="were released"):
        _add(collect, path, "more", [1])
    with pytest.raises(ParameterError, match="is there already"):
        counts.start()


def test_answers_come_from_released_rows_alone(tmp_path, monkeypatch):
    """Refused while the file holds counters; then they follow from its rows, by the code of all models, without a draw."""
    path = tmp_path / "state"
    counts = PanPrivateCounts(Budget(5), buckets=1000, state=str(path))
    counts.start()
    with pytest.raises(ParameterError, match="holds counters yet, which no answer may come from"):
        counts.answers(EntropyQuestion())
    rows = counts.release()
    monkeypatch.setattr("headcount.mechanisms.randomness.system._fresh", _no_draw)
    questions = (EntropyQuestion(), DistinctQuestion())
    assert counts.answers(*questions) == ShapeProperties(counts.mechanism, questions).answers(rows)
    assert counts.answers(*questions).guarantee.unit == "event"


def test_a_released_file_stays_with_what_it_was_released_as(tmp_path):
    """A report of other numbers than those of the release would state a promise that was not kept."""
    given = {"budget": Budget(5), "buckets": 100, "state": str(tmp_path / "state")}
    PanPrivateCounts(**given).start()
    rows = PanPrivateCounts(**given).release()
    with pytest.raises(ParameterError, match="was not made for counters of"):
        PanPrivateCounts(**given | {"budget": Budget(1)}).release()
    with pytest.raises(
        ParameterError, match="released once and for all, with samples None, mode 'l1', estimate 'auto'"
    ):
        PanPrivateCounts(**given, estimate="algorithm-1").release()
    with pytest.raises(ParameterError, match="was not made for counters of .* salt 's'"):
        PanPrivateCounts(**given, salt="s").release(5)
    assert PanPrivateCounts(**given).release().equals(rows)


@pytest.mark.parametrize("mode", ["l1", "l2"])
def test_batches_of_events_are_added_without_a_pipeline(collect, tmp_path, mode):
    """As by a job: record batches with counts or without, in one counter each or in two; a name is added once."""
    given = {"salt": "visits", "mode": mode}
    paths = [tmp_path / name for name in ("here", "job")]
    events = [
        pa.RecordBatch.from_pydict({"item": ["tea", "rum"]}),
        pa.RecordBatch.from_pydict({"item": ["tea"], "count": [5]}),
    ]
    added = []
    for path in paths:
        counts = PanPrivateCounts(Budget(5), buckets=1000, state=str(path), batch="monday", **given)
        counts.start()
        before = _counters(path)
        if path.name == "here":
            assert counts.add(events) and not counts.add(events)
        else:
            collect(lambda p, counts=counts: p | beam.Create(events) | counts)
        added.append(_counters(path) - before)
    assert np.array_equal(*added) and len(added[0]) == counts.mechanism.cells
    assert added[0].sum() == 7 * (2 if mode == "l2" else 1)


def test_the_state_is_nowhere_in_the_graph(tmp_path):
    """Who sees the counters before the first event, and the output, sees two views of one noise."""
    path = tmp_path / "state"
    counts = PanPrivateCounts(Budget(0.001), buckets=1000, state=str(path), batch="b", protect="either")
    counts.start()
    noise = _counters(path)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pipeline | beam.Create([1]) | counts
    graph = pickle.dumps(pipeline.to_runner_api().SerializeToString())
    assert noise[:8].tobytes() not in graph and len(graph) < 30_000
    assert set(vars(counts)["_file"].__dict__) == {"path", "_made_for", "_scale"}


def test_what_pan_private_counters_refuse(tmp_path):
    state = str(tmp_path / "state")
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(ParameterError, match="batch must be the name of these events"):
        pipeline | beam.Create([1]) | PanPrivateCounts(Budget(1), buckets=10, state=state)
    with pytest.raises(ParameterError, match="is not there: start"):
        PanPrivateCounts(Budget(1), buckets=10, state=state).release()
    with pytest.raises(ParameterError, match="give samples"):
        PanPrivateCounts(Budget(1), buckets=10, state=state, salt="s").release()
    with pytest.raises(ParameterError, match="not hashed without a salt"):
        PanPrivateCounts(Budget(1), buckets=10, state=state).release(samples=5)
    PanPrivateCounts(Budget(1), buckets=10, state=state).start()
    with pytest.raises(ParameterError, match="not made for counters of .* buckets 20"):
        PanPrivateCounts(Budget(1), buckets=20, state=state).announce_intrusion()
    (tmp_path / "other").write_bytes(b"hello")
    with pytest.raises(ParameterError, match="not a file of pan-private counters"):
        PanPrivateCounts(Budget(1), buckets=10, state=str(tmp_path / "other")).release()
    with pytest.raises(ParameterError, match="state must be the path"):
        PanPrivateCounts(Budget(1), buckets=10, state="")
    assert PanPrivateCounts(Budget(0.5), buckets=10, state=state).guarantee().unit == "event"
