"""How many keys of a user count, and how many rows on each: chosen privately, with the norm of the totals.

This is the choice of `bound_choice.kept` with another bound: a user of d named keys keeps m of them, so min(1, m / d) of its
rows, capped at c on each, in place of what a norm leaves.

    (m, c)     loss = keys * cost - worth / 4, where worth is what the users' rows that are left are worth
    B          loss = users above B

The noise of every metric is a cost, and what is left out is one for totals alone: so cost is the mean size of the noise of a
key's rows, times the metrics for each total among them, where means and variances count fivefold. None of this is part of
any proof.

Guarantee: that of `bound_choice.kept`. What a user is worth depends on its own rows alone and lies between 0 and `most`, so
one user more lowers each loss by at most most / 4, and raises none.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bound_choice.kept import MOST_KEPT, KeptCandidate, KeptChoice

# No part of any proof: what is looked at.
MAX_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CAPS = (1, 3, 10, 100, 1000)


@dataclasses.dataclass(frozen=True)
class KeysCandidate(KeptCandidate):
    """At most `bound` keys with `max_per_item` rows each."""

    @property
    def most(self) -> int:
        """What one user keeps at most in the table: all that the bounds leave, or a public multiple of their norm."""
        return self.max_per_item * min(self.bound, MOST_KEPT * (math.isqrt(self.bound - 1) + 1))


@dataclasses.dataclass(frozen=True)
class KeysChoice(KeptChoice):
    """The choice of m and c, and of the norm of the totals."""

    name = "keys"

    def norms_of(self, capped: Shard, noise: str) -> np.ndarray:
        """The number of keys of each user, whatever the noise is."""
        return capped.rows_per_user().astype(np.float64)
