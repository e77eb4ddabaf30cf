"""Where a transform's randomness comes from: its label, its release, and the key that workers fetch by themselves.

A key of this process reaches workers on this machine alone: which runners have them there is known here, for jobs too.
"""

from __future__ import annotations

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


def full_label(pvalue: beam.PCollection) -> str:
    """The full label of the transform that is being expanded: part of its randomness, and the same on every runner."""
    return pvalue.pipeline._current_transform().full_label


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
