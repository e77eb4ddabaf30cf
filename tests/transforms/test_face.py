"""The public face of the transforms: what `__all__` names, and what importing it does."""

from __future__ import annotations

import importlib
import subprocess
import sys

import apache_beam as beam
import pyarrow as pa

from headcount import mechanisms, transforms
from headcount.transforms.core.coders import RecordBatchCoder
from tests.face_names import typed_names


def test_type_checkers_see_the_same_names():
    typed = typed_names(transforms)
    assert sorted(typed) == transforms.__all__
    for name, module in typed.items():
        assert getattr(importlib.import_module(module), name) is getattr(transforms, name)


def test_a_transform_imports_its_own_family_only():
    code = "from headcount.transforms import Histogram\nimport sys\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "headcount.transforms.histogram" in found
    others = ("shape", "distribution", "sampled", "quantiles", "count_release")
    assert not {f"headcount.transforms.{name}" for name in others} & set(found)


def test_one_name_means_one_thing():
    for name in set(transforms.__all__) & set(mechanisms.__all__):
        assert getattr(transforms, name) is getattr(mechanisms, name)


def test_a_transform_registers_the_coder():
    assert issubclass(transforms.Contributions, beam.PTransform)
    assert beam.coders.registry.get_coder(pa.RecordBatch) == RecordBatchCoder()
