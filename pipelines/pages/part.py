"""One part of a page, as templates take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from headcount.pipelines.pages.texts import Drawn


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
