"""Runs of equal rows, and sums over runs and codes, in 64-bit integers that never wrap.

A sum that would leave 64 bits stays at INT64_MAX (saturates). So no count makes a job fail, and no sensitivity grows: a cut sum
moves by no more than the sum does.
"""

from __future__ import annotations

import numpy as np

INT64_MAX = 2**63 - 1


def begins_run(*columns: np.ndarray) -> np.ndarray:
    """Whether each row differs from the one before in any of the columns; the first one does."""
    first = np.ones(len(columns[0]), dtype=bool)
    np.not_equal(columns[0][1:], columns[0][:-1], out=first[1:])
    for column in columns[1:]:
        first[1:] |= column[1:] != column[:-1]
    return first


def run_sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of consecutive runs, in the type of the values, which must hold them. A run may be empty."""
    if values.dtype.kind not in "iuO":
        raise TypeError(f"runs of whole numbers are added up, got {values.dtype}")
    # Differences of running sums are right also where those wrap; numpy's reduceat takes ten times as long for short runs.
    sums = np.zeros(len(values) + 1, dtype=values.dtype)
    np.cumsum(values, out=sums[1:])
    sums = sums[np.append(starts, len(values))]
    return sums[1:] - sums[:-1]


def sum_by_code(codes: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Exact int64 sum of the non-negative values of each code 0 .. size - 1; a sum beyond int64 stays at INT64_MAX.

    It neither fails nor wraps: values are those of many users. The cut sum moves by no more than the sum does, so that no
    sensitivity grows, and sums of such sums are the same in any order.
    """
    total = float(values.sum(dtype=np.float64))
    if total == len(values) and (len(values) == 0 or int(values.min()) == 1):
        return np.bincount(codes, minlength=size).astype(np.int64, copy=False)
    if total < 2**53:  # every partial sum is an integer that a float64 holds exactly
        return np.bincount(codes, weights=values, minlength=size).astype(np.int64)
    if total >= 2**62:  # and if not, all of them fit int64, however the float was rounded
        exact = np.zeros(size, dtype=object)  # Python's integers: slower, and they never wrap
        np.add.at(exact, codes, values.astype(object))
        return np.minimum(exact, INT64_MAX).astype(np.int64)
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, codes, values)
    return sums
