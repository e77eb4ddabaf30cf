"""References to chunks: they stand for the bytes in their run and process, and nowhere else."""

import pyarrow as pa
import pytest

from headcount.mechanisms.batches.kept import Keeper, found, keeping
from headcount.mechanisms.batches.packing import pack, unpack

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
