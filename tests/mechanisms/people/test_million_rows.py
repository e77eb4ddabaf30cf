"""Questions about people on a million rows, beside DuckDB's SQL at a huge epsilon: equal, row by row.

The log has ties in time, users of one row and of thousands, steps that are done again and again, and nulls everywhere but in
the users.
"""

from __future__ import annotations

import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headcount

pytestmark = [pytest.mark.seconds, pytest.mark.filterwarnings("ignore:this promises little")]

ROWS, COUNTRIES = 1_000_000, ["at", "de", "fr"]
START = datetime.datetime(2026, 10, 5)


@pytest.fixture(scope="module")
def people():
    """A connection with the log as the table `people`, and the log."""
    rng = np.random.default_rng(40)
    user = np.minimum(
        rng.zipf(1.25, ROWS), 400_000
    )  # the first has a tenth of a percent of a million, and most have one row
    user = np.where(user < 300, rng.integers(400_000, 500_000, ROWS), user)
    minute = rng.integers(30 * 24 * 60, size=ROWS)

    def nulls():
        return rng.random(ROWS) < 0.03

    log = pa.table(
        {
            "user": pa.array(user),
            "at": pa.array(np.datetime64(START, "us") + minute * np.timedelta64(60_000_000, "us"), mask=nulls()),
            "page": pa.array(rng.choice(["/", "/cart", "/paid", "/other"], ROWS), mask=nulls()),
            "country": pa.array(rng.choice(COUNTRIES, ROWS), mask=nulls()),
        }
    )
    with duckdb.connect() as connection:
        connection.register("people", log)
        (each,) = connection.sql(
            'select min(n), max(n) from (select count(*) n from people group by "user")'
        ).fetchall()
        (tied,) = connection.sql(
            'select count(*) from (select "user", "at" from people where "at" is not null group by all having count(*) > 1)'
        ).fetchall()
        assert each[0] == 1 and each[1] > 500 and tied[0] > 300
        yield connection, log


def test_a_funnel(people):
    connection, log = people
    found = headcount.funnel(
        log, user="user", time="at", step=["page=/", "page=/cart", "page=/paid"], within="5d", by="country",
        domain=COUNTRIES, drop_null=True, epsilon=900,
    ).table  # fmt: skip
    true = connection.sql("""
        with one as (select distinct "user" u, "at" t1, country from people
                     where page = '/' and "at" is not null and country is not null),
        two as (select u, t1, one.country, min("at") t2 from one left join people on "user" = u and page = '/cart'
                and "at" >= t1 and "at" <= t1 + interval 5 day group by all),
        three as (select u, t1, two.country, t2, min("at") t3 from two left join people on "user" = u and page = '/paid'
                and "at" >= t2 and "at" <= t1 + interval 5 day group by all),
        deep as (select u, t1, country, 1 + (t2 is not null)::int + (t3 is not null)::int depth from three),
        best as (select u, first(depth order by depth desc, t1, country) depth,
                        first(country order by depth desc, t1, country) country from deep group by u)
        select country, step, count(*) filter (depth >= step) from best, (select unnest([1, 2, 3]) step)
        group by all order by all""").fetchall()
    assert [(row["country"], row["step"], row["count"]) for row in found.to_pylist()] == true
    assert min(count for *_, count in true) > 100


def test_retention_and_actives(people):
    connection, log = people
    asked = {"user": "user", "time": "at", "from_": "2026-10-05", "drop_null": True}
    found = headcount.retention(log, every="week", to="2026-11-01", epsilon=5_000, **asked).table
    true = connection.sql("""
        with weeks as (select distinct "user" u, date_trunc('week', "at")::date w from people
                       where "at" is not null and "at" < '2026-11-02'),
        first as (select u, min(w) cohort from weeks group by u)
        select cohort, ((w - cohort) // 7)::int age, count(*) from weeks join first using (u) group by all order by all
        """).fetchall()
    assert [(row["cohort"], row["age"], row["count"]) for row in found.to_pylist()] == true and len(true) == 10
    found = headcount.actives(log, to="2026-10-20", epsilon=50_000, delta=1e-6, noise="laplace", **asked).table
    true = connection.sql("""
        with days as (select unnest(generate_series(date '2026-10-05', date '2026-10-20', interval 1 day))::date d),
        windows as (select unnest([1, 7, 28])::int w),
        users as (select distinct "user" u, "at"::date t from people where "at" is not null)
        select d, w, count(distinct u) from days, windows join users on t <= d and t > d - w group by all order by all
        """).fetchall()
    assert [(row["day"], row["window"], row["count"]) for row in found.to_pylist()] == true and len(true) == 48


def test_activity(people):
    connection, log = people
    found = headcount.activity(log, user="user", bins=[1, 2, 5, 100], epsilon=900).table
    (true,) = connection.sql("""
        with n as (select count(*) n from people group by "user")
        select count(*) filter (n = 1), count(*) filter (n between 2 and 4), count(*) filter (n between 5 and 99),
               count(*) filter (n >= 100) from n""").fetchall()
    assert found["count"].to_pylist() == [*true] and min(true) > 100


def test_windows_of_days(people):
    connection, log = people
    ends = ("2026-10-10", "2026-11-05")
    found = headcount.histogram(
        log, user="user", item=["country", "at:last7"], domain={"country": COUNTRIES, "at_last7": ends}, drop_null=True,
        method="one-stage", bound=10, noise="gaussian", epsilon=10**5, delta=0.1,
    ).table  # fmt: skip
    true = connection.sql(f"""
        with days as (select unnest(generate_series(date '{ends[0]}', date '{ends[1]}', interval 1 day))::date d),
        users as (select distinct "user" u, country, "at"::date t from people where "at" is not null and country is not null)
        select country, d, count(distinct u) from days join users on t <= d and t > d - 7 group by all order by all
        """).fetchall()
    made = [(row["country"], row["at_last7"], round(row["bounded_count"])) for row in found.to_pylist()]
    assert made == true and len(true) == 3 * 27
