"""What Beam works out again and again while it builds and runs a pipeline, worked out once: two thirds of what the tests of
transforms took was that."""

from __future__ import annotations

import bz2
import copy
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from apache_beam.transforms import core
from apache_beam.typehints.decorators import IOTypeHints

Arguments = tuple[list[str], list[Any]]
Specs = tuple[set[Any], set[Any]]


def once_for_a_method(arguments_of: Callable[[Any], Arguments]) -> Callable[[Any], Arguments]:
    """Beam's `get_function_args_defaults`, which asks `inspect` for the signature of a function, with the answers remembered.

    Beam calls it for ten methods of a step, four times for each. The methods of two steps of a class have one signature.
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


def once_for_a_class(specs_of: Callable[[Any], Specs]) -> Callable[[Any], Specs]:
    """Beam's `get_dofn_specs`, the state and timers of a step, with the answers remembered.

    Beam looks at the signatures of all methods of a step, some thirty, each time that it wonders whether the step has state:
    eight times for each step of a pipeline. Two steps of a class have the same methods; where `process`, which may be one
    step's alone, has a parameter of Beam's other than the window, Beam looks itself.
    """
    known: dict[type, Specs] = {}

    def remembered(step: Any) -> Specs:
        _, defaults = core.get_function_arguments(step, "process")
        if any(isinstance(default, core._DoFnParam) and default != core.DoFn.WindowParam for default in defaults):
            return specs_of(step)
        if type(step) not in known:
            known[type(step)] = specs_of(step)
        states, timers = known[type(step)]
        return {*states}, {*timers}

    return remembered


def once_for_a_function(hints_of: Callable[[Any], IOTypeHints | None]) -> Callable[[Any], IOTypeHints | None]:
    """Beam's `IOTypeHints.from_callable`, the types that a function is annotated with, with the answers remembered.

    Beam asks for them five times for each step of a pipeline. The methods of two steps of a class have one annotation.
    """
    known: weakref.WeakKeyDictionary[Any, tuple[bool, IOTypeHints | None]] = weakref.WeakKeyDictionary()

    def remembered(function: Any) -> IOTypeHints | None:
        bound = isinstance(function, types.MethodType)
        key = function.__func__ if bound else function
        if not isinstance(key, types.FunctionType):
            return hints_of(function)
        if known.get(key, (None,))[0] is not bound:  # of a method, the first parameter has no type
            known[key] = bound, hints_of(function)
        hints = known[key][1]
        if hints is None or hints.input_types is None or hints.output_types is None:
            return hints
        (taken, named), (given, tagged) = hints.input_types, hints.output_types
        return IOTypeHints((taken, {**named}), (given, {**tagged}), [*hints.origin])

    return remembered


def once_for_a_text(uses_both: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a function yields and returns, which Beam reads in its source for every step: read once for each."""
    known: dict[Any, bool] = {}

    def remembered(function: Any) -> bool:
        code = getattr(function, "__code__", None)
        if code is None:
            return uses_both(function)
        if code not in known:
            known[code] = uses_both(function)
        return known[code]

    return remembered


def packed_soon(content: bytes, compresslevel: int) -> bytes:
    """`bz2.compress`, as small as it takes no time: what a step consists of is unpacked by the same process a moment later."""
    return bz2.compress(content, 1)


def once_for_options(view_as: Callable[[Any, type], Any]) -> Callable[[Any, type], Any]:
    """`view_as` of Beam's options, each view of them made once, as a job of the command line has it, too.

    A view makes a parser and parses all flags, and Beam asks for hundreds while it builds a pipeline. Views share the values.
    Options with the same flags, as those of most tests, share what was parsed, each with lists of its own.
    """
    known: weakref.WeakKeyDictionary[Any, dict[type, Any]] = weakref.WeakKeyDictionary()
    parsed: dict[tuple[Any, ...], Any] = {}

    def remembered(options: Any, cls: type) -> Any:
        views = known.setdefault(options, {})
        if cls not in views:
            if options._flags is None:  # those of this process
                views[cls] = view_as(options, cls)
                return views[cls]
            of = (cls, *options._flags)
            if of not in parsed:
                parsed[of] = cls(options._flags)._visible_options
            views[cls] = made = cls.__new__(cls)
            made._flags, made._visible_options = options._flags, copy.deepcopy(parsed[of])
            for name, value in vars(made._visible_options).items():
                options._all_options.setdefault(name, value)
            made._all_options = options._all_options
        return views[cls]

    return remembered


def once_for_modules(globals_of_modules: Callable[[], Iterable[Any]]) -> Callable[[], list[Any]]:
    """What the measuring of a side input leaves out, the globals of all modules: gathered again when there are more of them."""
    known: dict[int, list[Any]] = {}

    def remembered() -> list[Any]:
        if len(sys.modules) not in known:
            known.clear()
            known[len(sys.modules)] = [*globals_of_modules()]
        return known[len(sys.modules)]

    return remembered
