"""A class of Java, as small as can be, that opens ports as Beam's does: for jars of tests without Beam's."""

from __future__ import annotations

import struct

FACTORY = "org/apache/beam/sdk/fn/server/ServerFactory$InetSocketAddressServerFactory.class"


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
