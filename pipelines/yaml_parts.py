"""What only steps of Beam YAML need: values and ranges as they stand in a pipeline file, and counts bounded by hand."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import apache_beam as beam

from headcount import transforms
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import ClipNormStep, LimitItemsStep, LimitPerItemStep, RandClipStep, Step
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.axis import Value
from headcount.pipelines.commands import quantiles
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.domain import OnlyDomain

# By the names of the transforms; ClipNorm has an l1 norm unless it says otherwise, as there.
_STEPS: Mapping[str, Callable[..., Step]] = {
    "RandClip": RandClipStep,
    "LimitItems": LimitItemsStep,
    "LimitPerItem": LimitPerItemStep,
    "ClipNorm": lambda bound, p=1: ClipNormStep(bound, p),
}


class NoisyCounts(beam.PTransform):
    """Noisy counts by item of what is left of each user by the steps of `bounding`, in their order.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, by `transforms.NoisyCounts` for the bound that
    the steps promise together. `bounding` is a list of mappings from the name of a bounding transform to its limit, such as
    {"LimitItems": 5}, or to its parameters, such as {"ClipNorm": {"bound": 5, "p": 2}}.
    """

    def __init__(
        self,
        budget: Budget,
        bounding: list[dict[str, Any]],
        domain: Iterable[str] | Iterable[int] | None = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type = str,
        shards: int | None = None,
    ) -> None:
        super().__init__()
        self._bounded = Bounded(bounding_steps(bounding), release, shards)
        self._counts = transforms.NoisyCounts(
            budget,
            self._bounded.bound,
            domain=domain,
            noise=noise,
            relation=relation,
            release=release,
            item_type=item_type,
            shards=shards,
        )

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._counts.guarantee()

    def expand(self, contributions: beam.PCollection) -> beam.PCollection:
        counts = self._counts.of(contributions)
        if counts.mechanism.domain is not None:
            contributions = contributions | "OnlyDomain" >> OnlyDomain(counts.mechanism.domain)
        return contributions | "Bounded" >> self._bounded | "NoisyCounts" >> self._counts


def bounding_steps(given: Any) -> list[Step]:
    """The steps of a `bounding`."""
    words = f"a list such as [{{LimitItems: 5}}, {{LimitPerItem: 2}}], of {', '.join(_STEPS)}"
    if not isinstance(given, list) or not given:
        raise ParameterError(f"bounding must be {words}, got {given!r}")
    steps = []
    for entry in given:
        if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in _STEPS:
            raise ParameterError(f"bounding must be {words}, got {entry!r} in it")
        ((name, limit),) = entry.items()
        try:
            steps.append(_STEPS[name](**limit) if isinstance(limit, dict) else _STEPS[name](limit))
        except TypeError:
            raise ParameterError(f"bounding: {name} does not take {limit!r}") from None
        except ParameterError as error:
            raise ParameterError(f"bounding: {name}: {error}") from None
    return steps


def read_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of quantiles and ranges, with numbers and times for texts of them: YAML takes 1e3 for text."""
    read = dict(given)
    for name in {"lo", "hi"} & given.keys():
        read[name] = _value(name, given[name])
    for name in {"quantiles", "ranges"} & given.keys():
        if not isinstance(given[name], list):
            raise ParameterError(f"{name} must be a list, got {given[name]!r}")
    if "ranges" in given:
        read["ranges"] = [_range(each) for each in given["ranges"]]
    return read


def _range(given: Any) -> tuple[Value, Value]:
    if not isinstance(given, list) or len(given) != 2:
        raise ParameterError(f"ranges must be a list of pairs such as [[18, 25], [25, 65]], got {given!r} in it")
    low, high = (_value("a range", end) for end in given)
    return low, high


def _value(name: str, given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return quantiles.value(given)
    except argparse.ArgumentTypeError as error:
        raise ParameterError(f"{name} {error}") from None
