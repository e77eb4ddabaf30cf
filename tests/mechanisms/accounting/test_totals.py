import math

import pytest

from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.totals import total_delta, total_epsilon
from headcount.mechanisms.errors import ParameterError


def test_basic_composition():
    releases = [Guarantee(0.5, 1e-8, Relation.ADD_REMOVE, ()), Guarantee(1.0, 2e-8, Relation.ADD_REMOVE, ())]
    assert total_epsilon(releases, 3e-8) == 1.5
    assert total_epsilon(releases, 2e-8) == math.inf
    assert total_delta(releases, 1.5) == 3e-8
    assert total_delta(releases, 1.4) == 1.0
    with pytest.raises(ParameterError, match="at least one"):
        total_epsilon([], 1e-6)
