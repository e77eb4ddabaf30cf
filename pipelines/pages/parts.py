"""What a page of released rows is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from headcount.pipelines.pages.texts import Drawn

NOISE_LINE = "is the range of the noise, which holds 95 % of it."
INTERVAL_LINE = "is the 95 % interval: it has the noise, and how far the assumption about what was left out may be off."
TOTAL_LINE = "is the range: it has the noise, and how far the assumption about what was left out may be off."


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of a page: a heading, sentences, and below them what is given."""

    heading: str
    words: Sequence[str] = ()
    cards: Sequence[tuple[str, str, str]] = ()  # (what, value, more)
    drawn: Drawn | None = None
    folded: tuple[str, Drawn] | None = None  # more of what is drawn, and what that is
    caption: str = ""
    names: Sequence[tuple[str, Sequence[str]]] = ()  # (rank, names)
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    tree: Sequence[Branch] = ()


@dataclasses.dataclass(frozen=True)
class Branch:
    """One node of a tree that opens level by level: its name, number, interval, and size as a share of the largest."""

    name: str
    number: str
    interval: str
    share: float
    children: Sequence[Branch]
    open: bool
