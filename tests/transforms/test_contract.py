"""Every transform hands on every parameter that it takes: to its mechanism, and from there into the steps of the pipeline.

That a pipeline and the pure function give the same rows (test_replay) is worth as much as the parameters that both get: a
transform that forgets its relation agrees with a function that was never told. So here each parameter of each public transform
is given another value, and something must change with it: the pure mechanism that the transform holds or, for what is wiring
(WIRING), the steps of the pipeline as they would be sent to a runner. What a step does not have, it cannot heed. And that the
steps get the mechanism is seen by one parameter of it.
"""

from __future__ import annotations

import inspect
import pickle
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest

import headcount.transforms
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.sampled import plan
from headcount.mechanisms.shape.estimators import DistinctQuestion, EntropyQuestion
from headcount.transforms import (
    Actives,
    Activity,
    Aggregate,
    AnonymizedHistogram,
    Bound,
    Budget,
    ChooseBound,
    ClipNorm,
    Contributions,
    DebiasedCount,
    DistinctItems,
    Entropy,
    Funnel,
    HeavyHitters,
    Histogram,
    LearnDistribution,
    LimitItems,
    LimitPerItem,
    NoisyCounts,
    PanPrivateCounts,
    Plume,
    PrivateCountRelease,
    PropertiesOfShape,
    Quantile,
    Quantiles,
    RandClip,
    Retention,
    SampledHistogram,
    SelectPartitions,
    ShuffledReports,
    SupportCoverage,
    SupportSize,
    TopItems,
    Total,
    Zcdp,
)

BUDGET, LESS = Budget(1, 1e-6), Budget(0.5, 1e-6)

# What says where rows come from and go to, in how many pieces, under which key, and what is read off a released tree: no
# mechanism has to know it.
WIRING = {"release", "shards", "output_files", "user", "value", "drop_null", "state", "batch", "salt", "reports"}
WIRING |= {"quantiles", "ranges", "sample", "max_relative_error", "suppress_below", "top"}
# Where a transform reads rows itself, the same of how it does.
READS = {"time", "max_item_bytes", "time_zone", "where", "join", "on"}


class Also:
    """Another value that goes with other values of further parameters."""

    def __init__(self, value: Any, **further: Any) -> None:
        self.value, self.further = value, further


class Refused(NamedTuple):
    """The only other value that there is, which the mechanism refuses: so it was asked."""

    value: Any


class Line(NamedTuple):
    """A transform, where it holds its mechanism, what it is given, and other values; more of both where one does not fit."""

    transform: type[beam.PTransform]
    mechanism: str
    given: dict[str, Any]
    other: dict[str, Any]
    more: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = ()
    row: Any = ("u", "i")

    def cases(self) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
        """{parameter: (what is given, the same with another value of the parameter)}."""
        settings = ((self.given, self.other), *((self.given | given, other) for given, other in self.more))
        return {
            name: (given, given | ({name: value.value} | value.further if isinstance(value, Also) else {name: value}))
            for given, other in settings
            for name, value in other.items()
        }


KEY = {"release": "id-1"}  # stands for a release: the key file is made later
OTHER = {"release": "id-2", "shards": 5}
ROWS = OTHER | {"output_files": 3, "relation": "replace", "budget": LESS}
COUNTS = ROWS | {"item_type": int}
OF_DOMAIN = ROWS | {"domain": ["a", "c"], "item_type": Also(int, domain=[1, 2])}
GOOD = COUNTS | {"max_relative_error": 0.2, "suppress_below": 9}
BY_USER, BY_VALUE = {"user": ["u"], "x": ["y"]}, {"value": ["i"], "x": ["y"]}  # public tables
OVER_VALUES = ROWS | {"user": "who", "value": "what", "count": "times", "drop_null": True, "lo": 1, "hi": 90}
OVER_VALUES |= {"where": "user = u", "join": Also(BY_USER, on="user")}
JOINED = ({"join": BY_USER, "on": "user"}, {"on": Also("value", join=BY_VALUE)})
PROPERTY = ROWS | {"accuracy": 0.2, "max_items": 2, "samples": 10_000, "mode": Also("shape", domain_size=100)}
OF_PEOPLE = ROWS | {"user": "who", "by": "page", "domain": Also(["a"], by="item"), "noise": "gaussian", "drop_null": True,
                    "max_item_bytes": 9, "time_zone": "Asia/Tokyo", "item_type": Also(int, by="item"),
                    "where": "user = u", "join": Also(BY_USER, on="user")}  # fmt: skip
