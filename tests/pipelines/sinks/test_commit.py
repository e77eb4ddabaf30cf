"""The commit on an object store: cut at every request, and with several attempts at once.

The store below is one as Beam sees it: no directories, objects that appear when they are closed, a move that is a copy
and a delete. Every request to it is a step, at which an attempt can be stopped or another one go on; after each, whoever
finds report.json must find the whole output beside it.
"""

import dataclasses
import io
import json

import pyarrow as pa
import pytest
from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sinks import output
from headcount.pipelines.storage import stores
from tests.pipelines.schedule import Killed, Schedule, countdown

OUT = "objects://bucket/out"
REPORT = b'{"headcount": "new"}\n'
OLD_REPORT = b'{"headcount": "old"}\n'
TARGET = output.Target(OUT, "r1", files=2, format="csv", overwrite=False)
REPLACING = dataclasses.replace(TARGET, overwrite=True)
OLD = output.Target(OUT, "r0", files=3, format="csv", overwrite=False)
# An output of another command, whose files only its report knows for ours.
ANOTHER = dataclasses.replace(REPLACING, release_id="r2")
ITEMS = dataclasses.replace(OLD, prefix="items")
ITEMS_REPORT = json.dumps(
    {"headcount": "old", "files": [{"name": f"items-0000{k}-of-00003.csv"} for k in range(3)]}
).encode()
BEFORE = {REPLACING: (OLD, OLD_REPORT), ANOTHER: (ITEMS, ITEMS_REPORT)}
CASES = pytest.mark.parametrize("target", [TARGET, *BEFORE], ids=["new", "overwrite", "overwrite another command's"])
NAMES = [f"{OUT}/counts-0000{k}-of-00002.csv" for k in range(2)]
MOST_STEPS = 100


class ObjectStore(FileSystem):
    """The objects of all buckets, and what happens before and after each request."""

    objects: dict[str, bytes] = {}
    before = staticmethod(lambda: None)
    after = staticmethod(lambda: None)

    @classmethod
    def request(cls, operation):
        cls.before()
        try:
            return operation()
        finally:
            cls.after()

    @classmethod
    def scheme(cls):
        return "objects"

    def join(self, base, *paths):
        return "/".join([base.rstrip("/"), *paths])

    def split(self, path):
        return tuple(path.rsplit("/", 1))

    def mkdirs(self, path):
        pass

    def has_dirs(self):
        return False

    def _list(self, prefix):
        found = self.request(lambda: sorted(path for path in self.objects if path.startswith(prefix)))
        return [FileMetadata(path, len(self.objects.get(path, b""))) for path in found]

    def create(self, path, mime_type="", compression_type=None):
        store = self

        class Upload(io.BytesIO):
            def __exit__(self, kind, error, trace):
                if kind is None:
                    store.request(lambda: store.objects.update({path: self.getvalue()}))
                super().__exit__(kind, error, trace)

        return Upload()

    def open(self, path, mime_type="", compression_type=None):
        return io.BytesIO(self.request(lambda: self._get(path)))

    def _get(self, path):
        if path not in self.objects:
            raise BeamIOError("no such object")
        return self.objects[path]

    def copy(self, sources, targets):
        raise NotImplementedError

    def rename(self, sources, targets):
        for source, target in zip(sources, targets, strict=True):
            self.request(lambda source=source, target=target: self.objects.update({target: self._get(source)}))
            self.request(lambda source=source: self.objects.pop(source, None))

    def exists(self, path):
        return self.request(lambda: path in self.objects)

    def delete(self, paths):
        for path in paths:
            self.request(lambda path=path: self.objects.pop(path, None))

    def size(self, path):
        return len(self.objects[path])

    last_updated = checksum = size

    def metadata(self, path):
        return FileMetadata(path, self.size(path))


@pytest.fixture
def objects(monkeypatch):
    ObjectStore.objects.clear()
    monkeypatch.setattr(ObjectStore, "after", staticmethod(check))
    return ObjectStore.objects


