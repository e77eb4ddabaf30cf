"""The steps of Beam YAML beside the histogram: their rows, their parameters, and what they refuse."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.utils.timestamp import Timestamp
from apache_beam.yaml import main as beam_yaml

from headcount import transforms
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.estimators import DistinctQuestion, EntropyQuestion
from headcount.mechanisms.shape.properties import shape_properties
from headcount.pipelines import yaml_models, yaml_provider
from headcount.pipelines.commands.tools import explain_yaml
from headcount.transforms import Budget
from tests.deploy.yaml_pipelines import Inside, pipeline_yaml

COUNTS = {"item", "bounded_count", "noise_stddev", "low", "high"}
ESTIMATES = COUNTS | {"count"}
OF_PEOPLE = {"count", "noise_stddev", "low", "high"}
ENDS = ("", "_low", "_high")
SHARE = {f"share{end}" for end in ENDS}


def test_dates_in_a_condition_are_of_the_time_zone_of_the_step():
    config = {"epsilon": 1, "delta": "1e-6", "metrics": ["share:new=day>2026-11-01"], "time_zone": "Europe/Berlin"}
    (flag,) = yaml_provider.Aggregate(**config)._make(None).mechanism.metrics.values
    assert flag.condition.zone == "Europe/Berlin"


@pytest.mark.slow("services")
@pytest.mark.parametrize(
    ("make", "config", "columns"),
    [
        (yaml_provider.SelectPartitions, {"epsilon": 1, "delta": "1e-6"}, {"item"}),
        (
            yaml_provider.Aggregate,
            {"epsilon": 1, "delta": "1e-6", "metrics": ["users"], "domain": ["tea"]},
            {"item", "users", "users_noise_stddev", "users_low", "users_high"},
        ),
        (yaml_provider.PrivateCountRelease, {"rho": 1, "delta": "1e-6"}, COUNTS),
        (yaml_provider.TopItems, {"epsilon": 1, "delta": "1e-6", "k": 3}, {"rank", "item"}),
        (
            yaml_provider.Plume,
            {"rho": 1, "delta": "1e-6", "max_items": 3, "max_relative_error": "5e-1", "suppress_below": 2},
            COUNTS,
        ),
        (
            yaml_provider.Total,
            {"epsilon": 1, "of": "users", "domain": ["tea"]},
            {"of", "bound", "bounded_count", "noise_stddev", "low", "high"},
        ),
        (
            yaml_provider.Funnel,
            {"epsilon": 1, "steps": ["item=tea"], "within": "1d", "by": "item", "domain": ["tea"]},
            OF_PEOPLE
            | {"item", "step", "condition"}
            | {f"share_of_{of}{end}" for of in ("first", "before") for end in ENDS},
        ),
        (
            yaml_provider.Retention,
            {"epsilon": 1, "every": "day", "from": "2026-11-01", "to": "2026-11-02"},
            OF_PEOPLE | {"cohort", "age"} | SHARE,
        ),
        (
            yaml_provider.Actives,
            {"epsilon": 1, "from": "2026-11-01", "to": "2026-11-02"},
            OF_PEOPLE | {"day", "window"} | SHARE,
        ),
        (
            yaml_provider.Activity,
            {"epsilon": 1, "bins": [1, 2]},
            OF_PEOPLE | {"events", "least", "most"} | SHARE,
        ),
        (yaml_provider.DebiasedCount, {"epsilon": 1, "items": ["tea"], "max_per_item": 2}, ESTIMATES),
        (
            yaml_provider.SampledHistogram,
            {"epsilon": 1, "delta": "1e-6"},
            {"item", "count", "noise_stddev", "low", "high", "sampled"},
        ),
        (
            yaml_provider.HeavyHitters,
            {"epsilon": 1, "delta": "1e-6", "phi": 0.5, "users": 2000},
            {"item", "count", "noise_stddev", "low", "high", "sampled"},
        ),
        (
            yaml_provider.HeavyHitters,
            {"epsilon": 1, "delta": "1e-6", "phi": 0.5, "users_share": 0.2, "sample": "drinks"},
            {"item", "count", "noise_stddev", "low", "high", "sampled"},
        ),
        (yaml_provider.AnonymizedHistogram, {"epsilon": 1, "domain_size": 10}, {"count", "items", "error"}),
        (yaml_provider.Entropy, {"epsilon": 1, "samples": 2000}, {"property", "value", "noise_stddev"}),
        (yaml_provider.DistinctItems, {"epsilon": 1}, {"count", "noise_stddev", "low", "high", "max_items"}),
        (yaml_provider.SupportSize, {"epsilon": 1, "most": 500}, {"property", "value", "noise_stddev"}),
        (yaml_provider.SupportCoverage, {"epsilon": 1, "target": 3000}, {"property", "value", "noise_stddev"}),
        (
            yaml_provider.LearnDistribution,
            {"epsilon": 1, "delta": "1e-6", "domain": ["tea"], "samples_per_user": 1},
            {"item", "probability", "error"},
        ),
        (
            yaml_provider.LearnDistribution,
            {"epsilon": 1, "domain": ["tea"], "samples_per_user": 1, "method": "dense", "hypothesis": "phs"},
            {"item", "probability", "error"},
        ),
        (
            yaml_provider.ChooseBound,
            {"epsilon": 0.1, "for_epsilon": 0.9, "for_delta": "1e-6"},
            {"bound", "max_per_item", "noise"},
        ),
        (
            yaml_provider.NoisyCounts,
            {"epsilon": 1, "delta": "1e-6", "bounding": [{"LimitItems": 2}, {"LimitPerItem": 1}]},
            COUNTS,
        ),
    ],
)
def test_the_other_steps_give_rows_with_a_schema(collect, make, config, columns):
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        elements = [beam.Row(user=f"u{k}", item="tea", time="2026-11-01") for k in range(2000)]
        return pipeline | beam.Create(elements) | make(**config)

    rows = collect(build)
    assert rows and all(set(row._fields) == columns and getattr(row, "item", "tea") == "tea" for row in rows)


def test_the_models_without_trust_are_steps_without_a_key(tmp_path):
    """Messages to a shape to its properties, and events into counters: one file, which tells what it promises."""
    reports = transforms.ShuffledReports(Budget(3, 1e-2), users=40, buckets=20)
    columns = reports.mechanism.report(np.arange(40) % 10)
    elements = [{"bucket": int(bucket), "sign": int(sign)} for bucket, sign in zip(*columns, strict=True)]
    state = str(tmp_path / "state")
    transforms.PanPrivateCounts(Budget(1), buckets=20, state=state).start()
    steps = [
        {"type": "Create", "name": "Messages", "config": {"elements": elements}},
        {
            "type": "HeadcountShuffledReports",
            "name": "Shape",
            "input": "Messages",
            "config": {"epsilon": 3, "delta": "1e-2", "users": 40, "buckets": 20},
        },
        {
            "type": "HeadcountPropertiesOfShape",
            "name": "Properties",
            "input": "Shape",
            "config": {"properties": ["entropy", "distinct-items"]},
        },
        {
            "type": "HeadcountPanPrivateCounts",
            "name": "Count",
            "input": "Messages",
            "config": {"item": "bucket", "epsilon": 1, "buckets": 20, "state": state, "batch": "monday"},
        },
    ]
    for name in ("Properties", "Count"):
        config = {"path": str(tmp_path / name), "num_shards": 1}
        steps.append({"type": "WriteToJson", "name": f"Write{name}", "input": name, "config": config})
    text = pipeline_yaml(", ".join(map(json.dumps, steps))).replace("type: chain, ", "")
    beam_yaml.run(["--yaml_pipeline", text, "--runner=FnApiRunner"])

    def written(name: str) -> list[dict[str, Any]]:
        (path,) = tmp_path.glob(f"{name}-*")
        return [json.loads(line) for line in path.read_text().splitlines()]

    rows = reports.mechanism.shape(reports.mechanism.sums(*columns), hashed=False)
    expected = shape_properties(rows, (EntropyQuestion(), DistinctQuestion())).to_pylist()
    assert [row["property"] for row in expected] == sorted(
        (row["property"] for row in written("Properties")), reverse=True
    )
    for row in written("Properties"):
        (same,) = (each for each in expected if each["property"] == row["property"])
        assert row["value"] == pytest.approx(same["value"], rel=1e-9)
    assert written("Count") == [{"batch": "monday"}]
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    found = explain_yaml.promises(str(path))
    assert found["Shape"] == reports.guarantee() and found["Count"].unit == "event" and len(found) == 2


@pytest.mark.parametrize(
    ("make", "config", "message"),
    [
        ("ShuffledReports", {"epsilon": 1, "users": 4}, "missing buckets"),
        (
            "ShuffledReports",
            {"epsilon": 1, "users": 4, "bucket": 9},
            "unknown parameter 'bucket' .* did you mean buckets",
        ),
        ("ShuffledReports", {"epsilon": 1, "delta": 0, "users": 4, "buckets": 9}, "needs a delta above 0"),
        ("ShuffledReports", {"epsilon": 1, "users": 4, "buckets": 9, "key_file": "k"}, "unknown parameter 'key_file'"),
        ("PanPrivateCounts", {"epsilon": 1, "buckets": 9, "state": "s"}, "missing batch"),
        ("PanPrivateCounts", {"epsilon": 1, "buckets": 9, "batch": "b"}, "missing state"),
        ("PanPrivateCounts", {"epsilon": 1, "buckets": 9, "state": "s", "batch": 7}, "batch must be a text"),
        ("PropertiesOfShape", {"properties": ["colour"]}, "properties must be some of entropy, .* got 'colour'"),
        ("PropertiesOfShape", {"properties": "entropy"}, "properties must be a list"),
        ("PropertiesOfShape", {"properties": ["support-size"]}, "missing most"),
    ],
)
def test_wrong_parameters_of_the_models_are_refused(make, config, message):
    with pytest.raises(ParameterError, match=message):
        getattr(yaml_models, make)(**config)


def _written(directory: Path, name: str) -> list[dict[str, Any]]:
    (path,) = directory.glob(f"{name}-*")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_quantiles_and_ranges_are_two_outputs_of_one_step_and_a_search_is_another(tmp_path, make_release, collect):
    """From a file, with the rows of the transforms in Python."""
    release = make_release("values")
    key = {"key_file": str(release.key_source.path), "release_id": "values"}
    age = np.random.default_rng(2).beta(2, 5, 3000) * 100
    people = pa.table({"who": [f"u{k}" for k in range(3000)], "age": age})
    pq.write_table(people, tmp_path / "people.parquet")
    shared = {"user": "who", "value": "age", "epsilon": 2, "delta": "1e-4", "lo": 0, "hi": "100"} | key
    tree = {"quantiles": [0.5, 0.9], "ranges": [[0, 25], ["25", 100]], "levels": 4, "sample": "ages"}
    steps = [
        {"type": "ReadFromParquet", "name": "Read", "config": {"path": str(tmp_path / "people.parquet")}},
        {"type": "HeadcountQuantiles", "name": "Tree", "input": "Read", "config": shared | tree},
        {"type": "HeadcountQuantile", "name": "Search", "input": "Read", "config": shared | {"q": 0.5, "rounds": 4}},
    ]
    for output in ("Tree.quantiles", "Tree.ranges", "Search"):
        config = {"path": str(tmp_path / output), "num_shards": 1}
        steps.append({"type": "WriteToJson", "name": f"Write{output}", "input": output, "config": config})
    text = pipeline_yaml(", ".join(map(json.dumps, steps))).replace("type: chain, ", "")
    beam_yaml.run(["--yaml_pipeline", text, "--runner=FnApiRunner"])
    in_python = {"user": "who", "value": "age", "release": release}
    budget = Budget(2, 1e-4)
    made = transforms.Quantiles(
        budget, [0.5, 0.9], 0, 100, ranges=[(0, 25), (25, 100)], levels=4, sample="ages", **in_python
    )
    search = transforms.Quantile(budget, 0.5, 0, 100, rounds=4, **in_python)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(people.to_batches())
        results = {**(rows | "Tree" >> Inside(made))._asdict(), "search": rows | "Search" >> Inside(search)}
        named = (result | f"As {name}" >> beam.Map(_named, name) for name, result in results.items())
        return tuple(named) | beam.Flatten()

    expected: dict[str, list[dict[str, Any]]] = {}
    for name, row in collect(build):
        expected.setdefault(name, []).append(row)
    found = {"quantiles": "Tree.quantiles", "ranges": "Tree.ranges", "search": "Search"}
    for name, written in found.items():
        rows = _written(tmp_path, written)
        assert [list(row) for row in rows] == [list(row) for row in expected[name]]
        for row, wanted in zip(rows, expected[name], strict=True):
            assert list(row.values()) == pytest.approx(list(wanted.values()), abs=1e-9)  # JSON has ten decimals
    assert len(expected["ranges"]) == 2 and abs(expected["search"][0]["value"] - np.median(age)) < 25


def _named(row: Any, name: str) -> tuple[str, dict[str, Any]]:
    return name, row._asdict()


def test_numbers_with_an_exponent_are_numbers_in_all_steps():
    config = yaml.safe_load("{epsilon: 1, delta: 1e-6, q: 5e-1, lo: 0, hi: 1e2}")
    assert config["q"] == "5e-1" and config["hi"] == "1e2"
    made = yaml_provider.Quantile(**config)._make(None)
    assert made.mechanism.quantile == Fraction(1, 2) and made.mechanism.leaves.hi == 100
    assert yaml_provider.HeavyHitters(epsilon=1, delta=1e-6, phi="1e-2", users=10**6)._make(None).mechanism is not None


def test_times_are_texts_in_the_file_and_texts_or_times_in_the_rows(collect):
    """300 users at noon of the fourth, on a grid of days: all of the levels agree."""
    config = {"epsilon": 2, "delta": 1e-4, "lo": "2030-01-01", "hi": "2030-01-09", "levels": 3, "quantiles": [0.5]}
    noon = "2030-01-04T12:00:00"
    for value in (noon, Timestamp.from_rfc3339(f"{noon}Z")):
        rows = [beam.Row(user=f"u{k}", value=value) for k in range(300)]
        (found,) = collect(lambda pipeline, rows=rows: pipeline | beam.Create(rows) | yaml_provider.Quantiles(**config))
        assert found.value in ("2030-01-04", "2030-01-05") and found.quantile == 0.5


VALUES = {"epsilon": 1, "delta": 1e-6, "lo": 0, "hi": 1}


@pytest.mark.parametrize(
    ("make", "config", "message"),
    [
        (yaml_provider.Quantile, VALUES, "missing q$"),
        (yaml_provider.Quantile, VALUES | {"q": 0.5, "item": "age"}, "unknown parameter 'item' of Quantile"),
        (yaml_provider.Quantile, VALUES | {"q": 0.5, "lo": "low"}, "^lo must be a number, or a date or time"),
        (yaml_provider.Quantile, VALUES | {"q": "half"}, "^q must be a number, got 'half'"),
        (yaml_provider.Quantile, VALUES | {"q": 0.5, "value": 7}, "^value must be a text"),
        (yaml_provider.Quantiles, VALUES, "missing quantiles$"),
        (yaml_provider.Quantiles, VALUES | {"quantiles": 0.5}, "^quantiles must be a list, got 0.5"),
        (yaml_provider.Quantiles, VALUES | {"ranges": [[0, 1, 2]]}, r"list of pairs .* got \[0, 1, 2\] in it"),
        (yaml_provider.Quantiles, VALUES | {"ranges": [[0, "x"]]}, "a range must be a number, or a date"),
        (yaml_provider.ChooseBound, {"epsilon": 0.1}, "missing for_epsilon"),
        (yaml_provider.ChooseBound, {"epsilon": 0.1, "for_epsilon": -1}, "^for_epsilon must be .* got -1"),
        (yaml_provider.ChooseBound, {"epsilon": 1, "release_budget": 1}, "unknown parameter 'release_budget'"),
        (yaml_provider.NoisyCounts, {"epsilon": 1, "delta": 1e-6}, "missing bounding"),
        (yaml_provider.NoisyCounts, {"epsilon": 1, "bound": 3, "bounding": []}, "unknown parameter 'bound'"),
        (
            yaml_provider.LearnDistribution,
            {"epsilon": 1, "domain": ["a"], "hypothesis": "tv"},
            "hypothesis must be one",
        ),
    ],
)
def test_wrong_values_and_later_budgets_are_refused(make, config, message):
    with pytest.raises(ParameterError, match=message):
        make(**config)


@pytest.mark.parametrize(
    ("bounding", "message"),
    [
        ([], r"bounding must be a list such as .* of RandClip, .* got \[\]"),
        ([{"LimitItem": 5}], "got {'LimitItem': 5} in it"),
        ([{"LimitItems": 5}], "l1"),  # is no bound for noise
        ([{"LimitItems": 0}], "bounding: LimitItems: items must be an integer from 1"),
        ([{"ClipNorm": {"limit": 5}}], "bounding: ClipNorm does not take {'limit': 5}"),
        ([{"ClipNorm": 5}, {"LimitItems": 5}], "put ClipNorm last"),
    ],
)
def test_wrong_boundings_are_refused(bounding, message):
    with pytest.raises(ParameterError, match=message):
        yaml_provider.NoisyCounts(epsilon=1, delta=1e-6, bounding=bounding)


def test_counts_bounded_by_hand_promise_what_the_steps_add_up_to(collect, make_release):
    """The same rows as the parts in Python, for a domain: what lies outside of it does not use up a user's bound."""
    release = make_release("parts")
    key = {"key_file": str(release.key_source.path), "release_id": "parts"}
    config = {"epsilon": 1, "domain": ["tea", "water"], "bounding": [{"ClipNorm": {"bound": 2, "p": 1}}]}
    step = yaml_provider.NoisyCounts(**config, **key)
    assert (
        step.guarantee() == transforms.NoisyCounts(Budget(1), transforms.ClipNorm(2).bound, domain=["tea"]).guarantee()
    )
    rows = [beam.Row(user=f"u{k}", item=item) for k in range(50) for item in ("tea", "coffee", "cake")]
    found = dict(row[:2] for row in collect(lambda pipeline: pipeline | beam.Create(rows) | step))
    assert found.keys() == {"tea", "water"}
    assert abs(found["tea"] - 50) < 30  # scale 2: more noise has a probability below 1e-6; 33 with coffee and cake
    with_delta = {"epsilon": 1, "delta": "1e-6", "relation": "replace"}
    step = yaml_provider.NoisyCounts(**with_delta, bounding=[{"LimitPerItem": 2}, {"LimitItems": 5}])
    bound = transforms.Bound(l0=5, l1=10, linf=2)
    assert step.guarantee() == transforms.NoisyCounts(Budget(1, 1e-6), bound, relation="replace").guarantee()


def test_rho_is_for_the_steps_that_take_it_and_in_place_of_epsilon():
    with pytest.raises(ParameterError, match="unknown parameter 'rho' of SelectPartitions"):
        yaml_provider.SelectPartitions(rho=1, delta=1e-6)
    with pytest.raises(ParameterError, match="give epsilon or rho, got 1 and 2"):
        yaml_provider.Plume(epsilon=1, rho=2, delta=1e-6)
    with pytest.raises(ParameterError, match="missing epsilon"):
        yaml_provider.Plume(delta=1e-6)
