"""Beam's own Prism runner: a third engine that gives the same bytes.

Built by Go from the release of Beam that is installed. These tests are skipped where Go is not installed, and only there.
"""

import os

import pytest

from tests.runners.harness import headcount, output, rows
from tests.runners.jobs import STORED, WIRED

pytestmark = pytest.mark.everything


@pytest.mark.parametrize("job", [*WIRED, *STORED])
def test_same_bytes_as_on_this_machine(prism, words_of, here, tmp_path, job):
    flags = ["--runner=PrismRunner", f"--prism_location={prism}", "--environment_type=LOOPBACK", "--behind-firewall"]
    headcount(*words_of(job), *flags, "--output", tmp_path / "there")
    assert output(tmp_path / "there") == here(job)
    assert os.listdir(tmp_path) == ["there"]
    assert rows(here(job)) > 0
