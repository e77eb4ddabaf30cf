"""Logs of keys in three levels, of laws that no forecast knows: what forecasts are measured by."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

LEVELS = "country,region,city"


class TreeLog(NamedTuple):
    """Rows of user, country, region, city and day, and what somebody who has not seen them would assume."""

    rows: pa.Table
    assumed: dict[str, Any]


def tree_log(law: str) -> TreeLog:
    """A log, always the same: users who are anywhere, or in one country, of whom few do most, or who are all alike."""
    random = np.random.default_rng(1)
    users, sizes, skew = 20_000, (8, 64, 600), 1.0
    events = random.geometric(1 / 5, users)
    if law == "one country":
        sizes, skew = (6, 60, 600), 0.8
    elif law == "few active":
        sizes, skew, events = (5, 40, 400), 1.2, np.minimum(random.pareto(1.3, users) + 1, 2000).astype(int)
    elif law == "alike":
        sizes, skew, events = (4, 20, 500), 0.0, np.full(users, 2)
    user = np.repeat(np.arange(users), events)
    if law == "one country":
        country = random.choice(6, users, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])[user]
        place = _by_rank(random, 100, skew, len(user))
        region, city = country * 10 + place % 10, country * 100 + place
    elif law == "alike":
        city = random.integers(0, 500, len(user))
        country, region = city // 125, city // 25
    else:
        city = _by_rank(random, sizes[-1], skew, len(user))
        country, region = city % sizes[0], city % sizes[1]
    day = random.integers(1, 11, len(user))
    rows = pa.table({"user": user, "country": country, "region": region, "city": city, "day": day})
    return TreeLog(rows, {"users": users, "events_per_user": float(events.mean()), "items": list(sizes), "skew": skew})


def _by_rank(random: np.random.Generator, items: int, skew: float, number: int) -> np.ndarray:
    ends = np.cumsum(np.arange(1.0, items + 1) ** -skew)
    return np.searchsorted(ends, ends[-1] * random.random(number))


LAWS = ("anywhere", "one country", "few active", "alike")
