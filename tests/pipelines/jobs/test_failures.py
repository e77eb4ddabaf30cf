"""The one line of a refusal, found in what a failed pipeline raises; nothing of the data comes with it."""

import logging
import traceback

import apache_beam as beam
import pytest

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.jobs.run import input_error
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import expand_inputs
from headcount.pipelines.sources.read import ReadEvents

CANARY = "CANARY-7f3a"


@pytest.mark.slow
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
