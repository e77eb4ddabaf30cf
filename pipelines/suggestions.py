"""What somebody may have meant: flags, commands, columns and files whose names are close to one that is not there."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 3  # names that a suggestion lists
_CLOSE = 0.7  # of difflib's measure, from 0 to 1


def nearest(word: str, known: Iterable[str], close: float = _CLOSE) -> list[str]:
    """The names that `word` begins or nearly is, the likeliest first; case, dashes and underscores make no difference."""
    plain = {name: _plain(name) for name in known}
    start = _plain(word)
    begun = sorted((name for name in plain if start and plain[name].startswith(start)), key=len)
    if begun and all(plain[name].startswith(plain[begun[0]]) for name in begun):
        return begun[:1]
    if begun:
        return begun[:_MOST]
    import difflib  # which only a refusal needs

    found = difflib.get_close_matches(start, plain.values(), n=_MOST, cutoff=close)
    found.sort(key=lambda each: each[:1] != start[:1])  # the first letter is rarely wrong: itme is item, not time
    return [name for name in plain if plain[name] in found[:1]][:1]


def each_of(name: str, known: Iterable[str]) -> list[str]:
    """The names that this one lists between commas, if all of them are known; else none."""
    parts = [part.strip() for part in name.split(",")]
    return parts if len(parts) > 1 and {*parts} <= {*known} else []


def did_you_mean(words: Iterable[str]) -> str:
    """The question that names these, or nothing if there is none."""
    *others, last = [*words] or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


def _plain(name: str) -> str:
    return name.lstrip("-").lower().replace("_", "-")
