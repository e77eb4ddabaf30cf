"""`headcount explain-yaml`: what the steps of a file promise, and what is refused in one line."""

from __future__ import annotations

import json

import pytest

from headcount import transforms
from headcount.mechanisms.errors import HeadcountError, ParameterError
from headcount.pipelines import parser
from headcount.pipelines.commands.tools import explain_yaml
from headcount.transforms import Budget
from tests.deploy.yaml_pipelines import FOLDER, PROMISE, jinja_variables, pipeline_yaml


def _explain(*argv: str) -> None:
    args, beam_flags = parser.parse(explain_yaml.COMMAND, argv)
    explain_yaml.COMMAND.run(args, beam_flags)


def test_explain_prints_the_promise_of_the_file(log, tmp_path, capsys):
    variables = jinja_variables(log, tmp_path / "out")
    _explain(str(FOLDER / "example.yaml"), variables)
    words = transforms.Histogram(Budget(1, 1e-8)).guarantee().description()
    assert capsys.readouterr().out == f"Count\n{words}\n"
    assert list(tmp_path.glob("out*")) == [], "nothing ran"
    config = PROMISE | {"key_env": "HEADCOUNT_TEST_KEY_OF_THE_WORKERS"}
    create = "{type: Create, config: {elements: [{user: u, item: i}]}}"
    step = json.dumps({"type": "HeadcountHistogram", "config": config})
    path = tmp_path / "remote.yaml"
    path.write_text(pipeline_yaml(f"{create}, {step}") + "\noptions: {runner: DataflowRunner}")
    _explain(str(path))  # it needs neither the key nor the runner
    assert capsys.readouterr().out.startswith("Histogram\nUser-level")


def test_the_command_line_of_beam_serves_as_it_is(log, tmp_path, capsys):
    variables = jinja_variables(log, tmp_path / "out")
    _explain(f"--yaml_pipeline_file={FOLDER / 'example.yaml'}", "--runner=FlinkRunner", variables, "--temp_location=x")
    told = capsys.readouterr().out
    _explain(str(FOLDER / "example.yaml"), variables)
    assert capsys.readouterr().out == told and told.startswith("Count\nUser-level")
    for words in ([], ["a.yaml", "--yaml_pipeline_file=b.yaml"]):
        with pytest.raises(ParameterError, match="^give one pipeline file, as FILE or by --yaml_pipeline_file$"):
            _explain(*words)
    with pytest.raises(ParameterError, match="^unknown flag '--jinja-variables'; did you mean --jinja_variables\\?$"):
        _explain("a.yaml", "--jinja-variables", "{}")


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
    words = transforms.compose([rho, more]).promise_line()
    assert first == f"Epsilon and delta of the 2 steps under add-remove compose to: {words}"
    assert second.startswith(
        "Epsilon and delta of the 1 step under replace compose to: User-level (epsilon = 0.2, delta = 1e-06)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline: [", "pipeline.yaml cannot be read: "),
        ("pipeline: {transforms: [], more: 1}", "pipeline.yaml cannot be read: .*'more' was unexpected[^\n]*$"),
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
    with pytest.raises(ParameterError, match="--jinja_variables must be an object in JSON, got 'x=1'"):
        _explain("pipeline.yaml", "--jinja_variables", "x=1")


STEP = json.dumps({"type": "HeadcountHistogram", "name": "Count\x1b[2J", "config": PROMISE})
CREATE = "{type: Create, config: {elements: [{user: u, item: i}]}}"
UNSEEN = "explain-yaml runs nothing, and so cannot tell what is in a step of this type, nor what it promises$"


