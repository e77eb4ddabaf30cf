"""Who reaches the servers that a job starts: this machine alone, or the job does not start.

Beam's servers ask nobody who they are, and what they are sent they run, beside the key. Those in Python are made to listen on
127.0.0.1 here. Those of other programs, such as Prism, listen on every address, which no flag of theirs changes: they start
where this machine has no other address that is up, or where the operator says that a firewall keeps others out.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import socket
import struct
import sys
from typing import Any

import grpc
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, PortableOptions

from headcount.mechanisms.errors import ParameterError

# Runners that start a server of another program, unless --job_endpoint names one that runs.
_SERVERS = {"prism": "Prism", "flink": "Beam's job server for Flink", "spark": "Beam's job server for Spark"}
_UP, _LOOPBACK, _FLAGS_OF_INTERFACE = 0x1, 0x8, 0x8913  # of Linux


class ServerOptions(PipelineOptions):
    """A flag beside those of Beam, which every command that takes these has."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--behind_firewall", "--behind-firewall", action="store_true", default=False)


class _LoopbackGrpc:
    """gRPC as Beam's modules see it: a server listens on 127.0.0.1, whatever address they ask for.

    Nothing else needs them: Beam tells its workers the address localhost.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    @staticmethod
    def server(*given: Any, **named: Any) -> grpc.Server:
        made = grpc.server(*given, **named)
        made.add_insecure_port = functools.partial(_add_port, made.add_insecure_port)
        return made


def _add_port(add: Any, address: str) -> int:
    return int(add(f"127.0.0.1:{address.rpartition(':')[2]}"))


def bind() -> None:
    """From now on, Beam's servers in this process listen on 127.0.0.1."""
    from apache_beam.runners.portability import abstract_job_service, local_job_service
    from apache_beam.runners.portability.fn_api_runner import worker_handlers
    from apache_beam.runners.worker import worker_pool_main

    for module in (abstract_job_service, local_job_service, worker_handlers, worker_pool_main):
        module.grpc = _LoopbackGrpc()


def check(runner: str | None, options: PipelineOptions) -> None:
    """Refuse a runner whose server others would reach."""
    if options.view_as(ServerOptions).behind_firewall or options.view_as(PortableOptions).job_endpoint:
        return
    server = next((told for name, told in _SERVERS.items() if name in str(runner).lower()), None)
    if server is None or options.view_as(FlinkRunnerOptions).flink_submit_uber_jar:
        return
    up = interfaces_up()
    if up:
        raise ParameterError(
            f"{server} listens on every address of this machine ({', '.join(up)}), and runs what anybody sends it, beside the "
            "key: give --behind-firewall if a firewall keeps others from all of its ports, or start the command in a network "
            "of its own, as docs/streams.md shows"
        )


def interfaces_up() -> list[str]:
    """The interfaces of the network, other than loopback, by which somebody may reach this machine."""
    names = [name for _, name in socket.if_nameindex()]
    if sys.platform != "linux":
        return [name for name in names if not name.startswith("lo")]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        return [name for name in names if _flags(asked, name) & (_UP | _LOOPBACK) == _UP]


def _flags(asked: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(asked, _FLAGS_OF_INTERFACE, struct.pack("16s24x", name.encode()))
    return int(struct.unpack_from("H", answer, 16)[0])
