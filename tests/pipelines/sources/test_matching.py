"""Which files are read: folders as Hive and Spark see them, formats and delimiters that are said, and hints for the rest."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import FileMetadata, FileSystem
from apache_beam.options.pipeline_options import PipelineOptions

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.events import column_types, expand_inputs, read_batches
from headcount.pipelines.sources.matching import files_of
from headcount.pipelines.storage import stores

CSV = "user,item\nu,{}\n"
RESULT = json.dumps({"headcount": "1", "files": [{"name": "counts-00000-of-00001.csv"}]})
VISIBLE = ["day=2026-11-01/a.csv", "day=2026-11-02/b.csv", "day=2026-11-02/deep/_hour=3/c.csv", "z.csv"]
HIDDEN = [
    "_SUCCESS",
    ".a.csv.crc",
    "_temporary/0/d.csv",
    ".git/e.csv",
    "out/report.json",
    "out/report.html",
    "out/counts-00000-of-00001.csv",
]


@pytest.fixture
def folder(tmp_path):
    for name in (*VISIBLE, *HIDDEN):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RESULT if name.endswith(".json") else CSV.format(name))
    return str(tmp_path / "data")


def paths(*patterns, **said):
    return [file.path for file in expand_inputs(patterns, **said).files]


def items(*patterns, user="user", item="item", **said):
    inputs = expand_inputs(patterns, **said)
    columns = columns_of(user, item)
    types = column_types(inputs, columns)
    return [row for task in inputs.tasks() for batch in read_batches(task, columns, types) for row in batch.to_pylist()]


def refused(*patterns, kind=InputError, **said):
    with pytest.raises(kind) as caught:
        items(*patterns, **said)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_is_all_its_files_but_hidden_ones_and_results(folder, monkeypatch):
    assert paths(folder) == paths(f"{folder}/") == [f"{folder}/{name}" for name in VISIBLE]
    assert [row["item"] for row in items(folder)] == VISIBLE
    assert paths(folder, f"{folder}/z.csv", f"{folder}/day=*/*.csv") == paths(folder)
    monkeypatch.chdir(folder)
    assert paths(".") == [f"./{name}" for name in VISIBLE]
    assert paths("day=2026-11-02") == VISIBLE[1:3]


def test_what_is_not_below_the_folder_hides_nothing(tmp_path):
    hidden = tmp_path / "_staging" / ".cache"
    hidden.mkdir(parents=True)
    (hidden / "a.csv").write_text(CSV)
    assert paths(str(hidden)) == [f"{hidden}/a.csv"]


def test_a_report_of_somebody_else_is_data(tmp_path):
    (tmp_path / "report.json").write_text('{"user": "u", "item": "i"}\n')
    assert items(str(tmp_path)) == [{"user": "u", "item": "i"}]


def test_links_are_followed_once(folder, tmp_path):
    os.symlink(f"{folder}/day=2026-11-01", f"{folder}/a-latest")
    os.symlink(folder, f"{folder}/day=2026-11-01/round")
    assert paths(folder) == [f"{folder}/{name}" for name in VISIBLE]
    os.symlink(folder, tmp_path / "link")
    assert paths(str(tmp_path / "link")) == [f"{tmp_path}/link/{name}" for name in VISIBLE]


def test_folders_without_files(tmp_path):
    (tmp_path / "_SUCCESS").touch()
    message = refused(str(tmp_path))
    assert f"{str(tmp_path)!r} holds no files to read; names that begin with a dot or an underscore" in message
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere")
    assert "cannot be listed" in refused(str(tmp_path))


def test_folders_and_files_that_are_closed_to_us(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: not path.endswith("b.csv"))
    assert refused(folder) == f"{folder}/{VISIBLE[1]}: no permission to read it"
    monkeypatch.undo()

    def closed(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", closed)
    assert refused(folder) == f"{folder!r} cannot be listed: Permission denied"


def test_a_folder_of_several_kinds_gets_a_pattern_that_matches(folder):
    with open(f"{folder}/README.md", "w") as file:
        file.write("x")
    hint = f"; for some files of a folder give a pattern, such as {f'{folder}/**/*.csv'!r}"
    message = refused(folder)
    assert message.startswith(f"{folder}/README.md: unknown kind of file") and message.endswith(hint)
    os.rename(f"{folder}/README.md", f"{folder}/a.jsonl")
    assert "all files must be of one format" in refused(folder) and refused(folder).endswith(hint)
    assert set(paths(f"{folder}/**/*.csv")) >= {f"{folder}/{name}" for name in VISIBLE}


@pytest.mark.parametrize(
    ("pattern", "better"),
    [("data/*.parquet", "data/**/*.parquet"), ("data/day=*", "data/day=*/**/*.parquet"), ("*.parquet", "**/*.parquet")],
)
def test_a_pattern_of_partitions_gets_one_that_matches(tmp_path, monkeypatch, pattern, better):
    monkeypatch.chdir(tmp_path)
    for day in ("day=1", "day=2"):
        os.makedirs(f"data/{day}")
        pq.write_table(pa.table({"user": ["u"], "item": [day]}), f"data/{day}/part-0.parquet")
    assert f"give {better!r}" in refused(pattern)
    assert [row["item"] for row in items(better)] == ["day=1", "day=2"]


def test_a_file_that_is_nearly_there(tmp_path):
    (tmp_path / "events.csv").write_text(CSV)
    assert refused(f"{tmp_path}/event.csv").endswith(f"did you mean '{tmp_path}/events.csv'?")
    assert refused(f"{tmp_path}/zebra.csv") == f"no such file or folder: '{tmp_path}/zebra.csv'"


@pytest.mark.parametrize(
    ("name", "said", "content"),
    [
        ("part-00000", "csv", b"user,item\nu,i\n"),
        ("events.txt.gz", "csv", gzip.compress(b"user,item\nu,i\n", mtime=0)),
        ("events.csv", "jsonl", b'{"user": "u", "item": "i"}\n'),
        ("events.json.parquet", "jsonl", b'{"user": "u", "item": "i"}\n'),
    ],
)
def test_a_format_that_is_said(tmp_path, name, said, content):
    (tmp_path / name).write_bytes(content)
    assert items(str(tmp_path / name), format=said) == [{"user": "u", "item": "i"}]
    assert items(str(tmp_path), format=said) == [{"user": "u", "item": "i"}]


def test_a_format_that_is_not_said_is_asked_for(tmp_path):
    (tmp_path / "part-00000").write_bytes(b"")
    assert "unknown kind of file" in refused(f"{tmp_path}/part-00000") and "--input-format" in refused(str(tmp_path))
    (tmp_path / "events.tsv").write_bytes(b"user\titem\nu\ti\n")
    assert "give --input-format csv --delimiter tab" in refused(f"{tmp_path}/events.tsv")
    assert items(f"{tmp_path}/events.tsv", format="csv", delimiter="\t") == [{"user": "u", "item": "i"}]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " ", "-"])
def test_delimiters(tmp_path, delimiter):
    """Also one that the row which marks the end holds, and values that hold it in quotes."""
    path = tmp_path / "a.csv"
    rows = [["time", "user", "item"], ["1", "u,1", f'"a{delimiter}b"'], ["2", "", '""']]
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    assert items(str(path), delimiter=delimiter) == [
        {"user": "u,1", "item": f"a{delimiter}b"},
        {"user": None, "item": ""},
    ]


def test_a_quote_that_is_never_closed_is_seen_with_any_delimiter(tmp_path):
    for delimiter in ";| ":
        (tmp_path / "a.csv").write_text(f'user{delimiter}item\nu{delimiter}"i\n')
        assert "ends inside a quoted field" in refused(str(tmp_path), delimiter=delimiter)


@pytest.mark.parametrize(
    ("written", "given", "words"),
    [
        (";", None, "semicolons separate its columns: give --delimiter ';'"),
        ("\t", None, "tabs separate its columns: give --delimiter tab"),
        ("|", ";", "bars separate its columns: give --delimiter '|'"),
        (",", ";", "commas separate its columns: leave --delimiter out"),
    ],
)
@pytest.mark.parametrize("item", ["item", "itm"])
def test_a_file_with_another_delimiter_is_told(tmp_path, written, given, words, item):
    (tmp_path / "a.csv").write_text(f"user{written}item\nu{written}CANARY\n")
    assert refused(str(tmp_path), delimiter=given, item=item) == f"{tmp_path}/a.csv: {words}"


def test_data_is_not_taken_for_a_header(tmp_path):
    (tmp_path / "a.csv").write_text("CANARY;CANARY\n")
    assert "CANARY" not in refused(str(tmp_path)) and "is its first row a header?" in refused(str(tmp_path))


def test_delimiter_and_format_are_refused_where_they_mean_nothing(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text("")
    message = refused(str(tmp_path), delimiter=";", kind=ParameterError)
    assert message == f"--delimiter is for CSV files, but {tmp_path}/a.jsonl is json: leave it out"
    monkeypatch.setattr("headcount.pipelines.sources.bigquery.size", lambda path: 1)
    message = refused("bigquery://p.d.t", format="csv", kind=ParameterError)
    assert message == "--input-format csv is for files, but bigquery://p.d.t is a table: leave it out"


class FolderStore(FileSystem):
    """Objects under folders://, which counts how often it is listed."""

    files: dict[str, int] = {}
    listed: list[str] = []

    @classmethod
    def scheme(cls):
        return "folders"

    def has_dirs(self):
        return False

    def _list(self, prefix):
        self.listed.append(prefix)
        return [FileMetadata(path, size) for path, size in self.files.items() if path.startswith(prefix)]

    def exists(self, path):
        return path in self.files

    def metadata(self, path):
        return FileMetadata(path, self.files[path])

    def join(self, *parts):
        return "/".join(parts)

    copy = create = checksum = delete = last_updated = mkdirs = open = rename = size = split = join


