"""`headcount explain-yaml`: what the steps of a file promise, and what is refused in one line."""

from __future__ import annotations

import json

import pytest

from headcount import transforms
from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines import parser, yaml_provider
from headcount.transforms import Budget
from tests.deploy.yaml_pipelines import FOLDER, PROMISE, jinja_variables, pipeline_yaml


def _explain(*argv: str) -> None:
    args, beam_flags = parser.parse(yaml_provider.COMMAND, argv)
    yaml_provider.COMMAND.run(args, beam_flags)


def test_explain_prints_the_promise_of_the_file(log, tmp_path, capsys):
    variables = jinja_variables(log, tmp_path / "out").replace("jinja_variables", "jinja-variables")
    _explain(str(FOLDER / "example.yaml"), variables)
    words = transforms.Histogram(Budget(1, 1e-8)).guarantee().words()
    assert capsys.readouterr().out == f"Count\n{words}\n"
    assert list(tmp_path.glob("out*")) == [], "nothing ran"
    config = PROMISE | {"key_env": "HEADCOUNT_TEST_KEY_OF_THE_WORKERS"}
    create = "{type: Create, config: {elements: [{user: u, item: i}]}}"
    step = json.dumps({"type": "HeadcountHistogram", "config": config})
    path = tmp_path / "remote.yaml"
    path.write_text(pipeline_yaml(f"{create}, {step}") + "\noptions: {runner: DataflowRunner}")
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
    path.write_text(pipeline_yaml(", ".join(steps)).replace("type: chain, ", ""))
    _explain(str(path))
    *_, first, second = capsys.readouterr().out.splitlines()
    rho = transforms.Plume(transforms.Zcdp(0.1, 1e-6), max_items=1).guarantee()
    more = transforms.TopItems(Budget(0.1, 1e-7), 1).guarantee()
    words = transforms.compose([rho, more]).total_words()
    assert first == f"Epsilon and delta of the 2 steps under add-remove compose to: {words}"
    assert second.startswith(
        "Epsilon and delta of the 1 step under replace compose to: User-level (epsilon = 0.2, delta = 1e-06)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline: [", "pipeline.yaml cannot be read: "),
        ("pipeline: {{ missing }}", "pipeline.yaml cannot be read: 'missing' is undefined"),
        ("pipeline: {type: chain, transforms: [{type: Create, config: {elements: [1]}}]}", "has no step of Headcount"),
        (
            pipeline_yaml("{type: Create, config: {elements: [1]}}, {type: HeadcountHistogram}"),
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
