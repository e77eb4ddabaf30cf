"""A package whose public names are imported when they are first asked for, so that one of them costs no more than itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_face(
    package: str, rooms: Mapping[str, str], at_home: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package, for {module: names that live there, with spaces between}.

    A module is one of the package, or with its full name one of another. `at_home` has names that are another one there.
    """
    homes = {name: room for room, names in rooms.items() for name in names.split()}
    names = sorted(name for name in homes if not name.startswith("_"))

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        room = homes[name] if homes[name].startswith("headcount.") else f"{package}.{homes[name]}"
        found = getattr(importlib.import_module(room), (at_home or {}).get(name, name))
        setattr(sys.modules[package], name, found)  # asked for once
        return found

    def names_there() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return names, get, names_there
