"""References to chunks: they stand for the bytes in their run and process, and nowhere else."""

import errno
import os
import tempfile

import pyarrow as pa
import pytest

from headcount.mechanisms.batches import chunk_store as kept
from headcount.mechanisms.batches.chunk_store import Keeper, forget, found, keeping
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.errors import InputError

LARGE = bytes(range(256)) * 64


def test_a_reference_is_short_and_stands_for_the_bytes_as_often_as_it_is_read():
    with keeping("run"):
        reference = Keeper("run")(LARGE)
        assert len(reference) < 64
        assert found(reference) is found(reference)
        assert found(reference) == LARGE


def test_without_a_store_in_this_process_bytes_travel():
    assert Keeper()(LARGE) == LARGE
    assert Keeper("elsewhere")(LARGE) == LARGE
    assert found(LARGE) == LARGE


def test_what_is_small_travels():
    with keeping("run"):
        assert Keeper("run")(b"small") == b"small"


def test_a_store_ends_with_its_run_and_with_no_other():
    with keeping("one"):
        one = Keeper("one")(LARGE)
        with keeping("other"):
            other = Keeper("other")(LARGE[::-1])
        assert found(one) == LARGE
        with pytest.raises(RuntimeError, match="left the process or the run"):
            found(other)
    with pytest.raises(RuntimeError, match="left the process or the run"):
        found(one)
    assert Keeper("one")(LARGE) == LARGE


def test_no_packed_chunk_begins_like_a_reference():
    with keeping("run"):
        packed = pack({"item": pa.array(["headcount.kept/run/0"] * 1000)})
        assert found(packed) is packed
        assert unpack(Keeper("run")(packed))[0]["item"].to_pylist() == unpack(packed)[0]["item"].to_pylist()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("limit", [0, 3 * len(LARGE), None])
@pytest.mark.parametrize("file", [1, 5 * len(LARGE), 1 << 28])
def test_beyond_the_limit_chunks_lie_on_disk_and_are_the_same(folder, monkeypatch, limit, file):
    monkeypatch.setattr(kept, "_FILE", file)
    chunks = [bytes([number]) * (len(LARGE) + number) for number in range(20)]
    with keeping("run", limit):
        references = [Keeper("run")(chunk) for chunk in chunks]
        for _ in range(2):
            assert [found(reference) for reference in reversed(references)] == chunks[::-1]
        held = sum(isinstance(place, bytes) for place in kept._stores["run"]._chunks.values())
        assert held == {0: 0, None: 20}.get(limit, 2)
        references += [Keeper("run")(chunk) for chunk in chunks]  # written behind what was read
        assert [found(reference) for reference in references] == chunks * 2
        assert not list(folder.iterdir()), "files have no names"


def test_what_lies_on_disk_is_encrypted_and_no_two_chunks_alike(folder):
    with keeping("run", 0):
        references = [Keeper("run")(LARGE) for _ in range(3)]
        written = written_by("run")
        parts = {written[k : k + len(LARGE)] for k in range(0, len(written), len(LARGE))}
        assert len(written) == 3 * len(LARGE) and len(parts) == 3
        assert not any(LARGE[:16] in part for part in parts)
        assert {found(reference) for reference in references} == {LARGE}
    with keeping("other", 0):
        Keeper("other")(LARGE)
        assert written_by("other") not in parts, "each run has a key of its own"


def written_by(run):
    """What lies on disk of a run, in one file."""
    file = next(iter(kept._stores[run]._chunks.values())).file.file
    file.seek(0)
    return file.read()


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux to count open files")
def test_what_nobody_waits_for_is_dropped_from_memory_and_disk(folder, monkeypatch):
    monkeypatch.setattr(kept, "_FILE", 4 * len(LARGE))
    before = open_files()
    with keeping("run", 2 * len(LARGE)):
        references = [Keeper("run")(LARGE) for _ in range(12)]
        assert open_files() > before + 1
        # As a coder writes them: with whatever byte behind them, also a digit.
        forget("run", [b"0".join([b"\x00", references[0], references[11], b"9"]), b"headcount.kept/run/"])
        assert found(references[0]) == found(references[11]) == LARGE
        assert open_files() == before + 1
        for gone in references[1:11]:
            with pytest.raises(KeyError):
                found(gone)
        again = Keeper("run")(LARGE)
        assert isinstance(kept._stores["run"]._chunks[again], bytes), "there is room in memory again"
    assert open_files() == before
    forget("run", [])  # a run that has ended has nothing to forget


@pytest.mark.parametrize("step", ["open", "write"])
def test_a_full_disk_is_told_in_one_line(folder, monkeypatch, step):
    made, closed = tempfile.TemporaryFile, []

    class Full:
        def __init__(self, **how):
            if step == "open":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.seek, self.close = lambda _: None, lambda: closed.append(self)

        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with keeping("run", 0):
        with pytest.raises(
            InputError, match=r"cannot be written to .*No space left on device; .*TMPDIR.*--memory-limit"
        ):
            Keeper("run")(LARGE)
        assert len(closed) == (step == "write"), "a file that nothing lies in stays open"
        monkeypatch.setattr(tempfile, "TemporaryFile", made)
