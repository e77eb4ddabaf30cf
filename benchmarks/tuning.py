"""What each number of `mechanisms/tuning.py` trades: releases with half of it, as it is, and with twice as much.

    python benchmarks/tuning.py                                   # all of them, some minutes
    python benchmarks/tuning.py --number LEFT_OUT_PRICE --releases 20
    python benchmarks/tuning.py --number USERS_SHARE --input FILE --user COLUMN --item COLUMN

The log is a generated one, or FILE, a Parquet file of your own. Every number has a job that shows it. A menu is tried with
every second candidate, and with one more between any two. Each value has a process of its own, which sets it before it imports
anything else, and a fixed key, so that figures repeat.

`names` are the rows of a release. `error` is the median relative error of the items named, and `ten largest` the mean one of
the ten items that are largest in truth, where an item without a row counts as 1. Other jobs have one error: of a total, of an
entropy or of a number of items the relative one, of a shape the l1 error by all counts, and of a distribution the l1 error.
Seconds are those of one release, after a first one.

Nothing is chosen by this: with a few releases, half of a difference is chance. It shows how much hangs on a number.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

from _shared import DATA, OUT, event_log, write_csv

from headcount.mechanisms import tuning

KEY = "HEADCOUNT_TUNING_KEY"
KEYS, SYMBOLS = 200, 20  # of the domains that are given

#: What is worth trying where half and double are not.
OTHERS: Mapping[str, tuple[Any, ...]] = {
    "ITEMS_OF_SELECTION": ((3, 30, 300, 3000),),
    "ITEMS_BETWEEN": ((17, 170),),
    "MEASUREMENT_PARTS": ((8, 8, 4, 2), (512, 512, 256, 128, 64, 32, 16, 8, 4, 2)),
    "MOST_SORTED": (10_000,),
    "TYPICAL_ITEMS": (10, 100),
    "TREE_LEVELS": (4, 6),
    "WORSE_THRESHOLD": (1.05, 2.0),
    "LIKELY_GROWTH": (1.1, 2.0),
    "STATED_BEYOND": (1.01, 1.1),
    "HELD_BACK_BY": (1.005, 1.1),
}

#: Not shown by a job on a log: the total of a ledger, the share of leaves in levels (`levels.py` has their noise), the shuffle
#: model and its messages (`papers/models.py`), and an extrapolation and the stated error of what is read off a shape.
UNMEASURED = (
    "FILTER_HIDING_DELTA PROMISE_DELTA PROMISE_GAUSSIAN LEAVES_SHARE SHUFFLED_NOISE_SHARE FLOODS COVERAGE_SMOOTHING "
    "STEPS_OF_ROW"
)


@dataclasses.dataclass(frozen=True)
class Truth:
    """A log, and what is true of each item: its events, its users, these by how many items they have, and the mean and median
    of its values. `largest` are all items, those with most events first."""

    table: Any
    events: Mapping[Any, int]
    users: Mapping[Any, int]
    weights: Mapping[Any, float]
    means: Mapping[Any, float]
    medians: Mapping[Any, float]
    largest: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Worth:
    """What one release is worth; NaN for what a job does not have."""

    names: float
    error: float
    ten_largest: float = math.nan


def of_items(column: str | None, truth: str) -> Callable[[Any, Truth], Worth]:
    """How close that column is to the truth of each item; without a column, which items are there."""

    def worth(rows: Any, log: Truth) -> Worth:
        true = getattr(log, truth)
        items = rows["item"].to_pylist()
        counts = [true[item] for item in items] if column is None else rows[column].to_pylist()
        errors = {
            item: abs(count - true[item]) / true[item]
            for item, count in zip(items, counts, strict=True)
            if count is not None
        }
        median = statistics.median(errors.values()) if errors and column is not None else math.nan
        return Worth(len(items), median, statistics.fmean(errors.get(item, 1.0) for item in log.largest[:10]))

    return worth


def of_total(rows: Any, log: Truth) -> Worth:
    """The relative error of the number of events."""
    return Worth(1, abs(rows["bounded_count"][-1].as_py() / sum(log.events.values()) - 1))


def of_activity(rows: Any, log: Truth) -> Worth:
    """How many values are named, and the median noise of their counts, as a share of these."""
    columns = (rows[name].to_pylist() for name in ("noise_stddev", "count"))
    noise = [one / max(1.0, count) for one, count in zip(*columns, strict=True)]
    return Worth(len(noise), statistics.median(noise) if noise else math.nan)


def of_distinct(rows: Any, log: Truth) -> Worth:
    """The relative error of the number of items."""
    return Worth(1, abs(rows["count"][0].as_py() / len(log.users) - 1))


def of_entropy(rows: Any, log: Truth) -> Worth:
    """The relative error of the entropy, where each user has one item."""
    whole = sum(log.weights.values())
    true = -sum(weight / whole * math.log(weight / whole) for weight in log.weights.values())
    return Worth(1, abs(rows["value"][0].as_py() / true - 1))


def of_shape(rows: Any, log: Truth) -> Worth:
    """The l1 distance of the sorted counts, where each user has one item, by their sum."""
    pairs = zip(rows["count"].to_pylist(), rows["items"].to_pylist(), strict=True)
    shown = sorted((count for count, items in pairs for _ in range(items)), reverse=True)
    true = sorted(log.weights.values(), reverse=True)
    both = itertools.zip_longest(shown, true, fillvalue=0)
    return Worth(len(shown), sum(abs(one - other) for one, other in both) / sum(true))


def of_distribution(rows: Any, log: Truth) -> Worth:
    """The l1 error, beside the distribution of all events on the domain."""
    whole = sum(log.events[item] for item in log.largest[:SYMBOLS])
    found = dict(zip(rows["item"].to_pylist(), rows["probability"].to_pylist(), strict=True))
    return Worth(len(found), sum(abs(found[item] - log.events[item] / whole) for item in found))


@dataclasses.dataclass(frozen=True)
class Job:
    """A call, the keywords that it has beside the log, how its rows are judged, and the numbers that it shows."""

    call: str
    keywords: Callable[[Truth], Mapping[str, Any]]
    worth: Callable[[Any, Truth], Worth]
    numbers: str


PROMISE = {"epsilon": 1.0, "delta": 1e-6}
EVENTS = PROMISE | {"of": "events"}
COUNTS, BOUNDED, USERS = of_items("count", "events"), of_items("bounded_count", "events"), of_items("count", "users")
RELEASED, NAMES = of_items("bounded_count", "users"), of_items(None, "users")

JOBS: dict[str, Job] = {
    "histogram": Job(
        "histogram",
        lambda log: EVENTS,
        COUNTS,
        "NAMES_LIMIT_SHARE NAMES_CHOICE_SHARE_OF_HISTOGRAM COUNTS_CHOICE_SHARE TOTALS_CHOICE_SHARE HISTOGRAM_PRECISION "
        "LAPLACE_TOTALS_SHARE MOST_TOTALS_SHARE LAPLACE_THRESHOLD_DELTA SELECTION_DELTA EARLY_ROUNDS_SHARE_OF_PART "
        "LEFT_OUT_PRICE MOST_WORTH ONE_EVENT_WORTH TOTALS_NOISE_PRICE LARGE_NORM_PENALTY LEAST_PART_OF_SELECTION "
        "MISSED_BY_COUNTS SELECTION_WORTH BOUNDS_OF_ESTIMATES CAPS NORMS_OF_TOTALS ITEMS_OF_SELECTION ITEMS_BETWEEN "
        "ROUNDS_OF_HISTOGRAM TYPICAL_ITEMS SELECTION_MEDIANS SELECTION_MEDIAN_IN_ROUNDS GROUP_BY_TOTAL_NOISE "
        "GROUP_BY_OWN_NOISE GROUPS_ALIKE MOST_GROUPS FREE_ITEMS STATED_BEYOND HELD_BACK_BY HELD_BACK_ORDERS "
        "CAP_CHOICE_SHARE ABOVE_CAP SPREAD_OF_LEFT_OUT LEFT_OUT_OF_FULL_SPREAD SPREAD_OF_ONE_EVENT "
        "LOOKS_OF_SPREAD LEFT_OUT_UNKNOWN SHRINKAGE_STEP "
        "FARTHEST_SHRUNK SHRINKAGE_ROUNDS",
    ),
    "histogram of a domain": Job(
        "histogram",
        lambda log: EVENTS | {"domain": list(log.largest[:KEYS])},
        COUNTS,
        "PUBLIC_TOTALS_SHARE ALONE_SHARE ALONE_NOISE_PRICE ALONE_KEYS LEAST_GAIN_OF_SHARED_NOISE",
    ),
    "histogram in one stage": Job(
        "histogram",
        lambda log: EVENTS | {"method": "one-stage"},
        BOUNDED,
        "CHOICE_SHARE_FOR_ERROR GAUSSIAN_NOISE_DELTA LEAST_COUNT_BY_NOISE BOUNDS_OF_ONE_STAGE MISSED",
    ),
    "one stage, most items": Job(
        "histogram",
        lambda log: EVENTS | {"method": "one-stage", "objective": "items"},
        BOUNDED,
        "CHOICE_SHARE_FOR_ITEMS",
    ),
    "one stage of a domain": Job(
        "histogram",
        lambda log: EVENTS | {"method": "one-stage", "domain": list(log.largest[:KEYS]), "noise": "gaussian"},
        BOUNDED,
        "MISSED_BY_NORM NORMS_OF_PUBLIC_DOMAIN SPARSITY LEAST_SPARSITY",
    ),
    "one stage by descent": Job(
        "histogram",
        lambda log: (
            EVENTS
            | {"method": "one-stage", "domain": list(log.largest[:KEYS]), "noise": "gaussian", "bound_method": "dp-gd"}
        ),
        BOUNDED,
        "DESCENT_STEPS DESCENT_STRIDE DESCENT_DECAY",
    ),
    "one stage by perturbation": Job(
        "histogram",
        lambda log: (
            EVENTS
            | {
                "method": "one-stage",
                "domain": list(log.largest[:KEYS]),
                "noise": "gaussian",
                "bound_method": "output-perturbation",
            }
        ),
        BOUNDED,
        "GUESSED_USERS",
    ),
    "partitions": Job(
        "partitions",
        lambda log: PROMISE,
        NAMES,
        "NAMES_CHOICE_SHARE OWN_ITEMS_DELTA ROUNDS_DELTA EARLY_ROUNDS_SHARE LARGE_BOUND_PENALTY MANY_ITEMS_REWARD LIMITS_ALIKE "
        "ITEMS_OF_SELECTION_ALONE ROUNDS MOST_STATES_OF_CANDIDATE ORDER_POWER CURVE_UNITS CURVE_STATES CURVE_MOST_STATES "
        "CURVE_TOP CURVE_STEP",
    ),
    "activity by a column": Job("activity", lambda log: PROMISE | {"bins": "1"}, of_activity, "NAMES_SHARE_OF_PEOPLE"),
    "partitions by sips": Job(
        "partitions", lambda log: PROMISE | {"strategy": "sips", "max_items": 10}, NAMES, "SIPS_NOISE_DELTA"
    ),
    "aggregate": Job(
        "aggregate",
        lambda log: PROMISE | {name: "value:auto" for name in ("mean", "variance")} | {"users": True},
        of_items("mean_value", "means"),
        "RANGE_CHOICE_SHARE AGGREGATE_PRECISION RATIO_NOISE_PRICE ITEMS_OF_AGGREGATE RANGE_ENDS "
        "MEAN_WEIGHT VARIANCE_WEIGHT COUNT_WEIGHT KEY_VARIANCE TAKEN_FOR_MISSING POOLING_ROUNDS POOLING_STEPS "
        "POOLING_STIFFNESS",
    ),
    "means of a domain": Job(
        "aggregate",
        lambda log: PROMISE | {"domain": list(log.largest[:KEYS]), "mean": "value:0:100", "events": True},
        of_items("mean_value", "means"),
        "LAPLACE_TOTALS_SHARE_OF_AGGREGATE NOISE_BY_CHANCE NOISE_WITH_WAVES GAP_STEPS",
    ),
    "aggregate by zCDP": Job(
        "aggregate",
        lambda log: {"rho": 0.05, "delta": 1e-6, "events": True},
        of_items("events", "events"),
        "ZCDP_CHOICE_UNIT THRESHOLD_DELTA NOISE_WORTH",
    ),
    "medians": Job(
        "aggregate",
        lambda log: PROMISE | {"quantile": "0.5:value:0:100", "users": True},
        of_items("p50_value", "medians"),
        "TREE_BRANCHING TREE_LEVELS QUANTILE_WEIGHT ROWS_TO_LOOK_INTO HARDLY_ROWS RANK_AS_WELL",
    ),
    "total": Job("total", lambda log: {"epsilon": 1.0}, of_total, "CHOICE_SHARE_FOR_TOTAL USERS_SHARE BOUNDS_OF_TOTAL"),
    "top 5": Job("top", lambda log: PROMISE | {"k": 5}, NAMES, "MOST_DRAWN"),
    "top 50": Job("top", lambda log: PROMISE | {"k": 50}, NAMES, "TOP_DRAWS_SHARE"),
    "count-release": Job(
        "count_release",
        lambda log: (
            PROMISE | {"noise_reduction": True, "k_bar": tuning.ITEMS_LOOKED_AT, "start_epsilon": tuning.FIRST_EPSILON}
        ),
        RELEASED,
        "NAMES_DELTA ITEMS_LOOKED_AT FIRST_EPSILON DEVIATIONS_OF_TARGET SPARE_ROUNDS MEASUREMENT_PARTS",
    ),
    "plume": Job("plume", lambda log: PROMISE, RELEASED, "CHOICE_SHARE_FOR_PLUME"),
    "sampled": Job(
        "sampled",
        lambda log: PROMISE,
        USERS,
        "MISSED_BY_SAMPLE ITEMS_OF_SAMPLE WORSE_THRESHOLD SEARCH_STEPS SAMPLE_USERS_POWER SAMPLE_USERS_BY_DELTA "
        "SAMPLE_USERS_BY_EPSILON SAMPLE_USERS_REPLACED",
    ),
    "shape": Job("shape", lambda log: {"epsilon": 1.0, "domain_size": 10**5}, of_shape, "MOST_SORTED SORTED_MISPLACED"),
    "shape in buckets": Job(
        "shape",
        lambda log: {"epsilon": 1.0, "buckets": 1 << 18, "mode": "l2"},
        of_shape,
        "BUCKETS_PER_USER MISSED_BY_SHAPE FARTHEST_LIKELY_SHAPE LIKELY_FIRST_CHECK LIKELY_GROWTH LIKELY_LEAST_GAIN "
        "LIKELY_MOST_STEPS LIKELY_RESOLUTION FARTHEST_INVERTED REHEARSALS MANY_COUNTS MANY_ITEMS MOST_REHEARSED",
    ),
    "distinct items": Job(
        "shape",
        lambda log: {"epsilon": 1.0, "property": "distinct-items"},
        of_distinct,
        "USERS_ABOVE_BOUND ITEMS_OF_DISTINCT",
    ),
    "entropy": Job(
        "shape",
        lambda log: {"epsilon": 1.0, "property": "entropy"},
        of_entropy,
        "ENTROPY_DEGREE ENTROPY_INTERVAL ENTROPY_CUT",
    ),
    "distribution": Job(
        "distribution",
        lambda log: PROMISE | {"domain": list(log.largest[:SYMBOLS])},
        of_distribution,
        "CHOICE_SHARE_FOR_SAMPLES USERS_SHARE_OF_DISTRIBUTION SPREAD_SHARE TYPICAL_USERS SPREAD_GROUPS",
    ),
    "distribution, sparse": Job(
        "distribution",
        lambda log: PROMISE | {"domain": list(log.largest[:SYMBOLS]), "method": "sparse"},
        of_distribution,
        "SPARSE_VECTOR_SHARE COVER_BY_PRIVACY COVER_BY_SAMPLING WIDEST_COVER MOST_PROBABILITIES MISSED_OF_REST "
        "LARGEST_SMALL LEAST_LARGE",
    ),
}


def other_values(number: str) -> list[tuple[str, Any]]:
    """What is tried of a number, with the words for it; as it is comes first."""
    value = getattr(tuning, number)
    if number in OTHERS:
        others = [(_words(other), other) for other in OTHERS[number]]
    elif isinstance(value, tuple) and len(value) > 4:
        between = sorted({*value, *(_middle(*pair) for pair in itertools.pairwise(value))})
        others = [("every second", value[::2]), ("one between any two", tuple(between))]
    else:
        others = [(_words(other), other) for other in (_times(value, Fraction(1, 2)), _times(value, Fraction(2)))]
    return [(_words(value), value), *others]


def _times(value: Any, factor: Fraction) -> Any:
    """A number times the factor, or each of several. A share stays below 1, and shares that add up to 1 still do."""
    if isinstance(value, dict):
        return {key: _times(each, factor) for key, each in value.items()}
    if isinstance(value, tuple) and math.isclose(sum(value), 1):
        first = _times(value[0], factor)
        return (first, *(each * (1 - first) / (1 - value[0]) for each in value[1:]))
    if isinstance(value, tuple):
        return tuple(_times(each, factor) for each in value)
    made = value * (factor if isinstance(value, int | Fraction) else float(factor))
    if isinstance(value, int):
        return max(1, int(made))
    return (1 + value) / 2 if 0 < value < 1 <= made else made


def _middle(low: Any, high: Any) -> Any:
    return round(math.sqrt(low * high)) if isinstance(low, int) else (low + high) / 2


def _words(value: Any) -> str:
    """A value, as short as it can be told."""
    if isinstance(value, dict):
        return f"{_words(next(iter(value.values())))}, ..."
    if isinstance(value, tuple):
        return f"{len(value)} of them" if len(value) > 4 else " ".join(map(_words, value))
    return str(value) if isinstance(value, int | Fraction) else f"{value:.4g}"


def read_log(path: Path, user: str, item: str) -> Truth:
    """The log of a file with generated values, and what is true of it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = pq.read_table(path, columns=[user, item]).rename_columns(["user", "item"]).drop_null()
    random, codes = np.random.default_rng(1), pc.dictionary_encode(columns["item"].combine_chunks()).indices.to_numpy()
    scale = random.uniform(5.0, 25.0, int(codes.max()) + 1)[codes]
    value = np.minimum(random.gamma(2.0, scale), 100.0)
    table = columns.append_column("value", pa.array(value))
    pairs = table.group_by(["user", "item"]).aggregate([])
    kept = pairs.join(pairs.group_by("user").aggregate([("item", "count")]), "user")
    weighed = kept.append_column("weight", pc.divide(1.0, pc.cast(kept["item_count"], pa.float64())))

    def by_item(of: pa.Table, column: str, kind: str) -> dict[Any, Any]:
        made = of.group_by("item").aggregate([(column, kind)])
        return dict(zip(made["item"].to_pylist(), made[f"{column}_{kind}"].to_pylist(), strict=True))

    events = by_item(table, "user", "count")
    return Truth(
        table,
        events,
        by_item(pairs, "user", "count"),
        by_item(weighed, "weight", "sum"),
        by_item(table, "value", "mean"),
        by_item(table, "value", "approximate_median"),
        tuple(sorted(events, key=lambda each: (-events[each], each))),
    )