JOINED_PEOPLE = ({"join": BY_USER, "on": "user"}, {"on": Also("item", join={"item": ["i"], "x": ["y"]})})
PERSON = {"user": "u", "time": "2026-11-01", "item": "i"}
OF_SHAPE = (
    ({"mode": "shape", "domain_size": 100}, {"domain_size": 200}),
    ({"mode": "shape", "domain_size": None, "buckets": 4000}, {"buckets": 5000}),
)

TABLE = [
    Line(Contributions, "_row_schema", {},
         {"user": "who", "item": "what", "count": "times", "drop_null": True, "max_item_bytes": 9,
          "explode": "item", "time_zone": "Europe/Berlin", "values": ["price:0:100"], "where": "item = a",
          "join": Also(BY_USER, on="user"), "schema": pa.schema({"user": pa.int64(), "item": pa.date32()})},
         (({"protect": "user-day", "time": "at"}, {"protect": "user-week", "time": "seen"}),
          ({"join": BY_USER, "on": "user"}, {"on": Also("item", join={"item": ["i"], "x": ["y"]})}))),
    Line(RandClip, "_steps", KEY | {"bound": 3}, OTHER | {"bound": 4}),
    Line(ClipNorm, "_steps", KEY | {"bound": 3}, OTHER | {"bound": 4, "p": 2}),
    Line(LimitItems, "_steps", KEY | {"items": 3}, OTHER | {"items": 4}),
    Line(LimitPerItem, "_steps", KEY | {"count": 3}, OTHER | {"count": 4}),
    Line(NoisyCounts, "mechanism", KEY | {"budget": BUDGET, "bound": Bound(l1=3)},
         COUNTS | {"bound": Bound(l1=4), "domain": ["a"], "noise": "gaussian"}),
    Line(Histogram, "mechanism", KEY | {"budget": BUDGET, "of": "events"},
         GOOD | {"bound": 3, "max_per_item": 2, "noise": "laplace", "domain": ["a", "b"], "method": "one-stage", "of": "users",
                 "calibrate": "none", "top": 3, "per": Refused("country")},
         (({"method": "one-stage"}, {"bound": 3, "max_per_item": 2, "noise": "laplace", "objective": "items",
                                     "bound_method": "gem", "bound_share": 0.3, "domain": ["a", "b"], "of": "users"}),
          ({"of": "users"}, {"levels": True, "home": Also(True, levels=True)}), ({"max_items": 3}, {"max_items": 4}))),
    Line(Aggregate, "mechanism", KEY | {"budget": BUDGET, "metrics": ["users", "events"]},
         COUNTS | {"metrics": ["users"], "max_items": 3, "max_per_item": 2, "calibrate": "none", "domain": ["a", "b"],
                   "levels": Also(True, domain=None)}),
    Line(ChooseBound, "mechanism", KEY | {"budget": Budget(0.1), "release_budget": BUDGET},
         OTHER | {"budget": Budget(0.2), "release_budget": LESS, "relation": "replace", "domain": ["a", "b"], "method": "em",
                  "objective": "items", "noise": "laplace", "max_per_item": 2, "item_type": Also(int, domain=[1, 2, 3])},
         (({"method": "gem", "noise": "laplace"}, {"kappa": 3}),
          ({"domain": ["a", "b"], "noise": "gaussian", "method": "output-perturbation"}, {"users": 1000, "sparsity": 1}))),
    Line(Total, "mechanism", KEY | {"budget": BUDGET},
         ROWS | {"of": "events", "bound": 3, "domain": ["a", "b"], "item_type": int}),
    Line(Funnel, "mechanism", KEY | {"budget": BUDGET, "steps": ["item=i"]},
         OF_PEOPLE | {"time": "at", "steps": ["item=k"], "within": "7d"}, (JOINED_PEOPLE,), row=PERSON),
    Line(Retention, "mechanism", KEY | {"budget": BUDGET, "every": "day", "from_": "2026-11-01", "to": "2026-11-05"},
         OF_PEOPLE | {"time": "at", "every": "week", "from_": "2026-11-02", "to": "2026-11-09"}, (JOINED_PEOPLE,), row=PERSON),
    Line(Actives, "mechanism", KEY | {"budget": BUDGET, "from_": "2026-11-01", "to": "2026-11-05"},
         OF_PEOPLE | {"time": "at", "from_": "2026-11-02", "to": "2026-11-09", "noise": "laplace"}, (JOINED_PEOPLE,),
         row=PERSON),
    Line(Activity, "mechanism", KEY | {"budget": BUDGET, "bins": [1, 2]}, OF_PEOPLE | {"count": "times", "bins": [1, 3]},
         (JOINED_PEOPLE,), row=PERSON | {"times": 1}),
    Line(DebiasedCount, "mechanism", KEY | {"budget": BUDGET, "items": ["a", "b"], "max_per_item": 2},
         ROWS | {"items": ["a", "c"], "max_per_item": 3, "users": 100, "users_share": 0.3, "max_items": 1, "largest_mean": 7.0,
                 "noise": "gaussian", "item_type": Also(int, items=[1, 2])},
         (({"users": 100}, {"relation": "replace"}),)),
    Line(SelectPartitions, "mechanism", KEY | {"budget": BUDGET}, COUNTS | {"rounds": 2},
         (({"max_items": 3, "strategy": "gaussian"}, {"max_items": 2, "strategy": "laplace"}),)),
    Line(Plume, "mechanism", KEY | {"budget": Zcdp(1, 1e-6)},
         GOOD | {"budget": BUDGET, "max_items": 3, "alpha": 0.3, "selection": "sips"},
         (({"max_items": 3}, {"max_counted_items": 5}),)),
    Line(PrivateCountRelease, "mechanism", KEY | {"budget": BUDGET},
         GOOD | {"relative_error": 0.2, "k_bar": 50, "max_per_item": 2, "noise_reduction": True, "strict_target": True,
                 "start_epsilon": 0.001}),
    Line(TopItems, "mechanism", KEY | {"budget": BUDGET, "k": 3}, COUNTS | {"k": 4, "k_bar": 50, "method": "names"}),
    Line(SampledHistogram, "mechanism", KEY | {"budget": BUDGET},
         GOOD | {"max_items": 2, "objective": "w50", "sample": "other"}),
    Line(HeavyHitters, "mechanism", KEY | {"budget": BUDGET, "phi": 0.1, "users": 10_000},
         COUNTS | {"phi": 0.2, "users": 20_000, "max_items": 2, "objective": "w50", "sample": "other"},
         (({"users": None}, {"users_share": 0.3}),)),
    Line(Quantile, "mechanism", KEY | {"budget": BUDGET, "q": 0.5, "lo": 0, "hi": 100}, OVER_VALUES | {"q": 0.9, "rounds": 4},
         (JOINED,)),
    Line(Quantiles, "mechanism", KEY | {"budget": BUDGET, "quantiles": [0.5], "lo": 0, "hi": 100},
         OVER_VALUES | {"sample": "other", "quantiles": [0.9], "ranges": [(0, 50)], "levels": 4, "branching": 3}, (JOINED,)),
    Line(AnonymizedHistogram, "mechanism", KEY | {"budget": BUDGET, "domain_size": 100},
         ROWS | {"domain_size": 200, "mode": "l2", "max_items": 2, "estimate": "algorithm-1"},
         (({"domain_size": None, "buckets": 4000}, {"buckets": 5000}),)),
    Line(DistinctItems, "mechanism", KEY | {"budget": BUDGET}, ROWS | {"max_items": 2}),
    Line(Entropy, "mechanism", KEY | {"budget": BUDGET}, PROPERTY | {"kind": "plug-in"}, OF_SHAPE),
    Line(SupportSize, "mechanism", KEY | {"budget": BUDGET, "most": 1000}, PROPERTY | {"most": 2000}, OF_SHAPE),
    Line(SupportCoverage, "mechanism", KEY | {"budget": BUDGET}, PROPERTY | {"target": 50_000}, OF_SHAPE),
    Line(LearnDistribution, "mechanism", KEY | {"budget": BUDGET, "domain": ["a", "b"]},
         OF_DOMAIN | {"samples_per_user": 3, "method": "dense", "hypothesis": "phs"},
         (({"samples_per_user": 3}, {"users": 1000}),)),
    Line(ShuffledReports, "mechanism", {"budget": BUDGET, "users": 1000, "buckets": 100},
         {"budget": LESS, "users": 2000, "buckets": 200, "salt": "salt", "relation": Refused("add-remove"), "shards": 50,
          "output_files": 3, "reports": 900, "mode": "l2", "estimate": "algorithm-1"}),
    Line(PanPrivateCounts, "mechanism", {"budget": Budget(1), "buckets": 100, "state": "a", "batch": "b"},
         {"budget": Budget(0.5), "buckets": 200, "state": "c", "batch": "d", "salt": "salt", "protect": "either",
          "relation": "replace", "mode": "l2", "estimate": "algorithm-1"}),
    Line(PropertiesOfShape, "_questions", {"questions": [EntropyQuestion()]},
         {"questions": [DistinctQuestion()], "output_files": 3}),
]  # fmt: skip

