"""The runner in this process: what Beam need not do again."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statesampler
from apache_beam.transforms import userstate
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from headcount.pipelines.jobs.local import local_runner, prompt_ends, specs_once

STATE = ReadModifyWriteStateSpec("seen", VarIntCoder())
SEEN = beam.DoFn.StateParam(STATE)


class Plain(beam.DoFn):
    """Has no state."""

    def process(self, element):
        yield element


class Stateful(beam.DoFn):
    """Has state."""

    def process(self, element, seen=SEEN):
        yield element


def with_state(element, seen=SEEN):
    return element


def test_steps_have_the_specs_that_beam_finds(monkeypatch):
    steps = [Plain(), Stateful(), Plain(), Stateful()]
    steps += [beam.Map(function).fn for function in (with_state, abs, with_state, lambda element: element)]
    expected = [userstate.get_dofn_specs(step) for step in steps]
    look, looks = userstate.get_dofn_specs, []
    monkeypatch.setattr(userstate, "get_dofn_specs", lambda step: looks.append(step) or look(step))
    counting = userstate.get_dofn_specs
    with specs_once():
        assert [userstate.get_dofn_specs(step) for step in steps * 3] == expected * 3
        assert userstate.is_stateful_dofn(steps[1]) and not userstate.is_stateful_dofn(steps[0])
    assert {STATE} in (states for states, _ in expected)
    assert len(looks) == 6  # two kinds, and four functions
    assert userstate.get_dofn_specs is counting


def test_beam_has_its_own_again_after_a_failure():
    before = userstate.get_dofn_specs
    with pytest.raises(ValueError), specs_once():
        raise ValueError
    assert userstate.get_dofn_specs is before


class _TellsPeriod(beam.DoFn):
    """How often, in milliseconds, Beam looks at the step that runs."""

    def process(self, element):
        yield statesampler.get_current_tracker().sampling_period_ms


def test_stages_of_the_runner_in_this_process_end_at_once(tmp_path):
    """By itself Beam looks every 200 ms, and a stage ends only with its last look."""
    own = statesampler.StateSampler
    assert statesampler.DEFAULT_SAMPLING_PERIOD_MS == 200
    options = PipelineOptions([])
    with beam.Pipeline(local_runner(options), options) as pipeline:
        told = pipeline | beam.Create([1]) | beam.ParDo(_TellsPeriod())
        _ = told | beam.io.WriteToText(str(tmp_path / "told"), shard_name_template="")
    assert (tmp_path / "told").read_text() == "5\n"
    assert statesampler.StateSampler is own
    with pytest.raises(ValueError), prompt_ends():
        raise ValueError
    assert statesampler.StateSampler is own
