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

from tests.deploy.java_class import BUILDER, CODE, CONSTANTS, FACTORY, HEAD, text, written

sys.path.append(str(Path(__file__).resolve().parents[2] / "deploy" / "shared"))
loopback, servers = importlib.import_module("loopback"), importlib.import_module("servers")


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
    for name, entry in (("a.jar", "other.class"), ("b.jar", FACTORY)):
        with zipfile.ZipFile(tmp_path / "jars" / name, "w") as jar:
            jar.writestr(entry, written())
    place = tmp_path / "own.jar"
    assert loopback.class_path(place, tmp_path / "jars") == ["-cp", f"{place}:{tmp_path / 'jars'}/*"]
    assert zipfile.ZipFile(place).read(FACTORY) == loopback.bound(written())
    with pytest.raises(servers.Problem, match="no jar has the class"):
        loopback.class_path(place, tmp_path / "jars" / "a.jar")
