"""The key never enters the pipeline: every payload of the graph is decoded and its objects searched.

A search of the raw bytes would find nothing even where the key is there, since payloads are compressed pickles.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from google.protobuf.message import DecodeError, Message

from headcount.transforms import BoundedHistogram, Budget, LimitItems, LimitPerItem, RandClip, UnboundedHistogram

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
            for kind in (beam.portability.api.beam_runner_api_pb2.ParDoPayload,):
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
    else:
        inside = list(getattr(value, "__dict__", {}).values())
    for each in inside:
        yield from _objects(each, seen)


def found_in_graph(pipeline: beam.Pipeline, key: bytes) -> bool:
    """Whether the key, raw or in hexadecimal digits, is anywhere in the graph."""
    forms = (key, key.hex().encode())
    decoded = 0
    for payload in _messages(pipeline.to_runner_api()):
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


class _Careless(beam.DoFn):
    """What must never be written: a DoFn that holds the key."""

    def __init__(self, key: bytes) -> None:
        self._deep = {"inside": [key]}

    def process(self, element: Any) -> Iterator[Any]:
        yield element


@pytest.fixture
def graph(make_release) -> tuple[beam.Pipeline, bytes]:
    release = make_release("graph", key=0xAB)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    rows = pipeline | beam.Create([("u", "i")])
    rows | "U" >> UnboundedHistogram(Budget(1, 1e-6), bound=3, release=release)
    rows | "B" >> BoundedHistogram(Budget(1), ["i"], bound=3, release=release)
    rows | "R" >> RandClip(3, release=release) | LimitItems(2, release=release) | LimitPerItem(1)
    return pipeline, release.key_source.fetch()


def test_the_key_is_nowhere_in_the_graph(graph):
    pipeline, key = graph
    assert not found_in_graph(pipeline, key)


def test_the_search_finds_a_key_that_a_dofn_holds(graph):
    pipeline, key = graph
    pipeline | "More" >> beam.Create([1]) | "Careless" >> beam.ParDo(_Careless(key))
    assert key not in pipeline.to_runner_api().SerializeToString(), "a search of the raw bytes is blind"
    assert found_in_graph(pipeline, key)
