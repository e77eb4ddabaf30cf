"""The factories of the questions about people: what is asked, in the words of whoever asks, as mechanisms.

Guarantee: that of `release.PeopleMechanism`. Proof: docs/proofs/people.md.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Sequence

import numpy as np

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.batches.shards import MOST_COUNT
from headcount.mechanisms.checks import check_one_of, check_whole
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.people.funnel import MOST_STEPS
from headcount.mechanisms.people.questions import ActivesQuestion, ActivityQuestion, FunnelQuestion, RetentionQuestion
from headcount.mechanisms.people.release import PeopleMechanism, ask_people

EVERY = ("day", "week", "month")
MOST_BINS, MOST_PERIODS = 1000, 400
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST = 366 * 1000 * 86_400  # seconds of a span

Span = str | datetime.timedelta
Day = str | datetime.date


def funnel(
    budget: Budget,
    steps: Sequence[str],
    *,
    within: Span | None = None,
    by: bool = False,
    domain: Iterable[str] | Iterable[int] | Domain | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> PeopleMechanism:
    """How many users came to each of some steps in order of time, given as the texts of conditions on rows."""
    given = [steps] if isinstance(steps, str) else list(steps)
    if not 1 <= len(given) <= MOST_STEPS or not all(isinstance(step, str) and step for step in given):
        raise ParameterError(f"step must be 1 to {MOST_STEPS} conditions such as page=/cart, got {len(given)}", "step")
    question = FunnelQuestion(tuple(given), None if within is None else span(within))
    return ask_people(budget, question, by=by, domain=domain, noise=noise, relation=relation, item_type=item_type)


def activity(
    budget: Budget,
    bins: Sequence[int],
    *,
    by: bool = False,
    domain: Iterable[str] | Iterable[int] | Domain | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> PeopleMechanism:
    """How many users have how many events: from each of the `bins` to below the next, and from the last on."""
    edges = tuple(check_whole("bins", edge, 1, MOST_COUNT) for edge in bins)
    if not 1 <= len(edges) <= MOST_BINS or any(low >= high for low, high in itertools.pairwise(edges)):
        told = ",".join(map(str, edges[:10]))
        raise ParameterError(f"bins must be 1 to {MOST_BINS} ascending whole numbers from 1 on, got {told}", "bins")
    question = ActivityQuestion(edges)
    return ask_people(budget, question, by=by, domain=domain, noise=noise, relation=relation, item_type=item_type)


def retention(
    budget: Budget,
    every: str,
    first: Day,
    last: Day,
    *,
    by: bool = False,
    domain: Iterable[str] | Iterable[int] | Domain | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> PeopleMechanism:
    """Of the users whose first day, week or month is each of those from `first` to `last`, how many are there in later ones."""
    question = RetentionQuestion(periods(every, first, last))
    return ask_people(budget, question, by=by, domain=domain, noise=noise, relation=relation, item_type=item_type)


def actives(
    budget: Budget,
    first: Day,
    last: Day,
    *,
    by: bool = False,
    domain: Iterable[str] | Iterable[int] | Domain | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> PeopleMechanism:
    """How many users are active on each day from `first` to `last`, in the 7 days that end with it, and in the 28."""
    days = periods("day", first, last)
    question = ActivesQuestion(days[0], days[-1])
    return ask_people(budget, question, by=by, domain=domain, noise=noise, relation=relation, item_type=item_type)


def span(given: Span, name: str = "within") -> int:
    """A span of time in microseconds: a text such as 7d, 36h, 90m, 30s or 2w, or a timedelta; `name` is the parameter's."""
    if isinstance(given, datetime.timedelta):
        micros = given // datetime.timedelta(microseconds=1)
    else:
        found = re.fullmatch(r"([0-9]{1,12})\s*([smhdw])", given.strip()) if isinstance(given, str) else None
        if found is None:
            raise ParameterError(f"{name} must be a span of time such as 7d, 36h, 90m, 30s or 2w, got {given!r}", name)
        micros = int(found[1]) * _UNITS[found[2]] * 10**6
    if not 0 <= micros <= _LONGEST * 10**6:
        raise ParameterError(f"{name} must be from 0 to 1000 years, got {given!r}", name)
    return micros


def periods(every: str, first: Day, last: Day) -> tuple[int, ...]:
    """The first days, since 1970, of the days, weeks (from Monday) or months that lie from `first` to `last`, both with their
    whole period."""
    check_one_of("every", every, EVERY)
    start, end = (day_of(name, given) for name, given in (("from", first), ("to", last)))
    days = np.arange(start, end + 1)
    if every == "month":
        days = days.astype("datetime64[D]").astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    elif every == "week":
        days = days - (days + 3) % 7  # 1970-01-01 was a Thursday
    found = np.unique(days)
    if not 1 <= len(found) <= MOST_PERIODS:
        wrong = "to must not be before from" if end < start else f"give {MOST_PERIODS} at most"
        raise ParameterError(f"from {first} to {last} there are {len(found)} periods of a {every}: {wrong}", "to")
    return tuple(found.tolist())


def day_of(name: str, given: Day) -> int:
    """A date, or its text, as days since 1970."""
    try:
        day = datetime.date.fromisoformat(given) if isinstance(given, str) else given
        return (datetime.date(day.year, day.month, day.day) - datetime.date(1970, 1, 1)).days
    except (ValueError, AttributeError):
        raise ParameterError(f"{name} must be a date such as 2026-10-05, got {given!r}", name) from None
