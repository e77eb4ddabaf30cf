"""Each user's record is what brute force says, on small logs with everything that makes a record hard."""

from __future__ import annotations

import datetime
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headcount
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import Place, contribution_batch
from headcount.mechanisms.batches.user_shards import value_users_of
from headcount.mechanisms.columns.conditions import parse_condition
from headcount.mechanisms.columns.person_rows import asked_of_people
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.people.ask import actives, activity, funnel, periods, retention, span
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
from tests.mechanisms.people.logs import START, by_user, cells, depths, log, most_common

DISJOINT = ("page=/", "page=/cart", "page=/paid")
OVERLAPPING = ("price >= 0", "page = /cart or price = 1", "country = de", "price = 1")
PURE = Budget(1000.0)
COUNTRIES = ["at", "de", "fr"]


def met_by(table, steps):
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    masks = [parse_condition(step).mask(columns, Place()).to_pylist() for step in steps]
    return [list(row) for row in zip(*masks, strict=True)]


@pytest.mark.parametrize("steps", [DISJOINT, OVERLAPPING, ("page=/", "page=/", "page=/"), ("page=/cart",)])
@pytest.mark.parametrize("within", [None, "0s", "1m", "3m"])
def test_a_depth_is_the_longest_prefix(steps, within):
    made = funnel(PURE, steps, within=within, by=True, domain=COUNTRIES)
    rows = asked_of_people("user", "country", time="at", steps=steps, drop_null=True)
    for seed in range(40):
        table = log(seed, nulls=seed % 2 == 1)
        true = depths(table, met_by(table, steps), None if within is None else span(within))
        expected = Counter(COUNTRIES.index(country) * len(steps) + depth - 1 for depth, country in true.values())
        assert cells(made, rows, table, COUNTRIES) == expected


def test_a_row_that_is_there_twice_is_two_rows():
    table = pa.table({"user": ["a", "a", "b"], "at": [START] * 3, "page": ["/"] * 3})
    rows = asked_of_people("user", time="at", steps=["page=/"] * 3)
    assert cells(funnel(PURE, ["page=/"] * 3), rows, table, ["everybody"]) == {1: 1, 0: 1}


def test_rows_without_a_time_are_refused_or_dropped_and_those_of_no_step_do_not_matter():
    at = pa.array([START, None, None], pa.timestamp("us"))
    table = pa.table({"user": ["a", "a", "b"], "at": at, "page": ["/", "/x", "/"]})
    rows = asked_of_people("user", time="at", steps=["page=/"]).of_schema(table.schema)
    with pytest.raises(InputError, match="'at'.*is null"):
        rows.batch(table.to_batches()[0], Place(first_row=0))
    dropped = asked_of_people("user", time="at", steps=["page=/"], drop_null=True)
    assert cells(funnel(PURE, ["page=/"]), dropped, table, ["everybody"]) == {0: 1}


def test_the_column_to_tell_apart_by_is_needed_where_a_path_begins_alone():
    times = [START, START + datetime.timedelta(seconds=1)]
    table = pa.table({"user": ["a", "a"], "at": times, "page": ["/", "/paid"], "country": ["de", None]})
    rows = asked_of_people("user", "country", time="at", steps=["page=/", "page=/paid"])
    made = funnel(PURE, ["page=/", "page=/paid"], by=True, domain=["de"])
    assert cells(made, rows, table, ["de"]) == {1: 1}
    with pytest.raises(InputError, match="'country'.*is null"):
        cells(made, rows, table.set_column(3, "country", pa.array([None, "de"])), ["de"])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["2026-11-01T00:00:00.123456789Z"]), 123456),
        (pa.array(["2026-11-01 01:00:00,5+01:00"]), 500_000),
        (pa.array(["2026-11-01"]), 0),
        (pa.array([datetime.date(2026, 11, 1)]), 0),
        (pa.array([1_793_491_200], pa.timestamp("s")), 0),
        (pa.array([1_793_491_200_001], pa.timestamp("ms", "Asia/Tokyo")), 1_000),
        (pa.array([1_793_491_200_000_001_999], pa.timestamp("ns")), 1),
    ],
)
def test_times_are_read_to_the_microsecond(column, expected):
    table = pa.table({"user": ["a"], "at": column})
    rows = asked_of_people("user", time="at", steps=["user=a"]).of_schema(table.schema)
    found = rows.batch(table.to_batches()[0], Place()).column("value0").to_pylist()
    assert found == [1_793_491_200_000_000 + expected]


