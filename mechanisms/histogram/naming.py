"""What the rounds that named the items tell of them, for whoever looks back at a release: how many, and by which weights.

An item is named because its noisy weight reaches a threshold. The guarantee holds for these weights as it does for the names
(`partitions.select.counts_in_rounds`), so that some quantiles of them cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from headcount.mechanisms.histogram.stages import NamesPlan

_QUANTILES = 20
_DIGITS = 5


def told_of_names(names: NamesPlan | None, named: Iterable[pa.RecordBatch]) -> tuple[dict[str, Any], ...]:
    """For each round: the items it named, its threshold and noise, and quantiles of their noisy weights from the least on.

    `named` are the items with their noisy sums, of all rounds. Nothing is told of names that came with their counts, which are
    released anyway, nor of those by law: of their sums nothing may be told.
    """
    if names is None or names.counts_too or names.named.strategy == "law":
        return ()
    batches = list(named)
    weights, stddev = (
        np.concatenate([np.zeros(0), *(np.asarray(batch.column(name)) for batch in batches)])
        for name in ("bounded_count", "noise_stddev")
    )
    told = []
    for each in names.rounds:
        assert each.plan.threshold_in_counts is not None
        own = weights[stddev == each.plan.stddev]
        shares = np.linspace(0, 1, _QUANTILES + 1)
        told.append(
            {
                "items": len(own),
                "threshold": float(each.plan.threshold_in_counts),
                "noise_stddev": each.plan.stddev,
                "weights": [float(f"{value:.{_DIGITS}g}") for value in (np.quantile(own, shares) if len(own) else ())],
            }
        )
    return tuple(told)
