"""`headcount explain-yaml`: what the steps of a Beam YAML file promise. The file is read, and nothing of it is run.

A pipeline file can hold code. A template of Jinja reaches Python, steps such as PyTransform name anything that can be imported,
and so do providers; Beam runs it when it puts the pipeline together. So nothing is put together here: variables are filled in
by Jinja's sandbox, the steps of Headcount are made from their own parameters, and other steps are left as they are. A step that
may hold steps of Headcount which are not seen, such as one of a provider of the file's own, is refused: what is printed would
lack their part.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from headcount.mechanisms.accounting.guarantee import Guarantee, compose
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import HeadcountError, InputError, ParameterError
from headcount.pipelines import yaml_models, yaml_provider
from headcount.pipelines.command import Tool, say
from headcount.pipelines.flags import options
from headcount.pipelines.storage import stores

# The steps of Headcount, by the names that a provider has for them.
_OURS: dict[str, Callable[..., Any]] = {
    f"{module.__name__}.{name}": made
    for module in (yaml_provider, yaml_models)
    for name, made in vars(module).items()
    if inspect.isfunction(made) and name[0].isupper()
}
# Steps of Beam that hold no other steps; whatever they run, nothing of it is run here.
_OF_BEAM = re.compile(
    r"(ReadFrom|WriteTo)\w+|AssertEqual|AssignTimestamps|Combine|Create|Enrichment|Explode|ExtractWindowingInfo|Filter|Flatten"
    r"|Join|LogForTesting|MapToFields|MatchAll|Partition|Reshuffle|Sql|StripErrorMetadata|ValidateWithSchema|WindowInto"
)
_NESTED = ("composite", "chain")
_DEEPEST = 10  # includes in included files
# What a template has by this name. In Beam it is the module, which leads to all of Python.
_DATETIME = {name: getattr(datetime, name) for name in ("datetime", "date", "time", "timedelta", "timezone")}


def promises(file: str, jinja_variables: str = "{}") -> dict[str, Guarantee]:
    """What each of Headcount's steps promises, by its label, in the pipeline of a file with these variables (JSON)."""
    try:
        import jinja2.sandbox
        import yaml
        from apache_beam.yaml.yaml_transform import SafeLineLoader, validate_against_schema
    except ImportError:  # workers and other commands do without it
        raise ParameterError(
            "Beam YAML needs the extra headcount[yaml]: pip install '.[yaml]' in its checkout"
        ) from None

    def included(path: str) -> Any:
        with _reading(path):
            return yaml.load(stores.read(path).decode(), SafeLineLoader)

    with _reading(file):
        template = _without_first_comments(stores.read(file).decode())
        beside = jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(file))) if stores.is_local(file) else None
        sandbox = jinja2.sandbox.ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, loader=beside)
        text = sandbox.from_string(template).render(datetime=_DATETIME, **json.loads(jinja_variables))
        spec = yaml.load(text, SafeLineLoader)
        validate_against_schema(spec, "generic")  # so that there are steps nowhere else than where they are looked for
    own = _own_steps(_providers(file, spec.get("providers", []), included))
    found: dict[str, Guarantee] = {}
    for outer, step in _steps(spec["pipeline"]):
        line, named = SafeLineLoader.get_line(step), step.get("name") or step["type"]
        try:
            made = _made(step["type"], SafeLineLoader.strip_metadata(step.get("config", {})), own)
        except HeadcountError as error:
            raise InputError(f'{file}: "{named}" at line {line}: {error}') from error
        if made is not None:
            label = "/".join([*outer, step.get("name") or made.default_label()])
            found[f"{label} at line {line}" if label in found else label] = made.guarantee()
    return found


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turns whatever a file, or its template, raises into one line."""
    try:
        yield
    except HeadcountError:
        raise
    except Exception as error:
        # Without the number of an error and the file once more, and without the schema that was not kept.
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise ParameterError(f"{path} cannot be read: {reason}") from None


def _without_first_comments(text: str) -> str:
    """The text with empty lines for the comments that it begins with: as in Beam, they are no part of the template."""
    first = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*", text)
    end = 0 if first is None else first.end()
    return "\n" * text.count("\n", 0, end) + text[end:]


def _providers(file: str, listed: Any, included: Callable[[str], Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """All providers of a file, and of those that it includes, which lie beside it."""
    for provider in listed if isinstance(listed, list) else [listed]:
        if not isinstance(provider, Mapping) or not ("include" in provider or "transforms" in provider):
            raise InputError(f"{file} has a provider without transforms")
        if "include" not in provider:
            yield provider
            continue
        name = str(provider["include"])
        if not stores.is_local(name) or depth == _DEEPEST:
            raise InputError(f"{file}: include {name!r} is not followed: include a copy beside the file")
        place = (
            os.path.join(os.path.dirname(file), name) if stores.is_local(file) else f"{file.rpartition('/')[0]}/{name}"
        )
        yield from _providers(place, included(place), included, depth + 1)


def _own_steps(providers: Iterable[Mapping[str, Any]]) -> dict[str, Callable[..., Any] | None]:
    """The steps of these providers: how one of Headcount's is made, and None for all others."""
    steps: dict[str, Callable[..., Any] | None] = {}
    for provider in providers:
        here = provider.get("type") == "python" and not (provider.get("config") or {}).get("packages")
        for name, target in provider["transforms"].items():
            made = _OURS.get(str(target)) if here else None
            steps[name] = made if steps.get(name, made) is made else None  # of two by one name, neither is known
    return steps


