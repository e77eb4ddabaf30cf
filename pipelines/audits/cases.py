"""What is audited: for each command, neighbours on which its promise is tight or nearly so.

Each has few other users, since a crowd hides nobody better. Epsilon is 2 and delta mostly 0.05: with these, some thousand runs
show most of what is promised. The formulas are the same at all others, and the tests check those exactly.
"""

from __future__ import annotations

import datetime
from fractions import Fraction

import pyarrow as pa

from headcount.pipelines.audits.choices import Choices
from headcount.pipelines.audits.neighbours import Neighbours, Watched, WatchedType

Case = Neighbours | Choices

_FIRST = datetime.date(2026, 11, 1)
_KEY = "--user user --item page"
_PURE, _LARGE = "--epsilon 2", "--epsilon 2 --delta 0.05"
_DAYS = "--time day --from 2026-11-01 --to 2026-11-03"
_ONE = Watched("bounded_count", {"item": 1})


def rows(users: int, page: int = 1, spent: float = 10.0, day: int = 0) -> pa.Table:
    """A row of each of so many users, on one page."""
    return pa.table(
        {
            "user": pa.array([f"other {number} of {page}" for number in range(users)], pa.string()),
            "page": pa.array([page] * users, pa.int64()),
            "spent": pa.array([spent] * users, pa.float64()),
            "day": pa.array([_FIRST + datetime.timedelta(day)] * users, pa.date32()),
        }
    )


def user(*pages: int, spent: float = 10.0, days: tuple[int, ...] = (0,), name: str = "one") -> pa.Table:
    """The rows of one user: each of the pages, on each of the days."""
    found = pa.concat_tables([rows(1, page, spent, day) for page in pages for day in days])
    return found.set_column(0, "user", pa.array([name] * found.num_rows, pa.string()))


def _texts(table: pa.Table, page: str | None = None) -> pa.Table:
    """The same with pages that are texts, or are all this one."""
    column = table.column("page").cast(pa.string()) if page is None else pa.array([page] * table.num_rows)
    return table.set_column(1, "page", column)


_NOBODY = rows(0)
_MANY = range(1, 31)  # pages

