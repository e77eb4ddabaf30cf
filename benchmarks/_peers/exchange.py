"""How a runner of a peer is told its job, and how it gives back what the peer released.

    python run_PEER.py JOB.json

A job has `log` (Parquet with user, item and value), `output`, `low` and `high` of values, `epsilon`, `delta`, `keys` (text with
a public key in each line, or null where keys must be named privately) and `setting`. The output is Parquet with item, users,
events, sum and mean, and half the width of the 95 % interval of each, where the peer tells one.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

METRICS = ("users", "events", "sum", "mean")
WIDTHS = {
    "gaussian": 1.959964,
    "laplace": math.log(20) / math.sqrt(2),
}  # standard deviations that hold 95 % of the noise


@dataclass(frozen=True)
class Job:
    """One release of one peer: m keys of a user, c rows on each, its noise, and what else the peer takes."""

    log: str
    output: str
    low: float
    high: float
    epsilon: float
    delta: float
    keys: str | None
    setting: dict[str, Any]

    def public(self) -> list[str] | None:
        """The public keys, if there are any."""
        return Path(self.keys).read_text().splitlines() if self.keys else None


def serve(release: Callable[[Job], dict[str, Iterable[Any]]]) -> None:
    """Reads the job, has the peer release, and writes what came out: metrics, and `NAME_half` where it tells intervals."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    made = {name: list(column) for name, column in release(job).items()}
    size = len(made["item"])
    columns = {"item": pa.array(made["item"], pa.string())}
    for name in [*METRICS, *(f"{metric}_half" for metric in METRICS)]:
        columns[name] = pa.array(made.get(name, [None] * size), pa.float64())
    pq.write_table(pa.table(columns), job.output)


def zcdp(epsilon: float, delta: float) -> float:
    """The largest rho whose zero-concentrated privacy is (epsilon, delta)-differential privacy.

    The conversion is that of Canonne, Kamath and Steinke (2020), Corollary 13, on a grid of orders: any order is a valid one.
    """
    orders = [1 + 1.05**power / 100 for power in range(400)]

    def enough(rho: float) -> bool:
        logs = (
            (order - 1) * (order * rho - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)
            for order in orders
        )
        return min(logs) <= math.log(delta)

    low, high = 0.0, epsilon
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
