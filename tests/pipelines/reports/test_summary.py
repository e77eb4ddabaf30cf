"""What the terminal says of the rows of a job."""

from __future__ import annotations

import pytest

from headcount.pipelines.reports.summary import in_range, summarize
from headcount.pipelines.sinks.meanings import meanings

PARTS = ("_noise_stddev", "_low", "_high")
COUNTS = dict.fromkeys(["item", "bounded_count", "noise_stddev", "low", "high"], "")


def row(item, number):
    return {"item": item, "bounded_count": number, "noise_stddev": 1.5, "low": number - 3, "high": number + 3}


def report(rows, number=None, **more):
    details = {"parameters": {"user": "who", "item": "what", "bound": 40}}
    return {
        "columns": COUNTS,
        "keys": ["item"],
        "rows": len(rows) if number is None else number,
        "shown": rows,
        "details": details,
    } | more


def test_a_table_of_the_largest():
    lines = summarize(report([row("tea", 12345.0), row("a\nb\x1b", 7.0)], 4281)).splitlines()
    assert lines == [
        "4,281 items came out; the 2 largest, with the range of the noise:",
        "",
        "  item  bounded_count     low    high",
        "  tea          12,345  12,342  12,348",
        "  a b               7       4      10",
        "",
        "bounded_count is what was left after limiting each user: the true numbers may be far above it",
    ]


def test_an_estimate_is_shown_in_place_of_what_it_was_made_of():
    found = {**row("tea", 5.0), "count": 6.0}
    made = report([found], share_left_out=0.15, assumption="count assumes this")
    lines = summarize(made | {"columns": {**COUNTS, "count": ""}}).splitlines()
    assert lines[0] == "1 item came out, with the range of the noise:"
    assert lines[2].split() == ["item", "count", "low", "high"]
    assert lines[-2:] == ["the bound left out about 15 % of the events of the items shown", "count assumes this"]


def told(of, chosen, columns=("item", "count", "noise_stddev", "low", "high", "bounded_count")):
    """What the columns of a histogram mean, as its report says."""
    details = {"parameters": {"of": of}, "chosen": chosen}
    return meanings(columns, {}, {"command": "histogram", "details": details})


@pytest.mark.parametrize(
    ("of", "chosen", "counted"),
    [
        (
            "users",
            {"max_per_item": 1, "totals_bound": 40},
            "users of the item; at most 40 items of one user count in all",
        ),
        (
            "events",
            {"max_per_item": 5, "totals_bound": 1259},
            "events of the item, at most 5 of a user on one item, and at most 1,259 of a user in all",
        ),
        ("events", {"totals_bound": 100}, "events of the item; at most 100 of one user count in all"),
        ("users", {"bound": 5}, "users of the item"),  # counts that stand alone: no totals, of which none would count
        ("events", {"max_per_item": 5, "bound": 9}, "events of the item, at most 5 of a user on one item"),
    ],
)
def test_an_estimate_says_what_it_counts_and_has_an_interval(of, chosen, counted):
    """In the meaning of its column, and below the table; what was left out is in the interval."""
    columns = told(of, chosen)
    assert columns["count"] == f"an estimate of the {counted}"
    assert columns["bounded_count"].startswith(f"the {of} of the item that were left")
    assert all("95 % interval" in columns[end] for end in ("low", "high"))
    found = report([{**row("tea", 5.0), "count": 6.0}], share_left_out=0.413) | {"columns": columns}
    lines = summarize(found).splitlines()
    assert lines[0] == "1 item came out, with 95 % intervals:"
    assert lines[1].endswith(": that is estimated, and low to high is wider for it")
    assert lines[-1] == f"count is an estimate of the {counted}"


@pytest.mark.parametrize("of", ["users", "events"])
def test_bounded_counts_have_the_range_of_the_noise(of):
    columns = told(of, {"bound": 5}, tuple(COUNTS))
    assert columns["bounded_count"].startswith(f"the {of} of the item that were left")
    assert columns["bounded_count"].endswith("may be far above it") and "range of the noise" in columns["low"]
    lines = summarize(report([row("tea", 50.0)]) | {"columns": columns}).splitlines()
    assert lines[0] == "1 item came out, with the range of the noise:" and not any(
        line.startswith("count is") for line in lines
    )


