#!/usr/bin/env python3
"""Starts one Python worker for a Flink task manager: the command of Beam's environment type PROCESS.

The task manager runs it with --id and --provision_endpoint. It asks the provision service there for the endpoints and the
options of the job, and then is Beam's worker. Its Python is the `python3` of the PATH, which must have Headcount.
Nothing is fetched: what a job needs is installed where the worker runs.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Mapping
from typing import Any

LOG = "HEADCOUNT_WORKER_LOG"  # names a file for what workers print, since the task manager throws it away
_TIMEOUT = 60  # seconds that the provision service has for its answer


def main() -> None:
    """Ask, then be the worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    parser.add_argument("--logging_endpoint")
    parser.add_argument("--control_endpoint")
    args, _ = parser.parse_known_args()  # runners also pass what only other SDKs need
    if LOG in os.environ:
        with open(os.environ[LOG], "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
    gc.disable()  # Beam makes so many objects when it is imported that collecting meanwhile takes a tenth of the start
    # Imported only now, so that the log tells if that fails.
    from apache_beam.runners.worker import sdk_worker_main

    from headcount.pipelines.jobs import memory

    given = {"logging": args.logging_endpoint, "control": args.control_endpoint}
    os.environ.update(worker_environment(provision_info(args.provision_endpoint, args.id), args.id, given))
    gc.freeze()
    gc.enable()
    memory.keep_freed()
    sdk_worker_main.main([])  # in this process: importing Beam once more would take as long as a small job


def provision_info(endpoint: str, worker_id: str) -> Any:
    """What the runner has to tell this worker."""
    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        metadata = [("worker_id", worker_id)]
        return stub.GetProvisionInfo(request, metadata=metadata, timeout=_TIMEOUT, wait_for_ready=True).info


def worker_environment(info: Any, worker_id: str, given: Mapping[str, str | None]) -> dict[str, str]:
    """The variables that Beam's worker reads; an endpoint that the provision service does not tell is taken as given."""
    from apache_beam.portability.api import endpoints_pb2
    from google.protobuf import json_format, text_format

    environment = {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    for name in ("logging", "control", "status"):
        url = getattr(info, f"{name}_endpoint").url or given.get(name)
        if url:
            descriptor = endpoints_pb2.ApiServiceDescriptor(url=url)
            environment[f"{name.upper()}_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(descriptor)
    return environment


if __name__ == "__main__":
    main()
