"""report.html of every command: what it holds is released, to the last number, and is text, whatever the names are."""

from __future__ import annotations

import datetime
import json
import re
import warnings

import pytest

import headcount
from headcount.pipelines.commands.outputs.complete import read_complete
from headcount.pipelines.ledger.account import open_ledger
from headcount.pipelines.ledger.records import make_dataset
from headcount.pipelines.pages import rows as page_rows
from headcount.pipelines.pages import texts
from headcount.pipelines.pages.release import release_page
from headcount.pipelines.sinks import capped
from tests.called_jobs import OF_EVENTS, called
from tests.fixed_key import write_fixed_key
from tests.golden import events
from tests.pipelines.pages.made import made_output
from tests.pipelines.pages.reading import Page, allowed, rows_of, shown, signed, worded

HEADINGS = re.compile(r"<h2>(.*?)</h2>")
# Names that a page must survive, and what of them may be seen.
NASTY = {
    "<script>alert('x')</script>": "<script>alert('x')</script>",
    "a\u202eb\x00\x1b[31m": "a b  [31m",
    "שלום": "שלום",
    '" onload="x': '" onload="x',
    "&lt;b&gt;": "&lt;b&gt;",
    "long " * 40: ("long " * 40)[:59] + "…",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pages")
    events.write(directory)
    return directory


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    """saved(job): the folder of a job, made once."""
    made = {}

    def save(job):
        if job not in made:
            made[job] = tmp_path_factory.mktemp("out") / "out"
            called(job, data)[0].save(made[job])
        return made[job]

    return save


def page_of(folder):
    return Page((folder / "report.html").read_text())


def wrong_numbers(folder):
    known = allowed(folder)
    return {(number, text) for number, text in page_of(folder).numbers() if number not in known}


@pytest.mark.slow("jobs")
@pytest.mark.parametrize("job", OF_EVENTS)
def test_every_number_is_released(saved, job):
    assert wrong_numbers(saved(job)) == set()


def test_a_number_that_is_not_released_is_found(saved, tmp_path, monkeypatch):
    """By a mutation: counts that are off by one, as by a page that looks at anything else than the rows."""
    folder = tmp_path / "out"
    with monkeypatch.context() as patched:
        real = texts.number
        patched.setattr(texts, "number", lambda value: real(value + 1 if isinstance(value, float) else value))
        headcount.histogram(events.events(), user="user", item="item", epsilon=1, delta=1e-6).save(folder)
    assert len(wrong_numbers(folder)) > 10
    right = saved("estimates")
    text = (right / "report.html").read_text()
    (right / "report.html").write_text(text.replace("</main>", "<p>12,345,678 rows were read</p></main>"))
    try:
        assert wrong_numbers(right) == {("12,345,678", "12,345,678 rows were read")}
    finally:
        (right / "report.html").write_text(text)


COUNTED = [
    job for job in OF_EVENTS if job.startswith(("estimates", "named, then", "sampled users", "the largest counts"))
]


@pytest.mark.parametrize("job", [*COUNTED, "events by country and day", "a distribution, dense"])
def test_each_bar_is_that_of_its_item(saved, job):
    """Names, numbers, intervals and lengths stand in the row where they belong, the largest first."""
    folder = saved(job)
    report, page = json.loads((folder / "report.json").read_text()), page_of(folder)
    keys, size = report["keys"], next(k for k in ("count", "bounded_count", "probability") if k in report["columns"])
    rows = {tuple(str(row[key]) for key in keys): row for row in rows_of(folder)}
    most = max(row.get("high", row[size] + row.get("error", 0)) for row in rows.values())
    bars, widths = page.tables[0][1:], page.widths[0]
    assert len(bars) == min(20, len(rows)) and page.tables[0][0][: len(keys)] == keys
    for cells, width in zip(bars, widths, strict=True):
        row = rows[tuple(cells[: len(keys)])]
        drawn, number, beside = cells[len(keys) :]
        assert drawn == ""
        assert number.removesuffix(" %") in (
            worded(row[size], row["low"], row["high"]) if "low" in row else shown(row[size])
        )
        ends = [row["low"], row["high"]] if "low" in row else [row["error"]]
        assert all(any(way in beside for way in shown(end)) for end in ends)
        assert width == pytest.approx(100 * max(row[size], 0) / most, abs=0.06)
    values = [rows[tuple(cells[: len(keys)])][size] for cells in bars]
    assert values == sorted((row[size] for row in rows.values()), reverse=True)[: len(bars)]
    if len(rows) > 20:
        assert len(page.tables[1]) - 1 == min(50, len(rows)) - 20


METRICS = ["metrics of items", "metrics of a public domain", "metrics by country, not calibrated"]


@pytest.mark.parametrize("job", METRICS)
def test_each_metric_has_a_chart_of_its_own(saved, job):
    """Names, numbers and intervals stand in the row where they belong, the largest items first in all charts."""
    folder = saved(job)
    report, page = json.loads((folder / "report.json").read_text()), page_of(folder)
    columns, (key,), released = [*report["columns"]], report["keys"], rows_of(folder)
    rows, first = {str(row[key]): row for row in released}, min(10, len(released))
    metrics = [name for name in columns if f"{name}_low" in columns]
    heads = {"range of the noise", "range"}
    charts = [table for table in page.tables if {*table[0][-1:]} & heads and len(table) == first + 1]
    assert [chart[0][-2] for chart in charts] == [capped.called(report, name).replace("_", " ") for name in metrics]
    for name, chart in zip(metrics, charts, strict=True):
        for item, drawn, number, beside in chart[1:]:
            row = rows[item]
            assert drawn == "" and number in worded(row[name], row[f"{name}_low"], row[f"{name}_high"])
            assert all(any(way in beside for way in signed(row[f"{name}_{end}"])) for end in ("low", "high"))
    size = next((name for name in ("events", "bounded_events") if name in columns), None)
    if size is not None:
        largest = sorted((row[size] for row in released), reverse=True)[:first]
        assert [[rows[line[0]][size] for line in chart[1:]] for chart in charts] == len(charts) * [largest]


def test_bars_of_totals_and_points_of_means(saved):
    """Totals are bars from 0, as long as their numbers; means, and sums that may be negative, are points on their range."""
    page, rows = page_of(saved("metrics of items")), rows_of(saved("metrics of items"))
    top = sorted(rows, key=lambda row: -row["events"])[:50]
    assert page.widths[0] == pytest.approx(
        [100 * row["users"] / max(each["users_high"] for each in top) for row in top[:10]], abs=0.06
    )
    dots = {name: page_of(saved(name)).tags for name in METRICS}
    number = {name: sum(given.get("class") == "dot" for _, given in tags) for name, tags in dots.items()}
    assert number["metrics of items"] == min(50, len(rows)), "the mean alone"
    assert number["metrics of a public domain"] == 2 * 50, "of 67 items"


def headings(folder):
    return HEADINGS.findall((folder / "report.html").read_text())


def test_each_command_says_what_its_reader_wants(saved):
    """What the first heading is, and what is drawn."""
    first = {job: (headings(saved(job))[0], len(page_of(saved(job)).widths[0])) for job in OF_EVENTS}
    assert re.fullmatch(r"(All|The 50 largest of) \d+ items", first["estimates"][0]) and first["estimates"][1] == 20
    assert first["protected by day"][0].endswith("items, in order of time")
    assert re.fullmatch(r"\d+ items|\d+ items; these are the first 200", first["names of items, chosen"][0])
    assert first["the top"][0] == "5 items, by the number of their users"
    assert first["users in all"][0] == first["users and events of given items"][0] == "In all"
    assert first["quantiles"][0] == "Quantiles" and first["ranges"] == ("Users by ranges of values", 2)
    assert first["the bound alone"][0] == "The result"
    assert first["the shape, sorted"][0] == first["distinct items"][0] == first["a property"][0] == "All items together"
    for job in OF_EVENTS:
        text, report = (saved(job) / "report.html").read_text(), json.loads((saved(job) / "report.json").read_text())
        assert report["promise"].replace("'", "&#39;") in text and " is right in " in text, job
        assert all(file["sha256"] in text for file in report["files"]) and report["release_id"] in text, job


def test_days_stand_in_their_order(saved):
    days = [row[0] for row in page_of(saved("protected by day")).tables[0][1:]]
    assert (
        days == sorted(days)
        and len(days) == json.loads((saved("protected by day") / "report.json").read_text())["rows"]
    )


def test_what_an_officer_needs_stands_at_the_top(tmp_path):
    """When, on whose account, who is protected by which times, and that an epsilon above 10 is weak."""
    key = tmp_path / "key"
    write_fixed_key(key)
    open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}").create(
        make_dataset("visits", "user-day", "add-remove", 50, 1e-3, None)
    )
    days = [datetime.datetime(2026, 11, 1 + k % 20, 23, tzinfo=datetime.UTC) for k in range(4000)]
    frame = {"user": [f"u{k % 400}" for k in range(4000)], "item": ["a", "b"] * 2000, "seen": days}
    given = {"user": "user", "item": "item", "delta": 1e-6, "protect": "user-day", "time": "seen"}
    account = {"ledger": f"sqlite:///{tmp_path / 'ledger.db'}", "dataset": "visits", "key_file": key}

    def facts(folder, **more):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            headcount.histogram(frame, **given, **more).save(tmp_path / folder)
        page = (tmp_path / folder / "report.html").read_text()
        top = re.search(r'<ul class="facts">(.*?)</ul>', page, re.DOTALL)[1]
        lines = [" ".join(re.sub("<[^>]+>", "", line).split()) for line in top.split("</li>") if line.strip()]
        return json.loads((tmp_path / folder / "report.json").read_text()), page, lines

    report, page, lines = facts("weak", epsilon=11, time_zone="Europe/Berlin", **account)
    assert lines[:2] == [f"date {report['date']}", "ledger data set visits"]
    assert "privacy epsilon 11 (weak), delta 1e-06" in lines
    assert "protected what a user did in one day, by seen in Europe/Berlin" in lines
    assert "This promises little: epsilon = 11 is above 10" in page
    assert "The day of a row is that of column &#39;seen&#39; in the zone Europe/Berlin." in page.replace(
        "&#x27;", "&#39;"
    )
    _, page, lines = facts("plain", epsilon=10)
    assert "ledger none" in lines and "privacy epsilon 10, delta 1e-06" in lines and "by seen in UTC" in lines[-2]
    assert "This promises little" not in page