def test_of_several_metrics_only_totals_have_more_than_the_noise():
    names = ["users", "events", "sum_price", "mean_price", "bounded_users"]
    columns = meanings(["country", *(f"{name}{part}" for name in names for part in ("", *PARTS))])
    wider = [name for name in names if "assumption about what was left out" in columns[f"{name}_low"]]
    assert wider == ["users", "events", "sum_price"]
    found = metrics("users", "mean_price")
    assert "with the range of the noise:" in summarize(found)
    assert "with ranges:" in summarize(found | {"columns": {name: columns.get(name, "") for name in found["columns"]}})


def test_events_and_sums_of_an_aggregate_say_how_many_rows_of_one_user_count():
    names = ["events", "sum_price", "mean_price"]
    columns = ["country", *(f"{name}{part}" for name in names for part in ("", *PARTS))]
    made = meanings(columns, {}, {"command": "aggregate", "details": {"chosen": {"max_per_item": 1000}}})
    said = {
        "events": "an estimate of the number of events, at most 1,000 of a user on one item",
        "sum_price": "an estimate of the sum of the values, each cut to its range, of the rows that count, at most 1,000 of a "
        "user on one item",
    }
    assert {name: made[name] for name in said} == said
    lines = summarize(metrics(*names) | {"columns": made}).splitlines()
    assert [f"{name} is {words}" for name, words in said.items()] == [
        line for line in lines if " is an estimate" in line
    ]


def test_much_that_was_left_out_is_told_above_the_numbers():
    made = report([row("tea", 50.0)], share_left_out=0.413)
    lines = summarize(made).splitlines()
    assert lines[1] == (
        "the bound left out about 41 % of the events of the items shown: that is estimated, and the range of the noise does "
        "not hold it"
    )
    assert "left out" not in "\n".join(lines[2:])
    assert "left out" not in summarize(report([], share_left_out=0.413))


def test_the_first_line_is_for_people():
    parameters = {"user": "who", "item": "page", "of": "users"}
    asked = {"command": "histogram", "keys": ["page"], "details": {"parameters": parameters}}
    shown = [{"page": "/", **row("", 50.0)}]
    assert summarize(report(shown, 127, **asked)).splitlines()[0] == (
        "counts of users by page: 127 items came out; the 1 largest, with the range of the noise:"
    )
    of = metrics("users", "mean_age") | {"command": "aggregate"}
    assert (
        summarize(of).splitlines()[0] == "users and mean_age by country: 2 items came out, with the range of the noise:"
    )


def test_a_range_that_is_wider_than_its_number_is_told():
    """The number with its first digit, as long as that is in the range."""
    for value, low, high, words in (
        (175.0, 31.0, 206.5, "about 200"),
        (175.0, 31.0, 206.0, "175"),
        (14.4, 14.1, 30.0, "about 14.4"),
        (-3.2, -9.0, 2.0, "about -3"),
        (0.0, 0.0, 4.0, "about 0"),
        (5, 1, 9, "about 5"),
        (None, 1.0, 9.0, "None"),
        (5.0, 1.0, None, "5"),
    ):
        assert in_range(value, low, high, lambda each: f"{each:g}" if each is not None else "None") == words


def metrics(*names):
    """A report of two keys with these metrics."""
    parts = ("", *PARTS)
    numbers = {
        f"{name}{part}": value for name in names for part, value in zip(parts, (1500.0, 9.0, 0.25, 2980.0), strict=True)
    }
    rows = [{"country": country} | numbers for country in ("de", "fr")]
    return {"columns": dict.fromkeys(rows[0], ""), "keys": ["country"], "rows": 2, "shown": rows, "details": {}}


