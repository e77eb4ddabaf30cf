"""Numbers on the command line: read strictly, refused in words that name the limits."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence


def whole_number(least: int = 1, most: int = 10**18) -> Callable[[str], int]:
    """Reads a whole number within these limits, in plain digits."""

    def read(text: str) -> int:
        return _whole(text, least, most, ())

    return read


def whole_number_or(*words: str, most: int) -> Callable[[str], int | str]:
    """Reads one of these words, or a whole number from 1."""

    def read(text: str) -> int | str:
        return text if text in words else _whole(text, 1, most, words)

    return read


def memory_size(text: str) -> int:
    """Reads bytes as megabytes, gigabytes or terabytes, such as 500M or 8G."""
    found = re.fullmatch(r"([0-9]{1,9})([MGT])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a whole number and M, G or T, such as 500M or 8G, got {text!r}")
    return int(found[1]) << {"M": 20, "G": 30, "T": 40}[found[2]]


def _whole(text: str, least: int, most: int, words: Sequence[str]) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
        limits = f"from {least} to {most if most < 10**18 else '10^18'}"
        allowed = f", or {' or '.join(', '.join(words).rsplit(', ', 1))}" if words else ""
        raise argparse.ArgumentTypeError(f"must be a whole number {limits}{allowed}, got {text!r}")
    return int(text)


def number(text: str) -> float:
    """Any number that Python reads, nan and infinity too: `Budget` refuses those with its own words."""
    try:
        return float(text)
    except ValueError:
        point = f" with a point, {text.replace(',', '.')}" if re.fullmatch(r"-?[0-9]+,[0-9]+", text) else ""
        raise argparse.ArgumentTypeError(f"must be a number{point}, got {text!r}") from None