@pytest.mark.parametrize("seed", range(20))
def test_activity_is_the_bin_of_a_users_events(seed):
    table = log(seed, users=15, rows=50)
    made = activity(PURE, [1, 2, 4, 6], by=True, domain=COUNTRIES)
    expected: Counter[int] = Counter()
    for held in by_user(table).values():
        country = most_common([row["country"] for row in held])
        expected[COUNTRIES.index(country) * 4 + int(np.searchsorted([1, 2, 4, 6], len(held), side="right")) - 1] += 1
    assert cells(made, asked_of_people("user", "country"), table, COUNTRIES) == expected


@pytest.mark.parametrize("every", ["day", "week", "month"])
@pytest.mark.parametrize("seed", range(8))
def test_retention_is_the_first_period_and_all_later_ones(seed, every):
    rng = np.random.default_rng(seed)
    days = [datetime.date(2026, 9, 20) + datetime.timedelta(days=int(k)) for k in rng.integers(70, size=120)]
    users = [f"u{k}" for k in rng.integers(20, size=120)]
    table = pa.table({"user": users, "at": days, "country": rng.choice(COUNTRIES, size=120)})
    starts = periods(every, "2026-10-01", "2026-11-20")
    made = retention(PURE, every, "2026-10-01", "2026-11-20", by=True, domain=COUNTRIES)

    def period(day: datetime.date) -> int:
        if every == "month":
            day = day.replace(day=1)
        elif every == "week":
            day -= datetime.timedelta(days=day.weekday())
        return (day - datetime.date(1970, 1, 1)).days

    expected: Counter[int] = Counter()
    size = sum(range(1, len(starts) + 1))
    for held in by_user(table).values():
        inside = [(starts.index(period(row["at"])), row["country"]) for row in held if period(row["at"]) in starts]
        if inside:
            cohort = min(inside)[0]
            country = COUNTRIES.index(most_common([each for at, each in inside if at == cohort]))
            before = sum(len(starts) - k for k in range(cohort))
            expected.update(country * size + before + at - cohort for at in {at for at, _ in inside})
    rows = asked_of_people("user", "country", time="at", unit=every)
    assert cells(made, rows, table, COUNTRIES) == expected


@pytest.mark.filterwarnings("ignore:this promises little")
def test_actives_are_those_of_sql_at_a_huge_epsilon():
    table = log(7, users=100, rows=500, minutes=90_000)
    found = headcount.actives(
        table, user="user", time="at", from_="2026-10-20", to="2026-11-30", epsilon=20_000, delta=1e-6, noise="laplace"
    ).table
    sql = """
        with days as (select unnest(generate_series(date '2026-10-20', date '2026-11-30', interval 1 day))::date d),
        windows as (select unnest([1, 7, 28])::int w)
        select d, w, count(distinct "user") from days, windows
        left join table_ on "at"::date <= d and "at"::date > d - w group by all order by all"""
    true = _sql(sql, table)
    assert [(row["day"], row["window"], row["count"]) for row in found.to_pylist()] == true
    assert true[2][2] > true[1][2] > true[0][2] > 0


@pytest.mark.parametrize("seed", range(10))
def test_actives_are_those_of_brute_force(seed):
    table = log(seed, users=6, rows=20, minutes=70_000, nulls=seed % 2 == 1)
    made = actives(PURE, "2026-10-15", "2026-11-12", by=True, domain=COUNTRIES)
    first, days = datetime.date(2026, 10, 15), 29
    expected: Counter[int] = Counter()
    for held in by_user(table).values():
        known = [(row["at"].date(), row["country"]) for row in held if row["at"] is not None and row["country"]]
        known = [(day, country) for day, country in known if -28 < (day - first).days < days]
        if known:
            home = COUNTRIES.index(most_common([country for _, country in known]))
            for place, window in enumerate((1, 7, 28)):
                for k in range(days):
                    ends = first + datetime.timedelta(days=k)
                    if any(0 <= (ends - day).days < window for day, _ in known):
                        expected[home * 3 * days + place * days + k] += 1
    rows = asked_of_people("user", "country", time="at", unit="day", drop_null=True)
    assert cells(made, rows, table, COUNTRIES) == expected


@pytest.mark.filterwarnings("ignore:this promises little")
def test_a_funnel_is_that_of_sql_at_a_huge_epsilon():
    table = log(5, users=300, rows=4000, minutes=20000, nulls=True)
    found = headcount.funnel(
        table, user="user", time="at", step=list(DISJOINT), within="36h", drop_null=True, epsilon=900
    ).table
    sql = """
        with one as (select "user" u, "at" t1 from table_ where page = '/' and "at" is not null),
        two as (select u, t1, min("at") t2 from one left join table_ on "user" = u and page = '/cart' and "at" >= t1
                and "at" <= t1 + interval 36 hour group by all),
        three as (select u, t1, t2, min("at") t3 from two left join table_ on "user" = u and page = '/paid' and "at" >= t2
                and "at" <= t1 + interval 36 hour group by all),
        deep as (select u, max(1 + (t2 is not null)::int + (t3 is not null)::int) depth from three group by u)
        select count(*), count(*) filter (depth >= 2), count(*) filter (depth = 3) from deep"""
    (true,) = _sql(sql, table)
    assert [row["count"] for row in found.to_pylist()] == list(true)
    assert true[0] > true[1] > true[2] > 10, "equal to little says little"


