"""What reading and writing tables of BigQuery share: their names and the clients. Its libraries are imported on use.

Credentials are Google's default ones, as everywhere. Two variables of the environment lead the clients to an emulator:
BIGQUERY_EMULATOR_HOST (a URL, known to Google's own client) and BIGQUERY_STORAGE_EMULATOR_HOST (host:port, without TLS).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.storage.stores import require_extra

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions
    from google.cloud import bigquery, bigquery_storage_v1

SCHEME = "bigquery://"

_TABLE = re.compile(r"bigquery://([a-z][a-z0-9.:-]*[a-z0-9])\.(\w{1,1024})\.([\w -]{1,1024})")


class Table(NamedTuple):
    """The three parts of a table's name."""

    project: str
    dataset: str
    table: str

    def __str__(self) -> str:
        return ".".join(self)


def is_table(path: str) -> bool:
    """Whether a path is meant to name a table."""
    return path.startswith(SCHEME)


def parse(path: str) -> Table:
    """The table that a path names; refuses a path that names none, or whose libraries are not installed."""
    matched = _TABLE.fullmatch(path)
    if matched is None:
        raise ParameterError(f"a table is named as bigquery://project.dataset.table, got {path!r}")
    for module in ("google.cloud.bigquery", "google.cloud.bigquery_storage_v1"):
        require_extra(path, "gcp", module)
    return Table(*matched.groups())


def billed_project(options: PipelineOptions, table: Table) -> str:
    """The project in which jobs and read sessions are made: --project if given, else that of the table."""
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    return options.view_as(GoogleCloudOptions).project or table.project


def client(project: str) -> bigquery.Client:
    """The client for tables and jobs."""
    from google.cloud import bigquery

    return bigquery.Client(project=project)


def read_client() -> bigquery_storage_v1.BigQueryReadClient:
    """The client for read sessions."""
    from google.cloud import bigquery_storage_v1

    host = os.environ.get("BIGQUERY_STORAGE_EMULATOR_HOST")
    if not host:
        return bigquery_storage_v1.BigQueryReadClient()
    import grpc

    channel = grpc.insecure_channel(host, options=[("grpc.max_receive_message_length", -1)])
    transport = bigquery_storage_v1.BigQueryReadClient.get_transport_class("grpc")(channel=channel)
    return bigquery_storage_v1.BigQueryReadClient(transport=transport)
