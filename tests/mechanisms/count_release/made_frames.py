"""Frames that are made up: shared by the tests of Private Count Release and of the top."""

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.count_release.frames import (
    Frame,
)

KEY = bytes(range(32))


def frame(users, base=0, values=None):
    users = np.array(users, dtype=np.int64)
    items = pa.array([f"i{k}" for k in range(len(users))], pa.string())
    return Frame(items, users, users if values is None else np.array(values), base)


def zipf(items=3000, most=20_000, power=0.8):
    return frame((most / np.arange(1, items + 1) ** power).astype(np.int64))


def batch(pairs, counts=None):
    users, items = zip(*pairs, strict=True)
    return contribution_batch(pa.array(users), pa.array(items), None if counts is None else pa.array(counts))
