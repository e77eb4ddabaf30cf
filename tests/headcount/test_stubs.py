"""What type checkers read of the calls is what the flags say today."""

from __future__ import annotations

from tests.headcount.stubs import PLACE, stubs


def test_the_stubs_are_those_of_the_flags():
    assert PLACE.read_text(encoding="utf-8") == stubs(), "run `make stubs`"