def check():
    """What a reader may see at any moment: no report, or the one of an output that is whole."""
    objects = ObjectStore.objects
    found = objects.get(f"{OUT}/report.json")
    if found == REPORT:
        assert b"zero" in objects[NAMES[0]] and b"one" in objects[NAMES[1]]
    elif found is not None:
        old = next(old for old, report in BEFORE.values() if report == found)
        contents = [objects[old.place(k)] for k in range(3)]
        assert all(text in content for text, content in zip((b"a", b"b", b"c"), contents, strict=True))


def write(target, texts=("zero", "one")):
    """The temporary files of one attempt, as the pipeline writes them."""
    written = []
    for k, text in enumerate(texts):
        rows = pa.RecordBatch.from_pydict({"item": [text], "count": [1.0]})
        written += [output.write_file(target, k, rows)]
    return written


def start(target):
    """An empty store, or one with an old output if that may be replaced."""
    ObjectStore.objects.clear()
    if target in BEFORE:
        old, report = BEFORE[target]
        output.commit(old, write(old, ("a", "b", "c")), report)


def at_once(monkeypatch, seed, *functions, killed_after=None):
    schedule = Schedule(seed, *functions, killed_after=killed_after)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "before", staticmethod(schedule.step))
        schedule.run()
    return schedule


def assert_whole():
    assert sorted(ObjectStore.objects) == [*NAMES, f"{OUT}/report.json"]
    assert ObjectStore.objects[f"{OUT}/report.json"] == REPORT
    check()


@CASES
def test_a_commit_that_is_cut_at_any_request_can_run_again(objects, monkeypatch, target):
    for steps in range(MOST_STEPS):
        start(target)
        written = write(target)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "before", staticmethod(countdown(steps)))
            try:
                output.commit(target, written, REPORT)
                whole = True
            except Killed:
                whole = False
        output.commit(target, written, REPORT)
        assert_whole()
        if whole:
            assert steps >= 15
            return
    raise AssertionError("the commit never ended")


@CASES
def test_what_a_cut_commit_left_is_removed_by_the_next_run(objects, monkeypatch, target):
    """Unless the report was written: then the output is whole, and only an --overwrite may replace it."""
    for steps in range(MOST_STEPS):
        start(target)
        written = write(target)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "before", staticmethod(countdown(steps)))
            try:
                output.commit(target, written, REPORT)
                return
            except Killed:
                pass
        later = dataclasses.replace(target, release_id="r3")
        if objects.get(f"{OUT}/report.json") is None or target.overwrite:
            output.prepare(later)
            output.commit(later, write(later), REPORT)
            assert_whole()
        else:
            with pytest.raises(ParameterError, match="--overwrite"):
                output.prepare(later)
    raise AssertionError("the commit never ended")


@pytest.mark.slow("races")
@pytest.mark.parametrize("same_files", [True, False], ids=["one list of files", "each its own files"])
@CASES
def test_attempts_at_once_end_in_a_whole_output(objects, monkeypatch, target, same_files):
    """Two workers with one commit: both succeed, whatever the order of their requests."""
    for seed in range(150):
        start(target)
        first = write(target)
        second = first if same_files else write(target)
        schedule = at_once(
            monkeypatch,
            seed,
            lambda first=first: output.commit(target, first, REPORT),
            lambda second=second: output.commit(target, second, REPORT),
        )
        assert schedule.errors == [None, None]
        assert_whole()


@pytest.mark.slow("kills")
@CASES
def test_one_of_two_attempts_may_die(objects, monkeypatch, target):
    """The other one succeeds; if the dying one took away its report, then it comes back when the commit is repeated."""
    for seed in range(300):
        start(target)
        first, second = write(target), write(target)
        schedule = at_once(
            monkeypatch,
            seed,
            lambda first=first: output.commit(target, first, REPORT),
            lambda second=second: output.commit(target, second, REPORT),
            killed_after=seed % 25,
        )
        assert schedule.errors[1] is None and isinstance(schedule.errors[0], Killed | type(None))
        output.commit(target, second, REPORT)
        assert_whole()


def test_a_report_that_is_not_set_aside_would_leave_the_files_of_another_command(objects, monkeypatch):
    """The known bug: what the files are is forgotten with the report that lists them."""
    monkeypatch.setattr(output, "_set_aside", lambda target, report: stores.remove(report))
    with pytest.raises(AssertionError):
        test_a_commit_that_is_cut_at_any_request_can_run_again(objects, monkeypatch, ANOTHER)
    with pytest.raises((AssertionError, ParameterError)):
        test_what_a_cut_commit_left_is_removed_by_the_next_run(objects, monkeypatch, ANOTHER)


