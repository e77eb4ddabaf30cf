"""Headcount's transforms in Beam YAML: factories whose parameters are plain values, as they stand in a pipeline file.

`deploy/yaml/providers.yaml` lists them by the names that a pipeline file uses.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.typehints import schemas

from headcount import transforms
from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES
from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.columns.preparation import PublicTable, public_table
from headcount.mechanisms.columns.times import UTC
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import releases, yaml_parts
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.protection import Protection
from headcount.pipelines.parser import Parser
from headcount.pipelines.storage import stores
from headcount.pipelines.suggestions import did_you_mean, nearest
from headcount.transforms.core.contributions import Contributions
from headcount.transforms.core.release import in_expansion_service, is_on_this_machine
from headcount.transforms.sampled.quantiles import QuantilesAndRanges

_BUDGET = ("epsilon", "delta")
# The budget of the release that a bound is chosen for, in place of `release_budget`.
_LATER = {
    "for_epsilon": inspect.Parameter("for_epsilon", inspect.Parameter.KEYWORD_ONLY, annotation="float"),
    "for_delta": inspect.Parameter("for_delta", inspect.Parameter.KEYWORD_ONLY, annotation="float", default=0.0),
}
# Parameters of transforms that a pipeline file does not give.
_MADE_HERE = ("budget", "release_budget", "release", "output_files")
# Parameters of `Contributions` that the rows, or the metrics that are asked for, tell.
_KNOWN = ("schema", "values")
_ITEM_TYPES = {"str": str, "int": int}
_QUOTE = "put it in quotes, since YAML takes words like 7, yes and 2030-01-01 for something else than text"


class Step(beam.PTransform):
    """One of Headcount's transforms on rows with a schema, configured by plain values; gives rows with a schema.

    The parameters are those of `Contributions`, of the budget, of the release (as on the command line) and of the
    transform itself, whose own defaults hold for what is left out or null.
    """

    def __init__(self, transform: Callable[..., Any], config: Mapping[str, Any]) -> None:
        super().__init__()
        given = {name: value for name, value in config.items() if value is not None}
        own = _own_parameters(transform)
        if "from_" in own and "from" in given:
            given["from_"] = given.pop("from")  # which is a word of Python alone
        of_values = "user" in own  # such a transform has its columns itself
        columns = (
            {} if of_values else {name: each for name, each in _parameters(Contributions).items() if name not in _KNOWN}
        )
        if "ranges" in own and "ranges" in given:
            given = {"quantiles": []} | given  # ranges alone are enough
        release = [name for name in vars(_release({})) if name not in own]
        budget = [*_BUDGET, "rho"] if "Zcdp" in str(_parameters(transform)["budget"].annotation) else [*_BUDGET]
        _refuse_unknown(transform.__name__, given, [*columns, *budget, *own, *release])
        if "rho" in given and "epsilon" in given:
            raise ParameterError(f"give epsilon or rho, got {given['epsilon']!r} and {given['rho']!r}")
        _check_missing(given, own)
        texts = ["user", "count", "value", "explode", "time_zone", "protect", "time", "where", "join", "on"]
        _check_texts(given, [*texts, *release])
        if "join" in given and "on" in given:
            given["join"] = public_table(given["join"], given["on"], stores.read)
        item = given.get("item", "item")
        if not isinstance(item, str | list) or (
            isinstance(item, list) and not all(isinstance(each, str) for each in item)
        ):
            raise ParameterError(f"item must be a text, or a list of texts for several key columns: {_QUOTE}")
        if not isinstance(given.get("metrics", []), list):
            raise ParameterError(f"metrics must be a list of texts such as mean:price:0:100, got {given['metrics']!r}")
        if not isinstance(given.get("drop_null", False), bool):
            raise ParameterError(f"drop_null must be true or false, got {given['drop_null']!r}")
        self._transform = transform
        known = [name for name in ("user", "value", "time") if name in own]
        names = dict(zip(known, known, strict=True)) | _those(given, (*known, "count"))
        tabled = given["join"].types if isinstance(given.get("join"), PublicTable) else {}
        own_columns = [name for name in names.values() if name not in tabled]
        self._columns = own_columns if of_values else []  # keys know their own columns
        numbers = {name: _number(name, value) for name, value in _those(given, budget).items()}
        self._budget = Zcdp(**numbers) if "rho" in numbers else Budget(**numbers)
        self._arguments = _arguments(_those(given, own), own, given.get("max_item_bytes", MAX_ITEM_BYTES), item)
        if "metrics" in self._arguments:
            self._arguments["metrics"] = Metrics.of(given["metrics"], given.get("time_zone", UTC)).each
        self._release = _release(_those(given, release))
        made = self._make(None)  # so that all is refused here that can be
        values = made.mechanism.metrics.values if "metrics" in own else ()
        self._contributions = None if of_values else Contributions(**_those(given, columns), values=values)
        promise: Guarantee = made.guarantee()
        self._guarantee = Protection(given.get("protect", "user")).of(promise)

    def default_label(self) -> str:
        return self._transform.__name__

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self._guarantee

    def expand(self, rows: beam.PCollection) -> beam.PCollection | dict[str, beam.PCollection]:
        _check_columns(rows, self._columns)
        release = self._make_release(rows.pipeline)
        if self._contributions is not None:
            rows = rows | "Contributions" >> self._contributions
        result = rows | self._make(release)
        return result._asdict() if isinstance(result, QuantilesAndRanges) else result

    def _make_release(self, pipeline: beam.Pipeline) -> Release:
        runners = [pipeline.options.view_as(StandardOptions).runner, type(pipeline.runner).__name__]
        if in_expansion_service():
            runners = ["behind this expansion service"]  # which is not told what its client runs on
        remote = next((runner for runner in runners if not is_on_this_machine(runner)), None)
        return releases.make_release(self._release, remote, spell=str)

    def _make(self, release: Release | None) -> Any:
        return self._transform(self._budget, release=release, **self._arguments)


def _factory(transform: type[beam.PTransform]) -> Callable[..., Step]:
    def make(**config: Any) -> Step:
        return Step(transform, config)

    make.__name__, make.__doc__ = transform.__name__, transform.__doc__
    return make


# A further transform is one line here and one in providers.yaml.
Histogram = _factory(transforms.Histogram)
Aggregate = _factory(transforms.Aggregate)
Total = _factory(transforms.Total)
Funnel = _factory(transforms.Funnel)
Retention = _factory(transforms.Retention)
Activity = _factory(transforms.Activity)
Actives = _factory(transforms.Actives)
DebiasedCount = _factory(transforms.DebiasedCount)
SelectPartitions = _factory(transforms.SelectPartitions)
PrivateCountRelease = _factory(transforms.PrivateCountRelease)
TopItems = _factory(transforms.TopItems)
Plume = _factory(transforms.Plume)
SampledHistogram = _factory(transforms.SampledHistogram)
HeavyHitters = _factory(transforms.HeavyHitters)
Quantile = _factory(transforms.Quantile)
Quantiles = _factory(transforms.Quantiles)
AnonymizedHistogram = _factory(transforms.AnonymizedHistogram)
Entropy = _factory(transforms.Entropy)
DistinctItems = _factory(transforms.DistinctItems)
SupportSize = _factory(transforms.SupportSize)
SupportCoverage = _factory(transforms.SupportCoverage)
LearnDistribution = _factory(transforms.LearnDistribution)
ChooseBound = _factory(transforms.ChooseBound)
NoisyCounts = _factory(yaml_parts.NoisyCounts)


def _own_parameters(transform: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a transform that a pipeline file gives."""
    own = {name: parameter for name, parameter in _parameters(transform).items() if name not in _MADE_HERE}
    return own | (_LATER if "release_budget" in _parameters(transform) else {})


