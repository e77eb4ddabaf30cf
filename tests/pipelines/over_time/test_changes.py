"""What is called a change, over weeks of made-up visits whose truth is known; releases have fixed keys."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

import headcount
from headcount.pipelines.over_time.changes import FELL, HIDDEN, NOISE, ROSE, UNTESTED
from headcount.pipelines.over_time.kind import Side, names_of
from tests.fixed_key import write_fixed_key

PAGES = [f"/{k:02}" for k in range(50)]
PROMISE = {"user": "user", "epsilon": 1, "delta": 1e-6}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "key"
    write_fixed_key(path)
    return str(path)


def visits(seed: int, **sizes: int) -> pa.Table:
    """300 users of each of 50 pages, or as many as are given, each user of one page."""
    number = np.array([sizes.get(f"p{k}", 300) for k in range(len(PAGES))])
    users = np.random.default_rng(seed).permutation(number.sum())
    return pa.table({"user": users, "page": np.repeat(PAGES, number), "country": np.repeat(PAGES, number)})


def weekly(key, table, week, **more):
    given = PROMISE | {"item": "page"} | more
    return headcount.histogram(table, **given, period=f"2026-W{week}", release_id=f"week-{week}", key_file=key)


@pytest.fixture(scope="module")
def twelve(key):
    """Twelve weeks; one page has 200 users more from the seventh on, and another 150 fewer from the fifth on."""
    weeks = []
    for week in range(12):
        table = visits(week, p7=500 if week >= 6 else 300, p9=150 if week >= 4 else 300)
        weeks.append(weekly(key, table, 35 + week, domain=PAGES, noise="gaussian"))
    return headcount.series(weeks)


def test_two_of_fifty_pages_changed_and_nothing_else(twelve):
    """The noise has a standard deviation of some 6 users, so a change of 150 is missed with a chance far below 1e-6. That any
    of the other 596 tests is called a change has a chance of 5 %, once: the keys are fixed."""
    real = {(row["page"], row["from"], row["to"], row["verdict"]) for row in twelve.real}
    assert real == {
        ("/07", "2026-W40", "2026-W41", ROSE),
        ("/07", "2026-W35", "2026-W46", ROSE),
        ("/09", "2026-W38", "2026-W39", FELL),
        ("/09", "2026-W35", "2026-W46", FELL),
    }
    assert twelve.found.tested == 600 and len(twelve.rows) == 600
    assert {row["verdict"] for row in twelve.rows} == {ROSE, FELL, NOISE}
    for row in twelve.real:
        assert row["least_rate"] <= 0.05 and (row["change_low"] > 0 or row["change_high"] < 0)


def test_it_is_told_in_words_lines_and_numbers(twelve, tmp_path):
    first, second, _, *lines = str(twelve).splitlines()
    assert first == "counts of users by page: 12 releases, 2026-W35 to 2026-W46, of 50 rows"
    assert second.startswith("4 changes are real, of 600 that were tested; the chance of any false alarm")
    assert second.endswith("at most 5 %")
    assert sum(line.endswith(("rose", "fell")) for line in lines) == 4
    assert max(map(len, lines)) <= 128
    told = json.loads(twelve.json())
    assert [release["period"] for release in told["releases"]] == [f"2026-W{week}" for week in range(35, 47)]
    assert len(told["changes"]) == 600 and len(told["rows"]) == 600
    names = ["changes.csv", "rows.csv", "changes.html"]
    assert twelve.save(tmp_path / "out") == [str(tmp_path / "out" / name) for name in names]
    page = (tmp_path / "out" / "changes.html").read_text()
    assert page.count('class="line series-0"') == 50 == page.count('class="band series-0"')
    assert page.index("/07") < page.index("/00")
    shown = twelve._repr_html_()
    assert "4 changes are real" in shown and shown.count('<svg class="spark"') == 10
    assert "The 10 first of 50 rows" in shown and '<div class="headcount">' in shown
    assert twelve.table.num_rows == 600
    with pytest.raises(headcount.ParameterError, match="has a changes.csv already"):
        twelve.save(tmp_path / "out")


def test_where_the_others_are_is_said_in_the_words_of_its_reader(key):
    """The noise has a standard deviation of some 6 users, so that a change of 700 is missed with a chance far below 1e-6."""
    pages = {f"p{k}": 1000 for k in range(25)}
    weeks = [weekly(key, visits(week, **sizes), 35 + week, domain=PAGES) for week, sizes in enumerate(({}, pages))]
    found = headcount.diff(*weeks)
    assert "5 more real changes: give --output, which writes all, or --json" in found.text()
    assert "5 more real changes: `real` has all, and `save(folder)` writes them" in repr(found)
    assert "--output" not in repr(found) + found._repr_html_() + found.html().decode()


def test_items_of_a_user_that_name_do_not_limit_what_is_counted(key):
    """Counts of releases that were named by other numbers of items of a user are of one kind, and compared."""
    given = {"calibrate": "none", "bound": 3}
    found = headcount.diff(*(weekly(key, visits(1), 40 + most, max_items=most, **given) for most in (2, 4)))
    assert found.found.tested == 50 and not found.real


def test_a_row_that_is_not_shown_is_no_zero(key):
    """A page of 3 users is never named; with 300 it always is, but for a chance below 1e-6."""
    found = headcount.diff(weekly(key, visits(1, p7=3), 1), weekly(key, visits(2), 2))
    (row,) = [row for row in found.rows if row["page"] == "/07"]
    assert (row["verdict"], row["before"], row["change"], row["least_rate"]) == (HIDDEN, None, None, None)
    assert row["after_low"] < 300 < row["after_high"]
    assert "2026-W1 does not show the row, which is no 0: it takes about" in row["why"]
    assert "that is no 0, and neither a rise nor a fall" in str(found)
    assert found.found.tested == 49 and not found.real


def test_a_broken_line_is_where_a_release_does_not_show_the_row(key):
    weeks = [weekly(key, visits(week, p7=3 if week == 2 else 300), week) for week in range(1, 5)]
    found = headcount.series(weeks)
    (spark,) = [part for part in found.html().decode().split("<tr>") if ">/07<" in part and "spark" in part]
    assert spark.count("<polyline") == 1 and spark.count("<circle") == 1 and spark.count("<polygon") == 2


def test_another_epsilon_is_told_and_no_obstacle(key):
    before, after = weekly(key, visits(1), 1), weekly(key, visits(2, p7=900), 2, epsilon=2)
    found = headcount.diff(before, after)
    assert [(row["page"], row["verdict"]) for row in found.real] == [("/07", ROSE)]
    assert "releases differ: --epsilon is 1.0, 2.0" in str(found)


def test_numbers_of_other_caps_are_not_tested(key):
    one, other = (
        headcount.histogram(
            visits(1), of="events", item="page", max_per_item=most, release_id=f"cap-{most}", key_file=key, **PROMISE
        )
        for most in (2, 3)
    )
    found = headcount.diff(one, other)
    assert {row["verdict"] for row in found.rows} == {UNTESTED} and found.found.tested == 0
    assert "not tested: rows on one item of one user count: at most 2 before and at most 3 after" in str(found)


def test_totals_funnels_and_metrics(key):
    def total(week):
        return headcount.total(visits(week), user="user", epsilon=1, of="users", release_id=f"t{week}", key_file=key)

    assert [row["verdict"] for row in headcount.diff(total(1), total(2)).rows] == [NOISE]
    days = {"user": [k % 900 for k in range(2700)], "time": [f"2026-11-0{1 + k // 900}" for k in range(2700)]}

    def funnel(steps, week):
        page = [("a", "b" if k % 900 < steps else "a", "c")[k // 900] for k in range(2700)]
        return headcount.funnel(
            {**days, "page": page},
            user="user",
            time="time",
            step=["page=a", "page=b", "page=c"],
            epsilon=1,
            release_id=f"f{week}",
            key_file=key,
        )

    found = headcount.diff(funnel(700, 1), funnel(300, 2))
    real = {(row["step"], row["number"]) for row in found.real if row["verdict"] == FELL}
    assert {(2, "count"), (3, "count"), (2, "share_of_first"), (2, "share_of_before")} <= real
    assert not {row["step"] for row in found.real} & {1}
    alone = headcount.diff(funnel(700, 1), funnel(300, 2), metric="count")
    assert {row["number"] for row in alone.rows} == {"count"} and alone.found.tested == 3

    def metrics(add, week):
        table = visits(week).append_column("seconds", pa.array([k % 50 + add for k in range(15000)]))
        given = {"sum": "seconds:0:100", "mean": "seconds:0:100", "quantile": "0.5:seconds:0:100"}
        return headcount.aggregate(
            table,
            item="page",
            users=True,
            **given,
            max_per_item=1,
            release_id=f"m{week}",
            key_file=key,
            domain=PAGES,
            **(PROMISE | {"epsilon": 20}),
        )

    found = headcount.diff(metrics(0, 1), metrics(40, 2))
    numbers = {
        row["number"]: {other["verdict"] for other in found.rows if other["number"] == row["number"]}
        for row in found.rows
    }
    assert numbers["users"] == {NOISE} and numbers["mean_seconds"] == {ROSE} == numbers["sum_seconds"]
    assert [numbers[name] for name in numbers if "p50" in name] == [{UNTESTED}]


def test_levels_are_told_by_their_own_words(key):
    def levels(week, number):
        return headcount.histogram(
            visits(week, p7=number), levels="country,page", release_id=f"l{week}", key_file=key, **PROMISE
        )

    found = headcount.diff(levels(1, 300), levels(2, 3000))
    assert {(row["level"], row["country"]) for row in found.real} >= {
        ("all", None),
        ("country", "/07"),
        ("page", "/07"),
    }
    assert any(line.split()[0] == "(all)" for line in str(found).splitlines() if line.startswith("  "))


def side(**report):
    base = {"command": "histogram", "release_id": "a", "columns": {"page": "", "count": ""}, "keys": ["page"]}
    return Side("a", "a", base | report, pa.table({}))


def test_noise_is_normal_only_if_all_of_it_is():
    def noises(*kinds):
        steps = [{"details": {"noise": kind}} for kind in kinds] + [{"details": {}}]
        return side(details={"guarantee": {"mechanisms": steps}}).is_normal

    assert noises("discrete Gaussian", "discrete Gaussian")
    assert not noises("discrete Gaussian", "discrete Laplace") and not noises()


def test_releases_are_called_by_period_folder_or_number():
    assert names_of(["w1", "w2"], ["a", "b"]) == ["w1", "w2"]
    assert names_of(["w1", "w1"], ["reports/2026-W45/pages", "reports/2026-W46/pages"]) == ["2026-W45", "2026-W46"]
    assert names_of([None, "w"], ["/a/b/", "/a/c"]) == ["b", "c"]
    assert names_of([None, None], [None, "x"]) == ["release 1", "release 2"]
    assert names_of([None, None], ["x", "x/"]) == ["release 1", "release 2"]


def test_a_key_that_has_the_name_of_a_column_of_ours(key):
    table = visits(1).rename_columns(["user", "verdict", "country"])
    one, other = (
        headcount.histogram(table, item="verdict", release_id=f"k{k}", key_file=key, domain=PAGES, **PROMISE)
        for k in range(2)
    )
    rows = headcount.diff(one, other).rows
    assert rows[0]["verdict_key"] in PAGES and {row["verdict"] for row in rows} == {NOISE}


def test_a_change_is_frozen_and_knows_its_size(twelve):
    change = twelve.real_changes[0]
    assert change.is_real and change.change == change.after[0] - change.before[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        change.verdict = NOISE
