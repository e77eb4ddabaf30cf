"""A window is published once, with its entry in the ledger, wherever the process that does it is killed."""

import argparse
import contextlib
import json

import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.mechanisms.randomness.windows import Windows
from headcount.pipelines.ledger import account as accounts
from headcount.pipelines.ledger import processes
from headcount.pipelines.ledger.book import Ledger
from headcount.pipelines.ledger.records import make_dataset
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.reports.report import About, make_report
from headcount.pipelines.sinks.output import Target, write_file
from headcount.pipelines.storage import stores
from headcount.pipelines.streams import folders
from headcount.pipelines.streams.folders import Folders, Staged
from headcount.pipelines.streams.publish import Publisher
from tests.fixed_key import write_fixed_key

WINDOWS = Windows("2026-11-18", 86_400, 3)
ENDS = [start + WINDOWS.size for start in WINDOWS.starts()]
LATER = WINDOWS.last
PLAN = Plan(
    histogram(Budget(1, 1e-8), method="one-stage", bound=3).guarantee(),
    {"of": "users", "method": "one-stage", "bound": 3},
)


class KilledError(BaseException):
    """The process is gone."""


@pytest.fixture
def stream(tmp_path):
    """A stream on an account, of which each call of the fixture is one more start."""
    write_fixed_key(tmp_path / "key")
    url = f"sqlite:///{tmp_path}/ledger.db"
    accounts.open_ledger(url).create(make_dataset("visits", "user", "add-remove", 100.0, 1e-3, None))
    return Started(tmp_path, url)


class Started:
    def __init__(self, folder, url):
        self.told, self.url, self.folder = [], url, folder
        self.places = Folders(Target(str(folder / "out"), "s", 1, "csv", False), WINDOWS)
        self.release = Release(KeyFile(folder / "key"), "s", windows=WINDOWS)

    def start(self, ledger=True):
        given = {"ledger": self.url, "dataset": "visits"} if ledger else {"ledger": None, "dataset": None}
        given |= {
            "user": "user_id",
            "time": None,
            "time_zone": "UTC",
            "protect": "user",
            "label": None,
            "windows": None,
            "clock_checked": False,
        }
        args = argparse.Namespace(**given)
        return Publisher(args, "histogram", self.release, PLAN, self.places, self.told.append)

    def made(self, end, count):
        """What a pipeline makes of a window: its report, and its files, which lie aside."""
        file = write_file(self.places.of(end), 0, pa.RecordBatch.from_pydict({"item": ["a"], "bounded_count": [count]}))
        about = self.places.about(About("histogram", "s", {"of": "users", "method": "one-stage", "bound": 3}), end)
        return make_report(about, PLAN.guarantee), (file,)

    def stage(self, end, count):
        """What a pipeline leaves aside for a window."""
        folders.stage(self.places.of(end), Staged(*self.made(end, count)))

    def files(self):
        """All published files, and whatever lies beside them."""
        found = (self.folder / "out").rglob("*")
        return {str(path.relative_to(self.folder / "out")): path.read_bytes() for path in found if path.is_file()}

    def states(self):
        return {entry.request.release_id: entry.state for entry in accounts.open_ledger(self.url).entries("visits")}


def test_windows_are_reserved_when_they_begin_and_published_when_they_lie_aside(stream):
    publisher = stream.start()
    assert publisher.resume(WINDOWS.start - 1) == frozenset() and stream.states() == {}
    publisher.step(WINDOWS.start)
    assert stream.states() == {"s.20261119T000000Z": "reserved"}
    stream.stage(ENDS[0], 5.0)
    publisher.step(WINDOWS.start + 90_000)
    assert stream.states() == {"s.20261119T000000Z": "committed", "s.20261120T000000Z": "reserved"}
    folder = "2026-11-18/"
    assert {*stream.files()} == {folder + name for name in ("counts-00000-of-00001.csv", "report.json", "report.html")}
    report = json.loads(stream.files()[f"{folder}report.json"])
    assert (report["release_id"], report["period"]) == ("s.20261119T000000Z", "2026-11-18") and len(
        report["date"]
    ) == 10
    assert stream.told == [f"window 2026-11-18: wrote {stream.folder}/out/2026-11-18, 1 row"]
    publisher.close()
    assert stream.states()["s.20261120T000000Z"] == "given back"


def test_a_second_result_is_thrown_away_though_it_differs(stream):
    publisher = stream.start()
    publisher.resume(LATER)
    stream.stage(ENDS[0], 5.0)
    publisher.step(LATER)
    before = stream.files()
    stream.stage(ENDS[0], 7.0)
    publisher.step(LATER)
    assert stream.files() == before
    assert (
        stream.told[1] == "a second result for the window 2026-11-18 was thrown away: the one that is published stays"
    )
    publisher.close()
    stream.stage(ENDS[0], 9.0)  # by a job that has outlived its process
    assert stream.start().resume(LATER) == {ENDS[0]}
    assert stream.files() == before


