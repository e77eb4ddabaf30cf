"""What Beam and Arrow import if it is installed, and a job on this machine has no use for: it is half of the start.

They take each of these for missing, as it is in many an installation, and go without. What they would not go without, and do
not use here, is read once it is used. That is for a process that ends with its one command, and only where no word of it names
a service: another runner, a store elsewhere, a key that a service holds. Nor is it for --verbose, where Beam would say of each
that it is missing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_UNUSED = (
    # Beam goes without these parts of itself where clients are missing.
    *("IPython", "apache_beam.io.gcp.bigquery", "apache_beam.io.gcp.gcsfilesystem"),
    *("apitools", "boto3", "bson", "google.cloud.bigquery", "google.cloud.bigquery_storage"),
    *("google.cloud.bigquery_storage_v1", "google.cloud.dataflow", "google.cloud.pubsub", "google.cloud.storage"),
    *("google_auth_httplib2", "hdfs", "pandas", "pymongo"),
)
# What they import in any case and do not use here: it is read when a name of it is asked for, or one of these functions called.
_LATER: dict[str, tuple[str, ...]] = {
    "beartype": (),
    "beartype.door": ("is_subhint",),
    "dateutil.parser": (),
    "httplib2": (),
    "pydoc": (),
    "yaml": (),
}
# As short as flags may be; their words need not look like an address, nor need those of a YAML file, for which Beam needs all.
_NAMING = ("--runn", "--key-s", "--verb", "explain-yaml")


def leave_out_services(words: Sequence[str]) -> None:
    """Has this process do without them, if its command line is these words and names none."""
    if not any("://" in word or word.startswith(_NAMING) for word in words):
        sys.meta_path.insert(0, _Missing())


class _Missing:
    """Finds that the libraries are not installed, and has others wait."""

    @staticmethod
    def find_spec(fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname in _UNUSED:
            raise ModuleNotFoundError(f"{fullname} is left out: no word of the command names a service", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Waiting(spec.loader)  # type: ignore[assignment]
        return spec


class _Waiting:
    """Loads a module by its own loader, but not yet."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = threading.RLock()

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Leaves it for later."""
        module.__class__ = _Later

    def read(self, module: ModuleType) -> None:
        """Loads it now, once."""
        with self._lock:
            if isinstance(module, _Later):
                module.__class__ = ModuleType  # type: ignore[assignment]
                module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[union-attr]
                self._loader.exec_module(module)


class _Later(ModuleType):
    """A module that has not been read."""

    def __getattr__(self, name: str) -> Any:
        if name in _LATER[self.__name__]:
            return lambda *args, **kwargs: getattr(_read(self), name)(*args, **kwargs)
        return getattr(_read(self), name)


def _read(module: ModuleType) -> ModuleType:
    if isinstance(module, _Later):
        module.__spec__.loader.read(module)  # type: ignore[union-attr]
    return module
