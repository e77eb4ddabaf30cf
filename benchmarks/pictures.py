"""The pictures of the documentation, as SVG for light and dark: python benchmarks/pictures.py

They are drawn from the log of the tutorials, `headcount generate --law visits --rows 200000`. Colours follow the reader's
preference; a background of its own keeps each picture readable anywhere.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headcount
from headcount.pipelines.sources.synthetic import generate

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
EPSILONS = (0.1, 0.2, 0.5, 1, 2, 5)
NAMING = {  # strategy of `headcount partitions`, and what stands for it; ten items of each user, as peers ask for a number
    "laplace": "Laplace noise, the default of most libraries",
    "gaussian": "Gaussian noise",
    "sips": "rounds of Gaussian noise (DP-SIPS)",
    "auto": "headcount partitions, all chosen",
}
STYLE = """
  .back { fill: #ffffff } .text { fill: #1f2933; font: 13px sans-serif } .small { font-size: 11px }
  .soft { fill: #52606d } .line { stroke: #9aa5b1; stroke-width: 1; fill: none } .grid { stroke: #e4e7eb; stroke-width: 1 }
  .one { fill: #00796b; stroke: #00796b } .two { fill: #c2570c; stroke: #c2570c } .box { fill: #e0f2f1; stroke: #00796b }
  .curve { fill: none; stroke-width: 2.5 } .text { stroke: none }
  @media (prefers-color-scheme: dark) {
    .back { fill: #1e2129 } .text { fill: #e4e7eb } .soft { fill: #b0b8c1 } .line { stroke: #7b8794 } .grid { stroke: #323a45 }
    .one { fill: #4db6ac; stroke: #4db6ac } .two { fill: #ffa94d; stroke: #ffa94d } .box { fill: #12403c; stroke: #4db6ac }
    .curve { fill: none } .text { stroke: none }
  }
"""


def text(x: float, y: float, words: str, extra: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" class="text {extra}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, kind: str = "line") -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" class="{kind}"/>'


def write(name: str, width: int, height: int, title: str, parts: Sequence[str]) -> None:
    body = "\n".join(parts)
    (PICTURES / f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
        f'<rect class="back" width="{width}" height="{height}" rx="8"/>\n{body}\n</svg>\n'
    )
    print(f"wrote {name}.svg")


def true_users(log: pa.Table) -> dict[str, int]:
    """The users of each page."""
    pairs = log.select(["user_id", "page"]).group_by(["user_id", "page"]).aggregate([])
    counts = pairs.group_by("page").aggregate([([], "count_all")])
    return dict(zip(counts["page"].to_pylist(), counts["count_all"].to_pylist(), strict=True))


def noisy(log: pa.Table, key: Path) -> None:
    """Intervals of released counts with the truth as a mark, on a logarithmic axis."""
    counts = headcount.histogram(
        log, user="user_id", item="page", epsilon=1, delta=1e-8, key_file=key, release_id="picture"
    )
    truth = true_users(log)
    rows = sorted(counts.table.to_pylist(), key=lambda row: -row["count"])[:14]

    def x(value: float) -> float:
        return 120 + 500 * (math.log10(max(value, 100)) - 2) / (math.log10(6000) - 2)

    parts = [text(20, 26, "Users of a page: released at epsilon 1, and true")]
    for tick in (100, 200, 500, 1000, 2000, 5000):
        parts += [
            line(x(tick), 44, x(tick), 60 + 22 * len(rows), "grid"),
            text(x(tick), 78 + 22 * len(rows), f"{tick:,}", "small soft", "middle"),
        ]
    for at, row in enumerate(rows):
        y = 58 + 22 * at
        parts += [text(108, y + 4, row["page"], "", "end"), line(x(row["low"]), y, x(row["high"]), y, "one curve")]
        parts += [f'<circle cx="{x(row["count"]):.1f}" cy="{y}" r="4" class="one"/>']
        parts += [line(x(truth[row["page"]]), y - 7, x(truth[row["page"]]), y + 7, "two curve")]
    y = 100 + 22 * len(rows)
    parts += [
        f'<circle cx="130" cy="{y - 4}" r="4" class="one"/>',
        text(142, y, "released count, with its 95 % interval", "small"),
    ]
    parts += [line(450, y - 11, 450, y + 3, "two curve"), text(462, y, "true number", "small")]
    write("noisy", 660, y + 18, "Released counts of users with their intervals, and the true numbers", parts)


def epsilon(log: pa.Table) -> None:
    """What an epsilon buys: the share of all events whose items are shown, and the median error."""
    found = headcount.rehearse(
        public_data=log, user="user_id", item="page", epsilon=list(EPSILONS), methods=["histogram"], releases=3
    ).to_pandas()
    means = found.groupby("epsilon")[["covered", "median_error", "items"]].mean()

    def x(value: float) -> float:
        return 70 + 500 * math.log(value / EPSILONS[0]) / math.log(EPSILONS[-1] / EPSILONS[0])

    def y(share: float) -> float:
        return 290 - 230 * share

    parts = [text(20, 26, "What an epsilon buys: users per page of the tutorial's log")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += [
            line(70, y(share), 570, y(share), "grid"),
            text(60, y(share) + 4, f"{share:.0%}", "small soft", "end"),
        ]
    for value, row in means.iterrows():
        parts += [
            text(x(value), 310, f"{value:g}", "small", "middle"),
            text(x(value), 328, f"{row['items']:.0f} items", "small soft", "middle"),
        ]
    for column, kind in (("covered", "one"), ("median_error", "two")):
        points = " ".join(f"{x(value):.1f},{y(share):.1f}" for value, share in means[column].items())
        parts += [f'<polyline points="{points}" class="{kind} curve"/>']
        parts += [
            f'<circle cx="{x(value):.1f}" cy="{y(share):.1f}" r="4" class="{kind}"/>'
            for value, share in means[column].items()
        ]
    parts += [text(320, 348, "epsilon, and how many pages are shown", "small", "middle")]
    parts += [
        "<circle cx='80' cy='368' r='4' class='one'/>",
        text(92, 372, "events of pages that are shown, as a share of all", "small"),
    ]
    parts += ["<circle cx='380' cy='368' r='4' class='two'/>", text(392, 372, "median error of shown counts", "small")]
    write("epsilon", 640, 388, "Share of events shown and median error against epsilon", parts)


def names(log: pa.Table) -> None:
    """How many pages are named, by strategy."""
    counts = {}
    for strategy in NAMING:
        given = {} if strategy == "auto" else {"strategy": strategy, "max_items": 10}
        runs = [
            headcount.partitions(log, user="user_id", item="page", epsilon=1, delta=1e-8, **given) for _ in range(3)
        ]
        counts[strategy] = sum(run.table.num_rows for run in runs) / len(runs)
    most = max(counts.values())
    parts = [text(20, 26, "Pages that are named at epsilon 1, delta 1e-8 (mean of three)")]
    for at, (strategy, told) in enumerate(NAMING.items()):
        y, wide = 50 + 44 * at, 480 * counts[strategy] / most
        kind = "one" if strategy == "auto" else "two"
        parts += [
            text(20, y, told, "small"),
            f'<rect x="20" y="{y + 6}" width="{wide:.0f}" height="16" class="{kind}"/>',
        ]
        parts += [text(28 + wide, y + 19, f"{counts[strategy]:.0f}", "small")]
    write("names", 640, 50 + 44 * len(NAMING), "Pages named by strategy", parts)


def row() -> None:
    """How a row travels."""
    steps = [
        ("read", "the columns", "you ask for"),
        ("by user", "all rows of a user", "come together"),
        ("bound", "each user counts", "for a limited part"),
        ("sum", "by item,", "in integers"),
        ("noise", "exact, from the key;", "rare items stay out"),
        ("publish", "rows, report", "and page"),
    ]
    parts = []
    for at, (name, first, second) in enumerate(steps):
        x = 12 + 132 * at
        parts += [
            f'<rect x="{x}" y="20" width="118" height="76" rx="8" class="box"/>',
            text(x + 59, 44, name, "", "middle"),
        ]
        parts += [text(x + 59, 66, first, "small soft", "middle"), text(x + 59, 82, second, "small soft", "middle")]
        if at:
            parts += [f'<path d="M{x - 13} 58 l11 0 m-5 -5 l5 5 l-5 5" class="line"/>']
    parts += [
        text(144, 120, "raw data: the operator's alone", "small two"),
        text(550, 120, "may be published", "small one"),
    ]
    parts += [line(12, 104, 525, 104, "two"), line(540, 104, 790, 104, "one")]
    write("row", 804, 134, "How a row travels: read, by user, bound, sum, noise, publish", parts)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path, key = Path(folder) / "visits.parquet", Path(folder) / "key"
        generate("visits", 200_000, None, None, 0, path)
        key.write_text("07" * 32)
        os.chmod(key, 0o600)
        log = pq.read_table(path)
        row()
        noisy(log, key)
        epsilon(log)
        names(log)


if __name__ == "__main__":
    main()
