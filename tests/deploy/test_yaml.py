"""Headcount in Beam YAML: the example as its reader runs it, the parameters, and where the key is not."""

from __future__ import annotations

import inspect
import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.external import ExternalTransform
from apache_beam.utils.timestamp import Timestamp
from apache_beam.yaml import main as beam_yaml

from headcount import transforms
from headcount.mechanisms.errors import HeadcountError, InputError, ParameterError
from headcount.mechanisms.shape.estimators import DistinctQuestion, EntropyQuestion
from headcount.mechanisms.shape.properties import shape_properties
from headcount.pipelines import parser, yaml_models, yaml_provider
from headcount.transforms import Budget, Release
from tests.key_search import Careless, found_in_graph

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "yaml"
PROMISE = {"epsilon": 1, "delta": 1e-6, "method": "one-stage", "bound": 3}
COUNTS = {"item", "bounded_count", "noise_stddev", "low", "high"}
ESTIMATES = COUNTS | {"count"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 20,000 rows, of which a bound of 10 cuts some, and of which some items are rare."""
    random = np.random.default_rng(5)
    user = (random.pareto(1, 20_000) * 300).astype(int) % 3_000
    item = (random.pareto(1, 20_000) * 3).astype(int) % 300
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"user": [f"u{u}" for u in user], "item": [f"{i:03}" for i in item]}), path)
    return path


def _variables(log: Path, output: Path, release: Release | None = None) -> str:
    variables = {"input": str(log), "output": str(output)}
    if release is not None:
        variables |= {"key_file": str(release.key_source.path), "release_id": release.id}
    return f"--jinja_variables={json.dumps(variables)}"


def _run_example(*flags: str) -> None:
    beam_yaml.run([f"--yaml_pipeline_file={FOLDER / 'example.yaml'}", "--runner=FnApiRunner", *flags])


def _rows(directory: Path, name: str) -> list[tuple[Any, ...]]:
    (path,) = directory.glob(f"{name}*")
    strings = pyarrow.csv.ConvertOptions(column_types={"item": pa.string()})
    return [tuple(row.values()) for row in pyarrow.csv.read_csv(path, convert_options=strings).to_pylist()]


def _pipeline_yaml(steps: str) -> str:
    return f"providers: [{{include: {FOLDER / 'providers.yaml'}}}]\npipeline: {{type: chain, transforms: [{steps}]}}"


def _build(text: str, *flags: str) -> beam.Pipeline:
    beam_options, build = beam_yaml.build_pipeline_components_from_yaml(text, [*flags])
    pipeline = beam.Pipeline(options=beam_options)
    build(pipeline)
    return pipeline


class _Inside(beam.PTransform):
    """A transform in Python, nested as a step of YAML is, so that its full label is the same."""

    def __init__(self, transform: beam.PTransform) -> None:
        super().__init__()
        self._inner = transform

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return rows | self._inner


def test_the_example_gives_the_rows_of_the_python_transform(log, tmp_path, make_release, collect):
    release = make_release("yaml")
    _run_example(_variables(log, tmp_path / "counts.csv", release))
    table = pq.read_table(log)
    histogram = transforms.Histogram(Budget(1, 1e-8), release=release)
    expected = collect(lambda pipeline: pipeline | beam.Create(table.to_batches()) | "Count" >> _Inside(histogram))
    rows = _rows(tmp_path, "counts.csv")
    assert sorted(rows) == sorted(map(tuple, expected))
    assert 5 < len(rows) < len(table["item"].unique()), "some items are released and some are not"
    _run_example(_variables(log, tmp_path / "other"))
    assert _rows(tmp_path, "other") != rows, "without a key every run is a release of its own"


@pytest.mark.parametrize("cap", [None, 1])
def test_counted_rows_with_integer_items_and_a_public_domain(tmp_path, make_release, collect, cap):
    release = make_release("domain")
    (tmp_path / "domain.txt").write_text("1\n2\n3\n")
    elements = [{"who": f"u{k}", "what": 1 + k % 2, "times": 2} for k in range(40)]
    config = {
        "user": "who",
        "item": "what",
        "count": "times",
        "epsilon": 1,
        "method": "one-stage",
        "bound": 2,
        "item_type": "int",
    }
    config |= {"max_per_item": cap}
    config |= {"domain": str(tmp_path / "domain.txt"), "key_file": str(release.key_source.path), "release_id": "domain"}
    steps = [
        {"type": "Create", "config": {"elements": elements}},
        {"type": "HeadcountHistogram", "config": config},
        {"type": "WriteToJson", "config": {"path": str(tmp_path / "out"), "num_shards": 1}},
    ]
    text = _pipeline_yaml(", ".join(map(json.dumps, steps)))
    beam_yaml.run(["--yaml_pipeline", text, "--runner=FnApiRunner"])
    (path,) = tmp_path.glob("out*")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    how = {"method": "one-stage", "bound": 2, "item_type": int, "release": release, "max_per_item": cap}
    histogram = transforms.Histogram(Budget(1), domain=[1, 2, 3], **how)
    expected = collect(
        lambda pipeline: (
            pipeline
            | beam.Create([(row["who"], row["what"], row["times"]) for row in elements])
            | "Histogram" >> _Inside(histogram)
        )
    )
    assert sorted(row["item"] for row in rows) == [1, 2, 3]
    counts = {row["item"]: (row["bounded_count"], row["noise_stddev"]) for row in rows}
    for item, count, stddev, *_ in expected:
        assert counts[item] == pytest.approx((count, stddev), rel=1e-9)  # JSON is written with ten digits


def test_the_providers_file_lists_every_factory():
    (provider,) = yaml.safe_load((FOLDER / "providers.yaml").read_text())
    made = {
        f"Headcount{value.__name__}": f"{module.__name__}.{value.__name__}"
        for module in (yaml_provider, yaml_models)
        for value in vars(module).values()
        if inspect.isfunction(value) and "_factory." in value.__qualname__
    }
    made["HeadcountPropertiesOfShape"] = f"{yaml_models.__name__}.PropertiesOfShape"
    assert provider["transforms"] == made


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"itme": "query"}, "unknown parameter 'itme' of Histogram; did you mean item\\?"),
        ({"key": "ab" * 32}, "unknown parameter 'key' of Histogram; it takes user, item, .* release_id"),
        ({"output_files": 2}, "unknown parameter 'output_files'"),
        ({"epsilon": None}, "missing epsilon"),
        ({"epsilon": "one"}, "epsilon must be a number, got 'one'"),
        ({"epsilon": True}, "epsilon must be a number, got True"),
        ({"epsilon": -1}, "epsilon must be .* got -1"),
        ({"delta": 0}, "needs a delta above 0"),
        ({"bound": "ten"}, "bound must be .* got 'ten'"),
        ({"user": 7}, "user must be a text, got a value of type int: put it in quotes"),
        ({"user": "item"}, "must be different columns"),
        ({"drop_null": "no"}, "drop_null must be true or false, got 'no'"),
        ({"max_item_bytes": 0}, "max_item_bytes must be a positive integer, got 0"),
        ({"item_type": "float"}, "item_type must be str or int, got 'float'"),
        ({"noise": "loud"}, "noise must be .* got 'loud'"),
        ({"relation": "none"}, "relation must be .* got 'none'"),
        ({"key_file": "a", "key_env": "B"}, "key_env: not allowed with argument key_file"),
        ({"release_id": 2030}, "release_id must be a text, got a value of type int"),
    ],
)
def test_wrong_parameters_are_refused(config, message):
    with pytest.raises(ParameterError, match=message) as refused:
        yaml_provider.Histogram(**(PROMISE | config))
    assert "--" not in str(refused.value), "these are parameters of a file, not flags"


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (["a", True], "domain: item 2 is of type bool, not str: put it in quotes"),
        ({"a": 1}, "domain must be a list of items or the path of a file"),
        ("nowhere.txt", "^domain 'nowhere.txt' cannot be read"),
        ([], "domain is empty"),
    ],
)
def test_wrong_domains_are_refused(domain, message):
    with pytest.raises(ParameterError, match=message):
        yaml_provider.Histogram(epsilon=1, bound=1, domain=domain)


def test_what_is_left_out_or_null_is_the_transforms_own_default():
    step = yaml_provider.Histogram(**PROMISE, max_per_item=None, noise=None)
    assert step.guarantee() == transforms.Histogram(Budget(1, 1e-6), method="one-stage", bound=3).guarantee()
    other = yaml_provider.Histogram(**PROMISE, max_per_item=1, relation="replace")
    expected = transforms.Histogram(Budget(1, 1e-6), method="one-stage", bound=3, max_per_item=1, relation="replace")
    assert other.guarantee() == expected.guarantee()
    users = yaml_provider.Histogram(epsilon=1, method="one-stage", bound=3, domain=["a", "b"], max_per_item=1)
    assert users.guarantee().words().count("an l1 norm of 3 and 1 on one item") == 1
    with pytest.raises(ParameterError, match="^max_per_item must be an integer from 1 .* got 0$"):
        yaml_provider.Histogram(epsilon=1, domain=["a", "b"], max_per_item=0)


def test_a_number_with_an_exponent_is_text_to_yaml_and_a_number_here():
    config = yaml.safe_load("{epsilon: 1, delta: 1e-8, bound: 3}")
    assert config["delta"] == "1e-8"
    assert yaml_provider.Histogram(**config).guarantee().delta == 1e-8


def _applied(config: dict[str, Any], *flags: str) -> beam.PCollection:
    pipeline = beam.Pipeline(options=PipelineOptions(list(flags)))
    rows = pipeline | beam.Create([beam.Row(user="u", item="i")])
    return rows | yaml_provider.Histogram(**(PROMISE | config))


def test_a_column_that_the_schema_lacks_is_refused_before_the_run():
    with pytest.raises(InputError, match="no column 'query'; the rows have 'user', 'item'"):
        _applied({"item": "query"}, "--runner=FnApiRunner")
    with pytest.raises(InputError, match="no column 'times'"):
        _applied({"count": "times"}, "--runner=FnApiRunner")


def test_the_result_has_a_schema():
    assert _applied({}, "--runner=FnApiRunner").element_type is transforms.NoisyCount
    assert _applied({"item_type": "int"}, "--runner=FnApiRunner").element_type is transforms.NoisyIntCount


def test_releases_are_refused_as_on_the_command_line(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADCOUNT_TEST_KEY", raising=False)
    with pytest.raises(ParameterError, match="runner FlinkRunner needs a key .* give .*key_env.*key_file"):
        _applied({}, "--runner=FlinkRunner")
    _applied({"key_env": "HEADCOUNT_TEST_KEY"}, "--runner=FlinkRunner")  # the workers have it, this process need not
    with ExternalTransform.outer_namespace("external_1"):  # as a provider of type pythonPackage expands it
        with pytest.raises(ParameterError, match="behind this expansion service needs a key"):
            _applied({}, "--runner=FnApiRunner")
        _applied({"key_env": "HEADCOUNT_TEST_KEY"}, "--runner=FnApiRunner")
    with pytest.raises(ParameterError, match="HEADCOUNT_TEST_KEY is not set"):
        _applied({"key_env": "HEADCOUNT_TEST_KEY"}, "--runner=FnApiRunner")
    with pytest.raises(ParameterError, match="release_id 'r' repeats a release, which needs the key"):
        _applied({"release_id": "r"}, "--runner=FnApiRunner")
    with pytest.raises(ParameterError, match="looks like a key itself") as refused:
        _applied({"key_file": "ab" * 32}, "--runner=FnApiRunner")
    assert "abab" not in str(refused.value)


def test_beam_yaml_shows_the_refusal_with_its_line():
    text = _pipeline_yaml("{type: Create, config: {elements: [{user: u, item: i}]}},\n{type: HeadcountHistogram}")
    with pytest.raises(ValueError, match='"HeadcountHistogram" at line 3: missing epsilon'):
        _build(text, "--runner=FnApiRunner")


def test_windows_are_refused():
    step = f"{{type: HeadcountHistogram, windowing: {{type: fixed, size: 60s}}, config: {json.dumps(PROMISE)}}}"
    text = _pipeline_yaml(f"{{type: Create, config: {{elements: [{{user: u, item: i}}]}}}}, {step}")
    with pytest.raises(ValueError, match="this one is windowed"):
        _build(text, "--runner=FnApiRunner")


def test_the_key_is_neither_in_the_graph_nor_in_the_file(make_release):
    release = make_release("graph", key=0xAB)
    config = {"epsilon": 1, "delta": 1e-6, "bound": 3, "key_file": str(release.key_source.path), "release_id": "graph"}
    create = json.dumps({"type": "Create", "config": {"elements": [{"user": "u", "item": "i"}]}})
    text = _pipeline_yaml(f"{create}, {json.dumps({'type': 'HeadcountHistogram', 'config': config})}")
    key = release.key_source.fetch()
    pipeline = _build(text, "--runner=FnApiRunner")
    assert key.hex() not in text
    assert found_in_graph(pipeline.to_runner_api(), os.fsencode(release.key_source.path)), "where the key lies"
    assert not found_in_graph(pipeline.to_runner_api(), key)
    pipeline | "More" >> beam.Create([1]) | "Careless" >> beam.ParDo(Careless(key))
    assert found_in_graph(pipeline.to_runner_api(), key), "the search sees what it looks for"


def _explain(*argv: str) -> None:
    args, beam_flags = parser.parse(yaml_provider.COMMAND, argv)
    yaml_provider.COMMAND.run(args, beam_flags)


def test_explain_prints_the_promise_of_the_file(log, tmp_path, capsys):
    variables = _variables(log, tmp_path / "out").replace("jinja_variables", "jinja-variables")
    _explain(str(FOLDER / "example.yaml"), variables)
    words = transforms.Histogram(Budget(1, 1e-8)).guarantee().words()
    assert capsys.readouterr().out == f"Count\n{words}\n"
    assert list(tmp_path.glob("out*")) == [], "nothing ran"
    config = PROMISE | {"key_env": "HEADCOUNT_TEST_KEY_OF_THE_WORKERS"}
    create = "{type: Create, config: {elements: [{user: u, item: i}]}}"
    step = json.dumps({"type": "HeadcountHistogram", "config": config})
    path = tmp_path / "remote.yaml"
    path.write_text(_pipeline_yaml(f"{create}, {step}") + "\noptions: {runner: DataflowRunner}")
    _explain(str(path))  # it needs neither the key nor the runner
    assert capsys.readouterr().out.startswith("Histogram\nUser-level")


def test_explain_adds_up_several_steps(tmp_path, capsys):
    steps = ["{type: Create, config: {elements: [{user: u, item: i}]}}"]
    made = [
        ("Rho", "HeadcountPlume", {"rho": 0.1, "delta": "1e-6", "max_items": 1}),
        ("Epsilon", "HeadcountSelectPartitions", {"epsilon": 0.2, "delta": "1e-6", "relation": "replace"}),
        ("More", "HeadcountTopItems", {"epsilon": 0.1, "delta": "1e-7", "k": 1}),
    ]
    for name, kind, config in made:
        steps.append(json.dumps({"type": kind, "name": name, "input": "Create", "config": config}))
    path = tmp_path / "pipeline.yaml"
    path.write_text(_pipeline_yaml(", ".join(steps)).replace("type: chain, ", ""))
    _explain(str(path))
    *_, first, second = capsys.readouterr().out.splitlines()
    rho = transforms.Plume(transforms.Zcdp(0.1, 1e-6), max_items=1).guarantee()
    more = transforms.TopItems(Budget(0.1, 1e-7), 1).guarantee()
    words = transforms.compose([rho, more]).total_words()
    assert first == f"Epsilon and delta of the 2 steps under add-remove add up to: {words}"
    assert second.startswith(
        "Epsilon and delta of the 1 step under replace add up to: User-level (epsilon = 0.2, delta = 1e-06)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline: [", "pipeline.yaml cannot be read: "),
        ("pipeline: {{ missing }}", "pipeline.yaml cannot be read: 'missing' is undefined"),
        ("pipeline: {type: chain, transforms: [{type: Create, config: {elements: [1]}}]}", "has no step of Headcount"),
        (
            _pipeline_yaml("{type: Create, config: {elements: [1]}}, {type: HeadcountHistogram}"),
            'pipeline.yaml: "HeadcountHistogram" at line 2: missing epsilon$',
        ),
    ],
)
def test_explain_refuses_in_one_line(tmp_path, text, message):
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    with pytest.raises(HeadcountError, match=message):
        _explain(str(path))


def test_explain_refuses_a_file_that_is_not_there_and_variables_that_are_none(tmp_path):
    with pytest.raises(ParameterError, match="nowhere.yaml cannot be read: No such file or directory$"):
        _explain(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(ParameterError, match="--jinja-variables must be an object in JSON, got 'x=1'"):
        _explain("pipeline.yaml", "--jinja-variables", "x=1")


@pytest.mark.parametrize(
    ("make", "config", "columns"),
    [
        (yaml_provider.SelectPartitions, {"epsilon": 1, "delta": "1e-6"}, {"item"}),
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
        elements = [beam.Row(user=f"u{k}", item="tea") for k in range(2000)]
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
    text = _pipeline_yaml(", ".join(map(json.dumps, steps))).replace("type: chain, ", "")
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
    found = yaml_provider.promises(str(path))
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
    text = _pipeline_yaml(", ".join(map(json.dumps, steps))).replace("type: chain, ", "")
    beam_yaml.run(["--yaml_pipeline", text, "--runner=FnApiRunner"])
    in_python = {"user": "who", "value": "age", "release": release}
    budget = Budget(2, 1e-4)
    made = transforms.Quantiles(
        budget, [0.5, 0.9], 0, 100, ranges=[(0, 25), (25, 100)], levels=4, sample="ages", **in_python
    )
    search = transforms.Quantile(budget, 0.5, 0, 100, rounds=4, **in_python)

    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        rows = pipeline | beam.Create(people.to_batches())
        results = {**(rows | "Tree" >> _Inside(made))._asdict(), "search": rows | "Search" >> _Inside(search)}
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
