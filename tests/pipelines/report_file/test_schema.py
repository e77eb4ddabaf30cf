"""The JSON schema that is shipped: it is current, takes what the parser takes, and refuses what an editor should mark."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from headcount.pipelines.command import COMMANDS, JobCommand, load
from headcount.pipelines.main import main
from headcount.pipelines.report_file.parameters import DATA, RELEASING, flags_of
from headcount.pipelines.report_file.schema import schema_text
from tests.pipelines.report_file import schema
from tests.pipelines.report_file.test_mistakes import GOOD


def as_editors_read(text: str) -> Any:
    """The file by the rules of YAML 1.2, which editors have: `on` is a text, and 1e-6 a number."""

    def value(node: Any) -> Any:
        if node.id == "mapping":
            return {key.value: value(each) for key, each in node.value}
        if node.id == "sequence":
            return [value(each) for each in node.value]
        try:
            return json.loads(node.value) if node.style is None else node.value
        except ValueError:
            return node.value

    return value(yaml.compose(text))


@pytest.fixture(scope="module")
def validator():
    made = json.loads(schema_text())
    jsonschema.Draft7Validator.check_schema(made)
    return jsonschema.Draft7Validator(made)


def test_it_is_as_the_flags_are():
    assert schema_text() == schema.schema_text(), "run: make stubs"


def test_the_command_prints_it(capsys):
    assert main(["run", "--schema"]) == 0
    assert capsys.readouterr().out == schema_text()


def test_every_command_that_releases_can_be_in_a_file():
    assert sorted(RELEASING) == sorted(name for name in COMMANDS if isinstance(load(name), JobCommand))
    assert {*DATA} <= {*flags_of("histogram")}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("    item: page", "    item: [country, viewed_at:day]\n    max-per-item: 1"),
        ("    item: page", "    levels: country,page\n    domain: {country: 1..12}"),
        ("  user: user_id", "  user: user_id\n  join: countries.csv\n  on: country\n  drop_null: true"),
    ],
)
def test_it_takes_a_good_file(validator, old, new):
    validator.validate(as_editors_read(GOOD.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("output: reports", "outptu: reports"),
        ("    item: page", "    itme: page"),
        ("noise: gaussian", "noise: loud"),
        ("command: histogram", "command: ledger"),
        ("  pages:", "  ../pages:"),
        ("weight: 2", "weight: heavy"),
        ("runs: 52", "runs: 0"),
        ("  user: user_id\n", ""),
        ("    item: page", "    step: page=/"),
    ],
)
def test_it_marks_a_mistake(validator, old, new):
    assert GOOD.count(old) == 1
    assert [*validator.iter_errors(as_editors_read(GOOD.replace(old, new)))]
