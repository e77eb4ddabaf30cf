"""Synthetic event logs, to try Headcount on and to measure it with: `headcount generate`.

Two laws, the two ends of what an event log can look like to a private count, and one with more columns, for examples:

* **tail**: heavy users who repeat themselves. A user's activity follows a power law: the most active hundredth of the users
  holds about half of the rows. Each user keeps coming back to a small set of items
  of its own, and items are drawn into those sets by a Zipf law. At ten rows per user about a third of the
  rows are new (user, item) pairs.
* **spread**: users alike, items mildly skewed, and nearly every (user, item) pair is new (95 % of the rows at
  least).
* **visits**: the law tail, with countries, days, searches, seconds and prices (`visits.py`).

A log is a function of its parameters: the same law, rows, users, items and seed give the same rows (with one
version of NumPy). It is drawn chunk by chunk; memory grows with the users and items, not with the rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.sources import visits

ROWS_PER_CHUNK = 1_000_000  # also the size of a Parquet row group
SPREAD_PAIRS_PER_ROW = 20  # possible pairs for each row of `spread`: keeps 95 % of the rows' pairs new

# Shapes of the law `tail`, fitted to the shares that the module docstring states (held by tests).
ACTIVITY_EXPONENT = 1.2  # a user of rank r is active as (r + shift)^-exponent
ACTIVITY_SHIFT = 0.001  # times the number of users: keeps the first user from owning a tenth of the log
HABIT_EXPONENT = 0.55  # a user's j-th favourite is chosen as j^-(1 + exponent)
ZIPF_EXPONENT = 1.05  # an item of rank r is drawn as r^-exponent
SPREAD_SKEW = 1.25  # an item's rank in `spread` is items * uniform^skew

SCHEMA = pa.schema([("user", pa.string()), ("item", pa.string())])

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def generate(
    law: str, rows: int, users: int | None, items: int | None, seed: int, path: str | os.PathLike[str]
) -> None:
    """Writes a log of `rows` rows to `path`, a .parquet or .csv file: string columns user, item, or those of `visits`.

    `users` and `items` are how many of them there can be (not all need occur); None takes `default_users` and
    `default_items`. The file appears whole or not at all, and an existing one is never replaced.
    """
    path = Path(path)
    if law not in LAWS:
        raise ParameterError(f"law must be one of {', '.join(LAWS)}, got {law!r}")
    _check_integer("rows", rows, 0)
    _check_integer("seed", seed, 0)
    users = default_users(rows) if users is None else users
    _check_integer("users", users, 1)
    items = default_items(law, rows, users) if items is None else items
    _check_integer("items", items, 1)
    if law == "spread" and users * items < SPREAD_PAIRS_PER_ROW * rows:
        raise ParameterError(
            f"the law spread needs at least {SPREAD_PAIRS_PER_ROW} possible (user, item) pairs per row, got "
            f"{users} users times {items} items for {rows} rows: give more users or items"
        )
    if path.suffix not in (".parquet", ".csv"):
        raise ParameterError(f"output must end in .parquet or .csv, got {str(path)!r}")
    if path.exists():
        raise ParameterError(f"output {str(path)!r} exists: remove it, or give another name")
    partial = path.with_name(path.name + ".partial")
    try:
        if law == "visits":
            _write(partial, path.suffix, visits.SCHEMA, visit_batches(rows, users, items, seed))
        else:
            _write(partial, path.suffix, SCHEMA, log_batches(_LAWS[law](users, items, seed), rows, users, items, seed))
        os.replace(partial, path)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "write error"
        raise ParameterError(f"output {str(path)!r} cannot be written: {reason}") from None
    finally:
        partial.unlink(missing_ok=True)


def drawn(law: str, rows: int, users: int, items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The users and items of the rows of a log as numbers, all at once: for logs of at most `ROWS_PER_CHUNK` rows."""
    return _LAWS[law](users, items, seed)(np.random.default_rng([seed, 0]), rows)


