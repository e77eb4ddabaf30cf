"""What every releasing transform has from its base: a mechanism and its guarantee, keyword parameters, builders that copy."""

from __future__ import annotations

import inspect

import apache_beam as beam
import pytest

from headcount import transforms
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Promise
from headcount.mechanisms.shape.estimators import EntropyQuestion
from headcount.transforms import (
    AnonymizedHistogram,
    Budget,
    Histogram,
    PrivateCountRelease,
    Quantiles,
    ShuffledReports,
    TopItems,
)
from headcount.transforms.core.base import PrivateTransform

BUDGET = Budget(1, 1e-6)

# What bounds, reads or answers, and releases nothing by itself.
PARTS = {"Contributions", "RandClip", "ClipNorm", "LimitItems", "LimitPerItem", "PropertiesOfShape"}
PUBLIC = {
    name: value
    for name, value in ((name, getattr(transforms, name)) for name in transforms.__all__)
    if inspect.isclass(value) and issubclass(value, beam.PTransform)
}
BY_POSITION = (
    "budget",
    "bound",
    "domain",
    "items",
    "k",
    "lo",
    "hi",
    "metrics",
    "phi",
    "q",
    "quantiles",
    "release_budget",
    "steps",
    "every",
    "from_",
    "to",
    "bins",
)


def test_every_releasing_transform_stands_on_the_base():
    assert {name for name, value in PUBLIC.items() if not issubclass(value, PrivateTransform)} == PARTS


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - PARTS))
def test_only_the_budget_and_what_has_no_default_is_given_by_position(name):
    parameters = inspect.signature(PUBLIC[name]).parameters
    for parameter in parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            assert parameter.name in BY_POSITION and parameter.default is parameter.empty
    assert next(iter(parameters)) == "budget"


def test_builders_copy():
    made = (
        (Histogram(BUDGET), lambda t: t.with_decision()),
        (PrivateCountRelease(BUDGET), lambda t: t.with_decision()),
        (Quantiles(BUDGET, [0.5], 0, 1), lambda t: t.of_leaves()),
        (AnonymizedHistogram(BUDGET, domain_size=10), lambda t: t.with_answers(EntropyQuestion())),
        (ShuffledReports(BUDGET, users=1000, buckets=10), lambda t: t.with_answers(EntropyQuestion())),
    )
    for transform, build in made:
        before = dict(vars(transform))
        other = build(transform)
        assert type(other) is type(transform) and other is not transform
        assert vars(transform) == before != vars(other)
        assert isinstance(transform.mechanism, Promise) and other.mechanism is transform.mechanism


def test_what_decides_nothing_says_so():
    for transform in (TopItems(BUDGET, 3), Histogram(BUDGET, method="one-stage", bound=3)):
        with pytest.raises(ParameterError, match="nothing is decided where .*: leave out with_decision"):
            transform.with_decision()
