"""Anybody's words, such as released items, a label, or a report that lies somewhere, as text that a terminal does not obey."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with a space for every letter that would move, colour or hide what stands beside it."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(one_line, text.split("\n")))
