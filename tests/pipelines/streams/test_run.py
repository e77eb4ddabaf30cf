"""The process of a stream: how long it waits for its job, and what a job on Flink is told."""

import threading

import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions
from apache_beam.runners.runner import PipelineState

from headcount.pipelines.streams import run


class Job:
    """A job that ends in a state, or only when it is cancelled."""

    def __init__(self, state=None):
        self._end, self._last = threading.Event(), state
        self.cancelled = False
        if state is not None:
            self._end.set()

    def wait_until_finish(self):
        assert self._end.wait(60)
        return self._last

    def cancel(self):
        self.cancelled = True
        self._end.set()


class Windows:
    """Publishes one window at each look, as many as there are results for."""

    def __init__(self, number, results):
        self.left, self._results = list(range(number)), results

    def step(self, now):
        if self._results:
            self._results -= 1
            self.left.pop()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(run, "_INTERVAL", 0.01)
    monkeypatch.setattr(run, "_PATIENCE", 0.01)


def test_a_job_that_goes_on_is_cancelled_when_all_windows_are_published():
    """On Flink a job with checkpoints never ends by itself."""
    job, windows = Job(), Windows(3, 3)
    run._wait(job, windows)
    assert job.cancelled and windows.left == []


def test_a_job_that_ends_by_itself_is_not_cancelled():
    job = Job(PipelineState.DONE)
    run._wait(job, Windows(1, 1))
    assert not job.cancelled


@pytest.mark.parametrize(
    "state, told",
    [(PipelineState.DONE, "without a result for 2 windows"), (PipelineState.FAILED, "in the state FAILED")],
)
def test_a_job_that_ends_before_its_windows_is_an_error(state, told):
    with pytest.raises(RuntimeError, match=told):
        run._wait(Job(state), Windows(3, 1))


@pytest.mark.parametrize("runner", ["FlinkRunner", "PrismRunner", "DataflowRunner"])
def test_on_flink_no_output_waits_behind_a_checkpoint_and_state_stays_small(runner):
    """A stage would hold it back, and let the clock go on before it: then it is dropped as late."""
    told = run._engine(["--runner", runner, "--parallelism=2"]).options._flags
    assert ("--finish_bundle_before_checkpointing" in told) == (runner == "FlinkRunner")
    assert ("--max_parallelism=2" in told) == (runner == "FlinkRunner")


def test_a_given_flag_of_flink_wins():
    given = run._engine(["--runner", "FlinkRunner", "--parallelism=2", "--max_parallelism=64"]).options
    assert given.view_as(FlinkRunnerOptions).max_parallelism == 64
    unknown = run._engine(["--runner", "FlinkRunner"]).options
    assert unknown.view_as(FlinkRunnerOptions).max_parallelism == -1