def test_a_job_that_fails_while_it_replaces_another_command_s_output_leaves_nothing(objects, monkeypatch):
    """Once the old report is gone; before, the old output stays whole."""
    for steps in range(MOST_STEPS):
        start(ANOTHER)
        written = write(ANOTHER)
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "before", staticmethod(countdown(steps)))
            try:
                output.commit(ANOTHER, written, REPORT)
                return
            except Killed:
                pass
        output.abandon(ANOTHER)
        check()
        assert len(objects) in ((4, 3) if f"{OUT}/report.json" in objects else (0,))
    raise AssertionError("the commit never ended")


def test_files_of_another_command_are_ours_by_their_report_alone(objects, monkeypatch):
    start(ANOTHER)
    with pytest.raises(ParameterError, match="holds an output already: give another directory, or --overwrite"):
        output.prepare(dataclasses.replace(ANOTHER, overwrite=False))
    output.prepare(ANOTHER)
    objects[f"{OUT}/items-00009-of-00010.csv"] = b"listed nowhere"
    with pytest.raises(ParameterError, match="other files .'items-00009-of-00010.csv'"):
        output.prepare(ANOTHER)
    start(ANOTHER)
    monkeypatch.setattr(ObjectStore, "after", staticmethod(lambda: None))
    objects[f"{OUT}/report.json"] = ITEMS_REPORT.replace(b"items-00000-of-00003.csv", b"../elsewhere.csv")
    with pytest.raises(ParameterError, match="other files .'items-00000-of-00003.csv'"):
        output.prepare(ANOTHER)


def test_no_report_comes_behind_a_job_that_was_given_up(objects, monkeypatch):
    """The driver removes the files while a worker still commits: in the end all of it is there, or no report."""
    monkeypatch.setattr(ObjectStore, "after", staticmethod(lambda: None))
    ends = set()
    for seed in range(300):
        start(TARGET)
        written = write(TARGET)
        at_once(
            monkeypatch,
            seed,
            lambda written=written: output.commit(TARGET, written, REPORT),
            lambda: output.abandon(TARGET),
        )
        ends.add(f"{OUT}/report.json" in objects)
        check()
    assert ends == {False, True}


def test_an_object_store_has_the_same_rules_as_a_disk(objects):
    """Refusal, leftovers, replacing and commit on a filesystem without directories."""
    write(dataclasses.replace(TARGET, release_id="dead"))
    objects[f"{OUT}/counts-00000-of-00001.csv"] = b"of a commit that was killed"
    objects["objects://bucket/outer.csv"] = b"of somebody else"
    output.prepare(TARGET)
    assert sorted(objects) == ["objects://bucket/outer.csv"]
    output.commit(TARGET, write(TARGET), REPORT)
    with pytest.raises(ParameterError, match="--overwrite"):
        output.prepare(TARGET)
    again = dataclasses.replace(REPLACING, release_id="r2")
    output.prepare(again)
    output.commit(again, write(again), REPORT)
    write(TARGET)
    output.abandon(TARGET)
    del objects["objects://bucket/outer.csv"]
    assert_whole()
    objects[f"{OUT}/deeper/thesis.txt"] = b"x"
    with pytest.raises(ParameterError, match="other files"):
        output.prepare(again)


def test_a_repeated_release_of_another_input_replaces_the_old_rows(objects, monkeypatch):
    """The report is the same, byte for byte, and says nothing of the rows."""
    monkeypatch.setattr(ObjectStore, "after", staticmethod(lambda: None))
    output.commit(OLD, write(OLD, ("x", "y", "z")), OLD_REPORT)
    again = dataclasses.replace(OLD, overwrite=True)
    output.commit(again, write(again, ("a", "b", "c")), OLD_REPORT)
    check()


def test_names_of_an_output():
    assert stores.normal("objects://bucket/out//") == OUT
    with pytest.raises(ParameterError, match="wildcards"):
        stores.normal("objects://bucket/out*")
    with pytest.raises(ParameterError, match="must name a directory, such as objects://bucket/out"):
        stores.normal("objects://bucket/")
