"""What is audited: for each command, neighbours on which its promise is tight or nearly so.

Most have few other users, since a crowd hides nobody better; where a page must be named to be seen, it has a crowd. Epsilon is
2 and delta mostly 0.05: with these, some thousand runs show most of what is promised. Where all of a delta is the chance to be
seen at all, it is larger. The formulas are the same at all others, and the tests check those exactly.
"""

from __future__ import annotations

import datetime
from fractions import Fraction

import pyarrow as pa

from headcount.mechanisms.accounting.losses import Draw, Losses
from headcount.pipelines.audits.choices import Choices
from headcount.pipelines.audits.neighbours import Neighbours, Watched, WatchedType

Case = Neighbours | Choices

_FIRST = datetime.date(2026, 11, 1)
_SECOND, _THIRD = (_FIRST + datetime.timedelta(days) for days in (1, 2))
_KEY = "--user user --item page"
_PURE, _LARGE, _SEEN = "--epsilon 2", "--epsilon 2 --delta 0.05", "--epsilon 1 --delta 0.2"
_DAYS = "--time day --from 2026-11-01 --to 2026-11-03"
_BOUND = f"choose-bound {_KEY} --count times --domain page=1..1 --for-epsilon 1 --for-delta 1e-6"
_ONE = Watched("bounded_count", {"item": 1})


def rows(users: int, page: int = 1, spent: float = 10.0, day: int = 0, times: int = 1) -> pa.Table:
    """A row of each of so many users, on one page."""
    return pa.table(
        {
            "user": pa.array([f"other {number} of {page}" for number in range(users)], pa.string()),
            "page": pa.array([page] * users, pa.int64()),
            "spent": pa.array([spent] * users, pa.float64()),
            "day": pa.array([_FIRST + datetime.timedelta(day)] * users, pa.date32()),
            "times": pa.array([times] * users, pa.int64()),
        }
    )


def user(*pages: int, spent: float = 10.0, days: tuple[int, ...] = (0,), times: int = 1, name: str = "one") -> pa.Table:
    """The rows of one user: each of the pages, on each of the days."""
    found = pa.concat_tables([rows(1, page, spent, day, times) for page in pages for day in days])
    return found.set_column(0, "user", pa.array([name] * found.num_rows, pa.string()))


def _texts(table: pa.Table, page: str | None = None) -> pa.Table:
    """The same with pages that are texts, or are all this one."""
    column = table.column("page").cast(pa.string()) if page is None else pa.array([page] * table.num_rows)
    return table.set_column(1, "page", column)


_NOBODY = rows(0)
_LEAVES, _MANY, _FEW = range(1, 201), range(1, 31), range(1, 6)  # pages
_ALL_DAYS = pa.concat_tables([rows(30, day=day) for day in (0, 1, 2)])

