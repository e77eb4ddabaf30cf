"""Windows that end with each day (`at:last7`): each row in all of its windows, as brute force and SQL say."""

from __future__ import annotations

import datetime
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headcount
from headcount.mechanisms.batches.contributions import Place
from headcount.mechanisms.columns import row_schema as module
from headcount.mechanisms.columns.key_column import parse_column, parse_columns
from headcount.mechanisms.columns.keys import resolve
from headcount.mechanisms.columns.level_keys import LevelKeys
from headcount.mechanisms.columns.person_rows import asked_of_people
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.domains.domain_files import DomainFile
from headcount.mechanisms.domains.partly_public import check_windows
from headcount.mechanisms.errors import InputError, ParameterError
from tests.fixed_key import write_fixed_key
from tests.mechanisms.people.logs import log

EPOCH = datetime.date(1970, 1, 1)


def read(rows, table):
    made = rows.of_schema(table.schema)
    batches = [made.batch(part, Place()) for batch in table.to_batches() for part in made.parts(batch)]
    return made, pa.Table.from_batches(batches)


def held(rows, table):
    """{(user, *key): count} of the contributions."""
    made, found = read(rows, table)
    names = found["item"].combine_chunks()
    keys = made.keys.decode(names.dictionary_decode() if isinstance(names, pa.DictionaryArray) else names)
    counts = found["count"].to_pylist() if "count" in found.column_names else [1] * found.num_rows
    total: Counter[tuple[object, ...]] = Counter()
    for user, *key, count in zip(found["user"].to_pylist(), *(each.to_pylist() for each in keys), counts, strict=True):
        total[user, *key] += count
    return total


def test_a_column_of_windows_has_a_name_and_days():
    column = parse_column("seen.at:last28")
    assert (column.name, column.days, column.spec) == ("seen.at_last28", 28, "seen.at:last28")
    assert parse_column("at:day").days == 0 and parse_column("at").days == 0
    with pytest.raises(ParameterError, match="last7"):
        parse_column("at:last8")
    with pytest.raises(ParameterError, match="windows that overlap"):
        parse_columns(["at:last7", "seen:last28"])


@pytest.mark.parametrize(("unit", "days"), [("last7", 7), ("last28", 28)])
@pytest.mark.parametrize("seed", range(4))
def test_a_row_is_in_the_windows_of_its_day_and_the_days_after_it(seed, unit, days):
    table = log(seed, users=5, rows=80, minutes=60_000, nulls=seed % 2 == 1)
    rows = asked("user", ["country", f"at:{unit}"], "price", drop_null=True)
    expected: Counter[tuple[object, ...]] = Counter()
    for row in table.to_pylist():
        if None not in row.values() or (row["country"] and row["at"] and row["price"] is not None):
            for later in range(days):
                day = row["at"].date() + datetime.timedelta(days=later)
                expected[row["user"], row["country"], day] += row["price"]
    assert held(rows, table) == +expected and len(expected) > 100


def test_days_are_those_of_the_time_zone_and_one_key_column_may_be_alone():
    table = pa.table({"u": [1, 2], "t": pa.array([1_793_491_200 - 3600, 1_793_491_200], pa.timestamp("s"))})
    for zone, first in (("UTC", 30), ("Asia/Tokyo", 31)):
        found = held(asked("u", "t:last7", time_zone=zone), table)
        days = sorted(day for user, day in found if user == 1)
        assert days == [datetime.date(2026, 10, first) + datetime.timedelta(days=k + 1) for k in range(7)]


def test_parts_of_a_batch_have_the_same_contributions_and_a_batch_without_rows_has_none(monkeypatch):
    table = log(3, users=9, rows=70, minutes=60_000)
    rows = asked("user", ["page", "at:last7"], values=["price:0:2"])
    whole = read(rows, table)[1]
    monkeypatch.setattr(module, "_MOST_IN_WINDOWS", 50)
    parts = read(rows, table)[1]
    assert whole.num_rows == 7 * 70 and parts.to_pylist() == whole.to_pylist()
    assert whole["value0"].to_pylist()[:14] == [whole["value0"][0].as_py()] * 7 + [whole["value0"][7].as_py()] * 7
    assert rows.of_schema(table.schema).batch(table.to_batches()[0].slice(0, 0), Place()).num_rows == 0


def test_a_row_without_a_time_is_refused_by_its_own_number():
    table = pa.table({"u": ["a", "b", "c"], "t": pa.array([EPOCH, EPOCH, None])})
    with pytest.raises(InputError, match="column 't', row 12: is null"):
        asked("u", "t:last7").of_schema(table.schema).batch(table.to_batches()[0], Place(first_row=10))


