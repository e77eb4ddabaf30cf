"""What every public transform releases for one fixed key, id and input, by digest; see test_commands.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import pytest

from headcount import transforms as t
from headcount.mechanisms.shape.estimators import EntropyQuestion
from tests.golden import events

_DOMAIN = [f"i{i}" for i in range(1, 200, 3)]
_BUDGET = t.Budget(1, 1e-6)
_OF_NUMBERS = ["sum:number:0:20", "mean:number:0:20", "variance:number:0:20"]

# One line for each public transform; a lambda takes what every random one is given: its release.
TRANSFORMS: dict[str, Callable[[dict[str, Any]], beam.PTransform]] = {
    "Contributions": lambda release: t.Contributions(count="times"),
    "RandClip": lambda release: t.RandClip(3, **release),
    "ClipNorm": lambda release: t.ClipNorm(3, p=2, **release),
    "LimitItems": lambda release: t.LimitItems(2, **release),
    "LimitPerItem": lambda release: t.LimitPerItem(2, **release),
    "NoisyCounts": lambda release: _bounded_then(t.NoisyCounts(_BUDGET, t.Bound(l1=3), **release), release),
    "Histogram": lambda release: t.Histogram(_BUDGET, of="events", **release),
    "Histogram, named by four items of a user": lambda release: t.Histogram(_BUDGET, max_items=4, **release),
    "Histogram, one stage": lambda release: t.Histogram(_BUDGET, of="events", method="one-stage", **release),
    "Histogram, domain": lambda release: t.Histogram(
        t.Budget(1), of="events", domain=_DOMAIN, method="one-stage", bound=4, **release
    ),
    "Histogram, levels": lambda release: _in_levels(t.Histogram(_BUDGET, levels=True, **release)),
    "Aggregate": lambda release: t.Aggregate(_BUDGET, ["users", "events", *_OF_NUMBERS], **release),
    "Aggregate, domain": lambda release: t.Aggregate(
        _BUDGET, _OF_NUMBERS, domain=_DOMAIN, max_items=4, max_per_item=3, calibrate="none", **release
    ),
    "Aggregate, means of a domain": lambda release: t.Aggregate(
        _BUDGET, ["users", "events", *_OF_NUMBERS[:2]], domain=_DOMAIN, **release
    ),
    "Aggregate, quantiles": lambda release: t.Aggregate(_BUDGET, ["users", "quantile:0.25,0.5:number:0:20"], **release),
    "Aggregate, shares": lambda release: t.Aggregate(_BUDGET, ["users", "share:many=number>3"], **release),
    "Aggregate, ratios": lambda release: t.Aggregate(_BUDGET, ["ratio:r=number:0:9/number:auto"], **release),
    "ChooseBound": lambda release: t.ChooseBound(t.Budget(0.1), t.Budget(0.9, 1e-6), **release),
    "Total": lambda release: t.Total(t.Budget(1), **release),
    "Total, one of a domain": lambda release: t.Total(t.Budget(1), of="events", domain=_DOMAIN, bound=4, **release),
    "Funnel": lambda release: t.Funnel(
        t.Budget(1), ["number<2", "number>4"], time="seen", within="2d", by="item", domain=_DOMAIN, **release
    ),
    "Retention": lambda release: t.Retention(_BUDGET, "day", "2026-09-21", "2026-09-27", time="seen", **release),
    "Actives": lambda release: t.Actives(_BUDGET, "2026-09-22", "2026-09-25", time="seen", **release),
    "Activity": lambda release: t.Activity(_BUDGET, [1, 2, 5], count="times", by="country", **release),
    "DebiasedCount": lambda release: t.DebiasedCount(t.Budget(1), ["i1", "i2"], max_per_item=2, **release),
    "SelectPartitions": lambda release: t.SelectPartitions(_BUDGET, **release),
    "PrivateCountRelease": lambda release: t.PrivateCountRelease(t.Budget(5, 1e-4), **release),
    "TopItems": lambda release: t.TopItems(t.Budget(2, 1e-4), 3, **release),
    "TopItems, named first": lambda release: t.TopItems(t.Budget(2, 1e-4), 12, **release),
    "Plume": lambda release: t.Plume(t.Zcdp(0.5, 1e-6), max_items=5, **release),
    "SampledHistogram": lambda release: t.SampledHistogram(_BUDGET, **release),
    "SampledHistogram, one item": lambda release: t.SampledHistogram(_BUDGET, max_items=1, **release),
    "HeavyHitters": lambda release: t.HeavyHitters(_BUDGET, phi=0.02, users=1500, max_items=1, **release),
    "Quantile": lambda release: t.Quantile(t.Budget(2, 1e-4), 0.5, 0, 20, rounds=4, value="number", **release),
    "Quantiles": lambda release: t.Quantiles(t.Budget(2, 1e-4), [0.5, 0.9], 0, 20, levels=4, value="number", **release),
    "AnonymizedHistogram": lambda release: t.AnonymizedHistogram(t.Budget(1), domain_size=500, **release),
    "DistinctItems": lambda release: t.DistinctItems(t.Budget(1), **release),
    "Entropy": lambda release: t.Entropy(t.Budget(1), **release),
    "SupportSize": lambda release: t.SupportSize(t.Budget(1), most=200, **release),
    "SupportCoverage": lambda release: t.SupportCoverage(t.Budget(1), target=2000, **release),
    "PropertiesOfShape": lambda release: _shape_then(t.PropertiesOfShape([EntropyQuestion()]), release),
    "LearnDistribution": lambda release: t.LearnDistribution(t.Budget(1), _DOMAIN, samples_per_user=3, **release),
}

# What these give is cut by shard. Rows that are released are not, so that all others run in few shards, which is quicker.
BY_SHARD = {"Contributions", "RandClip", "ClipNorm", "LimitItems", "LimitPerItem"}

# Their noise comes from the operating system, never from the key: two runs differ on purpose.
FRESH = {"ShuffledReports", "PanPrivateCounts"}


def _bounded_then(noise: beam.PTransform, release: dict[str, Any]) -> beam.PTransform:
    return "Bounded" >> t.RandClip(3, **release) | "Noisy" >> noise


def _in_levels(histogram: beam.PTransform) -> beam.PTransform:
    return "Contributions" >> t.Contributions(item=["country", "item"]) | "Levels" >> histogram


def _shape_then(properties: beam.PTransform, release: dict[str, Any]) -> beam.PTransform:
    return "Shape" >> t.AnonymizedHistogram(t.Budget(1), domain_size=500, **release) | "Properties" >> properties


def _text(element: Any) -> Any:
    if hasattr(element, "to_pydict"):  # a record batch, whose rows are in the order of the data's own names
        metadata = {k.decode(): v.decode() for k, v in (element.schema.metadata or {}).items()}
        return [sorted(map(repr, element.to_pylist())), metadata]
    if hasattr(element, "_asdict"):  # of a type that some versions of Beam make anew each time
        return element._asdict()
    return repr(element)


def test_every_public_transform_has_a_line():
    found = {name: getattr(t, name) for name in t.__all__}
    public = {name for name, value in found.items() if inspect.isclass(value) and issubclass(value, beam.PTransform)}
    assert public == {name.split(",")[0] for name in TRANSFORMS} | FRESH


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    directory = tmp_path_factory.mktemp("golden")
    events.write(directory)
    return {"release": t.Release(t.KeyFile(str(directory / "key")), events.RELEASE_ID)}


@pytest.fixture
def check(release, collect, golden):
    """check(names, *options): each of these transforms, all in one pipeline, releases what it did."""

    def run(names: Iterable[str], *options: str) -> None:
        batches = events.events().to_batches(max_chunksize=5000)

        def build(pipeline: beam.Pipeline) -> beam.PCollection:
            source = pipeline | beam.Create(batches, reshuffle=False)
            every = []
            for name in names:
                made = TRANSFORMS[name](release | {"shards": 64 if name in BY_SHARD else 4})
                every.append(source | name >> made | f"Rows of {name}" >> beam.Map(lambda row, name=name: (name, row)))
            return every | beam.Flatten()

        found = collect(build, *options)
        for name in names:
            rows = [row for at, row in found if at == name]
            assert rows, "nothing was released: the digest would hold for much else"
            golden(f"transform: {name}", rows=sorted(repr(_text(row)) for row in rows))

    return run


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_releases_what_it_did(name, check):
    check([name])


@pytest.mark.parametrize("option", ["--runtime_type_check", "--performance_runtime_type_check"])
@pytest.mark.parametrize(
    "names", [["Histogram", "Total", "Activity"], pytest.param(TRANSFORMS, marks=pytest.mark.slow("jobs"))]
)
def test_the_same_where_beam_checks_the_types_of_elements(names, option, check):
    """The types that steps state are true: of what each takes, and of what it gives to each of its outputs."""
    check(names, option)