def _steps(outer: Mapping[str, Any], labels: Sequence[str] = ()) -> Iterator[tuple[Sequence[str], Mapping[str, Any]]]:
    """All steps of a pipeline that hold no others, with the labels of what they stand in."""
    inside = [*outer.get("transforms", []), *outer.get("extra_transforms", [])]
    for step in [*inside, *(outer[name] for name in ("source", "sink") if name in outer)]:
        if step["type"] in _NESTED:
            yield from _steps(step, [*labels, step.get("name") or step["type"]])
        else:
            yield labels, step


def _made(
    kind: str, config: Mapping[str, Any], own: Mapping[str, Callable[..., Any] | None]
) -> yaml_provider.Step | None:
    """A step of Headcount, as its parameters make it; None for one that promises nothing."""
    factory = own.get(kind)
    if factory is not None:
        made = factory(**{str(name): value for name, value in config.items()})
        return made if isinstance(made, yaml_provider.Step) else None
    if kind in own or not _OF_BEAM.fullmatch(kind):
        raise InputError(
            "explain-yaml runs nothing, and so cannot tell what is in a step of this type, nor what it promises"
        )
    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command: those of `python -m apache_beam.yaml.main`, so that its command line serves here too."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="the pipeline file")
    parser.add_argument("--yaml_pipeline_file", metavar="FILE", help="the same, as Beam calls it")
    parser.add_argument(
        "--jinja_variables", type=_json, default="{}", metavar="JSON", help="what the file is given when it runs"
    )


def _json(text: str) -> str:
    try:
        if isinstance(json.loads(text), dict):
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be an object in JSON, got {text!r}")


def explain(args: argparse.Namespace) -> None:
    """Print what each step promises, and what all of them do together."""
    if (args.file is None) == (args.yaml_pipeline_file is None):
        raise ParameterError("give one pipeline file, as FILE or by --yaml_pipeline_file")
    file = args.file or args.yaml_pipeline_file
    found = promises(file, args.jinja_variables)
    if not found:
        raise InputError(f"{file} has no step of Headcount")
    parts = [f"{label}\n{guarantee.description()}" for label, guarantee in found.items()]
    if len(found) > 1:
        parts.append(totals(found.values()))
    say("\n\n".join(parts))
    for guarantee in found.values():
        options.hint(guarantee.epsilon, guarantee.delta)


def totals(guarantees: Iterable[Guarantee]) -> str:
    """What steps promise together to one who is in the input of all of them, a line for each relation and unit."""
    kinds: dict[tuple[Relation, str], list[Guarantee]] = {}
    for guarantee in guarantees:
        kinds.setdefault((guarantee.relation, guarantee.unit), []).append(guarantee)
    lines = []
    for alike in kinds.values():
        steps = f"{len(alike)} step{'s' * (len(alike) > 1)}"
        under = "" if len(kinds) == 1 else f" under {alike[0].relation.value}"
        lines.append(f"Epsilon and delta of the {steps}{under} compose to: {compose(alike).promise_line()}")
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Explained(Tool):
    """What stands in the place of Beam's own command, and so takes its flags; nothing runs by them."""

    takes_beam_flags: ClassVar[bool] = True


COMMAND = _Explained(
    name="explain-yaml",
    add_arguments=add_arguments,
    do=explain,
    example="headcount explain-yaml pipeline.yaml",
)
