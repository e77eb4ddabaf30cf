"""Streams on a real Flink cluster, with two workers: each window has the bytes of its batch job. Run by `make test-flink`."""

import pytest

from tests.runners.arriving import QUIET, coming, outputs, past
from tests.runners.harness import UNFINISHED, rows, wait

pytestmark = pytest.mark.everything
ONE_STAGE = "histogram --item item --method one-stage --bound 3 --epsilon 1 --delta 1e-6"
# A window closes about one bundle later for each step: by default a second. The flag is that of the job server.
SOON = ("--", "--max_bundle_time_mills=50")


@pytest.mark.parametrize(
    "own", [ONE_STAGE, "partitions --item item --epsilon 1 --delta 1e-6 --output-files 2", "total --epsilon 1"]
)
def test_each_window_has_the_bytes_of_its_batch_job(cluster, tmp_path, own):
    stream = past(tmp_path)
    stream.put_all()
    cluster.submit(*stream.words(own), "--output", tmp_path / "out", *SOON)
    found = outputs(tmp_path / "out")
    assert found == stream.batch(own)
    assert all(rows(files) > 0 for name, files in found.items() if name != stream.name(QUIET))


def test_windows_close_while_the_stream_goes_on_and_no_checkpoint_takes_a_row(cluster, tmp_path):
    """With checkpoints a job never ends by itself, and by Beam's default rows that wait for one come too late."""
    stream = coming(tmp_path, 20, 3, 6)
    stream.put_all()
    words = [*stream.words(ONE_STAGE), "--output", tmp_path / "out", *SOON, "--checkpointing_interval=500"]
    cluster.call("submit", *words)
    assert outputs(tmp_path / "out") == stream.batch(ONE_STAGE)
    wait(lambda: not cluster.jobs(*UNFINISHED))
    last = max(cluster.rest("/jobs/overview")["jobs"], key=lambda job: job["start-time"])
    stages = cluster.rest(f"/jobs/{last['jid']}")["vertices"]
    assert max(stage["parallelism"] for stage in stages) == 2
