"""The one line of a refusal, found in what a failed pipeline raises; nothing of the data comes with it."""

import errno
import logging
import os
import traceback

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.jobs.run import input_error, shortage
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import expand_inputs
from headcount.pipelines.sources.read import ReadEvents

CANARY = "CANARY-7f3a"


@pytest.mark.slow("kills")
@pytest.mark.parametrize("mode", ["in_memory", "multi_processing"])
def test_a_failed_pipeline(tmp_path, caplog, mode):
    (tmp_path / "1.csv").write_text("user,item\na,b\n")
    (tmp_path / "2.csv").write_text(f"user,item\na,b\n{CANARY},c,d\n")
    inputs = expand_inputs([f"{tmp_path}/*.csv"])
    options = beam.options.pipeline_options.PipelineOptions(
        ["--runner=FnApiRunner", f"--direct_running_mode={mode}", "--direct_num_workers=1"]
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(Exception) as caught:
        with beam.Pipeline(options=options) as pipeline:
            _ = pipeline | "Events" >> ReadEvents(inputs, columns_of("user", "item"))
    assert input_error(caught.value) == f"{tmp_path}/2.csv, row 2: 3 fields, but the header has 2"
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert CANARY not in caplog.text


def test_failures_of_other_runners():
    text = (
        "bundle failed: Traceback (most recent call last):\n"
        '  File "apache_beam/runners/common.py", line 1512, in process\n'
        "headcount.mechanisms.errors.InputError: a.csv, row 3: 3 fields [while running 'Read/Batches']\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "RuntimeError: headcount.mechanisms.errors.InputError: a.csv, row 3: 3 fields [while running 'x']\n"
    )
    assert input_error(RuntimeError(text)) == "a.csv, row 3: 3 fields"
    assert input_error(ParameterError("bound must be positive, got 0")) == "bound must be positive, got 0"
    try:
        try:
            raise InputError("a.csv: empty [while running 'Read']")
        except InputError as error:
            raise RuntimeError("pipeline failed") from error
    except RuntimeError as error:
        assert input_error(error) == "a.csv: empty"


def test_failures_that_are_not_ours():
    for text in ("boom", f"pyarrow.lib.ArrowInvalid: {CANARY}", f"other.InputError: {CANARY}"):
        assert input_error(RuntimeError(text)) is None


def test_memory_that_ran_out_tells_nothing_of_what_was_asked_for():
    """The size of an array is that of the data: how many users one shard has."""
    for raised in (
        np._core._exceptions._ArrayMemoryError((1251632,), np.dtype(np.int64)),
        pa.lib.ArrowMemoryError("malloc of size 1251632 failed"),
        RuntimeError("pyarrow.lib.ArrowMemoryError: malloc of size 1251632 failed [while running 'Counts']"),
        RuntimeError("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9.55 MiB for shape (1251632,)"),
    ):
        said = shortage(raised, "out/")
        assert said is not None and said.startswith("memory ran out") and "1251632" not in said and "9.55" not in said


def test_a_full_disk_is_one_line():
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for raised in (full, RuntimeError(f"OSError: {full} [while running 'Output/Commit']")):
        assert "no space is left for --output 'out/'" in (shortage(raised, "out/") or "")
    assert shortage(RuntimeError("boom"), "out/") is None


def test_a_command_ends_so(run, tmp_path, monkeypatch):
    """As it runs, where writing fails: one line, no output, and no temporary file."""
    from headcount.pipelines.jobs import direct

    def full(*given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "e.csv").write_text("user,item\n" + "".join(f"u{n},a\n" for n in range(50)))
    monkeypatch.setattr(direct, "write_file", full)
    out = tmp_path / "out"
    asked = ["histogram", "--input", str(tmp_path / "e.csv"), "--user", "user", "--item", "item", "--output", str(out)]
    status, _, said = run(*asked, "--epsilon", "1", "--delta", "1e-6")
    assert status == 2 and "no space is left" in said[-1] and not any("Traceback" in line for line in said)
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]
