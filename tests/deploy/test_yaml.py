"""Headcount in Beam YAML: the example as its reader runs it, the parameters, and where the key is not."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.external import ExternalTransform
from apache_beam.yaml import main as beam_yaml

from headcount import transforms
from headcount.mechanisms.columns.reading import reading
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines import yaml_models, yaml_provider
from headcount.transforms import Budget
from tests.deploy.yaml_pipelines import FOLDER, PROMISE, Inside, jinja_variables, pipeline_yaml
from tests.key_search import Careless, found_in_graph


def _run_example(*flags: str) -> None:
    beam_yaml.run([f"--yaml_pipeline_file={FOLDER / 'example.yaml'}", "--runner=FnApiRunner", *flags])


def _rows(directory: Path, name: str) -> list[tuple[Any, ...]]:
    (path,) = directory.glob(f"{name}*")
    strings = pyarrow.csv.ConvertOptions(column_types={"item": pa.string()})
    return [tuple(row.values()) for row in pyarrow.csv.read_csv(path, convert_options=strings).to_pylist()]


def _build(text: str, *flags: str) -> beam.Pipeline:
    beam_options, build = beam_yaml.build_pipeline_components_from_yaml(text, [*flags])
    pipeline = beam.Pipeline(options=beam_options)
    build(pipeline)
    return pipeline


@pytest.mark.slow("services")
def test_the_example_gives_the_rows_of_the_python_transform(log, tmp_path, make_release, collect):
    release = make_release("yaml")
    _run_example(jinja_variables(log, tmp_path / "counts.csv", release))
    table = pq.read_table(log)
    histogram = transforms.Histogram(Budget(1, 1e-8), release=release)
    expected = collect(lambda pipeline: pipeline | beam.Create(table.to_batches()) | "Count" >> Inside(histogram))
    rows = _rows(tmp_path, "counts.csv")
    assert sorted(rows) == sorted(map(tuple, expected))
    assert 5 < len(rows) < len(table["item"].unique()), "some items are released and some are not"
    _run_example(jinja_variables(log, tmp_path / "other"))
    assert _rows(tmp_path, "other") != rows, "without a key every run is a release of its own"


@pytest.mark.slow("services")
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
        "of": "events",
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
    text = pipeline_yaml(", ".join(map(json.dumps, steps)))
    beam_yaml.run(["--yaml_pipeline", text, "--runner=FnApiRunner"])
    (path,) = tmp_path.glob("out*")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    release = release.of_rows(reading(user="who", item=["what"], count="times"))
    how = {"of": "events", "method": "one-stage", "bound": 2, "item_type": int, "release": release, "max_per_item": cap}
    histogram = transforms.Histogram(Budget(1), domain=[1, 2, 3], **how)
    expected = collect(
        lambda pipeline: (
            pipeline
            | beam.Create([(row["who"], row["what"], row["times"]) for row in elements])
            | "Histogram" >> Inside(histogram)
        )
    )
    assert sorted(row["what"] for row in rows) == [1, 2, 3]
    counts = {row["what"]: (row["bounded_count"], row["noise_stddev"]) for row in rows}
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
        ({"key": "ab" * 32}, "unknown parameter 'key' of Histogram; did you mean key_env, key_file or key_secret"),
        ({"zzz": "ab" * 32}, "unknown parameter 'zzz' of Histogram; it takes user, item, .* release_id"),
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
        ({"a": 1}, "the domain of column 'a' must be a file, a range like .*, or a list of values, got a int"),
        ({}, "a domain file is given by its path, or by a mapping"),
        ("nowhere.txt", "^domain 'nowhere.txt' cannot be read"),
        ([], "domain is empty"),
    ],
)
def test_wrong_domains_are_refused(domain, message):
    with pytest.raises(ParameterError, match=message):
        yaml_provider.Histogram(epsilon=1, bound=1, domain=domain)


def test_ranges_and_lists_of_some_key_columns_or_all():
    """Which of them a domain has is known before any row is: so is what is promised."""
    item, days = ["page", "at:day", "country"], {"at_day": "2026-11-01..2026-11-30", "country": ["DE", "FR"]}
    named = yaml_provider.Histogram(epsilon=1, delta=1e-6, item=item, domain=days).guarantee()
    assert "choice of how items are named" in [step.name for step in named.mechanisms]
    public = yaml_provider.Histogram(epsilon=1, item=item, domain=days | {"page": ["/", "/a"]}).guarantee()
    assert public.delta == 0
    with pytest.raises(ParameterError, match="delta must be positive"):
        yaml_provider.Aggregate(epsilon=1, item=item, metrics=["users"], domain=days)
    with pytest.raises(
        ParameterError, match="of at_day=2026-11-01..2026-11-30, country=2 values alone, and all keys must be"
    ):
        yaml_provider.Total(epsilon=1, item=item, domain=days)


def test_what_is_left_out_or_null_is_the_transforms_own_default():
    step = yaml_provider.Histogram(**PROMISE, max_per_item=None, noise=None)
    assert step.guarantee() == transforms.Histogram(Budget(1, 1e-6), method="one-stage", bound=3).guarantee()
    other = yaml_provider.Histogram(**PROMISE, max_per_item=1, relation="replace")
    expected = transforms.Histogram(Budget(1, 1e-6), method="one-stage", bound=3, max_per_item=1, relation="replace")
    assert other.guarantee() == expected.guarantee()
    users = yaml_provider.Histogram(epsilon=1, method="one-stage", bound=3, domain=["a", "b"], max_per_item=1)
    assert users.guarantee().description().count("an l1 norm of 3 and 1 on one item") == 1
    with pytest.raises(ParameterError, match="^max_per_item must be an integer from 1 .* got 0$"):
        yaml_provider.Histogram(epsilon=1, domain=["a", "b"], max_per_item=0)


def test_a_number_with_an_exponent_is_text_to_yaml_and_a_number_here():
    config = yaml.safe_load("{epsilon: 1, delta: 1e-8, bound: 3}")
    assert config["delta"] == "1e-8"
    assert yaml_provider.Histogram(**config).guarantee().delta == 1e-8


def _applied(config: dict[str, Any], *flags: str, **columns: Any) -> beam.PCollection:
    pipeline = beam.Pipeline(options=PipelineOptions(list(flags)))
    rows = pipeline | beam.Create([beam.Row(**{"user": "u", "item": "i"} | columns)])
    return rows | yaml_provider.Histogram(**(PROMISE | config))


def test_a_column_that_the_schema_lacks_is_refused_before_the_run():
    with pytest.raises(InputError, match="no column 'query'; the columns are 'user', 'item'"):
        _applied({"item": "query"}, "--runner=FnApiRunner")
    with pytest.raises(InputError, match="no column 'times'"):
        _applied({"count": "times"}, "--runner=FnApiRunner")


def test_the_result_has_a_schema():
    assert _applied({}, "--runner=FnApiRunner").element_type is transforms.NoisyCount
    assert _applied({}, "--runner=FnApiRunner", item=3).element_type is transforms.NoisyIntCount
    columns = _applied({"item": ["item", "page"]}, "--runner=FnApiRunner", page=3).element_type
    assert columns._fields[:2] == ("item", "page")
    for wrong in (3, ["item", 3]):
        with pytest.raises(ParameterError, match="item must be a text, or a list of texts for several key columns"):
            _applied({"item": wrong}, "--runner=FnApiRunner")


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
    text = pipeline_yaml("{type: Create, config: {elements: [{user: u, item: i}]}},\n{type: HeadcountHistogram}")
    with pytest.raises(ValueError, match='"HeadcountHistogram" at line 3: missing epsilon'):
        _build(text, "--runner=FnApiRunner")


def test_windows_are_refused():
    step = f"{{type: HeadcountHistogram, windowing: {{type: fixed, size: 60s}}, config: {json.dumps(PROMISE)}}}"
    text = pipeline_yaml(f"{{type: Create, config: {{elements: [{{user: u, item: i}}]}}}}, {step}")
    with pytest.raises(ValueError, match="this one is windowed"):
        _build(text, "--runner=FnApiRunner")


def test_the_key_is_neither_in_the_graph_nor_in_the_file(make_release):
    release = make_release("graph", key=0xAB)
    config = {"epsilon": 1, "delta": 1e-6, "bound": 3, "key_file": str(release.key_source.path), "release_id": "graph"}
    create = json.dumps({"type": "Create", "config": {"elements": [{"user": "u", "item": "i"}]}})
    text = pipeline_yaml(f"{create}, {json.dumps({'type': 'HeadcountHistogram', 'config': config})}")
    key = release.key_source.fetch()
    pipeline = _build(text, "--runner=FnApiRunner")
    assert key.hex() not in text
    assert found_in_graph(pipeline.to_runner_api(), os.fsencode(release.key_source.path)), "where the key lies"
    assert not found_in_graph(pipeline.to_runner_api(), key)
    pipeline | "More" >> beam.Create([1]) | "Careless" >> beam.ParDo(Careless(key))
    assert found_in_graph(pipeline.to_runner_api(), key), "the search sees what it looks for"
