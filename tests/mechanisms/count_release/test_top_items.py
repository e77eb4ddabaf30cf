"""The items with the most users: in order, at the better price, and what is refused."""

import math
from fractions import Fraction

import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp
from headcount.mechanisms.count_release.top_names import top_items
from headcount.mechanisms.errors import ParameterError
from tests.mechanisms.count_release.made_frames import KEY, frame


def test_the_top_is_found_in_order_and_ends_where_bot_is():
    plan = top_items(Budget(1, 1e-6), 10, method="draws")
    data = frame([10**6 // 2**k for k in range(20)])
    found = plan.release(data, KEY)
    assert found.to_pydict() == {"rank": list(range(1, 11)), "item": [f"i{k}" for k in range(10)]}
    few = plan.release(frame([10**6, 10**5, 3, 2]), KEY)
    assert few["item"].to_pylist() == ["i0", "i1"]
    assert plan.release(frame([10**6] * 3, 10**6), KEY).num_rows == 0  # the base hides whatever is close to it
    assert plan.release(frame([]), KEY).num_rows == 0
    assert top_items(Budget(1, 1e-6), 5, item_type=int).release(data._replace(items=pa.array(range(20))), KEY)[
        "item"
    ].to_pylist() == [0, 1, 2, 3, 4]


def test_the_accounting_of_the_top_is_the_better_one():
    for relation, factor in (("add-remove", 1), ("replace", 2)):
        few, many = (top_items(Budget(1, 1e-8), k, method="draws", relation=relation) for k in (3, 300))
        assert few.accounting == "pure" and float(few.epsilon) == pytest.approx(1 / 3 / factor, rel=1e-5)
        assert few.epsilon * 3 * factor <= 1 - 3 * Fraction("1e-8")
        rho = Zcdp.from_budget(Budget(1, 1e-8), 5e-9).rho
        assert many.accounting == "zCDP"
        assert float(many.epsilon) == pytest.approx(math.sqrt(8 * rho / 300) / factor, rel=1e-4)
        assert 300 * (factor * many.epsilon) ** 2 / 8 <= Fraction(rho)
        log = math.log(10_000 / 5e-9)
        assert float(many.threshold) == pytest.approx(factor + log / float(many.epsilon), rel=1e-5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"k": 0}, "k must be an integer from 1 to k_bar = 10000, got 0"),
        ({"k": 11, "k_bar": 10, "method": "draws"}, "k must be an integer from 1 to k_bar = 10, got 11"),
        ({"budget": Budget(1)}, "needs a delta above 0 and below 1/2, got 0.0"),
        ({"budget": Zcdp(1, 1e-6)}, r"must be a Budget\(epsilon, delta\), got Zcdp"),
        ({"budget": Budget(0.1, 0.1)}, "epsilon = 0.1 is too little for k = 5 with delta = 0.1"),
        ({"item_type": float}, "item_type must be str or int"),
    ],
)
def test_what_the_top_refuses(given, said):
    with pytest.raises(ParameterError, match=said):
        top_items(**({"budget": Budget(1, 1e-6), "k": 5} | given))
