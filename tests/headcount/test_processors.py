"""A release has the same bytes on every kind of processor, fitted numbers included: a job that is run again elsewhere, or
verified there, finds what it wrote."""

import os
import subprocess
import sys

import pytest

from tests.golden import events
from tests.processors import PROCESSORS

JOBS = ["estimates", "users in levels", "metrics of items", "metrics in levels", "a distribution, sparse"]
SAVE = """
import hashlib, sys
from pathlib import Path
from tests.called_jobs import called
for job in sys.argv[2:]:
    out = Path.cwd() / job
    result, args = called(job, Path(sys.argv[1]))
    result.save(out, format="csv", output_files=args.output_files)
    print(job, *(hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())))
"""


@pytest.mark.slow("cuts")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names kinds of processors of x86_64")
def test_a_release_has_the_same_bytes_on_every_processor(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    events.write(data)
    found = set()
    for number, processor in enumerate(PROCESSORS):
        place = tmp_path / str(number)
        place.mkdir()
        environment = {**os.environ, **processor, "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-c", SAVE, str(data), *JOBS]
        found.add(subprocess.run(command, cwd=place, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    assert len(found) == 1 and len(found.pop().splitlines()) == len(JOBS)
