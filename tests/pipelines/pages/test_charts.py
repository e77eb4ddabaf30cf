"""Charts: where values lie on their axes, that text is text, and that many points stay a small picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from headcount.pipelines.pages import charts, layout, texts
from headcount.pipelines.pages.axes import Axis
from headcount.pipelines.pages.charts import Bar, Line

NASTY = "<script>alert(1)</script>\"'&"


def parsed(drawn):
    """A chart as a tree: it must be well-formed."""
    return ElementTree.fromstring(f"<div>{drawn}</div>")


def texts_of(drawn):
    return ["".join(node.itertext()).strip() for node in parsed(drawn).iter() if node.tag in ("text", "td", "th", "li")]


def of_class(drawn, name):
    return [node for node in parsed(drawn).iter() if name in node.get("class", "").split()]


def test_a_logarithmic_axis_reaches_from_a_power_of_ten_to_another():
    scale = Axis("count", log=True).scale([37.0, 81_000.0])
    assert (scale.low, scale.high) == (1, 5) and scale.ticks == (10, 100, 1000, 10_000, 100_000)
    assert scale.share(10) == 0 and scale.share(100_000) == 1 and scale.share(1000) == pytest.approx(0.5)
    assert Axis("count", log=True).scale([3.0, 8.0]).ticks == (1, 2, 5, 10)
    assert len(Axis("count", log=True).scale([1e-9, 1e9]).ticks) <= 8
    assert Axis("count", log=True).scale([]).ticks, "an axis without values is an axis"


def test_an_axis_has_the_numbers_that_are_given():
    scale = Axis("epsilon", log=True, ticks=(0.1, 0.5, 2)).scale([0.1, 2])
    assert scale.ticks == (0.1, 0.5, 2) and scale.share(0.1) == 0 and scale.share(2) == 1


def test_a_straight_axis_has_0_and_round_numbers():
    for most in (0.037, 1, 7, 99, 12_345, 3.3e9):
        scale = Axis("share").scale([most / 3, most])
        assert scale.low == 0 and scale.high >= most and scale.high < 1.7 * most
        assert 3 <= len(scale.ticks) <= 8 and all(0 <= scale.share(tick) <= 1 for tick in scale.ticks)
    below = Axis("change").scale([-4, 9])
    assert below.low <= -4 and 0 in below.ticks


def test_numbers_along_an_axis():
    axis = Axis("count")
    assert [axis.text(value) for value in (0, 0.25, 10, 1000, 100_000, 1e6, 2.5e7, 1e9)] == [
        *("0", "0.25", "10", "1,000", "100,000", "1M", "25M", "1B")
    ]
    assert [Axis("share", percent=True).text(value) for value in (0.001, 0.5, 10)] == ["0.1 %", "50 %", "1,000 %"]


def test_bars_are_as_long_as_their_numbers():
    drawn = charts.bars(
        [Bar(("a", "x"), "200", 200, 150, 250, "150 to 250"), Bar((NASTY, "y"), "50", 50, 0, 90, "0 to 90")],
        ["item", "kind", "count", "interval"],
    )
    assert [node.get("width") for node in of_class(drawn, "fill")] == ["80%", "20%"]
    whiskers = [(node.get("x1"), node.get("x2")) for node in of_class(drawn, "whisker")]
    assert whiskers[0] == ("60%", "100%") and whiskers[3] == ("0%", "36%")
    assert NASTY in texts_of(drawn) and "<script" not in drawn
    assert {"a", "x", "200", "150 to 250"} <= set(texts_of(drawn))


def test_bars_of_nothing_and_of_less_than_nothing():
    assert of_class(charts.bars([Bar(("a",), "0", 0)], ["item", "count"]), "fill")[0].get("width") == "0%"
    below = charts.bars([Bar(("a",), "-5", -5.0), Bar(("b",), "9", 9.0)], ["item", "count"])
    assert [node.get("width") for node in of_class(below, "fill")] == ["0%", "100%"]
    assert charts.bars([], ["item", "count"]).count("<tr>") == 1
    dots = charts.bars([Bar(("a",), "1000", 1000.0), Bar(("b",), "1010", 1010.0)], ["item", "value"], dots=True)
    assert [node.get("cx") for node in of_class(dots, "dot")] == ["0%", "100%"]
    logs = charts.bars([Bar(("a",), "9", 9), Bar(("b",), "99", 99)], ["item", "count"], log=True)
    assert [node.get("width") for node in of_class(logs, "fill")] == ["50%", "100%"]


def made_points(number):
    rng = np.random.default_rng(1)
    counts = np.floor(40 * 10 ** rng.exponential(0.6, number))
    return np.column_stack([counts, np.where(rng.random(number) < 0.7, 39.8, 40 + 2 * np.sqrt(counts))])


GIVEN = (Axis("count", log=True), Axis("noise", log=True), 'counts & "noise"', [(1.0, "100 %"), (0.1, "10 %")])


def test_a_few_points_are_dots_where_they_belong():
    drawn = charts.cloud(np.array([[10.0, 1.0], [1000.0, 10.0], [0.0, 5.0], [np.nan, 1.0]]), *GIVEN)
    dots = [(float(node.get("cx")), float(node.get("cy"))) for node in of_class(drawn, "point")]
    assert len(dots) == 2, "0 and what is unknown has no place"
    grid = of_class(drawn, "grid")
    assert dots[0][0] == min(float(node.get("x1")) for node in grid) and dots[0][1] > dots[1][1]
    assert dots[1][0] == max(float(node.get("x1")) for node in grid)
    assert parsed(drawn)[0].get("aria-label") == 'counts & "noise"' and parsed(drawn)[0].get("role") == "img"
    assert len(of_class(drawn, "guide")) == 1, "the other touches a corner alone"


def test_a_hundred_thousand_points_are_a_small_picture():
    points = made_points(100_000)
    drawn = charts.cloud(points, *GIVEN)
    assert len(drawn) < 100_000 and drawn == charts.cloud(points[::-1], *GIVEN), "whatever their order"
    cells = sum(node.get("d").count("M") for node in of_class(drawn, "cell") if node.get("d"))
    assert 50 < cells < 90 * 54
    assert "1 or more at one place" in texts_of(drawn) and "10 or more" in texts_of(drawn)
    spread = np.column_stack([10 ** np.linspace(0, 8, 200_000), 10 ** np.random.default_rng(2).uniform(0, 8, 200_000)])
    assert len(charts.cloud(spread, *GIVEN)) < 200_000, "also where every cell has some"


def test_lines_have_a_legend_and_leave_out_what_has_no_place():
    drawn = charts.lines(
        [
            Line("plume", [(0.1, 0.5), (1, 0.05), (2, 0.0)], [(0.1, 0.4, 0.6), (1, 0.04, 0.06)]),
            Line(NASTY, [(0.1, 0.9), (1, 0.1), (2, 0.05)]),
        ],
        Axis("epsilon", log=True, ticks=(0.1, 1, 2)),
        Axis("error", log=True, percent=True),
        "errors",
    )
    assert [len(node.get("points").split()) for node in of_class(drawn, "line") if node.get("points")] == [2, 3]
    assert len(of_class(drawn, "band")[0].get("points").split()) == 4
    assert texts_of(drawn)[-2:] == ["plume", NASTY] and "<script" not in drawn
    assert {"0.1", "1", "2", "100 %"} <= set(texts_of(drawn))
    with pytest.raises(ValueError, match="at most 8 lines"):
        charts.lines([Line("a", [])] * 9, Axis("x"), Axis("y"), "too many")


def test_names_move_nothing_beside_them():
    assert texts.name("a\x1b[31m\u202egnp.exe\n") == "a [31m gnp.exe"
    assert len(texts.name("x" * 5000)) == 60 and texts.name("x" * 5000).endswith("…")
    assert (texts.name(""), texts.name("\u200f"), texts.name(7)) == ("(empty)", "(blank)", "7")


def test_numbers_to_read():
    shown = [texts.number(value) for value in (3, 123_456, 1234.56, 12.3456, 0.000123456, None, float("nan"))]
    assert shown == ["3", "123,456", "1,235", "12.35", "0.0001235", "unknown", "unknown"]
    assert (
        texts.percent(0.12345) == "12.35 %"
        and texts.several(1, "row") == "1 row"
        and texts.several(1200, "row") == "1,200 rows"
    )


def test_a_page_needs_nothing_beside_it():
    page = layout.render("page.html").decode()
    assert "Content-Security-Policy" in page and "default-src 'none'" in page and "<script" not in page
    assert not re.search(r"https?://|@import|url\(", page) and page == layout.render("page.html").decode()
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 34rem"):
        assert query in page
