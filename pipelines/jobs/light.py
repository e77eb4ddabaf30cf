"""What Beam and Arrow import if it is installed, and a job on this machine has no use for: it is half of the start.

They take each of these for missing, as it is in many an installation, and go without. That is for a process that ends with its
one command, and only where no word of it names a service: another runner, a store elsewhere, a key that a service holds. Nor is
it for --verbose, where Beam would say of each that it is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

_UNUSED = (
    *("apitools", "boto3", "bson", "google.cloud.bigquery", "google.cloud.bigquery_storage"),
    *("google.cloud.bigquery_storage_v1", "google.cloud.dataflow", "google.cloud.pubsub", "google.cloud.storage"),
    *("google_auth_httplib2", "hdfs", "pandas", "pymongo"),
)
_NAMING = ("--runn", "--key-s", "--verb")  # as short as the flags may be; their words need not look like an address


def leave_out_services(words: Sequence[str]) -> None:
    """Has this process do without them, if its command line is these words and names none."""
    if not any("://" in word or word.startswith(_NAMING) for word in words):
        sys.meta_path.insert(0, _Missing())


class _Missing(MetaPathFinder):
    """Finds that the libraries are not installed."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname in _UNUSED:
            raise ModuleNotFoundError(f"{fullname} is left out: no word of the command names a service", name=fullname)
