"""A curve has the same bytes on every kind of processor, so that a release made again elsewhere has the same rows."""

import os
import subprocess
import sys

import pytest

BYTES = """
import hashlib
from headcount.mechanisms.partitions.coins import slope_ratio
from headcount.mechanisms.partitions.selection_curve import make_curve
print(hashlib.sha256(make_curve(3, 20.0, 0.5, 1e-9, slope_ratio=slope_ratio(20.0, 0.5)).chances).hexdigest())
print([hashlib.sha256(make_curve(items, 20.0, 0.5, 1e-9).chances).hexdigest() for items in (2, 30, 1000)])
"""


def curve_bytes(**processor: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", BYTES], env={**os.environ, **processor}, capture_output=True, check=True
    )
    return ran.stdout.decode()


@pytest.mark.seconds
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names kinds of processors of x86_64")
def test_a_law_has_the_same_bytes_on_every_processor():
    plain = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
    others = [{"OPENBLAS_CORETYPE": "Nehalem"}, {"OPENBLAS_CORETYPE": "Haswell"}, {"NPY_DISABLE_CPU_FEATURES": plain}]
    assert {curve_bytes(**other) for other in others} == {curve_bytes()}
