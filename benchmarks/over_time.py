"""Does `headcount series` find what changed, and how often does it call something a change that is none?

    python benchmarks/over_time.py [--repetitions 200] [--way names public noise]

Twelve weeks of 50 pages. In every week each page has exactly as many users as in all others, drawn anew, but for two pages: one
has half as many again from the seventh week on, the other two fifths fewer from the fifth on. A false alarm is any change that
is called real where the numbers are equal. At --false-alarms 0.05, one repetition in twenty may have one or more of them.

`names` and `public` are whole releases, `noise` is the test alone on numbers with noise of a known law: how much of the rate it
uses, and how large a change must be to be found in half of the cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from _shared import OUT, write_csv

import headcount
from headcount.mechanisms.calibration.differences import LAPLACE_DEVIATIONS, Numbers, differences, holm
from headcount.mechanisms.calibration.intervals import DEVIATIONS

WEEKS, PAGES, USERS = 12, 50, 20_000
UP, DOWN = 12, 20  # the pages that change
RATE = 0.05
PROMISE = {"user": "user", "epsilon": 1, "delta": 1e-8}


def sizes(week: int) -> np.ndarray:
    """The users of each page in a week."""
    number = np.rint(8000 * (1 + np.arange(PAGES)) ** -0.5).astype(np.int64)
    number[UP] += number[UP] // 2 if week >= 6 else 0
    number[DOWN] -= 2 * number[DOWN] // 5 if week >= 4 else 0
    return number


def log(week: int, rng: np.random.Generator) -> pa.Table:
    """The visits of a week: which users a page has is drawn anew."""
    users = np.concatenate([rng.choice(USERS, number, replace=False) for number in sizes(week)])
    return pa.table({"user": users, "page": np.repeat([f"/{k:02}" for k in range(PAGES)], sizes(week))})


def by_names(week: pa.Table) -> headcount.Result:
    """Pages are named privately, as is the default."""
    return headcount.histogram(week, item="page", **PROMISE)


def by_list(week: pa.Table) -> headcount.Result:
    """Pages are public, and noise is Gaussian."""
    return headcount.histogram(
        week, item="page", domain=[f"/{k:02}" for k in range(PAGES)], noise="gaussian", **PROMISE
    )


WAYS: dict[str, Callable[[pa.Table], headcount.Result]] = {"names": by_names, "public": by_list}


def measured(way: str, repetition: int) -> dict[str, str]:
    """One series: whether both changes were found, and what else was called one."""
    rng = np.random.default_rng([repetition, *map(ord, way)])
    found = headcount.series([WAYS[way](log(week, rng)) for week in range(WEEKS)], false_alarms=RATE)
    truth = {f"release {week + 1}": sizes(week) for week in range(WEEKS)}
    real = [(int(row["page"][1:]), row["from"], row["to"], row["verdict"]) for row in found.real]
    wrong = [each for each in real if truth[each[1]][each[0]] == truth[each[2]][each[0]]]
    right = [(UP, "release 6", "release 7", "rose"), (DOWN, "release 4", "release 5", "fell")]
    both = (UP, "release 1", "release 12", "rose"), (DOWN, "release 1", "release 12", "fell")
    return {
        "way": way,
        "repetition": str(repetition),
        "tested": str(found.found.tested),
        "rise found": str(int(right[0] in real)),
        "fall found": str(int(right[1] in real)),
        "both from first to last": str(int(set(both) <= set(real))),
        "false alarms": str(len(wrong)),
        "turned round": str(
            sum(each[3] == ("fell" if each[0] == UP else "rose") for each in real if each[0] in (UP, DOWN))
        ),
    }


def of_noise(law: str, repetitions: int) -> str:
    """The test alone: 50 numbers in 12 releases with independent noise of a standard deviation of 1, and nothing left out."""
    rng, normal = np.random.default_rng([7, len(law)]), law == "gaussian"
    half = DEVIATIONS if normal else LAPLACE_DEVIATIONS
    pairs = [*((k, k + 1) for k in range(WEEKS - 1)), (0, WEEKS - 1)]

    def rates(value: np.ndarray) -> np.ndarray:
        sides = [Numbers(each, each - half, each + half, np.ones(PAGES)) for each in value]
        return holm(np.concatenate([differences(sides[a], sides[b], normal).p for a, b in pairs]))

    alarms, found = 0, {step: 0 for step in np.arange(3.0, 12.5, 0.5).tolist()}
    for _ in range(repetitions):
        noise = rng.standard_normal((WEEKS, PAGES)) if normal else rng.laplace(0, 1 / np.sqrt(2), (WEEKS, PAGES))
        alarms += (rates(1000 + noise) <= RATE).any()
        for step in found:
            changed = 1000 + noise + step * (np.arange(WEEKS)[:, None] >= 6) * (np.arange(PAGES) == 0)
            found[step] += rates(changed)[5 * PAGES] <= RATE
    half_found = next((step for step in found if found[step] >= repetitions / 2), None)
    return (
        f"noise, {law}: {repetitions:,} series, {alarms / repetitions:.2%} with a false alarm; a change of {half_found} "
        "standard deviations of one release is found in half of them"
    )


def summed_up(lines: list[dict[str, str]]) -> str:
    """What all repetitions of a way say together."""

    def share(name: str) -> str:
        return f"{sum(line[name] != '0' for line in lines) / len(lines):.1%}"

    return (
        f"{len(lines)} series; the rise was found in {share('rise found')}, the fall in {share('fall found')}, both from "
        f"first to last in {share('both from first to last')}; a false alarm in {share('false alarms')}; a change in the wrong "
        f"direction in {share('turned round')}"
    )


def main() -> None:
    """Repeat, and sum up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--way", nargs="+", choices=[*WAYS, "noise"], default=[*WAYS, "noise"])
    args = parser.parse_args()
    lines = []
    for law in ("gaussian", "laplace") if "noise" in args.way else ():
        print(of_noise(law, 10 * args.repetitions))
    for way in [each for each in args.way if each in WAYS]:
        own = []
        for repetition in range(args.repetitions):
            own.append(measured(way, repetition))
            if repetition % 10 == 9:
                print(f"{way}: {repetition + 1}", file=sys.stderr, flush=True)
        lines += own
        print(f"{way}: {summed_up(own)}")
    if lines:
        write_csv(lines, OUT / "over-time.csv")


if __name__ == "__main__":
    main()
