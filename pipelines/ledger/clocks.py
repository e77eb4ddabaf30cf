"""The time of a new entry, where a limit is for each month or year: which of them it is for follows from a machine's clock."""

from __future__ import annotations

import datetime

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.ledger.records import Dataset

_SKEW = datetime.timedelta(minutes=5)  # by which clocks of machines may differ
_AHEAD = {"month": datetime.timedelta(days=100), "year": datetime.timedelta(days=400)}  # of the newest entry


def time_of(dataset: Dataset, at: str, entry: str | None, checked: bool) -> str:
    """The time of a new entry by a clock that says `at`, if the newest entry that counts was reserved at the time `entry`.

    Not before that, or a clock that is set back would open the limit of an earlier year. Nor long after it, unless that was
    `checked`: a clock that is set ahead would keep the data set from all others until its time has come.
    """
    if not dataset.per:
        return at
    newest = max(dataset.at, entry or "")
    ahead = datetime.datetime.fromisoformat(at) - datetime.datetime.fromisoformat(newest)
    known = f"{'has an entry of' if newest == entry else 'was made on'} {newest[:19]} (UTC)"
    words = f"the clock of this machine says {at[:19]}, and data set {dataset.name!r} {known}"
    if -ahead > _SKEW:
        raise ParameterError(f"{words}: set the clock, as the limit is for each {dataset.per}")
    if ahead > _AHEAD[dataset.per] and not checked:
        raise ParameterError(
            f"{words}, more than {_AHEAD[dataset.per].days} days before: set the clock, as an entry of a time to come would "
            "keep out all others until then; or, if the clock is right, say so by --clock-checked"
        )
    return max(at, newest)