def _check_missing(given: Mapping[str, Any], own: Mapping[str, inspect.Parameter]) -> None:
    """Refuses a step without a budget, or without a parameter that has no default."""
    required = [name for name, parameter in own.items() if parameter.default is parameter.empty]
    missing = [name for name in required if name not in given]
    if "rho" not in given and "epsilon" not in given:
        missing.insert(0, "epsilon")
    if missing:
        raise ParameterError(f"missing {', '.join(missing)}")


def _parameters(transform: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(transform).parameters)


def _those(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The given ones of these names."""
    return {name: given[name] for name in names if name in given}


def _release(given: Mapping[str, str]) -> argparse.Namespace:
    """Key source and release id as the command line's own parser knows them: what it learns is known here at once."""
    parser = Parser(add_help=False)
    groups.add_release(parser)
    sources = [name for name in releases.KEY_SOURCES if name in given]
    if len(sources) > 1:
        raise ParameterError(f"{sources[1]}: not allowed with argument {sources[0]}")
    return parser.parse_args([f"{options.as_flag(name)}={value}" for name, value in given.items()])


def _refuse_unknown(name: str, given: Collection[str], known: Sequence[str]) -> None:
    """Refuses a parameter that is not known, with the one that it is near to."""
    for parameter in given:
        if parameter not in known:
            hint = did_you_mean(nearest(str(parameter), known, 0.75)) or f"it takes {', '.join(known)}"
            raise ParameterError(f"unknown parameter {parameter!r} of {name}; {hint}")


def _check_texts(given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuses what is to be text and is not."""
    for name, value in _those(given, names).items():
        if not isinstance(value, str):  # it is not echoed: it may be the key
            raise ParameterError(f"{name} must be a text, got a value of type {type(value).__name__}: {_QUOTE}")


def _number(name: str, value: Any) -> float:
    """YAML takes 1e-8 for text, as it wants a point in such numbers; people do not."""
    try:
        if not isinstance(value, bool) and isinstance(value, int | float | str):
            return numbers.number(str(value))
    except argparse.ArgumentTypeError:
        pass
    raise ParameterError(f"{name} must be a number, got {value!r}")


def _later_budget(for_epsilon: float, for_delta: float = 0.0) -> Budget:
    try:
        return Budget(for_epsilon, for_delta)
    except ParameterError as error:
        raise error.renamed(f"for_{error.parameter}") from None


def _arguments(
    given: dict[str, Any], parameters: Mapping[str, inspect.Parameter], max_item_bytes: int, item: str | list[str]
) -> dict[str, Any]:
    """The transform's own parameters, with types and files for the words that stand for them."""
    item_type = given.get("item_type", "str")
    if item_type not in ("str", "int"):
        raise ParameterError(f"item_type must be str or int, got {item_type!r}")
    arguments = yaml_parts.read_values(given) if "lo" in parameters else dict(given)
    for name, value in given.items():
        if isinstance(value, str) and parameters[name].annotation in ("float", "float | None"):
            arguments[name] = _number(name, value)
    if "for_epsilon" in parameters:
        arguments["release_budget"] = _later_budget(**{name: arguments.pop(name) for name in _LATER if name in given})
    if "item_type" in given:
        arguments["item_type"] = _ITEM_TYPES[item_type]
    domain = given.get("domain")
    if isinstance(domain, str | dict):
        names = tuple(column.name for column in parse_columns(item))
        arguments["domain"] = DomainFile(domain, max_item_bytes, stores.read, names)
    elif domain is not None:
        arguments["domain"] = _domain(domain, item_type)
    return arguments


def _domain(domain: Any, item_type: str) -> list[Any]:
    """The items of a list, or the keys of a list of lists, with a value for each key column."""
    if not isinstance(domain, list):
        raise ParameterError(
            "domain must be a list of items, the path of a file of them, or a mapping of columns to files, lists and ranges, "
            f"got {domain!r}"
        )
    if domain and all(isinstance(item, list) for item in domain):
        return [tuple(item) for item in domain]
    for number, item in enumerate(domain, start=1):
        if not isinstance(item, _ITEM_TYPES[item_type]) or isinstance(item, bool):
            hint = _QUOTE if item_type == "str" else "item_type says int"
            raise ParameterError(f"domain: item {number} is of type {type(item).__name__}, not {item_type}: {hint}")
    return domain


def _check_columns(rows: beam.PCollection, columns: Sequence[str]) -> None:
    """Refuses rows whose schema lacks a column; rows without a schema are looked at when they come."""
    try:
        fields = [name for name, _ in schemas.named_fields_from_element_type(rows.element_type)]
    except TypeError:
        return
    for column in columns:
        if column not in fields:
            raise InputError(f"no column {column!r}; the rows have {', '.join(map(repr, fields))}")
