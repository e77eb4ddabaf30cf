"""Numbers and names as pages show them."""

from __future__ import annotations

import math
from typing import Any

_LONGEST = 60  # letters of a name, as in report.json


def name(value: Any, longest: int = _LONGEST) -> str:
    """What comes from data, as text on one line: nothing in it moves what stands beside it, and it is cut if it is long."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value)).strip()
    if not text:
        return "(empty)" if str(value) == "" else "(blank)"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def number(value: Any) -> str:
    """A number to read: whole ones and those from 1,000 on without decimals, others with four digits."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return name(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.4g}"


def whole(value: float) -> str:
    """A number without decimals."""
    return f"{round(value):,}"


def percent(share: float) -> str:
    """A share in percent, with four digits."""
    return f"{100 * share:.4g} %"
