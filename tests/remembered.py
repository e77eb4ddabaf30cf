"""What Beam works out again and again while it builds a pipeline, worked out once: half of what the tests took was that."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

Arguments = tuple[list[str], list[Any]]


def once_for_a_method(arguments_of: Callable[[Any], Arguments]) -> Callable[[Any], Arguments]:
    """Beam's `get_function_args_defaults`, which asks `inspect` for the signature of a function, with the answers remembered.

    Beam calls it for all methods of a step, some thirty, each time that it wonders whether the step has state: eight times for
    each step of a pipeline. The methods of two steps of a class have one signature, that of the class's function.
    """
    known: dict[Any, Arguments] = {}

    def remembered(function: Any) -> Arguments:
        if not isinstance(function, types.MethodType):
            return arguments_of(function)
        if function.__func__ not in known:
            known[function.__func__] = arguments_of(function)
        names, defaults = known[function.__func__]
        return [*names], [*defaults]

    return remembered
