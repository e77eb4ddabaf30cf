"""Beam's own Prism runner: a third engine that gives the same bytes.

Built by Go from the release of Beam that is installed. These tests are skipped where Go is not installed, and only there.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import apache_beam
import pytest

from tests.runners.harness import MINUTES, headcount, output, rows
from tests.runners.jobs import STORED, WIRED

MODULE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


@pytest.fixture(scope="module")
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
            command = [go, "install", f"{MODULE}@v{apache_beam.__version__}"]
            environment = {**os.environ, "GOBIN": partial, "CGO_ENABLED": "0"}
            built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30 * MINUTES)
            assert built.returncode == 0, built.stderr
            os.replace(Path(partial) / "prism", program)
    return program


@pytest.mark.parametrize("job", [*WIRED, *STORED])
def test_same_bytes_as_on_this_machine(prism, words_of, here, tmp_path, job):
    flags = ["--runner=PrismRunner", f"--prism_location={prism}", "--environment_type=LOOPBACK"]
    headcount(*words_of(job), *flags, "--output", tmp_path / "there")
    assert output(tmp_path / "there") == here(job)
    assert os.listdir(tmp_path) == ["there"]
    assert rows(here(job)) > 0
