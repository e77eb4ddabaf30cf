"""Nothing is for Python alone: every parameter of a transform is a flag of its command, and of its step in Beam YAML."""

from __future__ import annotations

import inspect

import apache_beam as beam
import pytest

from headcount import transforms
from headcount.pipelines import parser, yaml_provider
from headcount.pipelines.command import load

# What the driver makes by itself, from other flags.
SHARED = {"budget", "release_budget", "relation", "release", "item_type", "shards", "output_files", "sample"}
# What has another name on the command line, where a flag is given once for each of several.
RENAMED = {
    "Quantile": {"q": "quantile"},
    "Quantiles": {"quantiles": "quantile", "ranges": "range"},
    "ChooseBound": {"method": "bound-method"},
    "Aggregate": {"metrics": "mean"},  # and its like
    "DebiasedCount": {"items": "domain"},
    "Funnel": {"steps": "step"},
    "Retention": {"from_": "from"},
    "Actives": {"from_": "from"},
}
COMMANDS = {
    "Histogram": "histogram",
    "Aggregate": "aggregate",
    "ChooseBound": "choose-bound",
    "Funnel": "funnel",
    "Retention": "retention",
    "Activity": "activity",
    "Actives": "actives",
    "Total": "total",
    "DebiasedCount": "total",
    "PrivateCountRelease": "count-release",
    "TopItems": "top",
    "Plume": "plume",
    "SelectPartitions": "partitions",
    "SampledHistogram": "sampled",
    "HeavyHitters": "heavy-hitters",
    "Quantile": "quantiles",
    "Quantiles": "quantiles",
    "LearnDistribution": "distribution",
}
# The way in, and what bounds by hand: `NoisyCounts` of YAML has the bounding transforms as a parameter.
PARTS = {"Contributions", "RandClip", "LimitItems", "LimitPerItem", "ClipNorm", "NoisyCounts"}
# The shape of data and its models: `headcount shape`.
SHAPE = {"AnonymizedHistogram", "DistinctItems", "Entropy", "SupportSize", "SupportCoverage", "PropertiesOfShape"}
SHAPE |= {"ShuffledReports", "PanPrivateCounts"}


def own(name: str) -> list[str]:
    parameters = inspect.signature(getattr(transforms, name)).parameters
    return [parameter for parameter in parameters if parameter not in SHARED]


def test_every_transform_is_somewhere():
    every = {
        name
        for name, value in ((name, getattr(transforms, name)) for name in transforms.__all__)
        if inspect.isclass(value) and issubclass(value, beam.PTransform)
    }
    assert every - SHAPE == COMMANDS.keys() | PARTS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_is_a_flag(name):
    flags = parser.make_parser(load(COMMANDS[name]))._option_string_actions
    renamed = RENAMED.get(name, {})
    asked = [each for each in own(name) if each != "sample"]  # which a command makes of its columns
    missing = [each for each in asked if f"--{renamed.get(each, each).replace('_', '-')}" not in flags]
    assert missing == []


@pytest.mark.parametrize("name", [*COMMANDS, "NoisyCounts"])
def test_every_parameter_is_one_of_the_step_in_yaml(name):
    """A step reads the parameters off its transform; what it is made of by hand is in `bounding`."""
    make = getattr(yaml_provider, name)
    (transform,) = (cell.cell_contents for cell in make.__closure__)
    if name == "NoisyCounts":
        assert set(inspect.signature(transform).parameters) >= {"bounding", *own(name)} - {"bound"}
    else:
        assert transform is getattr(transforms, name)
