"""Checks of numbers and names that a caller gives as parameters: each returns the value in one form, or refuses it by name.

A bool is never a number here, and NumPy's integers are integers. Nothing of this is for data: the messages echo the value.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection
from fractions import Fraction
from typing import TypeGuard

from headcount.mechanisms.errors import ParameterError


def wrong(parameter: str, must: str, value: object) -> ParameterError:
    """The error for a parameter that is not what it must be: every check here raises it, and no other."""
    return ParameterError(f"{parameter} {must}, got {value!r}", parameter)


def is_real(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, and no bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: object, least: int, most: float = math.inf) -> TypeGuard[int]:
    """Whether a value is an integer within limits, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= int(value) <= most


def check_whole(parameter: str, value: object, least: int, most: int, shown: str | None = None) -> int:
    """An integer within limits, as a plain one. `shown` is how the message writes the upper limit."""
    if not is_whole(value, least, most):
        raise wrong(parameter, f"must be an integer from {least} to {most if shown is None else shown}", value)
    return int(value)


def check_number(parameter: str, value: object) -> float:
    """A finite number."""
    if not is_real(value):
        raise wrong(parameter, "must be a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise wrong(parameter, "must be a finite number", value)
    return number


def check_positive(parameter: str, value: object) -> float:
    """A finite number above 0."""
    number = check_number(parameter, value)
    if number <= 0:
        raise wrong(parameter, "must be positive", value)
    return number


def check_at_least_0(parameter: str, value: object) -> float:
    """A finite number of 0 or more."""
    number = check_number(parameter, value)
    if number < 0:
        raise wrong(parameter, "must not be negative", value)
    return number


def check_probability(parameter: str, value: object) -> float:
    """A probability that is not certainty: 0 or more, and below 1."""
    number = check_number(parameter, value)
    if not 0 <= number < 1:
        raise wrong(parameter, "must be at least 0 and below 1", value)
    return number


def check_inner(parameter: str, value: object) -> float:
    """A probability that is neither 0 nor 1."""
    number = check_number(parameter, value)
    if not 0 < number < 1:
        raise wrong(parameter, "must lie between 0 and 1", value)
    return number


def decimal(value: object) -> Fraction | None:
    """A real number as the exact decimal that it prints as, a Fraction as it is; None for what is no finite number."""
    if isinstance(value, Fraction):
        return value
    try:
        return Fraction(repr(float(value))) if is_real(value) else None
    except (ValueError, OverflowError):  # infinite, or no number, or too large for a float
        return None


def check_share(parameter: str, value: object, what: str = "number") -> Fraction:
    """A share between 0 and 1, as the exact decimal that it prints as."""
    exact = decimal(value)
    if exact is None or not 0 < exact < 1:
        raise wrong(parameter, f"must be a {what} between 0 and 1", value)
    return exact


def check_above_0(parameter: str, value: object, below: int) -> Fraction:
    """A number above 0 and below a limit, as the exact decimal that it prints as."""
    exact = decimal(value)
    if exact is None or not 0 < exact < below:
        raise wrong(parameter, f"must be a number above 0 and below {below}", value)
    return exact


def check_decimal(parameter: str, value: object, least: Fraction, most: int) -> Fraction:
    """A number within limits, as the exact decimal that it prints as."""
    exact = decimal(value)
    if exact is None or not least <= exact <= most:
        raise wrong(parameter, f"must be a number from {float(least):g} to {most}", value)
    return exact


def check_one_of(parameter: str, value: str, names: Collection[str], why: str = "") -> None:
    """Refuses a name that is none of those that are known; `why` ends the message."""
    if value not in names:
        *others, last = map(repr, names)
        raise ParameterError(f"{parameter} must be {', '.join(others)} or {last}, got {value!r}{why}", parameter)
