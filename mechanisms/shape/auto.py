"""Which anonymized histogram to take, by what is public: the size of the domain, or a number of buckets.

Mode "auto" looks at public numbers alone. It takes "central" where every position can be drawn in seconds, since a job has the
users' data and may as well sort it. It takes "l1" for larger domains, for buckets, which only Algorithm 2 needs, and where an
estimate is asked for, which is one of noisy cells.
"""

from __future__ import annotations

import numbers
from typing import Literal

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.anonymized import AnonymizedHistogramMechanism, Estimate, anonymized_histogram
from headcount.mechanisms.shape.hashed import HashedHistogram, hashed_histogram

ShapeMode = Literal["auto", "central", "l1", "l2"]
MODES: tuple[ShapeMode, ...] = ("auto", "central", "l1", "l2")


_REASON = (
    "how many items the data has, and how many users, is private, and noise is needed for those that nobody has, too; give the "
    "number of items that there could be, or one that the data will not exceed, or about four buckets for each user"
)


def shape_histogram(
    budget: Budget,
    *,
    domain_size: int | None = None,
    buckets: int | None = None,
    mode: ShapeMode = "auto",
    max_items: int = 1,
    relation: Relation = Relation.ADD_REMOVE,
    estimate: Estimate = "auto",
) -> AnonymizedHistogramMechanism | HashedHistogram:
    """How many items have which count. One of `domain_size` and `buckets` is given, as a public number."""
    if domain_size is None and buckets is None:
        raise ParameterError(f"one of domain_size and buckets must be given, as a public number: {_REASON}")
    if domain_size is not None and buckets is not None:
        raise ParameterError(
            f"one of domain_size and buckets is enough, got {domain_size!r} and {buckets!r}: buckets are for domains that "
            "are too large for a cell for each item"
        )
    check_one_of("mode", mode, MODES)
    if buckets is None:
        if mode == "auto":
            sortable = isinstance(domain_size, numbers.Integral) and domain_size <= tuning.MOST_SORTED
            mode = "central" if sortable and estimate == "auto" else "l1"
        return anonymized_histogram(
            budget,
            domain_size=domain_size,  # type: ignore[arg-type]
            mode=mode,
            max_items=max_items,
            relation=relation,
            estimate=estimate,
        )
    if mode == "central":
        raise ParameterError(
            "mode 'central' sorts the counts, and needs no buckets: give domain_size, the largest number of distinct items "
            f"that is of interest, in place of buckets = {buckets!r}, or take mode 'l1'"
        )
    mode = "l1" if mode == "auto" else mode
    return hashed_histogram(
        budget, users=None, buckets=buckets, mode=mode, max_items=max_items, relation=relation, estimate=estimate
    )
