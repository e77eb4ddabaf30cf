"""Pipelines in YAML with Headcount's steps: shared by the tests of Beam YAML."""

from __future__ import annotations

import json
from pathlib import Path

import apache_beam as beam

from headcount.transforms import Release

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "yaml"
PROMISE = {"epsilon": 1, "delta": 1e-6, "method": "one-stage", "bound": 3}


def jinja_variables(log: Path, output: Path, release: Release | None = None) -> str:
    variables = {"input": str(log), "output": str(output)}
    if release is not None:
        variables |= {"key_file": str(release.key_source.path), "release_id": release.id}
    return f"--jinja_variables={json.dumps(variables)}"


def pipeline_yaml(steps: str) -> str:
    return f"providers: [{{include: {FOLDER / 'providers.yaml'}}}]\npipeline: {{type: chain, transforms: [{steps}]}}"


class Inside(beam.PTransform):
    """A transform in Python, nested as a step of YAML is, so that its full label is the same."""

    def __init__(self, transform: beam.PTransform) -> None:
        super().__init__()
        self._inner = transform

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return rows | self._inner