def test_where_the_limit_is_reached_the_stream_stops_before_the_window(stream):
    url = f"sqlite:///{stream.folder}/small.db"
    accounts.open_ledger(url).create(make_dataset("visits", "user", "add-remove", 1.1, 1e-6, None))
    stream.url = url
    publisher = stream.start()
    made = publisher.resume(LATER)
    assert 0 < len(made) < 3 and made == set(ENDS[-len(made) :]), "nothing is to be made of windows that were refused"
    for end in [end for end in ENDS if end not in made][:-1]:
        stream.stage(end, 5.0)
        publisher.step(LATER)
    stream.stage(ENDS[-len(made) - 1], 5.0)
    with pytest.raises(ParameterError, match="the stream stops before the window 2026-11-.*limit of epsilon = 1.1"):
        publisher.step(LATER)
    assert set(stream.states().values()) == {"committed"}
    assert not [name for name in stream.files() if name.startswith(stream.places.name(ENDS[-1]))]
    with pytest.raises(ParameterError, match="the stream stops before the window"):
        stream.start().resume(LATER)


def test_a_window_without_its_entry_gets_one(stream):
    publisher = stream.start(ledger=False)
    publisher.resume(LATER)
    stream.stage(ENDS[1], 5.0)
    publisher.step(LATER)
    before = stream.files()
    assert stream.states() == {} and before
    again = stream.start()
    assert again.resume(LATER) == {ENDS[1]}
    again.close()
    assert stream.states()["s.20261120T000000Z"] == "committed" and stream.files() == before


def test_a_folder_of_something_else_is_refused(stream):
    (stream.folder / "out" / "2026-11-19").mkdir(parents=True)
    (stream.folder / "out" / "2026-11-19" / "notes.txt").write_text("mine")
    with pytest.raises(ParameterError, match=r"holds other files \('notes.txt'\)"):
        stream.start().resume(LATER)


def killed_at(patch, step):
    """Lets a process die at a change of a file or of the ledger, by its number; what it does before is there."""
    left = [step]

    def dying(function):
        def run(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                raise KilledError
            return function(*args, **kwargs)

        return run

    for name in ("write", "move", "remove", "make_directory", "remove_files"):
        patch.setattr(stores, name, dying(getattr(stores, name)))
    for name in ("reserve", "publish", "commit", "settle"):
        patch.setattr(Ledger, name, dying(getattr(Ledger, name)))
    patch.setattr(accounts.Account, "failed", lambda self: None)  # nobody is there to say it
    return left


@pytest.mark.parametrize("again", [5.0, 7.0])
def test_killed_at_every_step_it_goes_on(stream, monkeypatch, tmp_path, again):
    """After each kill another result comes for the windows, once of the same and once of other rows: the first one that may
    have been seen stays, and no window is there without its entry, nor paid for twice."""
    monkeypatch.setattr(processes, "is_over", lambda process: True)
    monkeypatch.setattr("headcount.pipelines.ledger.records.is_over", lambda process: True)
    steps = 0
    while True:
        folder = tmp_path / f"{steps}"
        folder.mkdir()
        write_fixed_key(folder / "key")
        url = f"sqlite:///{folder}/ledger.db"
        accounts.open_ledger(url).create(make_dataset("visits", "user", "add-remove", 100.0, 1e-3, None))
        own = Started(folder, url)
        publisher = own.start()
        publisher.resume(ENDS[0] - 1)
        own.stage(ENDS[0], 5.0)
        with monkeypatch.context() as patch, contextlib.suppress(KilledError):
            left = killed_at(patch, steps)
            publisher.step(ENDS[0] - 1)
        was_killed = left[0] < 0
        seen = own.files()
        report = {
            name: content for name, content in seen.items() if name.endswith("report.json") and ".tmp-" not in name
        }
        assert not report or own.states()["s.20261119T000000Z"] in ("publishing", "committed")
        restarted = own.start()
        if not restarted.resume(ENDS[0] - 1):  # nothing can have been seen, and the job makes it again
            assert not report and "2026-11-18/counts-00000-of-00001.csv" not in seen
            own.stage(ENDS[0], again)
            restarted.step(ENDS[0] - 1)
        found = own.files()
        assert set(own.states().values()) == {"committed"} and len(own.states()) == 1
        data = found["2026-11-18/counts-00000-of-00001.csv"]
        if any(name == "2026-11-18/counts-00000-of-00001.csv" for name in seen):
            assert data == seen["2026-11-18/counts-00000-of-00001.csv"]
        assert all(found[name] == content for name, content in report.items())
        assert not [name for name in found if ".tmp-" in name]
        if not was_killed:
            break
        steps += 1
    assert steps > 8, "all steps of a window were tried"


def test_what_was_seen_of_a_window_stays_where_nobody_waits(tmp_path, monkeypatch):
    """As `WriteWindows` publishes: killed at every change of a file, and made again with other rows."""
    for steps in range(100):
        folder = tmp_path / str(steps)
        own = Started(folder, "")
        target = own.places.of(ENDS[0])
        with monkeypatch.context() as patch, contextlib.suppress(KilledError):
            left = killed_at(patch, steps)
            folders.publish_at_once(target, *own.made(ENDS[0], 5.0), "2026-11-19")
        was_killed = left[0] < 0
        seen = {name: content for name, content in own.files().items() if ".tmp-" not in name}
        folders.publish_at_once(target, *own.made(ENDS[0], 6.0), "2026-11-19")
        found = own.files()
        assert set(found) == {"2026-11-18/counts-00000-of-00001.csv", "2026-11-18/report.json"}
        assert all(found[name] == content for name, content in seen.items())
        if not was_killed:
            break
    assert steps > 3
