"""Which two data sets must not be told apart: the neighbouring relation of differential privacy."""

from __future__ import annotations

import enum

from headcount.mechanisms.errors import ParameterError


class Relation(enum.Enum):
    """Two data sets are neighbours if they differ in one user's whole data, in one of two ways.

    ADD_REMOVE: one data set has one user more; the number of users is private.
    REPLACE: one user's data are exchanged for any other; the number of users is public.

    An (epsilon, delta) promise under one relation is not the same promise under the other, so that every
    calibration takes the relation.
    """

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"

    @property
    def users(self) -> int:
        """In how many users' contributions two neighbours differ: 1, or 2 (one leaves, one comes).

        Contributions are non-negative, so that this factor applies to the l1 distance of two neighbours' sums
        (|x - y| <= |x| + |y|) and to their *squared* l2 distance (|x - y|^2 <= |x|^2 + |y|^2).
        """
        return 2 if self is Relation.REPLACE else 1

    def apart(self, one_item: bool) -> int:
        """By how many users' bounds the sums of two neighbours are apart: `users`, and 1 if one public item is all there is.

        A user counts there with an x from 0 to the bound, and who comes in its place with a y: |x - y| <= max(x, y), which is
        the bound at most. On two items |x - y| may be twice that in l1, where x has all on the one and y all on the other.
        """
        return 1 if one_item else self.users

    def description(self, unit: str = "user") -> str:
        """The relation as the end of a sentence that begins "differential privacy under"."""
        window = unit.removeprefix("user-")
        what = (
            "one user's whole data"
            if unit == "user"
            else f"one {unit}"
            if window == unit
            else f"one user's data of one {window}"
        )
        return f"replacing {what} by any other" if self is Relation.REPLACE else f"adding or removing {what}"

    @classmethod
    def parse(cls, value: Relation | str) -> Relation:
        """The relation itself, or the one that goes by this name."""
        if isinstance(value, cls):
            return value
        for relation in cls:
            if value == relation.value:
                return relation
        names = " or ".join(repr(relation.value) for relation in cls)
        raise ParameterError(f"relation must be {names}, got {value!r}", "relation")