def test_what_does_not_go_with_windows_is_refused_with_what_to_do():
    with pytest.raises(ParameterError, match="leave protect out, or count by t:day"):
        asked("u", ["p", "t:last7"], protect="user-day", time="t")
    with pytest.raises(ParameterError, match="one value of by"):
        asked_of_people("u", "t:last7")
    keys = resolve(parse_columns(["p", "t:last7"]), {"p": pa.string(), "t": pa.date32()})
    with pytest.raises(ParameterError, match="no level"):
        LevelKeys(keys.fields)
    days = {"t_last7": ("2026-11-01", "2026-11-03")}
    for public in (days, {**days, "p": ["a"]}):
        check_windows(keys, DomainFile(public, columns=keys.names).domain(keys))
    for private in (None, DomainFile({"p": ["a"]}, columns=keys.names).domain(keys)):
        with pytest.raises(ParameterError, match="must be public: give a range.*t_last7=2026-11-01..2026-11-30"):
            check_windows(keys, private)


SQL = """
    with days as (select unnest(generate_series(date '{first}', date '{last}', interval 1 day))::date d)
    select {key}, d, {what} from days join table_ on "at"::date <= d and "at"::date > d - {days}
    where {key} is not null group by all order by all"""


def of_sql(what, days, table_, key="country", first="2026-10-12", last="2026-11-06"):
    assert table_ is not None
    text = SQL.format(what=what, days=days, key=key, first=first, last=last)
    return duckdb.sql(text).fetchall()


@pytest.mark.seconds
@pytest.mark.filterwarnings("ignore:this promises little")
@pytest.mark.parametrize(("unit", "days"), [("last7", 7), ("last28", 28)])
@pytest.mark.parametrize(("of", "what"), [("users", 'count(distinct "user")'), ("events", "count(*)")])
def test_users_and_events_of_windows_are_those_of_sql_at_a_huge_epsilon(of, what, unit, days):
    table = log(11, users=400, rows=3000, minutes=60_000, nulls=True)
    name = f"at_{unit}"
    found = headcount.histogram(
        table, user="user", item=["country", f"at:{unit}"],
        domain={"country": ["at", "de", "fr"], name: ("2026-10-12", "2026-11-06")}, of=of, method="one-stage",
        drop_null=True, epsilon=10**6, delta=0.1, bound=100, noise="gaussian",
    ).table  # fmt: skip
    true = of_sql(what, days, table)
    made = [(row["country"], row[name], round(row["bounded_count"])) for row in found.to_pylist()]
    assert made == true and len(true) == 3 * 26
    # Rows of the days before the range count in the windows that reach back to them.
    first = [count for _, day, count in true if day == datetime.date(2026, 10, 12)]
    alone = of_sql(what, 1, table, last="2026-10-12")
    assert sum(first) > 3 * sum(count for *_, count in alone)


@pytest.mark.seconds
@pytest.mark.filterwarnings("ignore:this promises little")
def test_metrics_of_windows_are_those_of_sql_at_a_huge_epsilon():
    table = log(12, users=300, rows=2500, minutes=40_000)
    found = headcount.aggregate(
        table, user="user", item="at:last7", domain={"at_last7": ("2026-10-12", "2026-10-20")}, users=True, sum="price:0:2",
        mean="price:0:2", max_items=9, max_per_item=60, epsilon=10**7, delta=0.1, calibrate="none",
    ).table  # fmt: skip
    what = 'count(distinct "user"), sum(price), avg(price)'
    true = of_sql(what, 7, table, key="1", last="2026-10-20")
    for row, (_, day, users, total, mean) in zip(found.to_pylist(), true, strict=True):
        assert row["at_last7"] == day and round(row["bounded_users"]) == users
        assert row["bounded_sum_price"] == pytest.approx(total, abs=0.5) and row["mean_price"] == pytest.approx(
            mean, abs=0.01
        )


@pytest.mark.seconds
def test_estimates_at_a_usual_epsilon_are_near_those_of_sql(tmp_path):
    write_fixed_key(tmp_path / "key")
    rng = np.random.default_rng(5)
    users = np.repeat(np.arange(20_000), 4)
    at = pa.array(1_790_000_000 + rng.integers(30 * 86_400, size=len(users)), pa.timestamp("s"))
    table = pa.table({"user": users, "country": rng.choice(["de", "at"], len(users)), "at": at})
    days = ("2026-09-28", "2026-10-10")
    found = headcount.histogram(
        table, user="user", item=["country", "at:last7"], domain={"at_last7": days}, epsilon=1, delta=1e-8,
        key_file=tmp_path / "key", release_id="near",
    ).table  # fmt: skip
    true = [count for *_, count in of_sql('count(distinct "user")', 7, table, first=days[0], last=days[1])]
    off = np.abs(np.asarray(found["count"]) - true) / true
    assert len(true) == found.num_rows == 26 and np.median(off) < 0.05
