"""The events that all runners count, what this machine makes of them, and a real Flink cluster."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import apache_beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.shape.buckets import cells_of
from headcount.mechanisms.shape.papers.shuffled import shuffled
from headcount.transforms.papers.pan_private import PanPrivateCounts
from headcount.transforms.papers.shuffled import MESSAGE
from tests import deaths
from tests.fixed_key import write_fixed_key
from tests.runners.harness import MINUTES, Gate, alone, headcount, output, running
from tests.runners.jobs import JOBS, STORED, beside, column, write_regions
from tests.runners.jobs import words_of as job_words

_PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism"


def _is_here(item):
    return item.path.parent == Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """One worker has all tests of the cluster, and so starts it once, and one all of Prism; of others, one has a file."""
    for item in filter(_is_here, items):
        runner = next((name for name in ("cluster", "prism") if name in item.fixturenames), item.path.stem)
        item.add_marker(pytest.mark.xdist_group(runner))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    return deaths.run(item, nextitem) if _is_here(item) else None


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder of all workers of the tests."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def data(shared):
    """60,000 rows in four Parquet files, so that both task managers read; one user holds a tenth. A domain and a key;
    messages of users in the shuffle model, and pan-private counters."""
    with alone(shared / "data") as first:
        if first:
            _write(shared / "data")
    return shared / "data"


def _write(directory):
    generator = np.random.default_rng(11)
    for number in range(4):
        user = generator.integers(1, 4_000, 15_000) * (generator.random(15_000) > 0.1)
        item = generator.geometric(0.03, 15_000)
        columns = {"user": pa.array([f"u{u}" for u in user]), "item": pa.array([f"i{i}" for i in item])}
        pq.write_table(pa.table(columns | beside(item)), directory / f"events-{number}.parquet")
    (directory / "domain.txt").write_text("".join(f"i{i}\n" for i in range(1, 400, 3)))
    write_regions(directory)
    write_fixed_key(directory / "key")
    _with_noise(directory)


def _with_noise(directory):
    """What the models without trust have stored: the same for every runner."""
    items = pa.array([f"i{k}" for k in np.random.default_rng(12).geometric(0.05, 300)])
    plan = shuffled(Budget(2, 1e-2), users=300, buckets=1200, mode="l2")
    columns = dict(zip(MESSAGE, plan.report(cells_of(items, "s", plan.buckets, plan.ranks)), strict=True))
    pq.write_table(pa.table(columns), directory / "messages.parquet")
    counts = PanPrivateCounts(Budget(1), buckets=1200, state=str(directory / "counters"), batch="all", salt="s")
    counts.start()
    counts.add([pa.RecordBatch.from_pydict({"item": items})])


@pytest.fixture(scope="session")
def words_of(data):
    """words_of(job): the command line of a job of JOBS or STORED, all but --output."""

    def words(job):
        if job in STORED:
            files = {"messages": data / "messages.parquet", "counters": data / "counters"}
            return [*STORED[job].format(**files).split(), "--format", "csv", "--release-id", "r1"]
        flags = ["--input", data / "events-*.parquet", "--user", "user", "--format", "csv"]
        key = ["--key-file", data / "key", "--release-id", "r1"]
        command, *own = job_words(job, data)
        return [command, *flags, *column(command, own), *own, *key]

    return words


@pytest.fixture(scope="session")
def here(words_of, shared):
    """here(job): the files that this machine makes for a job of JOBS, run once."""

    def files(job):
        folder = shared / "here" / str([*JOBS, *STORED].index(job))
        with alone(folder) as first:
            if first:
                headcount(*words_of(job), "--output", folder / "out")
        return output(folder / "out")

    return files


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Two task managers; a failed job starts again."""
    with running(tmp_path_factory.mktemp("flink")) as started:
        yield started


@pytest.fixture(scope="session")
def prism():
    """The program, built unless an earlier call did; it is there whole or not at all."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed, so Prism cannot be built and the third runner is not tried: install Go")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headcount"
    program = cache / f"prism-{apache_beam.__version__}"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as partial:
            command = [go, "install", f"{_PRISM}@v{apache_beam.__version__}"]
            environment = {**os.environ, "GOBIN": partial, "CGO_ENABLED": "0"}
            built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30 * MINUTES)
            assert built.returncode == 0, built.stderr
            os.replace(Path(partial) / "prism", program)
    return program


@pytest.fixture
def gate(data, tmp_path):
    with contextlib.closing(Gate(data, tmp_path)) as made:
        yield made
