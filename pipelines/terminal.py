"""Anybody's words, such as released items, a label, or a report that lies somewhere, as text that a terminal does not obey."""

from __future__ import annotations

import re

LONGEST = 60  # letters of a name, as in report.json
# Of the URL of a ledger: a user's password, to the last @, and one among the options.
_PASSWORD = re.compile(r"(?i)(postgres\w*(?:\+\w+)?://[^/:@]*:).*(?=@)|([?&]\w*password=)[^&]*", re.DOTALL)


def masked(word: str) -> str:
    """The word with stars for the password of a URL in it."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", word)


def one_line(text: str) -> str:
    """The text without passwords, and with a space for every letter that would move, colour or hide what stands beside it."""
    words = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(map(masked, words.split(" ")))


def name(value: object, longest: int = LONGEST) -> str:
    """What comes from data, as text on one line: nothing in it moves what stands beside it, and it is cut if it is long."""
    text = one_line(str(value)).strip()
    if not text:
        return "(empty)" if str(value) == "" else "(blank)"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(map(one_line, text.split("\n")))
