"""A curve has the same bytes on every kind of processor, so that a release made again elsewhere has the same rows."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.processors import PROCESSORS

BYTES = """
import hashlib
from headcount.mechanisms.partitions.coins import slope_ratio
from headcount.mechanisms.partitions.selection_curve import make_curve
print(hashlib.sha256(make_curve(3, 20.0, 0.5, 1e-9, slope_ratio=slope_ratio(20.0, 0.5)).chances).hexdigest())
print([hashlib.sha256(make_curve(items, 20.0, 0.5, 1e-9).chances).hexdigest() for items in (2, 30, 1000)])
"""


def curve_bytes(processor: Mapping[str, str]) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", BYTES], env={**os.environ, **processor}, capture_output=True, check=True
    )
    return ran.stdout.decode()


@pytest.mark.seconds
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names kinds of processors of x86_64")
def test_a_law_has_the_same_bytes_on_every_processor():
    assert {curve_bytes(each) for each in PROCESSORS} == {curve_bytes({})}