def default_users(rows: int) -> int:
    """Ten rows per user."""
    return max(1, rows // 10)


def default_items(law: str, rows: int, users: int) -> int:
    """A hundred rows per item; in a small log of the law spread as many more as it needs to find new pairs."""
    enough = math.ceil(SPREAD_PAIRS_PER_ROW * rows / users) if law == "spread" else 1
    return max(1, rows // 100, enough)


def log_batches(draw: Draw, rows: int, users: int, items: int, seed: int) -> Iterator[pa.RecordBatch]:
    """The rows of a log, in batches of a Parquet row group; `draw` gives user and item numbers."""
    user_names, item_names = _names("u", users, 8), _names("i", items, 7)
    for chunk, start in enumerate(range(0, rows, ROWS_PER_CHUNK)):
        generator = np.random.default_rng([seed, chunk])
        user, item = draw(generator, min(ROWS_PER_CHUNK, rows - start))
        yield pa.record_batch([user_names.take(user), item_names.take(item)], schema=SCHEMA)


def visit_batches(rows: int, users: int, items: int, seed: int) -> Iterator[pa.RecordBatch]:
    """The rows of a log of the law `visits`, in batches of a Parquet row group."""
    for chunk, start in enumerate(range(0, rows, ROWS_PER_CHUNK)):
        generator = np.random.default_rng([seed, chunk])
        user, page = _ranks(generator, min(ROWS_PER_CHUNK, rows - start), users, items, seed)
        yield visits.columns((user + 1) * _scatter(users) % users, page, seed, generator)


def _tail(users: int, items: int, seed: int) -> Draw:
    user_step, item_step = _scatter(users), _scatter(items)

    def draw(generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        user, item = _ranks(generator, rows, users, items, seed)
        return (user + 1) * user_step % users, (item + 1) * item_step % items

    return draw


def _ranks(
    generator: np.random.Generator, rows: int, users: int, items: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Users and items by the law `tail`, numbered by how active and how frequent they are."""
    user = _power_law(generator.random(rows), users, ACTIVITY_EXPONENT, ACTIVITY_SHIFT * users)
    habit = (1.0 - generator.random(rows)) ** (-1.0 / HABIT_EXPONENT)
    # A user's j-th favourite must be the same item in every chunk, for millions of users: it is a hash.
    taste = _hash(user, np.minimum(habit, 2**20).astype(np.int64), seed)
    return user, _power_law(taste, items, ZIPF_EXPONENT, 1.0)


def _spread(users: int, items: int, seed: int) -> Draw:
    item_step = _scatter(items)

    def draw(generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        user = generator.integers(0, users, rows)
        item = (generator.random(rows) ** SPREAD_SKEW * items).astype(np.int64)
        return user, (item + 1) * item_step % items

    return draw


_LAWS: dict[str, Callable[[int, int, int], Draw]] = {"tail": _tail, "spread": _spread}
LAWS = (*_LAWS, "visits")


def _power_law(uniform: np.ndarray, size: int, exponent: float, shift: float) -> np.ndarray:
    """Ranks 0..size-1, of rank r with density (r + shift)^-exponent, by the inverse distribution function."""
    power = 1.0 - exponent
    low, high = shift**power, (size + shift) ** power
    rank = (low + uniform * (high - low)) ** (1.0 / power) - shift
    return np.clip(rank.astype(np.int64), 0, size - 1)


def _hash(user: np.ndarray, habit: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for each (user, habit), the finaliser of SplitMix64 over both; no secret depends on it."""
    mixed = user.astype(np.uint64) << np.uint64(21) ^ habit.astype(np.uint64)
    mixed += np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    return ((mixed ^ mixed >> np.uint64(31)) >> np.uint64(11)) * 2.0**-53


def _scatter(size: int) -> int:
    """A step that visits all of 0..size-1: names in alphabetical order shall not be in order of frequency."""
    step = int(size * 0.6180339887)
    while math.gcd(step, size) != 1:
        step += 1
    return step


def _names(prefix: str, size: int, digits: int) -> pa.Array:
    """The names prefix0000000, prefix0000001, ... of equal length, built without a Python string for each."""
    digits = max(digits, len(str(size - 1)))
    numbers, letters = np.arange(size), np.empty((size, digits + 1), np.uint8)
    letters[:, 0] = ord(prefix)
    for place in range(digits, 0, -1):
        letters[:, place] = numbers % 10 + ord("0")
        numbers //= 10
    offsets = np.arange(size + 1, dtype=np.int64) * (digits + 1)
    wide = pa.LargeStringArray.from_buffers(size, pa.py_buffer(offsets.data), pa.py_buffer(letters.data))
    return wide.cast(pa.string()) if offsets[-1] < 2**31 else wide


def _write(path: Path, suffix: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    kind = pyarrow.csv.CSVWriter if suffix == ".csv" else pyarrow.parquet.ParquetWriter
    with kind(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{name} must be an integer of at least {least}, got {value!r}")
