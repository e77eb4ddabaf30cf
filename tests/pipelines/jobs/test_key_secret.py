"""`--key-secret`: worker processes fetch the key themselves, and the result is that of the same key in a file."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.mechanisms.randomness.keys import write_key_file
from headcount.pipelines.main import main
from tests import secret_manager

SECRET = "projects/p1/secrets/headcount-key/versions/3"


@pytest.mark.slow("services")
def test_workers_fetch_the_key_and_give_the_rows_of_a_key_file(tmp_path):
    columns = {"user": [f"u{n % 500}" for n in range(2000)], "item": [f"i{n % 7}" for n in range(2000)]}
    pq.write_table(pa.table(columns), tmp_path / "events.parquet")
    key = write_key_file(tmp_path / "key").fetch()
    words = ["histogram", "--input", f"{tmp_path / 'events.parquet'}", "--user", "user", "--item", "item"]
    words += ["--epsilon", "1", "--delta", "1e-6", "--bound", "5", "--format", "csv", "--release-id", "r1"]
    assert main([*words, "--key-file", f"{tmp_path / 'key'}", "--output", f"{tmp_path / 'file'}"]) == 0
    with secret_manager.running({SECRET: (tmp_path / "key").read_bytes()}, tmp_path) as manager:
        words += ["--key-secret", SECRET, "--output", f"{tmp_path / 'secret'}"]
        workers = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
        done = subprocess.run(
            [sys.executable, "-m", "headcount.pipelines.main", *words, *workers],
            env=manager.environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("counts-00000-of-00001.csv", "report.json"):
        assert (tmp_path / "secret" / name).read_bytes() == (tmp_path / "file" / name).read_bytes()
    assert (tmp_path / "file" / "counts-00000-of-00001.csv").read_bytes().count(b"\n") == 8
    assert manager.asked[0] == SECRET and len(manager.asked) > 1, (
        "the first asks before the run, the others are workers"
    )
    assert key.hex() not in done.stdout + done.stderr
