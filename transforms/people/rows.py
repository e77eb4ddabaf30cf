"""The rows of questions about people. (No postponed annotations here: Beam derives the schemas from the types.)"""

import datetime
from typing import NamedTuple

import apache_beam as beam


class FunnelStep(NamedTuple):
    """A step of a funnel, and the `count` of users that came to it, with a 95 % interval `low` to `high`; and which share they
    are of the users of the first step and of the step before, with theirs. A share of nothing is None."""

    step: int
    condition: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share_of_first: float | None
    share_of_first_low: float | None
    share_of_first_high: float | None
    share_of_before: float | None
    share_of_before_low: float | None
    share_of_before_high: float | None


class FunnelStepOf(NamedTuple):
    """The same for the users of one value of `by`."""

    item: str
    step: int
    condition: str
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share_of_first: float | None
    share_of_first_low: float | None
    share_of_first_high: float | None
    share_of_before: float | None
    share_of_before_low: float | None
    share_of_before_high: float | None


class ActivityBin(NamedTuple):
    """The `count` of users with `least` to `most` events (None: without an end), with a 95 % interval `low` to `high`, and
    their share of the users of all bins, with its own."""

    events: str
    least: int
    most: int | None
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None


class ActivityBinOf(NamedTuple):
    """The same for the users of one value of `by`."""

    item: str
    events: str
    least: int
    most: int | None
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None


class CohortAge(NamedTuple):
    """Of the users who came first in the period that begins at `cohort`, the `count` of those who are there `age` periods
    later, with a 95 % interval `low` to `high`, and their share of the cohort, with its own."""

    cohort: datetime.date
    age: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None


class CohortAgeOf(NamedTuple):
    """The same for the users of one value of `by`."""

    item: str
    cohort: datetime.date
    age: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None


class ActiveUsers(NamedTuple):
    """The `count` of users who are there on a `day` or the `window` - 1 days before it, with a 95 % interval `low` to `high`,
    and their share of those of the longest window, with its own."""

    day: datetime.date
    window: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None


class ActiveUsersOf(NamedTuple):
    """The same for the users of one value of `by`."""

    item: str
    day: datetime.date
    window: int
    count: float  # type: ignore[assignment]  # the field hides tuple.count, which nobody needs here
    noise_stddev: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None


for _row in (ActiveUsers, ActiveUsersOf, FunnelStep, FunnelStepOf, ActivityBin, ActivityBinOf, CohortAge, CohortAgeOf):
    beam.coders.registry.register_coder(_row, beam.coders.RowCoder)
