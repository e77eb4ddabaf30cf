"""Questions about people as transforms: `Funnel`, `Retention`, `Activity` and `Actives`."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import MAX_ITEM_BYTES
from headcount.mechanisms.columns.person_rows import asked_of_people
from headcount.mechanisms.columns.preparation import preparation
from headcount.mechanisms.people.ask import actives, activity, funnel, retention
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.keyed.domain import given_items
from headcount.transforms.people.rows import (
    ActiveUsers,
    ActiveUsersOf,
    ActivityBin,
    ActivityBinOf,
    CohortAge,
    CohortAgeOf,
    FunnelStep,
    FunnelStepOf,
)
from headcount.transforms.people.wiring import PeopleTransform


class Funnel(PeopleTransform):
    """How many users came to each of some steps, in order of time, and which share of them.

    Guarantee: user-level epsilon-differential privacy under `relation`; with Gaussian noise, or where the values of `by` are
    named, (epsilon, delta). A user counts once, for the longest prefix of the steps that it did in order, so nothing is left
    out, and numbers fall from step to step.

    Rows of equal time count in the order of the steps, and a row is used for one step at most. The result is `FunnelStep` rows:
    `step` from 1, its `condition`, the users that reached it as `count` with `noise_stddev` and a 95 % interval `low` to
    `high`, and `share_of_first` and `share_of_before` with theirs. With `by` the rows have its columns, too.

    Parameters:
        budget: what all of it may cost.
        steps: conditions on rows, in their order: ["page=/", "page=/cart", "page=/paid"].
        within: how long the whole path may take from its first step: "7d", "36h", "90m", "30s", "2w", or a timedelta (default:
            None, any time). Each row of the first step may begin a path, and the deepest one counts.
        user, time: the fields of a row (default: "user" and "time").
        by: a column to tell people apart by, or a list of several, taken where the path begins (default: None).
        domain: the values of `by`, if they are public (default: None: those that enough users have are named, by a part of
            epsilon and with delta).
        noise: "laplace", "gaussian", or "auto" (default), which is Laplace here.
        drop_null: drop rows without a user or a time, or a `by` where they meet the first step (default: False, refuse them).
        max_item_bytes, time_zone, where, join, on: as for `Contributions`.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    _row, _row_by = FunnelStep, FunnelStepOf

    def __init__(
        self,
        budget: Budget,
        steps: Sequence[str],
        *,
        within: str | datetime.timedelta | None = None,
        user: str = "user",
        time: str = "time",
        by: str | Sequence[str] | None = None,
        domain: Any = None,
        noise: str = "auto",
        drop_null: bool = False,
        max_item_bytes: int = MAX_ITEM_BYTES,
        time_zone: str = "UTC",
        where: str | None = None,
        join: Any = None,
        on: str | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        asked = {"by": by is not None, "domain": items.domain, "noise": noise, "item_type": items.made}
        made = funnel(budget, steps, within=within, relation=Relation.parse(relation), **asked)
        rows = asked_of_people(
            user,
            by,
            time=time,
            steps=[steps] if isinstance(steps, str) else steps,
            drop_null=drop_null,
            max_item_bytes=max_item_bytes,
            time_zone=time_zone,
            prepare=preparation(where, join, on, time_zone=time_zone),
        )
        super().__init__(made, rows, release=release, shards=shards, output_files=output_files, items=items)


class Activity(PeopleTransform):
    """How many users have how many events, in public bins.

    Guarantee: that of `Funnel`. A user counts once, in the bin of the number of its events, so nothing is left out.

    The result is `ActivityBin` rows: `events` says which numbers, from `least` to `most` (None: no end); `count` users, with
    `noise_stddev` and a 95 % interval `low` to `high`; and their `share` of the users of all bins.

    Parameters:
        budget: what all of it may cost.
        bins: where bins begin, as ascending whole numbers: [1, 2, 3, 6, 11, 51]. Users with fewer events are in none.
        user: the field of a row (default: "user").
        count: the field that says how many events a row stands for (default: None, one).
        by: a column to tell people apart by, or a list of several: the value that most of a user's events have counts, of equal
            ones the first by name (default: None).
        domain, noise, drop_null, max_item_bytes, time_zone, where, join, on: as for `Funnel`.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    _row, _row_by = ActivityBin, ActivityBinOf

    def __init__(
        self,
        budget: Budget,
        bins: Sequence[int],
        *,
        user: str = "user",
        count: str | None = None,
        by: str | Sequence[str] | None = None,
        domain: Any = None,
        noise: str = "auto",
        drop_null: bool = False,
        max_item_bytes: int = MAX_ITEM_BYTES,
        time_zone: str = "UTC",
        where: str | None = None,
        join: Any = None,
        on: str | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        asked = {"by": by is not None, "domain": items.domain, "noise": noise, "item_type": items.made}
        made = activity(budget, bins, relation=Relation.parse(relation), **asked)
        rows = asked_of_people(
            user,
            by,
            count=count,
            drop_null=drop_null,
            max_item_bytes=max_item_bytes,
            time_zone=time_zone,
            prepare=preparation(where, join, on, time_zone=time_zone),
        )
        super().__init__(made, rows, release=release, shards=shards, output_files=output_files, items=items)


class Retention(PeopleTransform):
    """Of the users who came first in each day, week or month, how many are there in each later one.

    Guarantee: that of `Funnel`. A user is in one cohort, that of its first period in the rows that are given, and counts once
    in each of its periods; noise is calibrated for a user who is in all of them.

    The result is `CohortAge` rows: `cohort`, the first day of the period in which users came first; `age`, how many periods
    later; `count` users, with `noise_stddev` and a 95 % interval `low` to `high`; and their `share` of the cohort.

    Parameters:
        budget: what all of it may cost.
        every: the periods: "day", "week" (from Monday) or "month", in `time_zone`.
        from_, to: the first and the last day, whose periods count whole; rows outside do not. They must be public: known
            without a look at the data.
        user, time: the fields of a row (default: "user" and "time").
        by: a column to tell people apart by, or a list of several: the value that most of a user's rows have in its first
            period counts, of equal ones the first by name (default: None).
        noise: "laplace", "gaussian", or "auto" (default): the one with less noise, where delta allows both.
        domain, drop_null, max_item_bytes, time_zone, where, join, on: as for `Funnel`.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    _row, _row_by = CohortAge, CohortAgeOf

    def __init__(
        self,
        budget: Budget,
        every: str,
        from_: str | datetime.date,
        to: str | datetime.date,
        *,
        user: str = "user",
        time: str = "time",
        by: str | Sequence[str] | None = None,
        domain: Any = None,
        noise: str = "auto",
        drop_null: bool = False,
        max_item_bytes: int = MAX_ITEM_BYTES,
        time_zone: str = "UTC",
        where: str | None = None,
        join: Any = None,
        on: str | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        asked = {"by": by is not None, "domain": items.domain, "noise": noise, "item_type": items.made}
        made = retention(budget, every, from_, to, relation=Relation.parse(relation), **asked)
        rows = asked_of_people(
            user,
            by,
            time=time,
            unit=every,
            drop_null=drop_null,
            max_item_bytes=max_item_bytes,
            time_zone=time_zone,
            prepare=preparation(where, join, on, time_zone=time_zone),
        )
        super().__init__(made, rows, release=release, shards=shards, output_files=output_files, items=items)


class Actives(PeopleTransform):
    """How many users are active on each day, in the 7 days that end with it, and in the 28: three series in one release.

    Guarantee: that of `Funnel`. A user counts once in each window that it is in, and noise is calibrated for a user who is in
    all of them. Gaussian noise, which takes a delta, is far less here.

    The result is `ActiveUsers` rows: `day`; `window`, which is 1, 7 or 28; `count` users, with `noise_stddev` and a 95 %
    interval `low` to `high`; and their `share` of the users of 28 days.

    Parameters:
        budget: what all of it may cost.
        from_, to: the first and the last day that is counted. They must be public: known without a look at the data. Rows of
            the 27 days before `from_` count for the windows that reach back to them.
        user, time: the fields of a row (default: "user" and "time").
        by: a column to tell people apart by, or a list of several: the value that most of a user's rows have counts, of equal
            ones the first by name (default: None).
        noise: "laplace", "gaussian", or "auto" (default): the one with less noise, where delta allows both.
        domain, drop_null, max_item_bytes, time_zone, where, join, on: as for `Funnel`.
        relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    _row, _row_by = ActiveUsers, ActiveUsersOf

    def __init__(
        self,
        budget: Budget,
        from_: str | datetime.date,
        to: str | datetime.date,
        *,
        user: str = "user",
        time: str = "time",
        by: str | Sequence[str] | None = None,
        domain: Any = None,
        noise: str = "auto",
        drop_null: bool = False,
        max_item_bytes: int = MAX_ITEM_BYTES,
        time_zone: str = "UTC",
        where: str | None = None,
        join: Any = None,
        on: str | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        asked = {"by": by is not None, "domain": items.domain, "noise": noise, "item_type": items.made}
        made = actives(budget, from_, to, relation=Relation.parse(relation), **asked)
        rows = asked_of_people(
            user,
            by,
            time=time,
            unit="day",
            drop_null=drop_null,
            max_item_bytes=max_item_bytes,
            time_zone=time_zone,
            prepare=preparation(where, join, on, time_zone=time_zone),
        )
        super().__init__(made, rows, release=release, shards=shards, output_files=output_files, items=items)