@pytest.mark.parametrize("job", ["estimates", "the shape, sorted", "quantiles", "names of items, chosen"])
def test_a_page_is_a_function_of_the_release(saved, job, monkeypatch):
    content = (saved(job) / "report.html").read_bytes()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    assert release_page(read_complete(str(saved(job))).outcome()) == content
    assert str(saved(job).parent).encode() not in content, "nor does it tell where it lies"
    assert re.search(rb"https?:|<script|javascript:|@import|url\(", content) is None


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    names = list(NASTY)
    table = {"user": [f"u{k % 600}" for k in range(6000)], "<b>name": [names[k % 6] for k in range(6000)]}
    folder = tmp_path_factory.mktemp("nasty") / "out"
    given = {"user": "user", "item": "<b>name", "epsilon": 5, "delta": 1e-5}
    headcount.histogram(table, **given, label="<img src=x onerror=alert(1)>", period="\u202e2030").save(folder)
    return folder


def test_names_are_text(nasty):
    page = page_of(nasty)
    assert {row[0] for row in page.tables[0][1:]} == set(NASTY.values())
    assert {tag for tag, _ in page.tags} <= set(
        "html head meta title style body header main footer section h1 h2 h3 p b div bdi br code ul li span figure figcaption "
        "table thead tbody tr th td details summary svg rect line path circle text".split()
    )
    attributes = {name for _, given in page.tags for name in given}
    assert not [name for name in attributes if name.startswith("on") or name in ("href", "src", "style", "id")]
    assert "\u202e" not in "".join(page.texts) and "\x00" not in "".join(page.texts)
    assert "<img src=x onerror=alert(1)>" in page.texts and "<b>name" in page.texts
    assert all(name in page.texts for name in NASTY.values())


