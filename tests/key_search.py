"""Searches a whole pipeline for a key: every payload of the graph is decoded, and its objects are looked through.

A search of the raw bytes would find nothing even where the key is there, since payloads are compressed pickles.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2
from google.protobuf.message import DecodeError, Message

_KINDS = (beam_runner_api_pb2.ParDoPayload, beam_runner_api_pb2.CombinePayload, beam_runner_api_pb2.ReadPayload)
_PLAIN = (int, float, complex, bool, type(None), type, types.ModuleType, types.BuiltinFunctionType)


def _messages(message: Message) -> Iterator[Any]:
    """All bytes and texts of a protocol buffer, with messages inside of bytes decoded where they are known."""
    for field, value in message.ListFields():
        values = list(value.values()) if isinstance(value, dict) or hasattr(value, "keys") else value
        if not hasattr(values, "__iter__") or isinstance(values, str | bytes):
            values = [values]
        for each in values:
            if isinstance(each, Message):
                yield from _messages(each)
            elif isinstance(each, bytes | str):
                yield each
        if field.name == "payload" and isinstance(value, bytes):
            for kind in _KINDS:
                try:
                    yield from _messages(kind.FromString(value))
                except DecodeError:
                    pass


def _objects(value: Any, seen: set[int]) -> Iterator[Any]:
    """Everything reachable from an object: attributes, containers, closures, defaults."""
    if isinstance(value, _PLAIN) or id(value) in seen:
        return
    seen.add(id(value))
    yield value
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = list(value)
    elif isinstance(value, types.FunctionType):
        inside = [cell.cell_contents for cell in value.__closure__ or ()] + list(value.__defaults__ or ())
    elif isinstance(value, types.MethodType):
        inside = [value.__self__, value.__func__]
    elif isinstance(value, functools.partial):
        inside = [value.func, value.args, value.keywords]
    else:
        inside = list(getattr(value, "__dict__", {}).values())
    for each in inside:
        yield from _objects(each, seen)


def found_in_graph(graph: Message, text: bytes) -> bool:
    """Whether this text, raw or in hexadecimal digits, is anywhere in the graph of a pipeline."""
    forms = (text, text.hex().encode())
    decoded = 0
    for payload in _messages(graph):
        data = payload.encode() if isinstance(payload, str) else payload
        objects: list[Any] = [data]
        try:
            objects += list(_objects(pickler.loads(data), set()))
            decoded += 1
        except Exception:
            pass  # not a pickle: its bytes are searched as they are
        for value in objects:
            if isinstance(value, str):
                value = value.encode("utf-8", "replace")
            if isinstance(value, bytes | bytearray) and any(
                form in bytes(value).lower() or form in value for form in forms
            ):
                return True
    assert decoded > 5, "the search must have seen inside of the transforms"
    return False


class Careless(beam.DoFn):
    """What must never be written: a DoFn that holds the key."""

    def __init__(self, key: bytes) -> None:
        self._deep = {"inside": [key]}

    def process(self, element: Any) -> Iterator[Any]:
        yield element
