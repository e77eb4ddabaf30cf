"""Lets the scripts of this folder import what the benchmarks share: import this one first."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
