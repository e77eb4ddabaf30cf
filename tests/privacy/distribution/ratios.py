"""The largest log-ratio of a private choice on two inputs: what the audits of distributions share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from headcount.mechanisms.choice.exponential import probabilities

ROUNDING = 1 + 1e-9  # of the audit's own floats


def log_ratio(before: list[Fraction], after: list[Fraction]) -> float:
    p, q = probabilities(before), probabilities(after)
    assert min(p.min(), q.min()) > 0  # else the floats are too short for the audit
    return float(np.abs(np.log(p) - np.log(q)).max())