CASES: dict[str, Case] = {
    "users in all": Neighbours(f"total --user user --of users {_PURE}", _NOBODY, user(1), Watched("bounded_count")),
    "users of a public list": Neighbours(
        f"histogram {_KEY} --method one-stage --domain page=1..2 --bound 1 {_PURE}", _NOBODY, user(1), _ONE
    ),
    "events of a public list": Neighbours(
        f"histogram {_KEY} --of events --method one-stage --domain page=1..2 --bound 3 {_PURE}",
        _NOBODY,
        user(*[1] * 40),
        _ONE,
    ),
    "rows of one user": Neighbours(
        f"histogram {_KEY} --method one-stage --domain page=1..2 --bound 1 {_PURE}", _NOBODY, user(*[1] * 9), _ONE
    ),
    "users of a public list, Gaussian": Neighbours(
        f"histogram {_KEY} --method one-stage --domain page=1..2 --bound 1 --noise gaussian {_LARGE}",
        _NOBODY,
        user(1),
        _ONE,
    ),
    "users of a public list, by default": Neighbours(
        f"histogram {_KEY} --domain page=1..2 {_PURE}", _NOBODY, user(1), _ONE
    ),
    "users of pages that are named": Neighbours(f"histogram {_KEY} {_LARGE}", rows(3), user(1), _ONE),
    "users of pages above a threshold": Neighbours(
        f"histogram {_KEY} --method one-stage --noise laplace --bound 1 {_LARGE}", rows(2), user(1), _ONE
    ),
    "a page of one user alone": Neighbours(
        f"histogram {_KEY} --method one-stage --noise laplace --bound 1 {_LARGE}", _NOBODY, user(1), Watched()
    ),
    "users in levels": Neighbours(
        f"histogram --user user --levels page,spent:5 {_LARGE}",
        _NOBODY,
        user(1),
        Watched("bounded_count", {"item": "0:"}),
    ),
    "names of pages": Neighbours(f"partitions {_KEY} {_LARGE}", rows(2), user(1), Watched()),
    "names of pages, one each": Neighbours(
        f"partitions {_KEY} --strategy truncated-geometric --max-items 1 {_LARGE}", rows(2), user(1), Watched()
    ),
    "many pages near the last state": Neighbours(
        f"partitions {_KEY} --strategy law --max-items 30 --rounds 1 {_LARGE}",
        pa.concat_tables([rows(8, page) for page in _MANY]),
        user(*_MANY),
        Watched(),
    ),
    "a row of another type": Neighbours(
        f"partitions {_KEY} --max-items 1 --strategy truncated-geometric {_LARGE}",
        _texts(rows(20)),
        _texts(user(1), "not found"),
        WatchedType(),
    ),
    "the top page": Neighbours(
        f"top {_KEY} --k 1 {_LARGE}",
        pa.concat_tables([rows(9, page) for page in (1, 2)]),
        user(1),
        Watched(None, {"item": 1}),
    ),
    "users, as a metric": Neighbours(
        f"aggregate {_KEY} --users --domain page=1..2 {_LARGE}", _NOBODY, user(1), Watched("users", {"item": 1})
    ),
    "a sum": Neighbours(
        f"aggregate {_KEY} --sum spent:0:10 --domain page=1..2 --max-items 1 --max-per-item 1 {_LARGE}",
        _NOBODY,
        user(1, spent=1000.0),
        Watched("sum_spent", {"item": 1}),
    ),
    "a funnel": Neighbours(
        f"funnel --user user --time day --step page=1 --step page=2 {_PURE}",
        _NOBODY,
        user(1, 2, days=(0, 1)),
        Watched("count", {"step": 2}),
    ),
    "how often": Neighbours(f"activity --user user {_PURE}", _NOBODY, user(1), Watched("count", {"least": 1})),
    "who is active": Neighbours(
        f"actives --user user {_DAYS} {_LARGE}", _NOBODY, user(1, days=(0, 1, 2)), Watched("count")
    ),
    "who comes back": Neighbours(
        f"retention --user user --every day {_DAYS} {_LARGE}",
        _NOBODY,
        user(1, days=(0, 1, 2)),
        Watched("count", {"cohort": _FIRST}),
    ),
    "the shape": Neighbours(f"shape {_KEY} --domain-size 10 {_PURE}", _NOBODY, user(1), Watched("count")),
    "a distribution": Neighbours(
        f"distribution {_KEY} --domain page=1..2 --samples-per-user 1 {_PURE}",
        rows(4, 2),
        user(1),
        Watched("probability", {"item": 1}),
    ),
    "a sample": Neighbours(f"sampled {_KEY} --max-items 1 {_LARGE}", rows(3), user(1), Watched("count", {"item": 1})),
    "pages of many users": Neighbours(
        f"heavy-hitters {_KEY} --max-items 1 --phi 0.3 --users 4 {_LARGE}",
        rows(3),
        user(1),
        Watched("count", {"item": 1}),
    ),
    "a median": Neighbours(
        f"quantiles --user user --value spent --lo 0 --hi 10 --quantile 0.5 --levels 2 {_LARGE}",
        rows(4),
        user(1),
        Watched("value"),
    ),
    "named, then counted": Neighbours(
        f"plume {_KEY} --max-items 1 --max-counted-items 1 {_LARGE}", rows(3), user(1), _ONE
    ),
    "the largest counts": Neighbours(f"count-release {_KEY} {_LARGE}", rows(40), user(1), _ONE),
    "a bound": Neighbours(
        f"choose-bound {_KEY} --domain page=1..3 --for-epsilon 1 --for-delta 1e-6 {_PURE}",
        pa.concat_tables([user(1, 2, 3, name=f"other {number}") for number in range(12)]),
        user(1, 2, 3),
        Watched("bound"),
    ),
    "four releases on one account": Neighbours(
        "total --user user --of users --epsilon 0.5", _NOBODY, user(1), Watched("bounded_count", within=(0, 1)), times=4
    ),
    "forty choices": Choices(40, Fraction(3, 10), 0.1),
}
