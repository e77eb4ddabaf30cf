"""HDFS, through Beam's filesystem and WebHDFS: a real name node and data node on loopback. Needs Java and Maven."""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.main import main
from headcount.pipelines.sinks import output
from headcount.pipelines.sources.matching import files_of
from headcount.pipelines.storage import stores
from tests.fixed_key import write_fixed_key

pytestmark = pytest.mark.everything
HADOOP = "3.4.1"
START_SECONDS = 240
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headcount</groupId><artifactId>headcount-hdfs</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-hdfs</artifactId><version>{HADOOP}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-hdfs-client</artifactId><version>{HADOOP}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-common</artifactId><version>{HADOOP}</version>
    </dependency>
  </dependencies>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version>
  </plugin></plugins></build>
</project>
"""
LOGGING = """log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.SimpleLayout
"""
SHAPE = ["--user", "user", "--item", "item", "--epsilon", "1", "--delta", "1e-6"]
SHAPE += ["--of", "events", "--method", "one-stage", "--bound", "2", "--format", "csv"]


def jars():
    """The folder with the jars of HDFS, outside the checkout, fetched once; it is there whole or not at all."""
    digest = hashlib.blake2b(POM.encode(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headcount" / f"hdfs-{digest}"
    if not cache.is_dir():
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{cache.name}.", dir=cache.parent))
        try:
            (partial / "pom.xml").write_text(POM)
            command = ["mvn", "-B", "-q", "-f", str(partial / "pom.xml"), "dependency:copy-dependencies"]
            subprocess.run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={partial}"], check=True)
            with contextlib.suppress(OSError):  # somebody else was as quick
                partial.rename(cache)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return cache


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def configure(directory, port):
    """The configuration of both nodes, all of whose data lies in this directory."""
    properties = {
        "core-site.xml": {"fs.defaultFS": f"hdfs://127.0.0.1:{free_port()}", "hadoop.tmp.dir": directory / "tmp"},
        "hdfs-site.xml": {
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            "dfs.namenode.http-address": f"127.0.0.1:{port}",
            "dfs.datanode.hostname": "127.0.0.1",
            **{f"dfs.datanode.{name}": "127.0.0.1:0" for name in ("address", "http.address", "ipc.address")},
        },
    }
    for name, values in properties.items():
        lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items()]
        (directory / name).write_text(f"<configuration>{''.join(lines)}</configuration>")
    (directory / "log4j.properties").write_text(LOGGING)
    for name in ("hdfs", "datanode"):
        (directory / "webapps" / name).mkdir(parents=True)  # their pages, which nobody looks at


def has_a_data_node(port):
    url = f"http://127.0.0.1:{port}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return b'"NumLiveDataNodes" : 1,' in answer.read()
    except OSError:
        return False


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """A running HDFS: Beam's flags for it."""
    directory, port = tmp_path_factory.mktemp("hdfs"), free_port()
    configure(directory, port)
    # Java 17 keeps the libraries of WebHDFS out of what they look into.
    java = ["java", "-Xmx256m", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", f"{directory}:{jars()}/*"]
    server = "org.apache.hadoop.hdfs.server"
    with open(directory / "log", "w") as log, contextlib.ExitStack() as running:
        options = {"stdout": log, "stderr": log, "cwd": directory}
        subprocess.run([*java, f"{server}.namenode.NameNode", "-format", "-nonInteractive"], check=True, **options)
        for node in ("namenode.NameNode", "datanode.DataNode"):
            process = running.enter_context(subprocess.Popen([*java, f"{server}.{node}"], **options))
            running.callback(process.kill)
        end = time.monotonic() + START_SECONDS
        while not has_a_data_node(port):
            assert time.monotonic() < end, (directory / "log").read_text()
            time.sleep(0.5)
        yield ["--hdfs_host", "127.0.0.1", "--hdfs_port", str(port), "--hdfs_user", "headcount"]


def contents(directory):
    return {name: stores.read(stores.join(directory, name)) for name in stores.names(directory)}


def test_a_job_gives_the_same_bytes_as_on_this_machine(flags, tmp_path):
    FileSystems.set_options(PipelineOptions(flags))
    generator = np.random.default_rng(5)
    for part in range(2):
        user = [f"u{u}" for u in generator.integers(0, 900, 3_000)]
        table = pa.table({"user": user, "item": [f"i{i}" for i in generator.geometric(0.4, 3_000)]})
        pq.write_table(table, tmp_path / f"events-{part}.parquet")
        stores.write(f"hdfs://data/events-{part}.parquet", (tmp_path / f"events-{part}.parquet").read_bytes())
    write_fixed_key(str(tmp_path / "key"))
    release = ["--key-file", str(tmp_path / "key"), "--release-id", "r1", "--output-files", "2", *flags]
    here, there = str(tmp_path / "out"), "hdfs://data/results/out"
    assert main(["histogram", *SHAPE, "--input", f"{tmp_path}/events-*.parquet", "--output", here, *release]) == 0
    words = ["histogram", *SHAPE, "--input", "hdfs://data/events-*.parquet", "--output", there, *release]
    assert main(words) == 0
    assert len(contents(there)) == 4 and contents(there) == contents(here)
    assert stores.siblings(there, ".tmp-") == []
    assert main(words) == 0 and contents(there) == contents(here)  # already there, the same bytes
    other = list(words)
    other[other.index("--epsilon") + 1] = "2"
    assert main(other) == 2 and contents(there) == contents(here)
    assert main([*other, "--overwrite"]) == 0  # HDFS itself does not replace a file by a move
    assert contents(there) != contents(here)
    assert main([*words, "--overwrite"]) == 0
    assert contents(there) == contents(here)
    # A folder with these two files and, below it, with results, which are none of them.
    assert [file.path for file in files_of(["hdfs://data"])] == [
        f"hdfs://data/events-{part}.parquet" for part in range(2)
    ]


def test_leftovers_and_other_files(flags):
    FileSystems.set_options(PipelineOptions(flags))
    target = output.Target("hdfs://data/more/out", "r1", files=1, format="jsonl", overwrite=False)
    rows = pa.RecordBatch.from_pydict({"item": pa.array([], pa.string())})
    output.write_file(target, 0, rows)
    stores.write("hdfs://data/more/out/counts-00000-of-00003.jsonl", b"of a commit that was killed")
    output.prepare(target)
    assert stores.names("hdfs://data/more") == []
    output.commit(target, [output.write_file(target, 0, rows)], b'{"headcount": "0"}')
    assert contents(target.directory) == {"counts-00000-of-00001.jsonl": b"", "report.json": b'{"headcount": "0"}'}
    stores.write("hdfs://data/more/out/thesis.txt", b"x")
    with pytest.raises(ParameterError, match="other files"):
        output.prepare(target)


def test_a_flag_that_is_missing():
    FileSystems.set_options(PipelineOptions([]))
    with pytest.raises(ParameterError, match="hdfs_host is not set"):
        stores.normal("hdfs://data/out")
