"""Items hashed into a public number of buckets, under a public salt.

The salt follows from the release's id, which is drawn before the data is looked at; privacy does not rest on it.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.names import Names
from headcount.mechanisms.batches.run_sums import begins_run, run_sums
from headcount.mechanisms.randomness.lane_ids import item_lane_ids

SALT_BYTES = 16


def release_salt(release_id: str) -> bytes:
    """The public salt of a release: 128 bits that follow from its id, which is drawn before the data is looked at."""
    return hashlib.blake2b(release_id.encode(), digest_size=SALT_BYTES, person=b"headcount.salt").digest()


def buckets_of(names: Names, salt: bytes, buckets: int) -> np.ndarray:
    """The bucket of each name: BLAKE2b under the salt, mod the number of buckets."""
    digests = item_lane_ids(salt, names, np.zeros(len(names), dtype=np.int64))
    return (digests[:, 0] % np.uint64(buckets)).astype(np.int64)


def cells_of(names: Names, salt: str, buckets: int, ranks: int = 0) -> np.ndarray:
    """The bucket of each name under a public text; with `ranks`, a row of two: that of a second hash comes after the others."""
    first = buckets_of(names, release_salt(salt), buckets)
    if ranks == 0:
        return first
    second = buckets_of(names, release_salt(f"{salt}\n(ranks)"), ranks)
    return np.stack([first, buckets + second], axis=1)


def sums_by_bucket(names: Names, sums: np.ndarray, salt: bytes, buckets: int) -> tuple[Names, np.ndarray]:
    """Buckets that hold a name, and the sum of the sums of their names."""
    bucket = buckets_of(names, salt, buckets)
    order = np.argsort(bucket)
    bucket, sums = bucket[order], sums[order]
    starts = np.flatnonzero(begins_run(bucket))
    return pa.array(bucket[starts]), run_sums(sums, starts)  # of sums of users' pairs: fits