def test_every_metric_has_its_range_beside_it():
    assert summarize(metrics("users", "mean_age")).splitlines()[2:4] == [
        "  country        users    low to high     mean_age    low to high",
        "  de       about 2,000  0.25 to 2,980  about 2,000  0.25 to 2,980",
    ]
    names = ["users", "events", "sum_price", "mean_price", "p50_seconds", "p90_seconds"]
    lines = summarize(metrics(*names)).splitlines()
    heads = [line for line in lines if line.startswith("  country")]
    assert len(heads) == 2 and " ".join(heads).replace("low to high", "").split() == [
        "country",
        *names[:3],
        "country",
        *names[3:],
    ]
    assert max(map(len, lines)) <= 120
    assert sum(line.count("0.25 to 2,980") for line in lines) == 2 * len(names), "each number of each row has its range"


def test_that_errors_are_correlated_is_told_where_there_are_rows():
    words = "all 9 bounded counts share one draw of the noise"
    assert summarize(report([row("tea", 5.0)], correlated=words)).splitlines()[-1] == words
    assert words not in summarize(report([], correlated=words))


def test_rows_that_were_left_out_are_told():
    left_out = [{"rows": 37, "because": "their count is below 10"}]
    assert "37 rows left out because their count is below 10" in summarize(report([row("a", 11.0)], left_out=left_out))
    nothing = summarize(report([], left_out=left_out)).splitlines()
    assert nothing == ["no row came out: all were left out", "37 rows left out because their count is below 10"]


def test_what_to_do_if_nothing_came_out():
    first, columns, bound, more, _ = summarize(report([], users_needed=212)).splitlines()
    assert first.endswith("an item needs about 212 users here, if each counts once")
    assert "--user who" in columns and "--item what" in columns and "up to 40" in bound and "--epsilon" in more
    chosen = report([]) | {"details": {"parameters": {"user": "who"}, "chosen": {"bound": 1}}}
    assert "a lower bound" not in summarize(chosen)


PROMISE = {"user": "who", "item": "what", "epsilon": 0.5, "delta": 1e-8}


@pytest.mark.parametrize(
    ("command", "parameters", "chosen", "first", "more"),
    [
        ("histogram", {}, {"strategy": "law", "max_items": 16, "bound": 4},
         ["with 16 items of a user at most", "epsilon = 0.5 and delta = 1e-08", "if each counts once, and more of users"],
         ["--max-items, in place of a draw, may name more", "--domain FILE"]),
        ("histogram", {"max_items": 16}, {"strategy": "law", "max_items": 16, "bound": 4}, ["with 16 items"],
         ["another --max-items may name more", "--domain FILE"]),
        ("histogram", {"method": "one-stage"}, {"bound": 4, "max_per_item": 1}, ["none has enough users at epsilon"],
         ["a user counts for up to 4", "--domain FILE"]),
        ("partitions", {"strategy": "auto", "max_items": 16}, None, ["with 16 items", "and more of users who have many"],
         ["another --max-items"]),
        ("aggregate", {"max_items": "auto"}, {"names": {"strategy": "law", "max_items": 16}, "max_items": 3},
         ["with 16 items"], ["--domain FILE"]),
        ("top", {}, {"strategy": "law", "max_items": 1, "rounds": 1}, ["with 1 item of a user"], []),
    ],
)  # fmt: skip
def test_nothing_says_what_was_tried_and_what_would_name_more(command, parameters, chosen, first, more):
    """Of a release that named nothing, all that is said is of the promise, the flags, and what was chosen privately."""
    details = {"parameters": PROMISE | parameters} | ({} if chosen is None else {"chosen": chosen})
    said = summarize(report([], users_needed=100) | {"command": command, "details": details}).splitlines()
    assert said[0].startswith("no item came out: ") and all(each in said[0] for each in first), said[0]
    hints = ["--max-items", "up to 4", "--domain FILE"]
    assert all(any(each in line for line in said[1:]) for each in more)
    unasked = [each for each in hints if not any(each in one for one in more)]
    assert not [each for each in unasked if any(each in line for line in said)], said


