"""The JSON schema of a report's file, made of the flags of the commands: editors complete and check the file by it.

`make stubs` writes it.
"""

from __future__ import annotations

import argparse
import inspect
import json
from typing import Any

from headcount.pipelines.command import COMMANDS, load
from headcount.pipelines.flags.options import FLAG, FLAG_IN_BRACKETS
from headcount.pipelines.parser import make_parser
from headcount.pipelines.report_file import file, parameters
from headcount.pipelines.report_file.schema import PLACE

Schema = dict[str, Any]
TEXT: Schema = {"type": ["string", "number"]}  # a column or a date may look like a number
KINDS: dict[str, Schema] = {
    "float": {"type": "number"},
    "int": {"type": "integer"},
    "str": TEXT,
}
WORDS = {
    "title": "what stands above the page of the report",
    "data": "what is read, for every release; a release may say otherwise",
    "key_file": "the file of the key (see: headcount key)",
    "key_env": "the environment variable with the key, on every worker",
    "key_secret": "the name of the key in Secret Manager: projects/P/secrets/S/versions/N",
    "ledger": "the ledger that keeps the account: sqlite:///FILE or postgresql://USER@HOST/DATABASE",
    "dataset": "the data set in the ledger (see: headcount ledger create)",
    "output": "the folder of the report, with {period} in it; each release has a folder of its name there",
    "promise": "what all releases of all runs together promise, in place of an epsilon and a delta for each",
    "defaults": "parameters of every release whose command has them, unless it says otherwise",
    "releases": "what is released, each by a name of its own",
}


def described(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of a flag, with the file's words for flags."""
    words = parser._get_formatter()._expand_help(action)
    return FLAG.sub(lambda found: found[1].replace("-", "_"), FLAG_IN_BRACKETS.sub("", words))


def one(action: argparse.Action) -> Schema:
    """One value of a flag."""
    if action.choices is not None:
        return {"enum": [*action.choices]}
    if action.type is None:
        return TEXT
    kinds = str(inspect.signature(action.type).return_annotation).split(" | ")  # type: ignore[arg-type]
    found = [KINDS.get(kind, TEXT) for kind in kinds]
    return found[0] if len(found) == 1 else {"anyOf": found}


def of_flag(parser: argparse.ArgumentParser, action: argparse.Action) -> Schema:
    """All that may stand for a flag."""
    words: Schema = {"description": described(parser, action)}
    if parameters.is_switch(action):
        return {**words, "type": "boolean"}
    found = one(action)
    if not parameters.is_repeated(action):
        return {**words, **found}
    several = {"type": "array", "minItems": 1, "items": found}
    named = [{"type": "object", "additionalProperties": TEXT}] if parameters.is_named(action) else []
    return {**words, "anyOf": [found, several, *named]}


def mapping(properties: Schema, **more: Any) -> Schema:
    """A mapping of these keys and no others; a dash may stand for each underscore, and is not completed."""
    dashed = {f"^{name.replace('_', '-')}$": value for name, value in properties.items() if "_" in name}
    found = {"type": "object", "properties": properties, "additionalProperties": False, **more}
    return {**found, "patternProperties": dashed} if dashed else found


def schema() -> Schema:
    """The whole of it."""
    definitions: dict[str, Schema] = {}
    every: dict[str, list[Schema]] = {}

    def refer(name: str, command: str, found: Schema) -> Schema:
        known = definitions.setdefault(name, found)
        name = name if known == found else f"{name}-{command}"
        definitions[name] = found
        return {"$ref": f"#/definitions/{name}"}

    by_command, data = [], {}
    weight = {"type": "number", "exclusiveMinimum": 0, "description": "its share of the promise, against the others"}
    for command in parameters.RELEASING:
        parser = make_parser(load(command))
        own = {
            name: refer(name, command, of_flag(parser, action)) for name, action in parameters.flags_of(command).items()
        }
        for name, found in own.items():
            if found not in every.setdefault(name, []):
                every[name].append(found)
        if command == "histogram":
            data = {name: own[name] for name in parameters.DATA}
        then = mapping({"command": {"const": command}, "weight": weight, **own})
        test = {"properties": {"command": {"const": command}}, "required": ["command"]}
        by_command.append({"if": test, "then": then})
    commands = [{"const": command, "description": COMMANDS[command].help} for command in parameters.RELEASING]
    release = {
        "type": "object",
        "required": ["command"],
        "properties": {"command": {"description": "what makes it", "oneOf": commands}},
        "allOf": by_command,
    }
    defaults = {name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in every.items()}
    promise = {
        "epsilon": {"type": "number", "exclusiveMinimum": 0, "description": "what all runs together spend at most"},
        "delta": {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "description": "the delta at which they may"},
        "per": {"enum": [*file.SPANS], "description": "in each of these"},
        "runs": {"type": "integer", "minimum": 1, "maximum": file.MOST_RUNS, "description": "how many runs there are"},
    }
    kinds: Schema = {name: {"type": "string"} for name in ("title", *parameters.KEYS, *file.ACCOUNT, "output")}
    kinds |= {
        "data": mapping(data, required=["input", "user"]),
        "promise": mapping(promise, required=["epsilon", "delta"]),
        "defaults": mapping(defaults),
        "releases": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": f"^{file.NAMES}$"},
            "additionalProperties": release,
        },
    }
    top = {name: {"description": WORDS[name], **kinds[name]} for name in file.TOP}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A report of Headcount",
        **mapping(top, required=["data", "output", "releases"]),
        "definitions": definitions,
    }


def schema_text() -> str:
    """The file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PLACE.write_text(schema_text(), encoding="utf-8")