LINES = {line.transform.__name__: line for line in TABLE}


def public_transforms() -> set[type[beam.PTransform]]:
    everything = vars(headcount.transforms).values()
    return {each for each in everything if inspect.isclass(each) and issubclass(each, beam.PTransform)}


class Contract:
    """Whether a transform keeps the contract in its line; `made` makes one of what it is given."""

    def __init__(self, line: Line, made: Callable[[type[beam.PTransform], dict[str, Any]], beam.PTransform]) -> None:
        self._line, self._made = line, made
        self._steps: dict[str, dict[str, bytes]] = {}
        self._mechanisms: dict[str, bytes] = {}

    def mechanism_has(self, name: str) -> bool:
        """Whether another value of the parameter makes another mechanism, and the same value the same one."""
        given, changed = self._line.cases()[name]
        if isinstance(changed[name], Refused):
            try:
                self._mechanism(changed | {name: changed[name].value})
            except ParameterError:
                return True
            return False
        if repr(given) not in self._mechanisms:
            self._mechanisms[repr(given)] = self._mechanism(given)
            assert self._mechanism(given) == self._mechanisms[repr(given)], "else a difference says nothing"
        return self._mechanism(changed) != self._mechanisms[repr(given)]

    def steps_have(self, name: str) -> bool:
        """Whether another value of the parameter makes other steps, and the same value the same ones."""
        given, changed = self._line.cases()[name]
        if repr(given) not in self._steps:
            self._steps[repr(given)] = self._steps_of(given)
            assert self._steps_of(given) == self._steps[repr(given)], "else a difference says nothing"
        return self._steps_of(changed) != self._steps[repr(given)]

    def _mechanism(self, given: dict[str, Any]) -> bytes:
        return pickle.dumps(getattr(self._made(self._line.transform, given), self._line.mechanism))

    def _steps_of(self, given: dict[str, Any]) -> dict[str, bytes]:
        """All steps with what they hold. (What a composite transform holds is not sent.)"""
        pipeline = beam.Pipeline(runner="FnApiRunner")
        rows = pipeline | "Create" >> beam.Create([self._line.row], reshuffle=False)
        _ = rows | "It" >> self._made(self._line.transform, given)
        sent = pipeline.to_runner_api().components.transforms.values()
        return {
            step.unique_name: step.spec.payload
            for step in sent
            if step.spec.urn in ("beam:transform:pardo:v1", "beam:transform:group_by_key:v1")
        }


