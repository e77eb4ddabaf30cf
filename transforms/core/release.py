"""Where a transform's randomness comes from: its label, its release, and the key that workers fetch by themselves."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.external import ExternalTransform

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
from headcount.transforms.core.runners import is_on_this_machine


def full_label(pvalue: beam.PCollection) -> str:
    """The full label of the transform that is being expanded: part of its randomness, and the same on every runner."""
    return pvalue.pipeline._current_transform().full_label


def in_expansion_service() -> bool:
    """Whether a pipeline is expanded here for another process, which does not tell what runner it is for."""
    return ExternalTransform.get_local_namespace() != "external"


def release_for(pipeline: beam.Pipeline, release: Release | None) -> Release:
    """The given release, or on this machine a fresh one with a key that lives as long as this process."""
    if release is not None:
        return release
    named = pipeline._options.view_as(StandardOptions).runner
    if in_expansion_service():
        named = "the runner behind this expansion service"
    runner = type(pipeline.runner).__name__
    if not (is_on_this_machine(runner) and is_on_this_machine(named)):
        raise ParameterError(
            f"{named or runner} may run on other machines, which cannot reach a key of this one: pass "
            "release=Release(KeySecret(RESOURCE)), Release(KeyEnvironment(NAME)) or Release(KeyFile(PATH)) (--key-secret, "
            "--key-env or --key-file), readable by the workers"
        )
    return Release(ephemeral_key())