def test_levels_of_which_no_node_was_named_say_so_too():
    parameters = PROMISE | {"item": ["a", "b"], "levels": ["a,b"]}
    details = {"parameters": parameters, "chosen": {"strategy": "law", "max_items": 3}}
    rows = [
        {"level": name, "a": None, "b": None, "other": name == "a", "count": 5, "low": 1, "high": 9}
        for name in ("all", "a")
    ]
    made = report(rows) | {
        "columns": dict.fromkeys(rows[0], ""),
        "keys": ["a", "b"],
        "command": "histogram",
        "details": details,
    }
    assert "no node was named: names were looked for with 3 items" in summarize(made)
    assert "--levels a,b the ones to count" in summarize(made) and "--domain" not in summarize(made)
    named = rows + [rows[1] | {"a": "x", "other": False}]
    assert "no node was named" not in summarize(made | {"rows": 3, "shown": named})


def test_names_and_ranks_are_shown_alone():
    top = {
        "columns": {"rank": "", "item": ""},
        "keys": ["item"],
        "rows": 2,
        "shown": [{"rank": 1, "item": "b"}, {"rank": 2, "item": "a"}],
    }
    assert summarize(top).splitlines() == ["2 items came out:", "", "  rank  item", "     1  b", "     2  a"]
    numbers = {"columns": {"item": ""}, "keys": ["item"], "rows": 20, "shown": [{"item": 12345}]}
    assert summarize(numbers).splitlines()[0] == "20 items came out; the first 1:" and "  12345" in summarize(numbers)


def test_quantiles_are_shown_and_shapes_have_words_of_their_own():
    found = {"columns": {"quantile": "", "value": ""}, "rows": 1, "shown": [{"quantile": 0.5, "value": None}]}
    assert summarize(found).splitlines() == ["1 quantile came out:", "", "  quantile    value", "       0.5  unknown"]
    assert summarize({"columns": {"count": "", "items": ""}, "rows": 5, "shown": []}) == ""


def test_several_key_columns():
    shown = [{"country": "de", "year": 2026, "bounded_count": 1234567.0, "noise_stddev": 1.5, "low": 1.0, "high": 2.0}]
    columns = dict.fromkeys(shown[0], "")
    lines = summarize(report(shown) | {"columns": columns, "keys": ["country", "year"]}).splitlines()
    assert lines[2:4] == ["  country  year  bounded_count  low  high", "  de       2026      1,234,567    1     2"]
    parameters = {"user": "who", "item": ["country", "seen:year"]}
    nothing = report([]) | {"columns": columns, "keys": ["country"], "details": {"parameters": parameters}}
    assert "and --item country --item seen:year the ones to count?" in summarize(nothing)


@pytest.mark.parametrize(
    ("command", "parameters", "unit"),
    [
        ("histogram", {"of": "users"}, "users"),
        ("histogram", {"of": "events"}, "events"),
        ("aggregate", {"users": True, "events": False, "mean": ["x:0:1"]}, "users"),
        ("aggregate", {"users": True, "sum": ["x:0:1"]}, "events"),
    ],
)
def test_the_share_left_out_is_of_what_is_counted(command, parameters, unit):
    made = report([row("tea", 5.0)], share_left_out=0.413) | {"command": command, "details": {"parameters": parameters}}
    assert f"the bound left out about 41 % of the {unit} of the items shown" in summarize(made)


def test_times_that_are_all_different_lead_to_their_days():
    hint = "- if {0} holds times, count them by the day (or hour, week, month, year): --item {0}:day"
    for item, column in (("seen", "seen"), (["age:0,18", "a\\:b"], "a\\:b")):
        made = report([], 0) | {"details": {"parameters": {"user": "u", "item": item}}}
        assert summarize(made).splitlines()[-1] == hint.format(column)
    made = report([], 0) | {"details": {"parameters": {"user": "u", "item": ["seen:day", "age:0,18"]}}}
    assert "holds times" not in summarize(made)