@pytest.fixture
def made(make_release, monkeypatch):
    """made(transform, given): the transform, with a release in place of its id.

    The search for a sampling plan takes seconds for more than one item: a number that tells its arguments stands for it.
    """

    def plan_of(*arguments: object) -> tuple[Fraction, int]:
        return Fraction(1, 100), 100 + zlib.crc32(repr(arguments).encode()) % 10_000

    monkeypatch.setattr(plan, "_search_walk", plan_of)
    plan.calibrate_sample.cache_clear()

    def make(transform: type[beam.PTransform], given: dict[str, Any]) -> beam.PTransform:
        return transform(**{name: make_release(value) if name == "release" else value for name, value in given.items()})

    yield make
    plan.calibrate_sample.cache_clear()


def test_the_table_has_every_parameter_of_every_public_transform():
    assert {line.transform for line in TABLE} == public_transforms() and len(TABLE) == len(LINES)
    for line in TABLE:
        missing = set(inspect.signature(line.transform).parameters) ^ set(line.cases())
        assert not missing, f"{line.transform.__name__}: give {missing} another value in TABLE"


@pytest.mark.slow("jobs")
@pytest.mark.parametrize("name", LINES)
def test_every_parameter_is_handed_on(name, made):
    line = LINES[name]
    contract, parameters = Contract(line, made), list(line.cases())
    read = READS if "budget" in parameters else set()
    count = {"count"} if {"value", "bins"} & {*parameters} else set()  # a column; elsewhere it may be a limit
    wiring = WIRING | read | count
    of_mechanism = [parameter for parameter in parameters if parameter not in wiring]
    assert [parameter for parameter in of_mechanism if not contract.mechanism_has(parameter)] == []
    wired = [*(parameter for parameter in parameters if parameter in wiring), of_mechanism[0]]
    assert [parameter for parameter in wired if not contract.steps_have(parameter)] == []


