"""Runners on other machines, as a job sees them: one that fails, and one that goes on alone."""

from __future__ import annotations

from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner, PipelineState


class Failing(PipelineRunner):
    """The job is submitted, and then nothing is heard of it."""

    def run_pipeline(self, pipeline, options):
        raise ConnectionError("the job server is gone")


class Alone(PipelineRunner):
    """The job is submitted, and runs while the driver has ended: here, when `run` is called."""

    def run_pipeline(self, pipeline, options):
        Alone.run = lambda: FnApiRunner().run_pipeline(pipeline, options).wait_until_finish()
        return _Submitted()


class _Submitted:
    def wait_until_finish(self):
        return PipelineState.RUNNING
