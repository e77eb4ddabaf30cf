"""Leaves: values become whole numbers of an axis, exactly."""

import math
from fractions import Fraction

import numpy as np
import pytest

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.sampled.leaves import Leaves


class TestLeaves:
    @pytest.mark.parametrize(
        ("lo", "hi", "count"), [(0, 1, 10), (0.1, 0.7, 7), (-3, 100, 1024), (1e9, 1e9 + 1e-3, 64), (-(2**62), 2**62, 3)]
    )
    def test_floats_next_to_every_edge_are_on_the_right_side(self, lo, hi, count):
        leaves = Leaves(lo, hi, count)
        near = [float(leaves.edge(i)) for i in range(count + 1)]
        x = np.array([y for e in near for y in (math.nextafter(e, -math.inf), e, math.nextafter(e, math.inf))])
        width = (Fraction(hi) - Fraction(lo)) / count
        exact = [min(count - 1, max(0, math.floor((Fraction(v) - Fraction(lo)) / width))) for v in x.tolist()]
        assert leaves.index(x).tolist() == exact

    @pytest.mark.parametrize(
        ("lo", "hi", "count"), [(0, 10, 4), (-7, 9, 16), (0.5, 2.5, 3), (1, 2**61, 1 << 10), (0, 3, 16)]
    )
    def test_integers_next_to_every_edge_are_on_the_right_side(self, lo, hi, count):
        leaves = Leaves(lo, hi, count)
        x = np.array([math.floor(leaves.edge(i)) + d for i in range(count + 1) for d in (-1, 0, 1)])
        width = (Fraction(hi) - Fraction(lo)) / count
        exact = [min(count - 1, max(0, math.floor((v - Fraction(lo)) / width))) for v in x.tolist()]
        assert leaves.index(x).tolist() == exact

    def test_what_lies_outside_belongs_to_the_ends(self):
        leaves = Leaves(0, 1, 8)
        assert leaves.index(np.array([-math.inf, -5.0, 0.0, 1.0, 7.0, math.inf])).tolist() == [0, 0, 0, 7, 7, 7]
        assert leaves.index(np.array([2**64 - 1, 0], dtype=np.uint64)).tolist() == [7, 0]
        assert leaves.index(np.array([0.5], dtype=np.float32)).tolist() == [4]

    def test_wrong_values_are_refused_without_telling_them(self):
        with pytest.raises(InputError, match="NaN"):
            Leaves(0, 1, 8).index(np.array([0.5, math.nan]))
        with pytest.raises(InputError, match="integer or float"):
            Leaves(0, 1, 8).index(np.array(["x"]))

    @pytest.mark.parametrize(
        "arguments",
        [
            (1, 1, 4),
            (2, 1, 4),
            (0, math.nan, 4),
            (0, math.inf, 4),
            ("0", 1, 4),
            (0, 2**63, 4),
            (0, 1, 1),
            (0, 1, 2**21),
        ],
    )
    def test_wrong_grids_are_refused(self, arguments):
        with pytest.raises(ParameterError):
            Leaves(*arguments)
