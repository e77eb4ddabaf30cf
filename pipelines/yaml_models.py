"""The models without trust in whoever counts, in Beam YAML: steps that draw nothing, and so know of no key.

Messages of the shuffle model are made by `headcount randomize`, files of pan-private counters by `headcount counters`. The
noise of both is the operating system's and is stored once, which has no place in a step that a runner may run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apache_beam as beam

from headcount import transforms
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.estimators import (
    CoverageQuestion,
    DistinctQuestion,
    EntropyQuestion,
    Question,
    SupportQuestion,
)
from headcount.pipelines.yaml_provider import (
    Step,
    _check_columns,
    _check_missing,
    _check_texts,
    _number,
    _own_parameters,
    _refuse_unknown,
    _those,
)
from headcount.transforms.papers.shuffled import MESSAGE

_BUDGET = ("epsilon", "delta")
_PROPERTIES = ("entropy", "distinct-items", "support-coverage", "support-size")


class _Keyless(Step):
    """A transform of these models on rows with a schema, configured by plain values."""

    def __init__(self, transform: Callable[..., Any], config: Mapping[str, Any], columns: Sequence[str]) -> None:
        beam.PTransform.__init__(self)
        given = {name: value for name, value in config.items() if value is not None}
        own = _own_parameters(transform)
        _refuse_unknown(transform.__name__, given, [*_BUDGET, *own])
        _check_missing(given, own)
        _check_texts(given, [name for name in ("salt", "state", "batch") if name in own])
        self._transform, self._columns = transform, list(columns)
        budget = Budget(**{name: _number(name, value) for name, value in _those(given, _BUDGET).items()})
        self._made = transform(budget, **_those(given, own))
        self._guarantee = self._made.guarantee()


class _Reports(_Keyless):
    """Rows bucket, sign -> rows count, items, error."""

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        _check_columns(rows, self._columns)
        return rows | "Messages" >> beam.Map(lambda row: (row.bucket, row.sign)) | self._made


class _Counts(_Keyless):
    """Rows with the item of an event each -> a row with the name of the batch, once it is in the file."""

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        _check_columns(rows, self._columns)
        column = self._columns[0]
        added = rows | "Items" >> beam.Map(lambda row: getattr(row, column)) | self._made
        return added | "Batch" >> beam.Map(lambda name: beam.Row(batch=str(name)))


def _keyless_factory(
    transform: type[beam.PTransform], make_step: Callable[[dict[str, Any]], Step]
) -> Callable[..., Step]:
    def make(**config: Any) -> Step:
        return make_step(config)

    make.__name__, make.__doc__ = transform.__name__, transform.__doc__
    return make


def _reports(config: dict[str, Any]) -> Step:
    return _Reports(transforms.ShuffledReports, config, MESSAGE)


def _counts(config: dict[str, Any]) -> Step:
    column = config.pop("item", None) or "item"
    if not isinstance(column, str):
        raise ParameterError(f"item must be a text, the name of a column, got {column!r}")
    if config.get("batch") is None:
        raise ParameterError("missing batch, the name of these events, which no other batch has")
    return _Counts(transforms.PanPrivateCounts, config, [column])


ShuffledReports = _keyless_factory(transforms.ShuffledReports, _reports)
PanPrivateCounts = _keyless_factory(transforms.PanPrivateCounts, _counts)


def PropertiesOfShape(  # noqa: N802  # as the transform is called
    properties: Sequence[str] = _PROPERTIES[:3],
    accuracy: Any = 0.1,
    target: int | None = None,
    most: int | None = None,
) -> transforms.PropertiesOfShape:
    """What the rows of a shape say of its entropy and so on; it promises nothing of its own, as it costs nothing.

    `properties` lists some of entropy, distinct-items, support-coverage (of `target` samples) and support-size (with `most`).
    """
    if not isinstance(properties, list | tuple) or not properties:
        raise ParameterError(f"properties must be a list of {', '.join(_PROPERTIES)}, got {properties!r}")
    near = _number("accuracy", accuracy)
    questions: list[Question] = []
    for name in properties:
        if name == "entropy":
            questions.append(EntropyQuestion(accuracy=near))
        elif name == "distinct-items":
            questions.append(DistinctQuestion())
        elif name == "support-coverage":
            questions.append(CoverageQuestion(target, near))
        elif name == "support-size":
            if most is None:
                raise ParameterError(
                    "missing most: support-size takes items to have at least one in most of all samples"
                )
            questions.append(SupportQuestion(most, near))
        else:
            raise ParameterError(f"properties must be some of {', '.join(_PROPERTIES)}, got {name!r}")
    return transforms.PropertiesOfShape(questions)