def test_names_without_numbers_are_text_too(tmp_path):
    names = list(NASTY)
    table = {"user": [f"u{k % 600}" for k in range(6000)], "x": [names[k % 6] for k in range(6000)]}
    headcount.partitions(table, user="user", item="x", epsilon=5, delta=1e-5).save(tmp_path / "out")
    page = page_of(tmp_path / "out")
    assert all(name in page.texts for name in NASTY.values()) and not [tag for tag, _ in page.tags if tag == "script"]


def test_nothing_came_out(tmp_path):
    empty = headcount.histogram({"u": ["a", "b"], "i": ["x", "y"]}, user="u", item="i", epsilon=1, delta=1e-6)
    empty.save(tmp_path / "out")
    assert headings(tmp_path / "out")[0] == "Nothing came out"
    assert any("none has enough users" in text for text in page_of(tmp_path / "out").texts)
    assert wrong_numbers(tmp_path / "out") == set()


@pytest.mark.slow("sizes")
def test_a_hundred_thousand_items_are_a_small_page(saved, tmp_path):
    outcome = made_output(tmp_path / "many", saved("estimates"), 100_000)
    page = release_page(outcome)
    assert len(page) < 150_000, "far below a megabyte"
    (tmp_path / "many" / "report.html").write_bytes(page)
    assert wrong_numbers(tmp_path / "many") == set()


def test_a_page_of_very_many_items_reads_none_of_them(saved, tmp_path, monkeypatch):
    outcome = made_output(tmp_path / "many", saved("estimates"), 3000)
    monkeypatch.setattr(page_rows, "MOST_ROWS", 2999)
    monkeypatch.setattr(page_rows.stores, "read", lambda path: pytest.fail("no file is read"))
    page = Page(release_page(outcome).decode())
    assert len(page.tables[0]) - 1 == 10 and any("rows of report.json alone" in text for text in page.texts)
