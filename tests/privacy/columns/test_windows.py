"""Protection by windows: each (user, window) is a unit of its own, bounded and drawn for as if it were a user.

A release sees units only by what bounding leaves of each. So it is enough that removing all rows of one unit changes nothing of
any other unit, and removes at most the bound: all else is the proof of the mechanism, with units for users.
"""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.bounding import clipping
from headcount.mechanisms.columns import row_schema
from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError

BOUND, DAYS, ITEMS = 3, 5, 12
SUBKEY = bytes(range(32))
START = datetime.datetime(2026, 11, 1)


def visits(users: int = 40, seed: int = 0, alike: bool = False) -> pa.Table:
    """Users with many rows on each of some days; `alike`: the same rows every day."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        same = rng.integers(0, ITEMS, 10)
        for day in range(DAYS):
            for item in same if alike else rng.integers(0, ITEMS, rng.integers(0, 10)):
                when = START + datetime.timedelta(days=day, seconds=int(rng.integers(0, 86_400)))
                rows.append({"who": user, "page": f"p{item}", "at": when})
    return pa.Table.from_pylist(rows)


def bounded(table: pa.Table, protect: str = "user-day") -> dict[str, dict[str, int]]:
    """What bounding leaves of each unit, by items."""
    time = None if protect == "user" else "at"
    row_schema = asked("who", "page", protect=protect, time=time).of_schema(table.schema)
    shard = one_shard([row_schema.batch(batch, Place()) for batch in table.to_batches()])
    kept = clipping.rand_clip(shard, BOUND, SUBKEY)
    users, items = kept.users.to_pylist(), kept.items.to_pylist()
    return {
        str(user): {items[kept.item[row]]: int(kept.count[row]) for row in range(kept.offsets[u], kept.offsets[u + 1])}
        for u, user in enumerate(users)
    }


def unit(user: int, day: int) -> str:
    return f"{user}\x1f{(START.date() + datetime.timedelta(days=day) - datetime.date(1970, 1, 1)).days}"


def without(table: pa.Table, user: int, day: int) -> pa.Table:
    keep = [
        not (who == user and (at - START).days == day)
        for who, at in zip(table["who"].to_pylist(), table["at"].to_pylist(), strict=True)
    ]
    return table.filter(pa.array(keep))


@pytest.mark.parametrize(("user", "day"), [(0, 0), (7, 3), (39, 4)])
def test_a_user_is_protected_in_each_window(user, day):
    """Exact: the neighbour without one window has every other unit as it was, also those of the same user."""
    whole = bounded(visits())
    rest = bounded(without(visits(), user, day))
    gone = whole.pop(unit(user, day), {})
    assert rest == whole
    assert sum(gone.values()) <= BOUND
    assert all(sum(kept.values()) <= BOUND for kept in whole.values())
    assert sum(len([1 for day in range(DAYS) if unit(0, day) in whole]) for _ in [0]) > 1  # the user has several


def test_the_windows_of_a_user_count_each():
    table = visits(alike=True)
    assert {sum(kept.values()) for kept in bounded(table).values()} == {BOUND} and len(bounded(table)) == 40 * DAYS
    assert len(bounded(table, "user")) == 40 and len(bounded(table, "user-month")) == 40
    assert len(bounded(table, "user-week")) == 40 * 2  # the first of November 2026 is a Sunday


def test_bounding_per_user_alone_is_caught(monkeypatch):
    """The mutation that forgets the window: one window's rows then decide what of the others is left."""
    honest = row_schema.user_keys
    monkeypatch.setattr(
        row_schema, "user_keys", lambda user, window, types, zone, where: honest(user, None, types, zone, where)
    )
    whole, rest = bounded(visits()), bounded(without(visits(), 7, 3))
    assert len(whole) == 40
    assert whole["7"] != rest["7"]  # the rest of the user is not as it was


def same_draws(table: pa.Table) -> int:
    """Users of whom the same is left in their first two windows, though all rows are there in both."""
    kept = bounded(table)
    return sum(kept[unit(user, 0)] == kept[unit(user, 1)] for user in range(200))


def test_two_windows_draw_apart(monkeypatch):
    """Three of ten events: the same three of them in two windows by a chance below 1/30 (many repeat an item). Of 200 users, 60
    or more agree with a chance below 1e-30; one lane for both windows makes all of them agree."""
    table = visits(users=200, seed=3, alike=True)
    assert same_draws(table) < 60
    honest = clipping.user_lane_ids

    def of_users_alone(key, users, *rows):
        return honest(key, pa.array([name.split("\x1f")[0] for name in users.to_pylist()]), *rows)

    monkeypatch.setattr(clipping, "user_lane_ids", of_users_alone)
    assert same_draws(table) == 200


def test_windows_come_from_the_column_alone():
    table = visits()
    later = table.set_column(2, "at", pa.array([at + datetime.timedelta(days=7) for at in table["at"].to_pylist()]))
    assert len(bounded(later)) == len(bounded(table))
    texts = table.set_column(2, "at", pa.array([at.isoformat() + "Z" for at in table["at"].to_pylist()]))
    assert bounded(texts) == bounded(table)
    # In another zone another day begins, for users as for keys.
    row_schema = asked("who", "page", protect="user-day", time="at", time_zone="Asia/Tokyo").of_schema(table.schema)
    assert isinstance(row_schema.users, Keys) and row_schema.users.fields[1].zone == "Asia/Tokyo"


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ParameterError, match="time must name the column"):
        asked("who", "page", protect="user-day")
    with pytest.raises(ParameterError, match="time says when"):
        asked("who", "page", time="at")
    with pytest.raises(ParameterError, match="user-week"):
        asked("who", "page", protect="week", time="at")
    with pytest.raises(ParameterError, match="another column"):
        asked("at", "page", protect="user-day", time="at")
    with pytest.raises(InputError, match="dates and times"):
        asked("who", "page", protect="user-day", time="n").of_schema(
            pa.schema([("who", pa.int64()), ("page", pa.string()), ("n", pa.int64())])
        )
    absent = visits().slice(0, 3).set_column(2, "at", pa.array([None, START, START], pa.timestamp("us")))
    with pytest.raises(InputError, match="'at'.*null"):
        bounded(absent)
