"""The jobs of WIRED stand for all jobs: whatever step a graph of any job has, one of theirs has it, too; and whatever module
its steps are of, those of DOZEN run it."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.pipeline import PipelineVisitor

from headcount.pipelines.main import main
from tests.golden import events
from tests.golden.test_commands import words
from tests.runners.jobs import DOZEN, JOBS, WIRED


class Built(Exception):
    """Raised in place of a run."""


class Kinds(PipelineVisitor):
    """The classes of the transforms of a graph, and of the functions that they run, as (module, name): Beam makes some anew."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str]] = set()

    def enter_composite_transform(self, node) -> None:
        self._add(node.transform)

    def visit_transform(self, node) -> None:
        self._add(node.transform)
        self._add(getattr(node.transform, "fn", None))

    def _add(self, value) -> None:
        self.found.add((type(value).__module__, type(value).__qualname__))


@pytest.fixture
def kinds(tmp_path, monkeypatch):
    """kinds(job): the kinds of steps of its graph, which is built and not run."""
    events.write(tmp_path)
    seen = Kinds()

    def look(pipeline, *_, **__):
        pipeline.visit(seen)
        raise Built

    monkeypatch.setattr(beam.Pipeline, "run", look)

    def of(job):
        seen.found = set()
        assert main([*words(job, tmp_path)[0], "--shards", "4", "--output", str(tmp_path / "out")]) != 0
        assert seen.found, "no graph was built"
        return seen.found

    return of


@pytest.mark.slow("jobs")
def test_together_they_have_every_kind_of_step(kinds, capsys):
    wired = {job: kinds(job) for job in WIRED}
    there = set().union(*wired.values())
    for job in JOBS:
        missing = sorted(kinds(job) - there)
        assert not missing, f"{job} has steps that no job of WIRED has: {missing}"
    own = [job for job in WIRED if wired[job] - set().union(*(wired[other] for other in WIRED if other != job))]
    assert len(own) > len(WIRED) / 2, "a look that saw no steps would find none of a job's own"
    modules = {job: {module for module, _ in found if module.startswith("headcount.")} for job, found in wired.items()}
    dozen = [job for job in DOZEN if job in WIRED]
    left_out = set().union(*modules.values()) - set().union(*(modules[job] for job in dozen))
    assert not left_out, f"no job of DOZEN has a step of {sorted(left_out)}"
    for job in dozen:
        assert modules[job] - set().union(*(modules[other] for other in dozen if other != job)), f"{job} adds none"
