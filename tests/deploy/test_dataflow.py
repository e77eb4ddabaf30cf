"""Dataflow as far as it goes without an account: Beam's own runner builds every job whole, and only does not send it.

The jobs are those of tests/runners, so a new subcommand joins by its lines there.
"""

import base64
import bz2
import importlib
import json
import os
import pickletools
import re
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.dataflow_v1beta3.types import TemplateMetadata
from google.protobuf import json_format

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import KeyFile, Release, write_key_file
from headcount.pipelines import parser
from headcount.pipelines.command import load
from headcount.pipelines.main import main
from headcount.transforms import Budget, Histogram
from tests.key_search import Careless, found_in_graph
from tests.pipelines.stores import BUCKET, gcs_server
from tests.runners.jobs import JOBS, WIRED, beside, column, without_a_job, words_of, write_regions

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "deploy" / "dataflow"
IMAGE = "europe-docker.pkg.dev/p1/r/headcount:1"
SECRET = "projects/p1/secrets/headcount-key/versions/3"

# What a launcher adds to the parameters; with --dry_run nothing is sent, and --no_auth asks nobody who we are.
PLACES = [
    *("--project=p1-x", "--region=europe-west1", "--job_name=job", "--dry_run=True", "--no_auth"),
    *("--temp_location=gs://bucket-1/tmp", "--staging_location=gs://bucket-1/staging"),
    "--experiments=disable_logging_submission_environment",  # which takes a second, for a list of packages
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Events, a domain and a key."""
    directory = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(5)
    columns = {name: pa.array([f"{name[0]}{n}" for n in generator.integers(1, 50, 200)]) for name in ("user", "item")}
    pq.write_table(pa.table(columns | beside(np.arange(200))), directory / "events.parquet")
    (directory / "domain.txt").write_text("i1\ni2\n")
    write_regions(directory)
    write_key_file(directory / "key")
    return directory


@pytest.fixture
def built(monkeypatch):
    """The jobs that the runner has built since."""
    jobs, run = [], DataflowRunner.run_pipeline

    def keep(*args, **kwargs):
        result = run(*args, **kwargs)
        jobs.append(result.job)
        return result

    monkeypatch.setattr(DataflowRunner, "run_pipeline", keep)
    return jobs


@pytest.fixture
def template(monkeypatch):
    """template(name): a module of the deploy folder, as it is where its scripts run."""
    monkeypatch.syspath_prepend(str(DEPLOY))

    def load(name):
        for other in ("main", "metadata", "parameters"):
            monkeypatch.delitem(sys.modules, other, raising=False)
        return importlib.import_module(name)

    yield load
    for other in ("main", "metadata", "parameters"):
        sys.modules.pop(other, None)


def words(job, data, output):
    """The command line of a job, all but its key."""
    command, *own = words_of(job, data)
    flags = ["--input", f"{data / 'events.parquet'}", "--user", "user", "--output", f"{output}"]
    return [command, *flags, *column(command, own), *own]


def modules(graph):
    """The modules, and other texts, that the pickled functions of a graph ask for where they are loaded."""
    found = set()
    for transform in graph.components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            function = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload).do_fn
            pickle = bz2.decompress(base64.b64decode(function.payload))
            found |= {argument for _, argument, _ in pickletools.genops(pickle) if isinstance(argument, str)}
    return found


def test_every_subcommand_has_a_job():
    assert without_a_job() == set()


@pytest.mark.slow("services")
@pytest.mark.parametrize("job", WIRED)
def test_the_whole_job_is_built_and_holds_no_key(built, data, tmp_path, capsys, job):
    flags = ["--key-file", f"{data / 'key'}", "--runner=DataflowRunner", f"--sdk_container_image={IMAGE}", *PLACES]
    assert main([*words(job, data, tmp_path / "out"), *flags, "--no_wait_until_finish"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"submitted; {tmp_path / 'out'} is complete when report.json is there") and err == ""
    [made] = built
    graph = made.proto_pipeline
    names = {transform.unique_name for transform in graph.components.transforms.values()}
    assert {"Read", "Contributions", job_label(job), "Output/Commit"} <= names
    images = [
        beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image
        for environment in graph.components.environments.values()
    ]
    assert images == [IMAGE]
    assert found_in_graph(graph, os.fsencode(data / "key")), "the search must see the key source"
    key = KeyFile(data / "key").fetch()
    assert not found_in_graph(graph, key)
    assert key.hex() not in repr(made.options.get_all_options())
    asked = modules(graph)  # by workers, which have the installed package alone
    assert any(name.startswith("headcount.transforms") for name in asked)
    assert not {name for name in asked if name == "__main__" or name.startswith("tests.")}
    assert os.listdir(tmp_path) == []


def job_label(job):
    return JOBS[job].split()[0].title().replace("-", "")


def test_a_dofn_with_a_key_is_found_in_a_job(data):
    key = KeyFile(data / "key").fetch()
    pipeline = beam.Pipeline(options=PipelineOptions([*PLACES, "--runner=DataflowRunner", "--sdk_container_image=i"]))
    rows = pipeline | beam.Create([("u", "i")])
    rows | Histogram(
        Budget(1, 1e-6), of="events", method="one-stage", bound=3, release=Release(KeyFile(data / "key"), "r")
    )
    rows | "Careless" >> beam.ParDo(Careless(key))
    graph = pipeline.run().job.proto_pipeline
    assert found_in_graph(graph, key)
    assert Careless.__module__ in modules(graph), "what is not installed on workers would be seen, too"


# The launcher


@pytest.mark.slow("services")
def test_the_launcher_hands_over_the_job_and_does_not_wait(template, data, tmp_path):
    """As Dataflow starts it: what it stages, and the job that the service takes from there, are in the bucket.

    The key is not fetched: no Secret Manager would answer.
    """
    with gcs_server(tmp_path):
        bucket = storage.Client("p1", AnonymousCredentials()).bucket(BUCKET)
        bucket.blob("in/events.parquet").upload_from_filename(data / "events.parquet")
        line = [*words("a public domain, Laplace", data, f"gs://{BUCKET}/out"), "--key-secret", SECRET]
        line[line.index("--input") + 1] = f"gs://{BUCKET}/in/*.parquet"
        given = [f"--{name}={value}" for name, value in template("parameters").to_parameters(line).items()]
        given += ["--runner=DataflowRunner", "--project=p1-x", "--region=europe-west1", "--job_name=job"]
        given += [f"--temp_location=gs://{BUCKET}/tmp", f"--staging_location=gs://{BUCKET}/staging"]
        command = [sys.executable, DEPLOY / "main.py", *given, f"--template_location=gs://{BUCKET}/staging/job_object"]
        environment = {**os.environ, "HEADCOUNT_IMAGE": IMAGE}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout.startswith(f"submitted; gs://{BUCKET}/out is complete when report.json is there")
        stored = {blob.name: blob.download_as_bytes() for blob in bucket.list_blobs()}
    assert {name.split("/")[0] for name in stored} == {"in", "staging"}, "the output comes with the commit"
    stored = {name.rsplit("/", 1)[-1]: content for name, content in stored.items()}
    graph = beam_runner_api_pb2.Pipeline.FromString(stored["pipeline.pb"])
    assert found_in_graph(graph, SECRET.encode())
    assert "pickled_main_session" not in stored
    job = json.loads(stored["job_object"])
    assert (job["name"], job["type"]) == ("job", "JOB_TYPE_BATCH")
    assert [pool["workerHarnessContainerImage"] for pool in job["environment"]["workerPools"]] == [IMAGE]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--input=a"], "the command must be one of histogram"),
        (["--command=key"], "the command must be one of histogram, .*, got 'key'"),
        (["--command=histogram", "--overwrite=yes"], "the parameter overwrite must be true or false, got 'yes'"),
        (["--command=histogram", '--input=["a", 1]'], "the parameter input must be one text, or a JSON list of texts"),
        (["--command=histogram", "--input=[a"], "the parameter input must be one text, or a JSON list of texts"),
        (["--command=histogram", "--key_file=k"], "key_file is not for a template: .* give key_secret"),
        (["--command=histogram", "--explain=true"], "explain is not for a template: it starts no job"),
        (["--command=histogram"], "the workers' image is not known: set sdk_container_image"),
    ],
)
def test_the_launcher_refuses_in_one_line(template, monkeypatch, capsys, given, message):
    monkeypatch.delenv("HEADCOUNT_IMAGE", raising=False)
    assert template("main").launch(given) == 2
    err = capsys.readouterr().err
    assert re.match(f"headcount: {message}", err) and err.count("\n") == 1


# Parameters


@pytest.mark.parametrize("job", JOBS)
def test_a_command_line_survives_as_parameters(template, data, tmp_path, job):
    parameters = template("parameters")
    line = [*words(job, data, tmp_path), "--input", 'b,"c" d', "--input=[e]", "--key-secret", SECRET]
    line += ["--drop-null", "--overwrite", "--release-id", "r1"]
    made = parameters.to_parameters(line)
    assert all(re.fullmatch("[a-z_]+", name) and isinstance(value, str) for name, value in made.items())
    loss = "epsilon" if "--epsilon" in line else "rho"
    assert (made["drop_null"], made[loss]) == ("true", line[line.index(f"--{loss}") + 1])
    command, *flags = parameters.to_command_line([f"--{name}={value}" for name, value in made.items()])
    assert command == line[0]
    assert parse(command, flags) == parse(command, line[1:])


def parse(command, flags):
    return vars(parser.parse(load(command), flags)[0])


def test_false_and_empty_parameters_are_not_given(template):
    given = ["--command=histogram", "--drop_null=false", "--user=", "--explain=", "--overwrite=TRUE", "--input=[]"]
    assert template("parameters").to_command_line([*given, "--project=p"]) == [
        "histogram",
        "--overwrite",
        "--project=p",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "the command must be one of histogram"),
        (["demo"], "the command must be one of .*, got 'demo'"),
        (["histogram", "--shards", "0"], "--shards must be a whole number from 1"),
        (
            ["histogram", "--key-secret", SECRET, "--project=p"],
            "'--project=p' is a flag of Beam: use the ones of gcloud",
        ),
        (["histogram"], "the runner DataflowRunner needs a key .* --key-secret"),
        (["histogram", "--key-secret", SECRET[:-1] + "latest"], "by its number"),
        (["histogram", "--key-env", "K"], "key_env is not for a template"),
        (["histogram", "--key-secret", SECRET, "--explain"], "explain is not for a template"),
    ],
)
def test_what_cannot_be_launched_is_refused_before(template, line, message):
    with pytest.raises(ParameterError, match=message):
        template("parameters").to_parameters(line)


# The template


def test_the_metadata_is_what_the_flags_say(template):
    """If not: run deploy/dataflow/metadata.py."""
    assert json.loads((DEPLOY / "metadata.json").read_text()) == template("metadata").make()


def test_the_metadata_is_what_dataflow_knows(template):
    """The service's own message takes it, and every flag of every subcommand is in it or left out for a reason."""
    known = TemplateMetadata.pb(TemplateMetadata())
    json_format.Parse((DEPLOY / "metadata.json").read_text(), known)
    names = [parameter.name for parameter in known.parameters]
    assert len(set(names)) == len(names)
    assert all(parameter.label and parameter.help_text for parameter in known.parameters)
    parameters = template("parameters")
    flags = {name for command in parameters.beam_commands() for name in parameters.flags(command)}
    assert set(names) == flags - set(parameters.LEFT_OUT) | {"command"}
    assert set(parameters.LEFT_OUT) <= flags
    assert {name for name in names if not known.parameters[names.index(name)].is_optional} == {"command", "key_secret"}


# The image


def pins(path):
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return dict(line.split("==") for line in lines if line)


def test_the_image_has_the_versions_that_are_tested():
    image, tested = pins(DEPLOY / "requirements.txt"), pins(TOP / "requirements.txt")
    assert {name: image.get(name) for name in tested} == tested
    assert "google-cloud-secret-manager" in image and "google-crc32c" in image
    content = (DEPLOY / "Containerfile").read_text()
    assert re.findall(r"beam_python3\.11_sdk:(\S+)", content) == [tested["apache-beam"]]
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", content, re.MULTILINE):
        assert all((TOP / name).exists() for name in copied.split())


# The scripts

VARIABLES = {
    "PROJECT": "p1",
    "REGION": "europe-west1",
    "TEMPLATE": "gs://b/t.json",
    "TEMP": "gs://b/tmp",
    "IMAGE": IMAGE,
}


@pytest.fixture
def call(tmp_path):
    """call(script, *words, **variables): what it ended with, and the calls of gcloud, for which a recorder stands in."""
    recorder = tmp_path / "bin" / "gcloud"
    recorder.parent.mkdir()
    recorder.write_text(
        f"#!{sys.executable}\nimport json, sys\nwords = sys.argv[1:]\n"
        "file = words[words.index('--flags-file') + 1] if '--flags-file' in words else None\n"
        f"print(json.dumps([words, json.load(open(file)) if file else None]), file=open({str(tmp_path / 'calls')!r}, 'a'))\n"
    )
    recorder.chmod(0o755)

    def run(script, *words, **variables):
        environment = {"PATH": f"{recorder.parent}:/usr/bin:/bin", "PYTHON": sys.executable, **variables}
        done = subprocess.run([DEPLOY / script, *words], env=environment, capture_output=True, text=True)
        calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
        return done, [json.loads(line) for line in calls]

    return run


def test_run_launches_with_flags_that_need_no_quoting(call):
    line = ["histogram", "--input", "gs://b/a,b*", "--input", 'gs://b/c "d"', "--key-secret", SECRET, "--drop-null"]
    done, [[words, file]] = call("run.sh", *line, "--", "--max-workers=5", **VARIABLES)
    assert done.returncode == 0, done.stderr
    assert words[:3] == ["dataflow", "flex-template", "run"] and words[3].startswith("headcount-histogram-2")
    flags = dict(zip(words[4:-1:2], words[5:-1:2], strict=True))
    assert flags.pop("--flags-file") and words[-1] == "--max-workers=5"
    assert flags == {
        **{"--project": "p1", "--region": "europe-west1", "--template-file-gcs-location": "gs://b/t.json"},
        **{"--temp-location": "gs://b/tmp", "--staging-location": "gs://b/tmp/staging"},
    }
    assert file["--parameters"] == {
        **{"command": "histogram", "input": '["gs://b/a,b*", "gs://b/c \\"d\\""]'},
        **{"key_secret": SECRET, "drop_null": "true"},
    }


def test_run_refuses_before_it_launches(call):
    done, calls = call("run.sh", "histogram", "--epsilonn", "3", **VARIABLES)
    assert (done.returncode, done.stderr) == (2, "headcount: unknown flag '--epsilonn'; did you mean --epsilon?\n")
    assert calls == []


def test_build_builds_image_and_template(call):
    done, [[image, _], [template, _]] = call("build.sh", **VARIABLES)
    assert done.returncode == 0, done.stderr
    assert image[:2] == ["builds", "submit"] and os.path.samefile(image[2], TOP)
    assert re.fullmatch(rf"_IMAGE={IMAGE},_VERSION=[\w.]*", image[-1])
    assert template[:4] == ["dataflow", "flex-template", "build", "gs://b/t.json"]
    assert os.path.samefile(template[-1], DEPLOY / "metadata.json")


@pytest.mark.parametrize("script", ["run.sh", "build.sh"])
def test_scripts_help_and_say_what_is_missing(call, script):
    needed = {"run.sh": ["PROJECT", "REGION", "TEMPLATE", "TEMP"], "build.sh": ["PROJECT", "IMAGE", "TEMPLATE"]}[script]
    words = ["histogram"] if script == "run.sh" else []
    done, _ = call(script, "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: PROJECT=")
    for name in needed:
        done, _ = call(script, *words, **{other: VARIABLES[other] for other in needed if other != name})
        assert (done.returncode, done.stderr) == (2, f"{script}: set {name}; see {script} --help\n")
    done, calls = call(script, *words, **{**VARIABLES, "TEMPLATE": "t.json"})
    assert done.returncode == 2 and "got 't.json'" in done.stderr
    assert calls == []
