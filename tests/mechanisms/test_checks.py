"""The checks of parameters: what passes, in which form, and that every refusal names the parameter and the value."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from headcount.mechanisms.checks import (
    check_above_0,
    check_at_least_0,
    check_decimal,
    check_inner,
    check_number,
    check_one_of,
    check_positive,
    check_probability,
    check_share,
    check_whole,
)
from headcount.mechanisms.errors import ParameterError

NO_NUMBERS = [True, "1", None, math.nan, math.inf, 10**400]


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (lambda x: check_whole("x", x, 2, 5), [2, 5, np.int64(3)], [1, 6, 2.0, Fraction(3)]),
        (lambda x: check_number("x", x), [0, -1.5, Fraction(1, 3), np.float32(2)], [1j]),
        (lambda x: check_positive("x", x), [1e-300, 7], [0, -1]),
        (lambda x: check_at_least_0("x", x), [0, 7], [-1e-300]),
        (lambda x: check_probability("x", x), [0, 0.5], [1, -0.1]),
        (lambda x: check_inner("x", x), [0.5], [0, 1]),
        (lambda x: check_share("x", x), [0.1, Fraction(1, 3)], [0, 1]),
        (lambda x: check_above_0("x", x, 10), [0.1, 9], [0, 10]),
        (lambda x: check_decimal("x", x, Fraction(1, 10), 2), [0.1, 2], [0.09, 2.1]),
    ],
)
def test_numbers(check, good, bad):
    for value in good:
        assert float(check(value)) == float(value)
        assert type(check(value)) in (int, float, Fraction)
    for value in [*bad, *NO_NUMBERS]:
        with pytest.raises(ParameterError) as error:
            check(value)
        assert str(error.value).startswith("x must ") and str(error.value).endswith(f", got {value!r}")


def test_a_share_is_the_decimal_that_it_prints_as():
    assert check_share("x", 0.1) == Fraction(1, 10)
    assert check_share("x", np.float64(0.1)) == Fraction(1, 10)
    assert check_share("x", Fraction(1, 3)) == Fraction(1, 3)


def test_names():
    check_one_of("x", "b", ("a", "b", "c"))
    with pytest.raises(ParameterError, match="^x must be 'a', 'b' or 'c', got 'd': take a$"):
        check_one_of("x", "d", ("a", "b", "c"), ": take a")


def test_a_limit_is_written_as_people_know_it():
    with pytest.raises(ParameterError, match=r"^x must be an integer from 1 to 2\^62 - 1, got 0$"):
        check_whole("x", 0, 1, 2**62 - 1, "2^62 - 1")
