"""Numbers and names as pages show them."""

from __future__ import annotations

import html
import math
import re
from typing import Any

from headcount.pipelines.terminal import name as name


class Drawn(str):
    """What is HTML already, such as a chart; a template takes it as it is."""

    def __html__(self) -> str:
        return self


def number(value: Any) -> str:
    """A number to read: whole ones and those from 1,000 on without decimals, others with four digits."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return name(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{round(value):,}"
    return f"{value:.4g}"


def percent(share: float) -> str:
    """A share in percent, with four digits."""
    return f"{100 * share:.4g} %"


def sentence(text: str) -> str:
    """A line of a report as a sentence: with a capital, unless it begins with a flag or a column, and with its full stop."""
    first = text.split(" ", 1)[0]
    start = text[:1] if first.startswith(("-", "`")) or "_" in first else text[:1].upper()
    return f"{start}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def prose(text: str) -> Drawn:
    """The same for a page: what stands in backticks is code, and no line ends between a number and its percent sign."""
    held = re.sub(r"(\d) %", "\\1\u00a0%", html.escape(sentence(text)))
    return Drawn(re.sub("`([^`<>]+)`", r"<code>\1</code>", held))


def several(number: int, what: str) -> str:
    """A number of things in words: 1 row, 1,234 rows."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
