"""The class by which Beam's servers in Java open their ports, written once more: what is changed, and what is refused.

tests/runners looks at the ports of clusters that run with it.
"""

from __future__ import annotations

import importlib
import struct
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "deploy" / "shared"))
loopback, servers = importlib.import_module("loopback"), importlib.import_module("servers")


def text(words: bytes) -> bytes:
    return b"\1" + struct.pack(">H", len(words)) + words


BUILDER = b"a/netty/NettyServerBuilder"
TYPE = b"(I)L" + BUILDER + b";"
CONSTANTS = [
    *(text(b"forPort"), text(TYPE), b"\x0c\0\1\0\2", text(BUILDER), b"\7\0\4"),
    b"\x0a\0\5\0\3",  # 6: the method forPort
    b"\5" + bytes(8),  # 7 and 8: a long number
    *(text(b"maxSize"), b"\x0c\0\x09\0\2"),  # another method of the same type
    b"\x0a\0\5\0\x0a",  # 11
]
HEAD = b"\xca\xfe\xba\xbe\0\0\0\x34"
CODE = b"...\x2b\xb6\0\x63\xb8\0\6\xb6\0\x0b..."  # the address, its port, the builder for that, and the other method


def written(code: bytes = CODE) -> bytes:
    return HEAD + struct.pack(">H", 12) + b"".join(CONSTANTS) + code


def test_the_builder_takes_the_address_in_place_of_its_port():
    added = [text(b"forAddress"), text(b"(Ljava/net/SocketAddress;)L" + BUILDER + b";"), b"\x0c\0\x0c\0\x0d"]
    constants = [b"\x0a\0\5\0\x0e" if each == b"\x0a\0\5\0\3" else each for each in CONSTANTS]
    changed = CODE.replace(b"\xb6\0\x63\xb8\0\6", b"\0\0\0\xb8\0\6")
    assert loopback.bound(written()) == HEAD + struct.pack(">H", 15) + b"".join([*constants, *added]) + changed


@pytest.mark.parametrize("code", [b"", CODE.replace(b"\xb8", b"\xb9"), CODE * 2])
def test_another_class_is_refused_and_never_left_open(code):
    with pytest.raises(servers.Problem, match="opens its ports in another way"):
        loopback.bound(written(code))


def test_it_stands_first_on_the_class_path(tmp_path):
    (tmp_path / "jars").mkdir()
    for name, entry in (("a.jar", "other.class"), ("b.jar", loopback.FACTORY)):
        with zipfile.ZipFile(tmp_path / "jars" / name, "w") as jar:
            jar.writestr(entry, written())
    place = tmp_path / "own.jar"
    assert loopback.class_path(place, tmp_path / "jars") == ["-cp", f"{place}:{tmp_path / 'jars'}/*"]
    assert zipfile.ZipFile(place).read(loopback.FACTORY) == loopback.bound(written())
    with pytest.raises(servers.Problem, match="no jar has the class"):
        loopback.class_path(place, tmp_path / "jars" / "a.jar")