def measured(
    name: str, number: str, value: Any, path: Path, user: str, item: str, releases: int
) -> tuple[Worth, float]:
    """The mean worth of some releases of a job with that value of the number, and the seconds of one."""
    setattr(tuning, number, value)  # before anything reads it
    import headcount

    os.environ[KEY] = "5c" * 32
    log, job, found, start = read_log(path, user, item), JOBS[name], [], 0.0
    keywords = {"user": "user"} | {"total": {}, "activity": {"by": "item"}}.get(job.call, {"item": "item"})
    for release in range(releases + 1):
        if release == 1:
            start = time.monotonic()  # what is made once is ready by then
        given = keywords | job.keywords(log) | {"key_env": KEY, "release_id": f"tuning-{release}"}
        found.append(job.worth(getattr(headcount, job.call)(log.table, **given).table, log))
    seconds = (time.monotonic() - start) / releases
    columns = [[getattr(each, field.name) for each in found] for field in dataclasses.fields(Worth)]
    known = [[each for each in column if not math.isnan(each)] for column in columns]
    return Worth(*(statistics.fmean(column) if column else math.nan for column in known)), seconds


def main() -> None:
    """Prints a line for each value of each number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = {number: name for name, job in JOBS.items() for number in job.numbers.split()}
    parser.add_argument("--number", action="append", choices=jobs, metavar="NAME", help="default: all of them")
    parser.add_argument("--input", type=Path, metavar="FILE", help="Parquet (default: a generated log)")
    parser.add_argument("--user", default="user", metavar="COLUMN")
    parser.add_argument("--item", default="item", metavar="COLUMN")
    parser.add_argument("--rows", type=int, default=100_000, help="of the generated log (default: %(default)s)")
    parser.add_argument("--releases", type=int, default=2, help="of each value, and one more (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where generated logs are kept")
    args = parser.parse_args()
    path = event_log("tail", args.rows, args.data) if args.input is None else args.input
    fresh = multiprocessing.get_context("spawn")
    lines = []
    with ProcessPoolExecutor(os.cpu_count(), mp_context=fresh, max_tasks_per_child=1) as processes:

        def submit(number: str, value: Any) -> Future[tuple[Worth, float]]:
            return processes.submit(measured, jobs[number], number, value, path, args.user, args.item, args.releases)

        # As they are, one number of a job is like any other.
        first = {jobs[number]: number for number in args.number or jobs}
        as_is = {job: submit(number, getattr(tuning, number)) for job, number in first.items()}
        asked = [
            (number, words, submit(number, value) if place else as_is[jobs[number]])
            for number in args.number or jobs
            for place, (words, value) in enumerate(other_values(number))
        ]
        print(f"{'number':42}{'value':22}{'job':27}{'names':>8}{'error':>9}{'ten largest':>13}{'seconds':>9}")
        for number, words, answer in asked:
            worth, seconds = answer.result()
            cells = [f"{worth.names:.1f}", f"{worth.error:.4f}", f"{worth.ten_largest:.3f}", f"{seconds:.2f}"]
            names, error, ten, time_of_one = (cell.replace("nan", "") for cell in cells)
            print(f"{number:42}{words:22}{jobs[number]:27}{names:>8}{error:>9}{ten:>13}{time_of_one:>9}", flush=True)
            lines.append({"number": number, "value": words, "job": jobs[number], "names": names, "error": error})
            lines[-1] |= {"ten largest": ten, "seconds": time_of_one}
    write_csv(lines, OUT / "tuning.csv")


if __name__ == "__main__":
    main()
