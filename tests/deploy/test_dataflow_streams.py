"""Streams on Dataflow, as far as they go without an account: built whole by Beam's own runner, and not sent."""

import pytest

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeyFile
from headcount.pipelines import parser
from headcount.pipelines.command import load
from headcount.pipelines.main import main
from tests.deploy.test_dataflow import IMAGE, PLACES, SECRET, built, data, template  # noqa: F401
from tests.key_search import found_in_graph

STREAM = "--time seen --every day --from 2026-09-20 --windows 3 --wait 1h --release-id s --epsilon 1 --delta 1e-6"


def test_a_stream_survives_as_parameters(template):  # noqa: F811
    parameters = template("parameters")
    line = [*"stream histogram --user user --item item --input in --output out".split(), *STREAM.split()]
    line += ["--key-secret", SECRET]
    made = parameters.to_parameters(line)
    assert (made["command"], made["from_"], made["windows"]) == ("stream histogram", "2026-09-20", "3")
    found = parameters.to_command_line([f"--{name}={value}" for name, value in made.items()])
    given, back = (parser.parse(load("stream"), each[1:])[0] for each in (line, found))
    assert found[:2] == line[:2] and {**vars(given), "stream": None} == {**vars(back), "stream": None}
    with pytest.raises(ParameterError, match="the command must be one of .*, got 'stream top'"):
        parameters.to_parameters(["stream", "top"])


@pytest.mark.slow("services")
@pytest.mark.parametrize("command", ["histogram --item item", "partitions --item item", "total"])
def test_a_stream_is_built_whole_and_is_one(built, data, tmp_path, capsys, command):  # noqa: F811
    flags = ["--key-file", f"{data / 'key'}", "--runner=DataflowRunner", f"--sdk_container_image={IMAGE}", *PLACES]
    words = ["stream", *command.split(), "--user", "user", "--input", f"{data / 'events.parquet'}", *STREAM.split()]
    words += ["--output", f"{tmp_path / 'out'}"]
    assert main([*words, *flags, "--no_wait_until_finish"]) == 0
    assert capsys.readouterr().out.startswith("submitted; a window is complete when")
    [made] = built
    assert made.proto.type_ == made.proto.type_.JOB_TYPE_STREAMING
    names = {transform.unique_name for transform in made.proto_pipeline.components.transforms.values()}
    assert {"Read/Files", "Contributions", command.split()[0].title(), "Output/Finish"} <= names
    assert not found_in_graph(made.proto_pipeline, KeyFile(data / "key").fetch())
    status = main([*words, *flags, "--no_wait_until_finish", "--ledger", "sqlite:///l.db", "--dataset", "d"])
    assert status == 2 and "needs a process that waits" in capsys.readouterr().err
