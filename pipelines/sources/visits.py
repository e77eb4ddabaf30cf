"""The law `visits` of `headcount generate`: a log as people have it, with columns of several types, for examples.

A row is one visit of a page of a made-up shop, in the two weeks from Monday, 2 November 2026. Users and pages follow the law
`tail`; country, device and age belong to the user; searches are two words, few of them frequent.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("user_id", pa.string()),
        ("country", pa.string()),
        ("device", pa.string()),
        ("age", pa.int64()),
        ("page", pa.string()),
        ("query", pa.string()),
        ("viewed_at", pa.timestamp("us")),
        ("seconds", pa.int64()),
        ("price", pa.float64()),
    ]
)
FIRST_DAY, DAYS = np.datetime64("2026-11-02T00:00:00", "us"), 14
COUNTRIES = ("de", "fr", "it", "pl", "nl", "at", "ch", "se")
DEVICES = ("phone", "laptop", "tablet")
FIRST_PAGES = ("/", "/search", "/sale", "/shoes", "/bags", "/cart", "/help", "/prices", "/about", "/jobs")
COLOURS = ("black", "white", "red", "blue", "green", "brown", "grey", "yellow", "pink", "silver")
THINGS = ("shoes", "boots", "bag", "coat", "shirt", "socks", "belt", "hat", "scarf", "gloves", "umbrella", "watch")


def columns(user: np.ndarray, page: np.ndarray, seed: int, generator: np.random.Generator) -> pa.RecordBatch:
    """The rows of these numbers of users and of pages (0: the most frequent one)."""
    rows = len(user)
    of_user = np.random.default_rng([seed, 1 << 20]).random((int(user.max(initial=0)) + 1, 3))[user]
    day = generator.integers(0, DAYS, rows)
    time = day * 86_400 + np.clip(generator.normal(14, 4, rows) * 3600, 0, 86_399).astype(np.int64)
    words = _rank(generator.random(rows), len(COLOURS) * len(THINGS))
    seconds = np.minimum(np.rint(generator.lognormal(4, 1, rows)), 3600).astype(np.int64)
    price = np.where(generator.random(rows) < 0.1, np.round(generator.lognormal(3, 0.6, rows), 2), 0.0)
    return pa.record_batch(
        [
            pa.array([f"u{number:06d}" for number in user.tolist()]),
            pa.array([COUNTRIES[k] for k in _rank(of_user[:, 0], len(COUNTRIES))]),
            pa.array([DEVICES[k] for k in _rank(of_user[:, 1], len(DEVICES))]),
            pa.array((16 + 64 * of_user[:, 2] ** 1.5).astype(np.int64)),
            pa.array([_page(number) for number in page.tolist()]),
            pa.array([f"{COLOURS[k % len(COLOURS)]} {THINGS[k // len(COLOURS)]}" for k in words.tolist()]),
            pa.array(FIRST_DAY + time.astype("timedelta64[s]")),
            pa.array(seconds),
            pa.array(price),
        ],
        schema=SCHEMA,
    )


def _rank(uniform: np.ndarray, size: int) -> np.ndarray:
    """Ranks 0..size-1, of which the first are the most frequent."""
    return np.minimum((size**uniform - 1) / (size - 1) * size, size - 1).astype(np.int64)


def _page(number: int) -> str:
    return FIRST_PAGES[number] if number < len(FIRST_PAGES) else f"/product/{number}"
