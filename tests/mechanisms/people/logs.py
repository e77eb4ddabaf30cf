"""Small logs of people, with ties in time, repeated steps, nulls and users of one row, and their truth by brute force."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.columns.person_rows import PersonRows
from headcount.mechanisms.people.release import PeopleMechanism

PAGES = ("/", "/cart", "/paid", "/other")
START = datetime.datetime(2026, 10, 5)


def log(seed: int, users: int = 12, rows: int = 60, minutes: int = 8, nulls: bool = False) -> pa.Table:
    """Rows of few users at few times, so that many are at one time."""
    rng = np.random.default_rng(seed)

    def drawn(values: Sequence[object]) -> list[object]:
        return [None if nulls and rng.random() < 0.1 else values[k] for k in rng.integers(len(values), size=rows)]

    times = [START + datetime.timedelta(minutes=int(k)) for k in range(minutes)]
    return pa.table(
        {
            "user": pa.array([f"u{k}" for k in rng.integers(users, size=rows)]),
            "page": pa.array(drawn(PAGES), pa.string()),
            "country": pa.array(drawn(["de", "at", "fr"]), pa.string()),
            "at": pa.array(drawn(times), pa.timestamp("us")),
            "price": pa.array(drawn([0, 1, 2]), pa.int64()),
        }
    )


def cells(made: PeopleMechanism, rows: PersonRows, table: pa.Table, public: Sequence[str]) -> Mapping[int, int]:
    """{number of a cell: its users} of a mechanism, before any noise, by the code that counts."""
    read = rows.of_schema(table.schema)
    shard = value_users_of([read.batch(batch, Place()) for batch in table.to_batches()])[0]
    if shard is None:
        return {}
    counted = made.counted(made.recorded(shard), pa.array(public, pa.string()))
    found = np.asarray(counted.items)[counted.item]
    return {int(cell): int(number) for cell, number in zip(*np.unique(found, return_counts=True), strict=True)}


def depths(table: pa.Table, met: Sequence[Sequence[bool]], within: int | None = None) -> dict[str, tuple[int, object]]:
    """{user: (depth, country at the start)} of a funnel, by trying every choice of rows; `met` has each row's steps."""
    of_user: dict[str, list[tuple[object, ...]]] = {}
    for row, steps in zip(table.to_pylist(), met, strict=True):
        if any(steps) and row["at"] is not None and not (steps[0] and row["country"] is None):
            number = sum(1 << k for k, each in enumerate(steps) if each)
            place = (row["at"], steps.index(True), number, row["country"] or "")
            of_user.setdefault(row["user"], []).append((place, tuple(steps)))

    def deepest(rows: list[tuple[object, ...]], at: int, step: int, limit: datetime.datetime | None) -> int:
        most = step
        for later in range(at + 1, len(rows)):
            place, steps = rows[later]
            if step < len(steps) and steps[step] and (limit is None or place[0] <= limit):
                most = max(most, deepest(rows, later, step + 1, limit))
        return most

    found: dict[str, tuple[int, object]] = {}
    for user, rows in of_user.items():
        rows.sort(key=lambda row: row[0])
        for k, (place, steps) in enumerate(rows):
            if steps[0]:
                limit = None if within is None else place[0] + datetime.timedelta(microseconds=within)
                depth = deepest(rows, k, 1, limit)
                if user not in found or depth > found[user][0]:
                    found[user] = depth, place[3]
    return found


def most_common(values: Sequence[str]) -> str:
    """The value that is there most often; of equal ones the first by name."""
    return min(sorted(set(values)), key=lambda value: -list(values).count(value))


def by_user(table: pa.Table) -> dict[str, list[dict[str, object]]]:
    """The rows of each user."""
    rows = sorted(table.to_pylist(), key=lambda row: row["user"])
    return {user: list(held) for user, held in itertools.groupby(rows, key=lambda row: row["user"])}
