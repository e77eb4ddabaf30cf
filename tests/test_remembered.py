"""That what is remembered for Beam is what Beam would work out: also of steps with state, and of what is no method; that
options keep apart, and that what one view of them sets the other shows."""

from __future__ import annotations

import sys

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions, TypeOptions
from apache_beam.transforms import core, userstate
from apache_beam.typehints.decorators import IOTypeHints

from tests.remembered import (
    once_for_a_class,
    once_for_a_function,
    once_for_a_method,
    once_for_a_text,
    once_for_modules,
)

SPEC = userstate.ReadModifyWriteStateSpec("last", VarIntCoder())
STATE = beam.DoFn.StateParam(SPEC)


class WithState(beam.DoFn):
    def process(self, pair, last=STATE, more=3):
        yield pair


class Without(beam.DoFn):
    def process(self, element, *, named=1):
        yield element


def worked_out(function):
    """As Beam does it: the arguments that are not named only, and the defaults among them."""
    every = core.get_signature(function).parameters.values()
    given = [each for each in every if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return [each.name for each in given], [each.default for each in given if each.default is not each.empty]


@pytest.mark.parametrize("make", [WithState, Without, lambda: beam.Map(len).fn])
def test_it_is_what_beam_would_work_out(make):
    for _ in range(2):
        step = make()
        for name in ("process", "setup", "start_bundle", "finish_bundle", "teardown", "display_data"):
            found = core.get_function_args_defaults(getattr(step, name))
            assert found == worked_out(getattr(step, name))
            found[0].append("not ours to change")
    assert userstate.get_dofn_specs(WithState())[0] == {SPEC} and not userstate.is_stateful_dofn(Without())


def test_methods_are_asked_for_once():
    asked = []
    remembered = once_for_a_method(lambda function: (asked.append(function), ([], []))[1])
    for _ in range(3):
        remembered(WithState().process)
        remembered(len)
    assert len(asked) == 1 + 3


def test_a_class_is_asked_for_once_and_whoever_may_have_state_each_time():
    asked = []
    remembered = once_for_a_class(lambda step: (asked.append(step), ({SPEC}, set()))[1])
    remembered(Without())[0].clear()
    for step in (Without(), WithState(), WithState(), beam.Map(len).fn, beam.FlatMap(abs).fn):
        assert remembered(step) == ({SPEC}, set())
    assert [type(step) for step in asked] == [Without, WithState, WithState, type(beam.Map(len).fn)]


class Typed(beam.DoFn):
    def process(self, element: int, *, more: str = "") -> list[int]:
        return [element]


def test_types_are_asked_for_once_of_a_method_and_of_its_function():
    asked = []
    remembered = once_for_a_function(lambda function: (asked.append(function), TYPES[type(function)])[1])
    TYPES = {kind: IOTypeHints(((kind,), {}), ((int,), {}), []) for kind in (type(Typed().process), type(worked_out))}
    for _ in range(2):
        found = remembered(Typed().process)
        assert found == TYPES[type(Typed().process)]
        found.input_types[1]["not"] = "ours to change"
    assert remembered(Typed.process) == TYPES[type(worked_out)] and remembered(Typed().process).input_types[1] == {}
    assert len(asked) == 3
    hints = IOTypeHints.from_callable(Typed().process)
    assert hints == IOTypeHints.from_callable(Typed().process) and [*hints.input_types[1]] == ["more"]
    assert IOTypeHints.from_callable(lambda element: element) is None


def test_a_source_is_read_once():
    asked = []
    remembered = once_for_a_text(lambda function: (asked.append(function), True)[1])
    assert all([remembered(Typed().process), remembered(Typed().process), remembered(len), remembered(len)])
    assert len(asked) == 1 + 2


def test_options_with_the_same_flags_have_lists_of_their_own():
    for _ in range(2):
        made = PipelineOptions(["--experiments=one"]).view_as(DebugOptions)
        made.add_experiment("another")
        assert made.experiments == ["one", "another"]


def test_options_have_views_of_their_own_that_share_values():
    one, other = (PipelineOptions([f"--runner={runner}"]) for runner in ("FlinkRunner", "PrismRunner"))
    assert one.view_as(StandardOptions) is one.view_as(StandardOptions)
    assert [each.view_as(StandardOptions).runner for each in (one, other)] == ["FlinkRunner", "PrismRunner"]
    one.view_as(TypeOptions).view_as(StandardOptions).runner = "FnApiRunner"
    assert [each.view_as(StandardOptions).runner for each in (one, other)] == ["FnApiRunner", "PrismRunner"]


def test_modules_are_gone_through_again_when_there_are_more(monkeypatch):
    asked = []
    remembered = once_for_modules(lambda: (asked.append(None), iter([len(asked)]))[1])
    assert [remembered(), remembered()] == [[1], [1]]
    monkeypatch.setitem(sys.modules, "one_more", sys)
    assert remembered() == [2]
