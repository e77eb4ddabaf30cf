"""Beam's servers in Java, made to listen on the address that they are told, which is localhost, and not on all.

Their factory takes the port of that address and drops its host: `NettyServerBuilder.forPort(address.getPort())`. No setting
changes that, neither of the job server nor of the workers' servers in task managers and executors. So its class is written
once more, with `NettyServerBuilder.forAddress(address)` in that place, into a jar that stands first on every class path.
"""

from __future__ import annotations

import re
import struct
import zipfile
from pathlib import Path

from servers import Problem

FACTORY = "org/apache/beam/sdk/fn/server/ServerFactory$InetSocketAddressServerFactory.class"
_FOR_PORT = re.compile(rb"\(I\)(L[\w/]+/netty/NettyServerBuilder;)")
_METHOD, _PAIR = 10, 12  # tags of constants: of a method, and of a name with its type
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


def class_path(place: Path, *jars: Path) -> list[str]:
    """Java's flags for a class path of these jars, or of all jars of a folder, behind one of the changed class."""
    for jar in [each for given in jars for each in (sorted(given.glob("*.jar")) if given.is_dir() else [given])]:
        with zipfile.ZipFile(jar) as held:
            if FACTORY in held.namelist():
                draft = place.with_suffix(".new")  # a server that runs keeps the old one open
                with zipfile.ZipFile(draft, "w") as written:
                    written.writestr(FACTORY, bound(held.read(FACTORY)))
                draft.replace(place)
                return ["-cp", ":".join([str(place), *(f"{each}/*" if each.is_dir() else str(each) for each in jars)])]
    raise Problem("no jar has the class by which Beam opens its ports, so that they would be open to everybody")


def bound(code: bytes) -> bytes:
    """The bytes of the factory's class, whose servers listen on their address alone."""
    constants, end = _constants(code)
    (count,) = struct.unpack_from(">H", code, 8)

    def of_name(name: bytes) -> list[int]:
        texts = [at for at, each in constants.items() if each == _text(name)]
        pairs = [at for at, each in constants.items() if each[0] == _PAIR and _numbers(each)[0] in texts]
        return [at for at, each in constants.items() if each[0] == _METHOD and _numbers(each)[1] in pairs]

    for method in of_name(b"forPort"):
        # The address is on the stack, its port is asked for, and with that the builder. What is called is found by its number.
        call = re.compile(rb"\xb6..(\xb8" + re.escape(struct.pack(">H", method)) + rb")", re.DOTALL)
        builder, pair = _numbers(constants[method])
        made = _FOR_PORT.fullmatch(constants[_numbers(constants[pair])[1]][3:])
        if made is None or len(call.findall(code, end)) != 1:
            break
        constants[method] = struct.pack(">BHH", _METHOD, builder, count + 2)
        constants[count] = _text(b"forAddress")
        constants[count + 1] = _text(b"(Ljava/net/SocketAddress;)" + made[1])
        constants[count + 2] = struct.pack(">BHH", _PAIR, count, count + 1)
        pool = struct.pack(">H", count + 3) + b"".join(constants[at] for at in sorted(constants))
        return code[:8] + pool + call.sub(b"\0\0\0" + rb"\1", code[end:])
    raise Problem(
        "this version of Beam opens its ports in another way, which would be open to everybody: take that of pom.xml"
    )


def _constants(code: bytes) -> tuple[dict[int, bytes], int]:
    """The constants of a class by their numbers, each with its tag, and where they end."""
    (count,) = struct.unpack_from(">H", code, 8)
    found, number, at = {}, 1, 10
    while number < count:
        tag = code[at]
        size = 2 + struct.unpack_from(">H", code, at + 1)[0] if tag == 1 else _SIZES[tag]
        found[number] = code[at : at + 1 + size]
        at += 1 + size
        number += 2 if tag in (5, 6) else 1  # a long or double takes two numbers
    return found, at


def _numbers(constant: bytes) -> tuple[int, int]:
    """What a method or a pair of name and type refers to."""
    first, second = struct.unpack_from(">HH", constant, 1)
    return first, second


def _text(text: bytes) -> bytes:
    return struct.pack(">BH", 1, len(text)) + text