CASES: dict[str, Case] = {
    "users in all": Neighbours(
        f"total --user user --of users {_PURE}", _NOBODY, user(1), Watched("bounded_count"), runs=1200
    ),
    "users of a public list": Neighbours(
        f"histogram {_KEY} --method one-stage --domain page=1..2 --bound 1 {_PURE}", _NOBODY, user(1), _ONE, runs=2000
    ),
    "events of a public list": Neighbours(
        f"histogram {_KEY} --of events --method one-stage --domain page=1..2 --bound 3 {_PURE}",
        _NOBODY,
        user(*[1] * 40),
        _ONE,
        runs=1500,
    ),
    "rows of one user": Neighbours(
        f"histogram {_KEY} --method one-stage --domain page=1..2 --bound 1 {_PURE}",
        _NOBODY,
        user(*[1] * 9),
        _ONE,
        runs=2000,
    ),
    "users of a public list, Gaussian": Neighbours(
        f"histogram {_KEY} --method one-stage --domain page=1..2 --bound 1 --noise gaussian {_LARGE}",
        _NOBODY,
        user(1),
        _ONE,
        runs=6000,
    ),
    "users of a public list, by default": Neighbours(
        f"histogram {_KEY} --domain page=1..2 {_PURE}", _NOBODY, user(1), _ONE, runs=3000
    ),
    "users of pages that are named": Neighbours(
        f"histogram {_KEY} {_LARGE}",
        rows(12),
        user(1),
        _ONE,
        most=0.95,
        why="choices and a total that are not shown have a share",
        runs=3000,
    ),
    "users of pages above a threshold": Neighbours(
        f"histogram {_KEY} --method one-stage --noise laplace --bound 1 {_LARGE}", rows(12), user(1), _ONE, runs=1200
    ),
    "a page of one user alone": Neighbours(
        f"histogram {_KEY} --method one-stage --noise laplace --bound 1 --epsilon 1 --delta 0.27",
        _NOBODY,
        user(1),
        Watched(),
        by="delta",
        runs=3000,
    ),
    "users in levels": Neighbours(
        f"histogram --user user --levels page,spent:5 {_LARGE}",
        rows(30),
        user(1),
        Watched("bounded_count", {"item": "2:1\x1f1"}),
        runs=1500,
        most=0.44,
        why="one count of four is looked at, and a page with a crowd is named anyway",
    ),
    "a user of many leaves in levels": Neighbours(
        f"histogram --user user --levels spent:5,page --of events {_LARGE}",
        pa.concat_tables([rows(12, page) for page in _LEAVES]),
        user(*_LEAVES),
        Watched("bounded_count", {"item": ["0:", "1:10"]}),
        most=0.44,
        why="names and totals have a share, and pages with a crowd are named anyway",
        runs=300,
    ),
    "names of pages": Neighbours(f"partitions {_KEY} {_LARGE}", rows(2), user(1), Watched(), by="epsilon", runs=3000),
    "names of pages, one each": Neighbours(
        f"partitions {_KEY} --strategy truncated-geometric --max-items 1 {_LARGE}",
        rows(2),
        user(1),
        Watched(),
        by="epsilon",
        runs=3000,
    ),
    "names of pages by a curve, one each": Neighbours(
        f"partitions {_KEY} --strategy law --max-items 1 --rounds 1 {_LARGE}",
        rows(2),
        user(1),
        Watched(),
        by="epsilon",
        runs=3000,
    ),
    "many pages near the last state": Neighbours(
        f"partitions {_KEY} --strategy law --max-items 30 --rounds 1 {_LARGE}",
        pa.concat_tables([rows(8, page) for page in _MANY]),
        user(*_MANY),
        Watched(),
        by="epsilon",
        most=0.45,
        why="there for a bug at the end of the curve, where its coins differ little",
        runs=2000,
    ),
    "a row of another type": Neighbours(
        f"partitions {_KEY} --max-items 1 --strategy truncated-geometric {_LARGE}",
        _texts(rows(20)),
        _texts(user(1), "not found"),
        WatchedType(),
        by="epsilon",
        runs=300,
        most=0.0,
        why="there for a bug; the type of a column tells nothing",
    ),
    "the top page": Neighbours(
        f"top {_KEY} --k 1 {_LARGE}",
        pa.concat_tables([rows(15, page) for page in (1, 2, 3)]),
        user(1),
        Watched(None, {"item": 1}),
        of=Losses.of(Draw(2.0)),
        runs=2000,
    ),
    "users, as a metric": Neighbours(
        f"aggregate {_KEY} --users --domain page=1..2 {_LARGE}",
        _NOBODY,
        user(1),
        Watched("users", {"item": 1}),
        most=0.65,
        why="a total that is not shown has a share, and scales what is shown",
        runs=1500,
    ),
    "a sum": Neighbours(
        f"aggregate {_KEY} --sum spent:0:10 --domain page=1..2 --max-items 1 --max-per-item 1 {_LARGE}",
        _NOBODY,
        user(1, spent=1000.0),
        Watched("sum_spent", {"item": 1}),
        most=0.5,
        why="a total that is not shown has a share, and scales what is shown",
        runs=1500,
    ),
    "a funnel": Neighbours(
        f"funnel --user user --time day --step page=1 --step page=2 {_PURE}",
        _NOBODY,
        user(1, 2, days=(0, 1)),
        Watched("count", {"step": 2}),
        runs=1200,
    ),
    "how often": Neighbours(
        f"activity --user user {_PURE}", _NOBODY, user(1), Watched("count", {"least": 1}), runs=1200
    ),
    "who is active": Neighbours(
        f"actives --user user {_DAYS} {_LARGE}",
        _ALL_DAYS,
        user(1, days=(1, 2)),
        Watched("count", {"day": [_SECOND, _THIRD]}, less={"day": _FIRST}),
        runs=6000,
    ),
    "who comes back": Neighbours(
        f"retention --user user --every day {_DAYS} {_LARGE}",
        _NOBODY,
        user(1, days=(2,)),
        Watched("count", {"cohort": _THIRD}),
        runs=5000,
    ),
    "the shape": Neighbours(f"shape {_KEY} --domain-size 10 {_PURE}", _NOBODY, user(1), Watched("count"), runs=1200),
    "a distribution": Neighbours(
        f"distribution {_KEY} --domain page=1..2 --samples-per-user 1 {_PURE}",
        rows(4, 2),
        user(1),
        Watched("probability", {"item": 1}),
    ),
    "a sample": Neighbours(f"sampled {_KEY} --max-items 1 {_SEEN}", rows(1), user(1), Watched(), by="delta", runs=4000),
    "pages of many users": Neighbours(
        f"heavy-hitters {_KEY} --max-items 1 --phi 0.3 --users 4 {_SEEN}",
        rows(1),
        user(1),
        Watched(),
        by="delta",
        runs=4000,
    ),
    "a median": Neighbours(
        f"quantiles --user user --value spent --lo 0 --hi 10 --quantile 0.5 --levels 2 {_SEEN}",
        rows(1),
        user(1),
        Watched(),
        by="delta",
        runs=4000,
    ),
    "named, then counted": Neighbours(
        f"plume {_KEY} --max-items 1 --max-counted-items 1 {_LARGE}",
        rows(4),
        user(1),
        Watched("bounded_count", {"item": 1}, absent=2.0),
        most=0.53,
        why="two stages of noise are added up as zCDP, and half of delta is for pages of one user",
        runs=1500,
    ),
    "the largest counts": Neighbours(
        f"count-release {_KEY} {_LARGE}",
        pa.concat_tables([rows(52, page) for page in _FEW]),
        user(*_FEW),
        Watched("bounded_count", mean=True),
        most=0.28,
        why="half of a budget of zCDP is for draws, which name pages with a crowd anyway",
        runs=2000,
    ),
    "a bound": Neighbours(
        f"{_BOUND} {_PURE}",
        rows(4, times=10**6),
        user(1, times=10**6),
        Watched("bound"),
        most=0.5,
        why="the scores of all bounds move the same way, and the proof allows both ways",
        runs=1500,
    ),
    "a bound, by ranks": Neighbours(
        f"{_BOUND} --bound-method quantile-rank {_PURE}",
        rows(1, times=2661),
        user(1, times=10**6),
        Watched("bound"),
        runs=2000,
    ),
    "two releases on one account": Neighbours(
        "total --user user --of users --epsilon 1",
        _NOBODY,
        user(1),
        Watched("bounded_count", within=(0, 1)),
        times=2,
        by="epsilon",
        runs=3000,
    ),
    "forty choices": Choices(
        40,
        Fraction(3, 10),
        0.1,
        runs=3000,
        most=0.78,
        why="draws between two candidates, where the account is for the worst draws there are",
    ),
}
