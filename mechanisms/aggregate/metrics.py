"""What is asked of every key: users, events, and the sum, mean, variance or quantiles of a column of numbers within a range."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

from headcount.mechanisms.checks import check_one_of, check_share
from headcount.mechanisms.columns.flags import Flag, parse_flag, parse_named
from headcount.mechanisms.columns.times import UTC
from headcount.mechanisms.columns.value_ranges import AutoRange, ValueRange, parse_range_or_auto
from headcount.mechanisms.errors import ParameterError

COUNTS = ("users", "events")
_TAKEN = re.compile(r"item|users|events|(sum|mean|variance|bounded|p[0-9]+)_.*|.*_(noise_stddev|rank_stddev|low|high)")
OF_VALUES = ("sum", "mean", "variance", "quantile", "share", "ratio")


@dataclasses.dataclass(frozen=True)
class Metric:
    """One number for each key: `kind` is what it is, of the values of a range where it is about values.

    A quantile has the `share` of rows whose values are no larger. The metric "share" is that of the users of a key with a row
    that meets a condition, which is its `of`. A ratio is the sum of `of` by the sum of another range, `by`, and has a `label`.
    """

    kind: str
    of: ValueRange | None = None
    share: Fraction | None = None
    by: ValueRange | None = None
    label: str = ""

    def __post_init__(self) -> None:
        check_one_of("metric", self.kind, (*COUNTS, *OF_VALUES))
        if (self.of is None) == (self.kind in OF_VALUES):
            what = "needs a column and its range" if self.of is None else "has no column"
            raise ParameterError(f"the metric {self.kind!r} {what}")
        if (self.share is None) == (self.kind == "quantile"):
            what = "needs a share, such as 0.5" if self.share is None else "has no share"
            raise ParameterError(f"the metric {self.kind!r} {what}")
        if (self.kind == "share") != isinstance(self.of, Flag):
            raise ParameterError(f"the metric {self.kind!r} has a {'condition' if self.kind == 'share' else 'range'}")
        if (self.kind == "ratio") != (self.by is not None) or (self.kind == "ratio") != bool(self.label):
            what = (
                "needs two ranges and a name" if self.kind == "ratio" else "is of one range, and has no name of its own"
            )
            raise ParameterError(f"the metric {self.kind!r} {what}")
        if self.by is not None and self.of == self.by:
            raise ParameterError(f"the ratio {self.label!r} is of a range and itself: give two", "ratio")
        if self.kind in ("share", "ratio") and _TAKEN.fullmatch(self.name):
            raise ParameterError(
                f"{self.kind} {self.name!r} has a name that other metrics have: give another", self.kind
            )

    @property
    def name(self) -> str:
        """What its column is called: with an underscore for what no field of a row may have in its name. The median of price
        is `p50_price`, and its quantile of 0.999 is `p99_9_price`. A share and a ratio have names that are given."""
        if self.of is not None and self.kind in ("share", "ratio"):
            return self.label or self.of.column
        kind = self.kind if self.share is None else f"p{Decimal(self.share.numerator) * 100 / self.share.denominator:f}"
        return kind if self.of is None else re.sub(r"\W", "_", f"{kind}_{self.of.column}")

    @property
    def ranges(self) -> tuple[ValueRange, ...]:
        """The ranges of values that it is about."""
        return tuple(of for of in (self.of, self.by) if of is not None)

    @property
    def spread(self) -> str:
        """What the column of its noise ends with: that of a quantile is in shares of rows, and of others in their own unit."""
        return "rank_stddev" if self.kind == "quantile" else "noise_stddev"

    @property
    def is_total(self) -> bool:
        """Whether it is a total of numbers that are not negative, of which a bound leaves out a part."""
        return self.kind in COUNTS or (self.kind == "sum" and self.of is not None and self.of.low >= 0)


def parse_metric(kind: str, text: str) -> Metric:
    """The metric of a kind for a text like `price:0:100`, or `price:auto`."""
    return Metric(kind, parse_range_or_auto(kind, text))


def parse_metrics(kind: str, text: str, zone: str = UTC) -> list[Metric]:
    """The same, or all quantiles of a text like `0.5,0.9:price:0:100`, the share of one like `bought=event=buy`, in which dates
    and times are of this zone, or the ratio of one like `ctr=clicks:0:10/views:0:50`."""
    if kind == "share":
        return [Metric(kind, parse_flag(kind, text, zone))]
    if kind == "ratio":
        return [_parse_ratio(text)]
    if kind != "quantile":
        return [parse_metric(kind, text)]
    shares, _, rest = text.partition(":")
    try:
        numbers = [float(share) for share in shares.split(",")]
    except ValueError:
        raise ParameterError(
            f"quantile needs shares, a column and the range of its values, such as 0.5,0.9:price:0:100, got {text!r}",
            kind,
        ) from None
    of = parse_range_or_auto(kind, rest)
    return [Metric(kind, of, check_share(kind, number)) for number in numbers]


def _parse_ratio(text: str) -> Metric:
    """The ratio of a text like `ctr=clicks:0:10/views:0:50`."""
    example = "and two columns with the ranges of their values, such as ctr=clicks:0:10/views:0:50"
    label, rest = parse_named("ratio", text, example)
    for slash in re.finditer("/", rest):  # a name of a column may have one, too
        try:
            of, by = (parse_range_or_auto("ratio", part) for part in (rest[: slash.start()], rest[slash.end() :]))
        except ParameterError:
            continue
        return Metric("ratio", of, by=by, label=label)
    raise ParameterError(f"ratio needs a name {example}, got {text!r}", "ratio")


def _metrics_of(given: Metric | str, zone: str) -> list[Metric]:
    if isinstance(given, Metric):
        return [given]
    if not isinstance(given, str):
        raise ParameterError(f"a metric is a Metric, or a text such as users, got a {type(given).__name__}", "metrics")
    kind, _, rest = given.partition(":")
    return parse_metrics(kind, rest, zone) if kind in OF_VALUES else [Metric(kind)]


@dataclasses.dataclass(frozen=True)
class Metrics:
    """All metrics of a release, in the order of their columns."""

    each: tuple[Metric, ...]

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.each]
        if not names:
            raise ParameterError(
                "there is nothing to compute: ask for users, events, sum, mean, variance, quantile, share or ratio",
                "metrics",
            )
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(f"the metric {name!r} is asked for more than once: leave one out", "metrics")

    @classmethod
    def of(cls, metrics: Iterable[Metric | str], zone: str = UTC) -> Metrics:
        """The metrics, or those of texts like `users`, `mean:price:0:100`, `quantile:0.5,0.9:price:0:100`,
        `share:bought=event=buy`, in which dates and times are of this zone, and `ratio:ctr=clicks:0:10/views:0:50`."""
        if isinstance(metrics, str):
            raise ParameterError(f"metrics must be a list of them, got the text {metrics!r}", "metrics")
        return cls(tuple(metric for given in metrics for metric in _metrics_of(given, zone)))

    @property
    def values(self) -> tuple[ValueRange, ...]:
        """The ranges of values that rows carry, each once: their places are those of the value columns of a batch."""
        return tuple(dict.fromkeys(of for metric in self.each for of in metric.ranges))

    @property
    def autos(self) -> dict[int, AutoRange]:
        """The ranges that are to be chosen, by their places among all."""
        return {place: of for place, of in enumerate(self.values) if isinstance(of, AutoRange)}

    def chosen(self, ends: Iterable[float]) -> Metrics:
        """The same with the ranges of these ends, which were chosen."""
        made = {of: of.chosen(end) for of, end in zip(self.autos.values(), ends, strict=True)}

        def known(of: ValueRange | None) -> ValueRange | None:
            return made[of] if isinstance(of, AutoRange) else of

        return Metrics(tuple(dataclasses.replace(each, of=known(each.of), by=known(each.by)) for each in self.each))

    @property
    def totals(self) -> tuple[str, ...]:
        """What there must be totals of, so that metrics can be calibrated by them: users, events, and for sums the rows that
        have a value of their range, `valued0` and so on. Where no row lacks the one there is, these are events."""
        of_rows = [each.kind if each.of is None else self.rows_of(each.of) for each in self.each if each.is_total]
        kinds = [*COUNTS, *(f"valued{place}" for place in range(len(self.values)))]
        return tuple(kind for kind in kinds if kind in of_rows)

    def rows_of(self, of: ValueRange) -> str:
        """The rows that have a value of a range, as they are called in totals."""
        return "events" if self.only_values and len(self.values) == 1 else f"valued{self.values.index(of)}"

    @property
    def counts_rows(self) -> bool:
        """Whether there are totals of rows."""
        return any(kind != "users" for kind in self.totals)

    @property
    def only_values(self) -> bool:
        """Whether all is of values, so that rows without any of them do not matter."""
        return not any(metric.kind in (*COUNTS, "share") for metric in self.each)

    @property
    def only_users(self) -> bool:
        """Whether nothing but users and shares of them is asked for, so that no number of rows of a user on a key matters."""
        return all(metric.kind in ("users", "share") for metric in self.each)

    def texts(self) -> list[str]:
        """The metrics in one form only, as a part of randomness."""
        return [
            ":".join(
                [
                    metric.kind,
                    *([str(metric.share)] if metric.share else []),
                    *([metric.label] if metric.label else []),
                    *(of.text() for of in metric.ranges),
                ]
            )
            for metric in self.each
        ]