@pytest.mark.filterwarnings("ignore:this promises little")
def test_retention_and_activity_are_those_of_sql_at_a_huge_epsilon():
    table = log(6, users=300, rows=4000, minutes=60000)
    words = {"user": "user", "epsilon": 900}
    found = headcount.retention(table, time="at", every="week", from_="2026-10-05", to="2026-11-15", **words).table
    sql = """
        with weeks as (select distinct "user" u, date_trunc('week', "at")::date w from table_),
        first as (select u, min(w) cohort from weeks group by u)
        select cohort, (w - cohort) // 7 age, count(*) n from weeks join first using (u) group by all order by all"""
    true = _sql(sql, table)
    held = [(row["cohort"], row["age"], row["count"]) for row in found.to_pylist() if row["count"]]
    assert held == [tuple(row) for row in true] and len(true) > 5
    found = headcount.activity(table, bins=[1, 10, 13, 20], **words).table
    sql = """with n as (select count(*) n from table_ group by "user")
        select count(*) filter (n < 10), count(*) filter (n between 10 and 12), count(*) filter (n between 13 and 19),
        count(*) filter (n >= 20) from n"""
    assert [row["count"] for row in found.to_pylist()] == list(_sql(sql, table)[0])


def _sql(sql, rows):
    table_ = rows  # noqa: F841  # which DuckDB finds by its name
    return duckdb.sql(sql).fetchall()


@pytest.mark.parametrize("wrong", ["7", "7x", "", "d", "-1d", "1.5d", 7])
def test_a_span_that_is_none_is_refused(wrong):
    with pytest.raises(ParameterError, match="within must be"):
        funnel(PURE, ["a=b"], within=wrong)


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ParameterError, match="ascending whole numbers"):
        activity(PURE, [3, 2])
    with pytest.raises(ParameterError, match="bins must be"):
        activity(PURE, [0, 2])
    with pytest.raises(ParameterError, match="to must not be before from"):
        retention(PURE, "day", "2026-11-02", "2026-11-01")
    with pytest.raises(ParameterError, match="400 at most"):
        retention(PURE, "day", "2020-01-01", "2026-11-01")
    with pytest.raises(ParameterError, match="from must be a date"):
        retention(PURE, "day", "yesterday", "2026-11-01")
    with pytest.raises(ParameterError, match="1 to 20 conditions"):
        funnel(PURE, [])
    with pytest.raises(ParameterError, match="there is no by"):
        funnel(PURE, ["a=b"], domain=["de"])
    with pytest.raises(ParameterError, match="delta"):
        funnel(PURE, ["a=b"], by=True)
    with pytest.raises(ParameterError, match="cells together"):
        funnel(PURE, ["a=b"] * 20, by=True, domain=range(60_000), item_type=int)


def test_contributions_without_times_are_refused():
    with pytest.raises(InputError, match="leave out Contributions"):
        funnel(PURE, ["a=b"]).run([contribution_batch(pa.array(["u"]), pa.array(["i"]))], Release(ephemeral_key()))


def test_noise_that_is_taken_by_itself_is_that_which_is_asked_for_by_name():
    """So that a report, which names it, tells enough to release it again."""
    for relation in Relation:
        asked = {"by": True, "relation": relation}
        made = retention(Budget(1.0, 1e-6), "day", "2026-11-01", "2026-11-04", **asked)
        kind = made.table.plans[0].kind
        assert made == retention(Budget(1.0, 1e-6), "day", "2026-11-01", "2026-11-04", noise=kind, **asked)


def test_times_of_any_text_are_read_and_other_types_are_refused_without_a_value():
    days = ["2026-11-02", "2026-11-02", "2026-11-03"]
    asked = {"user": "u", "time": "t", "from_": "2026-11-01", "to": "2026-11-05", "epsilon": 1}
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        made = headcount.actives(pa.table({"u": ["a", "b", "c"], "t": pa.array(days, kind)}), **asked)
        assert made.table.num_rows > 0
    with pytest.raises(InputError) as refused:
        headcount.actives(pa.table({"u": ["a"], "t": pa.array([1762000000.5])}), **asked)
    assert "1762000000" not in str(refused.value)


def test_contributions_of_others_are_refused_where_people_are_not_told_apart():
    shard = value_users_of([contribution_batch(pa.array(["a", "b"]), pa.array(["x", "y"]))])[0]
    with pytest.raises(InputError, match="leave out Contributions"):
        activity(Budget(1), [1, 2]).recorded(shard)