class ForgetsItsRelation(Histogram):
    def __init__(self, budget, relation="add-remove", **more):
        super().__init__(budget, **more)


class ForgetsItsKappa(ChooseBound):
    def __init__(self, *budgets, kappa=2, **more):
        super().__init__(*budgets, **more)


class ForgetsItsShards(RandClip):
    def expand(self, rows):
        self._shards = 64
        return super().expand(rows)


class ForgetsItsFiles(TopItems):
    def __init__(self, *positional, output_files=None, **more):
        super().__init__(*positional, **more)
        self.said = output_files  # held, and given to no step


class ForgetsItsMechanism(SampledHistogram):
    def expand(self, rows):
        return rows | "Other" >> SampledHistogram(BUDGET, release=self._release)


@pytest.mark.parametrize(
    ("careless", "parameter"),
    [
        (ForgetsItsRelation, "relation"),
        (ForgetsItsKappa, "kappa"),
        (ForgetsItsShards, "shards"),
        (ForgetsItsFiles, "output_files"),
        (ForgetsItsMechanism, "budget"),
    ],
)
def test_a_transform_that_drops_a_parameter_is_caught(careless, parameter, made):
    line = LINES[careless.__base__.__name__]._replace(transform=careless)
    if parameter in ("relation", "kappa"):
        assert not Contract(line, made).mechanism_has(parameter)
    else:
        assert not Contract(line, made).steps_have(parameter)