@pytest.mark.parametrize("folder", ["folders://b/data", "folders://b/data/"])
def test_a_folder_of_an_object_store_takes_one_listing(folder):
    names = [name for name in (*VISIBLE, *HIDDEN, "empty/") if not name.startswith("out/")]
    FolderStore.files = {f"folders://b/data/{name}": 1 for name in names} | {"folders://b/data-of-others/a.csv": 1}
    FolderStore.listed = []
    assert paths(folder) == [f"folders://b/data/{name}" for name in VISIBLE]
    assert FolderStore.listed == ["folders://b/data/"]
    assert paths("folders://b") == ["folders://b/data-of-others/a.csv", *paths(folder)]
    assert "holds no files to read, or is not there" in refused("folders://b/dat")
    FolderStore.files["folders://b/data/README"] = 1
    better = "folders://b/data/**.csv"
    assert refused(folder).endswith(f"such as {better!r}") and set(paths(better)) >= set(
        paths("folders://b/data/z.csv")
    )


class Hdfs:
    """The two questions that a folder of HDFS takes."""

    tree = {"/data": ["day=1", "_SUCCESS", "a.csv"], "/data/day=1": ["b.csv"]}

    def status(self, path, strict=True):
        return {"type": "DIRECTORY" if path in self.tree else "FILE", "length": 1, "modificationTime": 0}

    def list(self, path, status):
        return [(name, self.status(f"{path}/{name}")) for name in self.tree[path]]


def test_a_folder_of_hdfs_is_walked(monkeypatch):
    pytest.importorskip("hdfs")
    from apache_beam.io.filesystems import FileSystems

    FileSystems.set_options(PipelineOptions(["--hdfs_host=h", "--hdfs_port=1", "--hdfs_user=u"]))
    system = stores.filesystem("hdfs://data")
    monkeypatch.setattr(system, "_hdfs_client", Hdfs())
    monkeypatch.setattr(FileSystems, "get_filesystem", lambda path: system)
    assert [(file.path, file.size) for file in files_of(["hdfs://data"])] == [
        ("hdfs://data/a.csv", 1),
        ("hdfs://data/day=1/b.csv", 1),
    ]
