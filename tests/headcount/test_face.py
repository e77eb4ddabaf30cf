"""The public face: every function is there with a signature of its own, the same as the command's flags, and without Beam."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import headcount
from headcount.pipelines.command import COMMANDS, JobCommand, load
from headcount.pipelines.flags.flag import in_python
from headcount.pipelines.parser import make_parser
from tests.face_names import typed_names

STUDIES = {"rehearse", "forecast"}  # which promise nothing, and take data under a name that says so, or none
PLACED = {
    "series": ["releases"],
    "diff": ["before", "after"],
    "plan": ["file"],
}  # which take what is there, by its place
PARTS = {"run", "ledger"}  # of a file that says the rest, and one part of a command
FUNCTIONS = [name for name in headcount.__all__ if name.islower() and name not in STUDIES | PARTS | {*PLACED}]


def test_every_command_on_events_is_a_function():
    jobs = {name for name in COMMANDS if isinstance(load(name), JobCommand)}
    assert {name.replace("-", "_") for name in jobs} == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted([*FUNCTIONS, *STUDIES, *PLACED]))
def test_the_signature_is_that_of_the_flags(name):
    parameters = dict(inspect.signature(getattr(headcount, name)).parameters)
    if name in FUNCTIONS:
        assert parameters.pop("data").kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    command = name.replace("_", "-")
    flags = {
        action.dest: action.default
        for action in make_parser(load(command))._actions
        if action.dest != "help" and in_python(action) is not False
    }
    assert set(parameters) == set(flags)
    for parameter in parameters.values():
        assert (parameter.kind is not inspect.Parameter.KEYWORD_ONLY) == (parameter.name in PLACED.get(name, []))
        if parameter.default is not inspect.Parameter.empty:  # else it is needed, and a flag cannot be
            default = flags[parameter.name]
            assert (parameter.default, type(parameter.default)) == (default, type(default)), parameter.name


@pytest.mark.parametrize("name", sorted([*FUNCTIONS, *STUDIES, *PLACED]))
def test_the_help_has_every_parameter_and_an_example(name):
    function = getattr(headcount, name)
    text = inspect.getdoc(function) or ""
    assert f"    headcount.{name}(" in text or f"= headcount.{name}(" in text
    assert "Guarantee: " in text and "The result has " in text
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text.split("Parameters:")[1])
    own = set(inspect.signature(function).parameters)
    shared = set(inspect.signature(headcount.histogram).parameters) if name != "histogram" else set()
    assert own - shared <= set(words.split()), own - shared - set(words.split())


def test_type_checkers_see_the_same_names():
    typed = typed_names(headcount)
    assert sorted(typed) == sorted([*headcount.__all__, "__version__"])
    for name, module in typed.items():
        assert getattr(importlib.import_module(module), name) is getattr(headcount, name)


CALLS = """
import sys
import headcount
assert not {"numpy", "scipy"} & {*sys.modules}, "the face alone is light"
import pyarrow as pa
table = pa.table({"user": [f"u{k % 300}" for k in range(3000)], "item": [f"i{k % 7}" for k in range(3000)],
                  "value": [k % 100 for k in range(3000)]})
shared = dict(user="user", epsilon=1, delta=1e-4)
headcount.histogram(table, item="item", **shared)
headcount.total(table, user="user", epsilon=1)
headcount.top(table, item="item", k=3, **shared)
headcount.partitions(table, item="item", **shared)
headcount.plume(table, item="item", **shared)
headcount.count_release(table, item="item", **shared)
headcount.sampled(table, item="item", max_items=1, **shared)
headcount.heavy_hitters(table, item="item", max_items=1, phi=0.1, **shared)
headcount.quantiles(table, value="value", lo=0, hi=100, quantile=0.5, **shared)
headcount.distribution(table, item="item", domain=["i0", "i1"], **shared)
headcount.shape(table, item="item", domain_size=10, **shared)
headcount.choose_bound(table, item="item", user="user", epsilon=0.1, for_epsilon=1, for_delta=1e-6)
headcount.rehearse(public_data=table, item="item", user="user", epsilon=1, question="names", releases=1)
headcount.forecast(users=300, events_per_user=5, items=50, skew=1, epsilon=1, delta=1e-4)
result = headcount.histogram(table, item="item", **shared)
headcount.diff(headcount.histogram(table, item="item", **shared), result)
repr(result), result._repr_html_(), result.report, result.save(sys.argv[1])
for word in ("apache_beam", "headcount.transforms", "polars", "duckdb"):
    assert word not in sys.modules, word
"""


@pytest.mark.slow("jobs")
def test_no_call_imports_beam(tmp_path):
    done = subprocess.run([sys.executable, "-c", CALLS, str(tmp_path / "out")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.json").exists()


def test_an_unknown_keyword_gets_a_suggestion():
    with pytest.raises(TypeError, match=r"histogram\(\) has no parameter 'eps'; did you mean 'epsilon'\?"):
        headcount.histogram({}, user="user", item="item", eps=1)
    with pytest.raises(TypeError, match="did you mean 'max_item_bytes'"):
        headcount.histogram({}, user="user", item="item", max_items_bytes=1)
    with pytest.raises(TypeError, match=r"see help\(headcount.top\)"):
        headcount.top({}, user="user", item="item", xyzzy=1)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'epsilon'"):
        headcount.histogram({}, user="user", item="item")


def test_a_checkout_that_is_not_installed_is_found_too(tmp_path):
    """In a checkout, the working directory goes before what is installed: its rooms must be found as well."""
    top = Path(headcount.__file__).resolve().parents[1]
    code = "import headcount.mechanisms, headcount.calls; print(headcount.mechanisms.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=top, check=True)
    assert Path(done.stdout.strip()) == top / "mechanisms" / "__init__.py"
