"""The public face of the transforms: what `__all__` names, and what importing it does."""

from __future__ import annotations

import ast
import types
from pathlib import Path

import apache_beam as beam
import pyarrow as pa

from headcount import mechanisms, transforms
from headcount.transforms.core.coders import RecordBatchCoder


def test_all_is_what_is_imported_by_name():
    tree = ast.parse(Path(transforms.__file__).read_text())
    imported = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    named = {name for name in imported if name and not isinstance(getattr(transforms, name), types.ModuleType)}
    assert transforms.__all__ == sorted(named)


def test_one_name_means_one_thing():
    for name in set(transforms.__all__) & set(mechanisms.__all__):
        assert getattr(transforms, name) is getattr(mechanisms, name)


def test_importing_it_registers_the_coder():
    assert beam.coders.registry.get_coder(pa.RecordBatch) == RecordBatchCoder()
