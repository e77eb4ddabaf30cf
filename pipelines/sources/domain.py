"""A public domain: the items to be counted, known beforehand, one per line of a text file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.storage import stores

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


def domain_of(args: argparse.Namespace, item_type: type) -> Iterable[str] | Iterable[int] | None:
    """The items of a job's domain, if it has one: those of the file of --domain, or as a call in Python gives them."""
    if args.domain is None or not isinstance(args.domain, str):
        return args.domain
    return read_domain(args.domain, item_type, args.max_item_bytes)


def read_domain(path: str, item_type: type, max_item_bytes: int) -> list[str] | list[int]:
    """The items of a domain file, as strings or, for an integer column, as integers; each once."""
    try:
        content = stores.read(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such file, or not readable"
        raise ParameterError(f"domain {path!r} cannot be read: {reason}", "domain") from error
    return parse_domain(content, path, item_type, max_item_bytes)


def parse_domain(content: bytes, path: str, item_type: type, max_item_bytes: int) -> list[str] | list[int]:
    """Split the content of a domain file into its items, refusing what cannot be meant."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ParameterError(f"domain {path!r} is not a text file in UTF-8", "domain") from None
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines == [""]:
        raise ParameterError(f"domain {path!r} is empty: give one item per line", "domain")
    first_line: dict[str, int] = {}
    for number, item in enumerate(lines, start=1):
        if not item:
            raise ParameterError(f"domain {path!r}: line {number} is empty", "domain")
        if len(item.encode()) > max_item_bytes:
            raise ParameterError(f"domain {path!r}: line {number} is longer than {max_item_bytes} bytes", "domain")
        if first_line.setdefault(item, number) != number:
            raise ParameterError(f"domain {path!r}: line {number} repeats line {first_line[item]}", "domain")
        if item_type is int and not (_INTEGER.fullmatch(item) and -(2**63) <= int(item) < 2**63):
            raise ParameterError(
                f"domain {path!r}: line {number} is not a whole number of 64 bits, as the item column holds", "domain"
            )
    return [int(item) for item in lines] if item_type is int else lines
