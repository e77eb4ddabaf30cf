"""What a promise means to somebody who has never heard of epsilon: how often a guess about one user can be right.

Guarantee in words: under (epsilon, delta), whoever sees the release and knows all other users' data guesses which of two
neighbouring data sets it is from, each as likely as the other. With a and b the chances that the guess is the first one, on
either: a <= e^epsilon b + delta and 1 - b <= e^epsilon (1 - a) + delta. The sum of both gives
(1 + a - b) / 2 <= (e^epsilon + delta) / (1 + e^epsilon), which is the chance to be right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headcount.pipelines.pages.charts import Bar, bars
from headcount.pipelines.pages.texts import Drawn

_COIN = 0.5


def right_guesses(epsilon: float, delta: float) -> float:
    """In which share of cases a guess about one user can be right at most; 1/2 is a coin."""
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def guess_text(epsilon: float, delta: float) -> str:
    """The same in percent, rounded up to a tenth: it is a limit."""
    tenths = math.ceil(1000 * right_guesses(epsilon, delta) - 1e-9)
    return "nearly 100 %" if tenths >= 1000 else f"{tenths / 10:g} %"


def sentence(guarantee: Mapping[str, Any]) -> str:
    """The promise for a reader without mathematics, from the numbers of a report."""
    share = guess_text(guarantee["epsilon"], guarantee["delta"])
    what = _what(guarantee["unit"], guarantee["relation"])
    limit = "up to" if share.startswith("nearly") else "at most"
    return (
        f"Whoever guesses from this release {what} is right in {limit} {share} of cases, even if they know everything about "
        "everybody else; without the release, a coin is right in 50 %."
    )


def picture(guarantee: Mapping[str, Any]) -> Drawn:
    """How often a guess about one user is right, by a coin and with the release."""
    epsilon, delta = guarantee["epsilon"], guarantee["delta"]
    rows = [
        Bar(("by a coin, without the release",), "50 %", _COIN, quiet=True),
        Bar(("with the release, at most",), guess_text(epsilon, delta), right_guesses(epsilon, delta)),
        Bar(("with the data themselves",), "100 %", 1.0, quiet=True),
    ]
    return bars(rows, ["a guess about one " + _whom(guarantee["unit"]), "is right in"])


def _whom(unit: str) -> str:
    """Whom the promise is made to, in a word."""
    return unit.split("-")[0]


def _what(unit: str, relation: str) -> str:
    window = unit.removeprefix("user-")
    when = "" if window == unit else f" in one {window}"
    if relation == "replace":
        return f"which of two things one {_whom(unit)} {'was' if unit == 'event' else 'did'}{when}"
    return f"whether one {_whom(unit)}{f' was there{when}' if when else ' is in the data'}"
