"""An interval of a number that has noise is never of width zero, whatever command released it, and however odd the data are.

A few users have a few of many public keys, so that most numbers are noise around nothing, half of those below 0; and shares,
means and variances are at the ends of what can be. Ids are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headcount
from headcount.mechanisms.calibration import intervals

KEYS = [f"k{number}" for number in range(60)]


def log() -> pd.DataFrame:
    rows = [
        (f"u{user}", KEYS[user % 3], f"2026-11-{1 + user % 9:02}", 0.0 if user % 2 else 100.0, None)
        for user in range(40)
    ]
    return pd.DataFrame(rows, columns=["user", "key", "day", "price", "weight"]).astype({"weight": "float64"})


def histogram(**options: Any) -> Callable[..., Any]:
    return lambda frame, **own: headcount.histogram(frame, user="user", item="key", domain=KEYS, **options, **own)


def aggregate(**options: Any) -> Callable[..., Any]:
    return lambda frame, **own: headcount.aggregate(frame, user="user", item="key", domain=KEYS, **options, **own)


VALUES = {kind: ["price:0:100", "weight:0:100"] for kind in ("sum", "mean", "variance")}
CALLS: dict[str, Callable[..., Any]] = {
    "users": histogram(),
    "events": histogram(of="events"),
    "events, not calibrated": histogram(of="events", bound=3, calibrate="none"),
    "one stage, Laplace": histogram(method="one-stage", bound=1, noise="laplace"),
    "one stage, Gaussian": histogram(method="one-stage", bound=3, noise="gaussian"),
    "metrics": aggregate(users=True, events=True, **VALUES),
    "metrics, not calibrated": aggregate(users=True, events=True, calibrate="none", **VALUES),
    "means": aggregate(users=True, mean=VALUES["mean"]),
    "shares and ratios": aggregate(
        share=["rich=price>50", "any=price>=0", "none=price>200"], ratio="r=price:0:100/weight:0:9"
    ),
    "quantiles": aggregate(quantile="0.1,0.9:price:0:100"),
    "total of users": lambda frame, **own: headcount.total(frame, user="user", of="users", **own),
    "total of events": lambda frame, **own: headcount.total(frame, user="user", of="events", **own),
    "funnel": lambda frame, delta, **own: headcount.funnel(
        frame, user="user", time="day", step=["key=k0", "key=k9", "key=k1"], **own
    ),
    "activity": lambda frame, delta, **own: headcount.activity(frame, user="user", **own),
    "actives": lambda frame, **own: headcount.actives(
        frame, user="user", time="day", from_="2026-11-01", to="2026-11-20", **own
    ),
    "levels": lambda frame, **own: headcount.histogram(frame, user="user", levels=["key", "day"], **own),
}


def noisy_columns(table: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """What has noise: its name, the noise, and the ends."""
    for name in table.column_names:
        for spread in ("noise_stddev", "rank_stddev"):
            if name.endswith(spread):
                stem = name.removesuffix(spread)
                columns = (
                    np.asarray(table.column(column), np.float64) for column in (name, f"{stem}low", f"{stem}high")
                )
                yield (stem, *columns)


@pytest.mark.seconds
@pytest.mark.parametrize("call", CALLS)
def test_no_interval_has_a_width_of_zero(call):
    for epsilon in (0.2, 1.0, 3.0):  # of counts with hardly any noise, whole numbers are known
        made = CALLS[call](log(), epsilon=epsilon, delta=1e-6)
        for name, noise, low, high in noisy_columns(made.table):
            assert len(noise) and not np.any((noise > 0) & (high <= low)), (name, epsilon)


def test_an_interval_is_only_longer_than_what_it_was():
    rng = np.random.default_rng(1)
    low = rng.normal(-1, 5, 1000)
    high = low + rng.exponential(3, 1000)
    for least in (0.0, 1.0):
        ends = intervals.from_least(low, high, least)
        assert (ends[0] == np.maximum(low, least)).all() and (ends[1] >= np.maximum(high, least)).all()
        assert (ends[1] > ends[0]).all()
        within = (low + high) / 2 >= least
        assert (ends[1][within] == high[within]).all() and within.any()