def _touching(place) -> str:
    return f"__import__('os').mkdir('{place}')"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # Steps and providers that call whatever they name when Beam puts the pipeline together.
        ('{create}, {{type: PyTransform, config: {{constructor: os.mkdir, args: ["{place}"]}}}}, {step}', UNSEEN),
        (
            '{create}, {{type: PyTransform, config: {{constructor: __callable__, kwargs: {{source: "lambda: {touch}"}}}}}}, '
            "{step}",
            UNSEEN,
        ),
        ('{create}, {{type: Own, config: {{path: "{place}"}}}}, {step}', UNSEEN),
        ('{create}, {{type: Packaged, config: {{path: "{place}"}}}}, {step}', UNSEEN),
        ("{create}, {{type: Nested}}, {step}", UNSEEN),
        ("{create}, {step}, {{type: HeadcountTotal, config: {{epsilon: 1}}}}", UNSEEN),
        # Templates, in which Beam has all of Python.
        ("{create}, {step} {{{{ cycler.__init__.__globals__.os.mkdir('{place}') }}}}", "cannot be read: "),
        ("{create}, {step} {{{{ datetime.sys.modules['os'].mkdir('{place}') }}}}", "cannot be read: "),
        ("{create}, {step} {{% include '/etc/hostname' %}}", "cannot be read: "),
        ("{create}, {step} {{% include '../outside' %}}", "cannot be read: "),
    ],
)
def test_nothing_of_a_file_is_run(tmp_path, text, message):
    place = tmp_path / "made"
    given = {"create": CREATE, "step": STEP, "touch": _touching(place), "place": place}
    providers = f"""
providers:
  - include: {FOLDER / "providers.yaml"}
  - {{type: python, config: {{}}, transforms: {{Own: os.mkdir, HeadcountTotal: os.mkdir}}}}
  - type: pythonPackage
    config: {{packages: [headcount]}}
    transforms: {{Packaged: headcount.pipelines.yaml_provider.Histogram}}
  - type: yaml
    config: {{}}
    transforms:
      Nested: "{{type: HeadcountHistogram, config: {{epsilon: 9, delta: 1e-6}}}}"
"""
    (tmp_path / "outside").write_text("")
    path = tmp_path / "folder" / "pipeline.yaml"
    path.parent.mkdir()
    path.write_text(f"{providers}\npipeline: {{type: chain, transforms: [{text.format(**given)}]}}")
    with pytest.raises(HeadcountError, match=message):
        _explain(str(path))
    assert not place.exists()


def test_steps_that_hold_no_others_are_left_as_they_are(tmp_path, capsys, monkeypatch):
    """Python of a mapping is not run, a reader finds no file, and a name does not reach the terminal as it is."""
    place = tmp_path / "made"
    code = f"def made(row):\\n  return row.user\\n{_touching(place)}"
    mapped = '{type: MapToFields, config: {language: python, append: true, fields: {user: {callable: "' + code + '"}}}}'
    read = "{type: ReadFromParquet, config: {path: nowhere.parquet}}"
    path = tmp_path / "pipeline.yaml"
    path.write_text(pipeline_yaml(f"{read}, {mapped}, {STEP}, {{type: WriteToCsv, config: {{path: nowhere.csv}}}}"))
    _explain(str(path))
    assert capsys.readouterr().out.startswith("Count [2J\nUser-level (epsilon = 1, delta = 1e-06)")
    assert not place.exists()


def test_templates_have_times_variables_and_files_beside_them(tmp_path, capsys):
    (tmp_path / "part.yaml").write_text(STEP)
    path = tmp_path / "pipeline.yaml"
    steps = CREATE + ", {% include 'part.yaml' %}, {type: WriteToCsv, config: {path: '{{ out }}-"
    path.write_text("# {{ no part of it }}\n" + pipeline_yaml(steps + "{{ datetime.datetime(2030, 1, 2).year }}'}}"))
    _explain(str(path), "--jinja_variables", '{"out": "x"}')
    assert capsys.readouterr().out.startswith("Count")


@pytest.mark.parametrize("include", ["http://127.0.0.1:1/providers.yaml", "pipeline.yaml", "list.yaml"])
def test_includes_are_followed_beside_the_file_alone(tmp_path, include):
    path = tmp_path / "pipeline.yaml"
    path.write_text(f"providers: [{{include: '{include}'}}]\npipeline: {{type: chain, transforms: [{CREATE}, {STEP}]}}")
    (tmp_path / "list.yaml").write_text("[{include: list.yaml}]")
    with pytest.raises(HeadcountError, match="is not followed: include a copy beside the file|without transforms"):
        _explain(str(path))
