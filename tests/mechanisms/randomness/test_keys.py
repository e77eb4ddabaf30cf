"""Key sources, releases and subkeys: keys never leak, and no two steps share one."""

import os
import pickle
import secrets
import stat
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeyEnvironment, KeyFile, Release, ephemeral_key, write_key_file
from headcount.mechanisms.randomness.subkeys import block_key, lane_key, subkey

KEY = bytes(range(32))


def test_key_file_round_trip(tmp_path):
    path = tmp_path / "key"
    old = os.umask(0)
    try:
        source = write_key_file(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert source == KeyFile(path)
    assert source.fetch() == bytes.fromhex(path.read_text().strip())
    assert len(source.fetch()) == 32


def test_key_file_is_never_overwritten(tmp_path):
    path = tmp_path / "key"
    key = write_key_file(path).fetch()
    with pytest.raises(ParameterError, match="exists already") as error:
        write_key_file(path)
    assert str(path) in str(error.value)
    assert KeyFile(path).fetch() == key


def test_key_file_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="cannot be made: No such file"):
        write_key_file(tmp_path / "missing" / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o601, 0o620, 0o602, 0o666, 0o777])
def test_key_file_open_to_others_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    write_key_file(path)
    path.chmod(mode)
    with pytest.raises(ParameterError, match=f"open to others than its owner .mode {mode:04o}.*chmod 600"):
        KeyFile(path).fetch()


@pytest.mark.parametrize(
    "content",
    [b"", b"ab", b"5e" * 31, b"5e" * 33, b"5e" * 31 + b"zz", b"\xff\xfe" * 40, b"5e" * 32 + b"\n" * 2000 + b"x"],
)
def test_key_file_without_a_key_is_refused_without_showing_it(tmp_path, content):
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(ParameterError, match="exactly 64 hexadecimal digits.*headcount key FILE") as error:
        KeyFile(path).fetch()
    assert str(path) in str(error.value)
    assert "5e5e" not in str(error.value) and error.value.__cause__ is None


def test_key_file_takes_white_space_around_the_key(tmp_path):
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_bytes(b"  " + b"5E" * 32 + b" \r\n")
    assert KeyFile(path).fetch() == b"\x5e" * 32


def test_key_file_must_be_a_regular_file_that_exists(tmp_path):
    with pytest.raises(ParameterError, match="cannot be opened: No such file.*headcount key FILE"):
        KeyFile(tmp_path / "missing").fetch()
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    with pytest.raises(ParameterError, match="not a regular file"):
        KeyFile(folder).fetch()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(ParameterError, match="not a regular file"):
        KeyFile(pipe).fetch()


def test_key_environment(monkeypatch):
    source = KeyEnvironment("HEADCOUNT_TEST_KEY")
    monkeypatch.delenv("HEADCOUNT_TEST_KEY", raising=False)
    with pytest.raises(ParameterError, match="HEADCOUNT_TEST_KEY is not set"):
        source.fetch()
    monkeypatch.setenv("HEADCOUNT_TEST_KEY", "5e" * 31)
    with pytest.raises(ParameterError, match="HEADCOUNT_TEST_KEY does not hold a key") as error:
        source.fetch()
    assert "5e5e" not in str(error.value)
    monkeypatch.setenv("HEADCOUNT_TEST_KEY", "5e" * 32)
    assert source.fetch() == b"\x5e" * 32


@pytest.mark.parametrize("make", [KeyFile, KeyEnvironment, write_key_file, lambda key: Release(KeyFile("key"), key)])
def test_a_key_in_place_of_its_location_is_refused_without_showing_it(make):
    key = secrets.token_hex(32)
    with pytest.raises(ParameterError, match="looks like a key itself") as error:
        make(key)
    assert key not in str(error.value)


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_key_environment_needs_a_plain_name(name):
    with pytest.raises(ParameterError, match="plain name"):
        KeyEnvironment(name)


def test_pickles_and_texts_never_hold_the_key(tmp_path, monkeypatch):
    key = secrets.token_bytes(32)
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text(key.hex())
    monkeypatch.setenv("HEADCOUNT_TEST_KEY", key.hex())
    sources = [KeyFile(path), KeyEnvironment("HEADCOUNT_TEST_KEY")]
    for thing in [*sources, *(Release(source, "one") for source in sources)]:
        source = getattr(thing, "key_source", thing)
        assert source.fetch() == key
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(thing, protocol)
            assert key not in data and key.hex().encode() not in data.lower()
            assert pickle.loads(data) == thing
        assert key.hex() not in repr(thing) and repr(key)[2:-1] not in repr(thing)


