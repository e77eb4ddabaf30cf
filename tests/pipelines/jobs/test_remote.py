"""A job on another runner, as its operator sees it: where to look, and states as they change."""

from __future__ import annotations

import http.server
import json
import threading

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.portable_runner import PipelineResult, PortableRunner

from headcount.pipelines.jobs import remote


def test_states_are_told_once_and_with_their_time():
    states = remote.States()
    seen = [
        (0, "UNSPECIFIED"),
        (1, 0),
        (2, "STARTING"),
        (3, "STARTING"),
        (80, "RUNNING"),
        (95, "RUNNING"),
        (185, "DONE"),
    ]
    told = [line for line in (states.line(state, after) for after, state in seen) if line is not None]
    assert told == ["STARTING after 0:02", "RUNNING after 1:20, STARTING for 1:18", "DONE after 3:05, RUNNING for 1:45"]


class Dataflow:
    def job_id(self):
        return "2030-01-31_abc"

    def _get_job_state(self):
        return "RUNNING"


def test_where_a_job_on_dataflow_is():
    options = PipelineOptions(["--project=p", "--region=europe-west1"])
    assert remote.seen_state(Dataflow()) == "RUNNING"
    assert remote.where("DataflowRunner", remote.job_of(Dataflow()), options) == (
        "job 2030-01-31_abc on DataflowRunner: "
        "https://console.cloud.google.com/dataflow/jobs/europe-west1/2030-01-31_abc?project=p"
    )
    assert remote.where("DataflowRunner", None, PipelineOptions([])) is None


@pytest.fixture
def flink():
    """A server that answers as Flink's REST interface does."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            jobs = [{"jid": "a1", "name": "other"}, {"jid": "b2", "name": "headcount-7", "state": "RUNNING"}]
            found = self.path == "/jobs/overview"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps({"jobs": jobs} if found else {}).encode())

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("localhost", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_where_a_job_on_flink_is(flink):
    def told(*flags):
        return remote.where("FlinkRunner", "x_1", PipelineOptions([*flags]))

    named = "--job_name=headcount-7"
    assert told(f"--flink_master={flink}", named) == f"job x_1 on FlinkRunner: http://{flink}/#/job/b2/overview"
    assert told(f"--flink_master=http://{flink}/", named).endswith(f": http://{flink}/#/job/b2/overview")
    assert told(f"--flink_master={flink}", "--job_name=unknown") == f"job x_1 on FlinkRunner: http://{flink}"
    assert told("--flink_master=localhost:1", named) == "job x_1 on FlinkRunner: http://localhost:1", "nobody answers"
    assert told("--flink_master=[auto]") == told() == "job x_1 on FlinkRunner"


def test_a_look_never_fails_a_job():
    class Broken:
        @property
        def _state(self):
            raise OSError

    told = []
    with remote.watched(Broken(), told.append):
        pass
    assert told == []


def test_the_states_of_a_portable_runner(monkeypatch):
    """Beam's own job service in this process, whose result is that of Flink and Prism."""
    monkeypatch.setattr(remote, "_INTERVAL", 0.01)
    options = PipelineOptions(["--job_endpoint=embed", "--environment_type=LOOPBACK"])
    pipeline = beam.Pipeline(PortableRunner(), options)
    _ = pipeline | beam.Create([1, 2, 3])
    result = pipeline.run()
    assert isinstance(result, PipelineResult) and remote.job_of(result)
    told: list[str] = []
    with remote.watched(result, told.append):
        assert result.wait_until_finish() == "DONE"
    assert told[-1].startswith("DONE after 0:0")
    assert len({line.split()[0] for line in told}) == len(told)


def test_asking_for_the_state_would_undo_what_waiting_found():
    """Why `seen_state` only looks: an answer that is on its way while the job ends is written over the last state."""

    class Late:
        def GetState(self, request):
            return beam_job_api_pb2.JobStateEvent(state=beam_job_api_pb2.JobState.RUNNING)

    result = PipelineResult(Late(), "job", iter(()), iter(()))
    result._state = "DONE"
    assert remote.seen_state(result) == "DONE" and result._state == "DONE"
    assert result.state == "RUNNING" and result._state == "RUNNING", "so Beam's own property is no way to look"
