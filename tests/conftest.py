"""What many tests share: a fixed key, and a way to run a pipeline and look at what comes out."""

from __future__ import annotations

import bz2
import functools
import gc
import os
import pickle
import subprocess
from collections.abc import Callable, Generator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate
from apache_beam.typehints import decorators
from objsize import traverse

from headcount.mechanisms.randomness.keys import KeyFile, Release
from headcount.transforms.core import user_shards
from tests.fixed_key import write_fixed_key
from tests.record import Record
from tests.remembered import (
    once_for_a_class,
    once_for_a_function,
    once_for_a_method,
    once_for_a_text,
    once_for_modules,
    once_for_options,
    packed_soon,
)
from tests.tiers import waits

core.get_function_args_defaults = once_for_a_method(core.get_function_args_defaults)
core._check_fn_use_yield_and_return = once_for_a_text(core._check_fn_use_yield_and_return)
decorators.IOTypeHints.from_callable = once_for_a_function(decorators.IOTypeHints.from_callable)
decorators.TRACEBACK_LIMIT = 0  # of where each type was given, which only Beam's own errors would show
cloudpickle_pickler.bz2 = SimpleNamespace(compress=packed_soon, decompress=bz2.decompress)
userstate.get_dofn_specs = once_for_a_class(userstate.get_dofn_specs)
PipelineOptions.view_as = once_for_options(PipelineOptions.view_as)
traverse._iter_modules_globals = once_for_modules(traverse._iter_modules_globals)
metadata.version = functools.cache(metadata.version)


def _dump(rows: list[Any], path: str) -> None:
    Path(path).write_bytes(pickle.dumps(rows))


@pytest.fixture
def collect(tmp_path: Path) -> Callable[..., list[Any]]:
    """collect(build, *options): runs the pipeline whose result `build(pipeline)` gives, and returns its elements."""

    def run(build: Callable[[beam.Pipeline], beam.PCollection], *options: str) -> list[Any]:
        path = str(tmp_path / "collected")
        with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions(list(options))) as pipeline:
            build(pipeline) | "ToList" >> beam.combiners.ToList() | "Dump" >> beam.Map(_dump, path)
        return pickle.loads(Path(path).read_bytes())

    return run


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a job on a small file has. A transform does not know the size of its input, and takes 64, which is slow."""
    monkeypatch.setattr(user_shards, "DEFAULT_SHARDS", 4)


@pytest.fixture(scope="session")
def make_release(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Release]:
    """make_release(id, key=...): a release with a key of 32 equal bytes, so that a test draws the same noise each time."""

    def make(id: str = "test", key: int = 7) -> Release:
        path = tmp_path_factory.getbasetemp() / f"key-{key}"
        if not path.exists():
            write_fixed_key(path, key)
        return Release(KeyFile(str(path)), id)

    return make


@pytest.fixture
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """installed(*words): the console script of `--headcount PATH` in a process, a folder and an environment of its own."""
    script = request.config.getoption("--headcount")
    assert script, "give --headcount PATH, the script of an installation: see make test-as-run"
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [os.path.abspath(script), *words], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keeps what is imported and collected, which lives to the end, out of the garbage collector's way: going through it
    again and again took a tenth of the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    later = {item for item in items if waits(item)}  # in every run, which also checks the markers
    if later and not config.getoption("--everything"):
        config.hook.pytest_deselected(items=[item for item in items if item in later])
        items[:] = [item for item in items if item not in later]


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get("HEADCOUNT_CI_RECORD")
    if path and not hasattr(config, "workerinput"):  # the parts of all workers come to the process that started them
        config.pluginmanager.register(Record(path))


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries tell at the end of what was not freed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--headcount", help="the console script of an installation that has nothing but the product")
    parser.addoption(
        "--everything",
        action="store_true",
        help="run also what measures accuracy over many releases, and all jobs on every runner",
    )
    parser.addoption(
        "--golden-record",
        nargs="?",
        const="report",
        choices=["report", "rows"],
        help="write the digests of reports in tests/golden, or with =rows those of rows, too, instead of comparing",
    )