def test_ephemeral_key_is_made_once_and_is_a_good_key():
    source = ephemeral_key()
    assert source is ephemeral_key()
    assert len(source.fetch()) == 32


EPHEMERAL = """
import os, sys
from headcount.mechanisms.randomness.keys import ephemeral_key
source = ephemeral_key()
child = os.fork()
if child == 0:
    assert ephemeral_key() == source and len(source.fetch()) == 32
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.path.exists(source.path), "the forked process removed the file"
print(source.path)
"""


def test_ephemeral_key_is_removed_at_exit_by_its_own_process_only():
    run = subprocess.run([sys.executable, "-c", EPHEMERAL], capture_output=True, text=True, check=True)
    path = run.stdout.strip()
    assert "headcount-key-" in path and not os.path.exists(path)


def test_release_ids():
    source = KeyEnvironment("K")
    fresh = {Release(source).id for _ in range(100)}
    assert len(fresh) == 100 and all(len(id) == 32 for id in fresh)
    assert Release(source, "2024-q1.v_2") == Release(source, id="2024-q1.v_2")
    for id in ["", "a b", "a/b", "é", "a" * 65, "a\n", 7]:
        with pytest.raises(ParameterError, match="release id"):
            Release(source, id)
    with pytest.raises(AttributeError):
        Release(source).id = "other"


def test_release_refuses_a_bare_key_without_showing_it():
    key = secrets.token_bytes(32)
    with pytest.raises(ParameterError, match="key source") as error:
        Release(key)
    assert repr(key) not in str(error.value) and key.hex() not in str(error.value)


def test_subkeys_differ_in_every_part():
    keys = [
        subkey(KEY, "id", "label", {"a": 1}),
        subkey(KEY[::-1], "id", "label", {"a": 1}),
        subkey(KEY, "i", "dlabel", {"a": 1}),
        subkey(KEY, "id2", "label", {"a": 1}),
        subkey(KEY, "id", "label2", {"a": 1}),
        subkey(KEY, "id", "label", {"a": 2}),
        subkey(KEY, "id", "label", {"a": "1"}),
        subkey(KEY, "id", "label", {"a": True}),
        subkey(KEY, "id", "label", {"a": None}),
        subkey(KEY, "id", "label", {"a": [1]}),
        subkey(KEY, "id", "label", {"a": {"b": 1}}),
        subkey(KEY, "id", "label", {"a": Fraction(1, 3)}),
        subkey(KEY, "id", "label", {"a": 1, "b": 1}),
        subkey(KEY, "id", "label", {}, {"a": 1}),
        subkey(KEY, "id", "label", {"a": 1}, {"a": 1}),
    ]
    assert len(set(keys)) == len(keys) and {len(key) for key in keys} == {32}


def test_subkey_depends_on_the_algorithm_version(monkeypatch):
    before = subkey(KEY, "id", "label", {})
    monkeypatch.setattr("headcount.mechanisms.randomness.subkeys.ALGORITHM_VERSION", 2)
    assert subkey(KEY, "id", "label", {}) != before


def test_subkey_parameters_are_canonical():
    one = subkey(KEY, "id", "label", {"a": Fraction(2, 6), "b": (1, 2)}, {})
    assert one == subkey(KEY, "id", "label", {"b": [1, 2], "a": "1/3"})


@pytest.mark.parametrize("value", [1.0, float("nan"), b"x", {1: 2}, {1, 2}, np.int64(1), [0.5]])
def test_subkey_refuses_what_has_no_canonical_text(value):
    with pytest.raises(ParameterError):
        subkey(KEY, "id", "label", {"a": value})


def test_derived_keys_differ_and_are_checked():
    step = subkey(KEY, "id", "label", {})
    keys = [step, lane_key(step), block_key(step), block_key(step, b"\0"), block_key(step, b"\0\0")]
    assert len(set(keys)) == len(keys) and {len(key) for key in keys} == {32}
    for derive in (lane_key, block_key, lambda key: subkey(key, "id", "label", {})):
        with pytest.raises(ParameterError, match="32 bytes"):
            derive(b"short")


@pytest.mark.parametrize("needs_a_file", [ephemeral_key, lambda: write_key_file("key"), KeyFile("key").fetch])
def test_a_system_that_does_not_tell_who_can_read_a_file_is_refused(monkeypatch, needs_a_file):
    with monkeypatch.context() as patched:
        patched.setattr(os, "name", "nt")
        with pytest.raises(
            ParameterError, match=r"this system \(nt\) does not tell who can; on Windows run Headcount in WSL"
        ):
            needs_a_file()
