"""Where a transform's randomness comes from: its label, its release, and the key that workers fetch by themselves.

A key of this process reaches workers on this machine alone: which runners have them there is known here, for jobs too.
"""

from __future__ import annotations

import re
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.external import ExternalTransform

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
from headcount.transforms.core.windows import check_release

# DirectRunner means Prism or FnApiRunner depending on the network, and may silently run a job twice.
_PINNED = {"fnapirunner", "directrunner", "switchingdirectrunner"}
_ON_THIS_MACHINE = {*_PINNED, "bundlebaseddirectrunner", "prismrunner"}

LOCAL_RUNNER = "FnApiRunner"

_CELL = re.compile(r"^(?:\[\d+\]: )+")


def full_label(pvalue: beam.PCollection) -> str:
    """The full label of the transform that is being expanded: part of its randomness, and the same on every runner."""
    return _as_written(pvalue.pipeline, pvalue.pipeline._current_transform().full_label)


def producer_label(pvalue: beam.PCollection) -> str:
    """The full label of the transform that made a collection, likewise."""
    return _as_written(pvalue.pipeline, pvalue.producer.full_label)


def _as_written(pipeline: beam.Pipeline, label: str) -> str:
    """A label without the number of the cell, which Beam puts before it in a notebook.

    With the number, a cell that is run again would release the same data under the same id with other noise. Without it, steps
    of two cells may have one label, and would share their random bits: they are refused.
    """
    if not _in_ipython():
        return label
    plain = _CELL.sub("", label)
    if any(other != label and _CELL.sub("", other) == plain for other in pipeline.applied_labels):
        raise ParameterError(
            f"two cells of this notebook put a step called {plain!r} into one pipeline, and would draw the same noise: give "
            "one of them a name of its own, as in 'name' >> step"
        )
    return plain


def _in_ipython() -> bool:
    found = sys.modules.get("IPython")
    return found is not None and found.get_ipython() is not None


def in_expansion_service() -> bool:
    """Whether a pipeline is expanded here for another process, which does not tell what runner it is for."""
    return ExternalTransform.get_local_namespace() != "external"


def release_for(rows: beam.PCollection, release: Release | None, reading: str) -> Release:
    """The given release, for rows that are read in this way; or on this machine a fresh one with a key that lives as long as
    this process. Refuses a collection that it is not a release of."""
    check_release(rows, release)
    if release is not None:
        return release.of_rows(reading)
    named = rows.pipeline._options.view_as(StandardOptions).runner
    if in_expansion_service():
        named = "the runner behind this expansion service"
    runner = type(rows.pipeline.runner).__name__
    if not (is_on_this_machine(runner) and is_on_this_machine(named)):
        raise ParameterError(
            f"{named or runner} may run on other machines, which cannot reach a key of this one: pass "
            "release=Release(KeySecret(RESOURCE)), Release(KeyEnvironment(NAME)) or Release(KeyFile(PATH)) (--key-secret, "
            "--key-env or --key-file), readable by the workers"
        )
    return Release(ephemeral_key())


def is_pinned(runner: str | None) -> bool:
    """Whether this asks for the runner in this process, which a job then pins to LOCAL_RUNNER."""
    return runner is None or _name(runner) in _PINNED


def is_on_this_machine(runner: str | None) -> bool:
    """Whether the workers of this runner reach the files and the environment of this process."""
    return runner is None or _name(runner) in _ON_THIS_MACHINE


def _name(runner: str) -> str:
    """The name of the class, in one spelling: Beam takes Prism, prism, PrismRunner and its full path for the same."""
    return f"{runner.rsplit('.', 1)[-1].lower().removesuffix('runner')}runner"
