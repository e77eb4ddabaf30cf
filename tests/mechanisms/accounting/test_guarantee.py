import dataclasses
import json
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep, compose
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain
from headcount.mechanisms.errors import ParameterError


def test_words_of_an_unknown_domain():
    plan = calibrate_unknown_domain(Budget(1, 1e-8), Bound(l1=10), Relation.ADD_REMOVE)
    step = plan.step("Noisy counts")
    assert Guarantee(1.0, 1e-8, Relation.ADD_REMOVE, (step,)).description().splitlines() == [
        "User-level (epsilon = 1, delta = 1e-08) differential privacy under adding or removing one user's whole data.",
        "Noisy counts: epsilon = 1, delta = 1e-08; noise discrete Laplace, scale 10, grid 1, stddev 14.136245, "
        "threshold 202.",
    ]


def test_words_of_a_public_domain_and_of_replacement():
    plan = calibrate_public_domain(Budget(0.3, 1e-6), Bound(l2=10), Relation.REPLACE, "gaussian")
    words = Guarantee(0.3, 1e-6, plan.relation, (plan.step("Noise"),)).description()
    assert "(epsilon = 0.3, delta = 1e-06)" in words
    assert "under replacing one user's whole data by any other." in words
    assert "discrete Gaussian" in words and "threshold" not in words


def test_numbers_are_shown_in_counts_and_in_full():
    plan = calibrate_public_domain(Budget(0.123456789012), Bound(l1=10, grid=7), Relation.ADD_REMOVE)
    step = plan.step("Noise")
    assert step.details["scale"] == pytest.approx(10 / 0.123456789012)
    assert step.details["grid"] == "2^-7"
    assert "epsilon = 0.123456789012," in step.description()


def test_as_dict_survives_json():
    plan = calibrate_unknown_domain(Budget(1, 1e-8), Bound(l1=100, linf=1), Relation.REPLACE)
    guarantee = Guarantee(1.0, 1e-8, Relation.REPLACE, (plan.step("Noisy counts"),))
    as_dict = guarantee.as_dict()
    assert json.loads(json.dumps(as_dict)) == as_dict
    assert (as_dict["relation"], as_dict["unit"]) == ("replace", "user")
    assert as_dict["mechanisms"][0]["details"]["threshold"] == float(plan.threshold_in_counts)


def test_from_dict_gives_back_what_as_dict_has():
    plan = calibrate_unknown_domain(Budget(1, 1e-8), Bound(l1=100, linf=1), Relation.REPLACE)
    guarantee = Guarantee(1.0, 1e-8, Relation.REPLACE, (plan.step("Noisy counts"),), "user-day")
    as_dict = json.loads(json.dumps(guarantee.as_dict()))
    assert Guarantee.from_dict(as_dict) == guarantee
    assert (
        Guarantee.from_dict({"words": guarantee.description().splitlines(), **as_dict}) == guarantee
    )  # as in report.json
    assert Guarantee.from_dict(as_dict | {"epsilon": 1}) == guarantee  # other JSON writers leave ".0" out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"epsilon": True}, "epsilon must be a number"),
        ({"epsilon": float("nan")}, "epsilon must be a finite number"),
        ({"delta": -1e-9}, "delta must not be negative"),
        ({"relation": "swap"}, "relation must be"),
        ({"unit": ""}, "unit must be a text"),
        ({"unit": None}, "unit must be a text"),
        ({"rho": 1}, "with rho, which is not known here"),
        ({"mechanisms": {}}, "must be a list"),
        ({"mechanisms": [[]]}, "must be a mapping"),
        ({"mechanisms": [{"name": "a", "epsilon": 1.0, "delta": 0.0}]}, "without details"),
        ({"mechanisms": [{"name": "a", "epsilon": 1.0, "delta": 0.0, "details": {"a": [1]}}]}, "texts or numbers"),
        ({"losses": {"mu": -1.0}}, "mu must not be negative"),
        ({"losses": {"sigma": 1.0}}, "with sigma, which is not known here"),
        ({"losses": {"parts": [{"kind": "noise", "times": 1}]}}, "must be one of"),
        ({"losses": {"parts": [{"kind": "draw", "range": 0.1}]}}, "without times"),
        ({"losses": {"parts": [{"kind": "draw", "range": 0.1, "steps": 1, "times": 1}]}}, "with steps"),
        ({"losses": {"parts": [{"kind": "draw", "range": 0.1, "times": 0}]}}, "times must be an integer from 1"),
        ({"losses": {"parts": [{"kind": "laplace", "epsilon": 0.0, "steps": 1, "times": 1}]}}, "must be positive"),
        ({"losses": {"parts": [{"kind": "one-of", "ways": [{}], "times": 1}]}}, "two at least"),
        (
            {
                "losses": {
                    "parts": [
                        {
                            "kind": "curve",
                            "losses": [0, 1],
                            "added": [0.1, 0.2],
                            "removed": [0.1, 0],
                            "both": False,
                            "times": 1,
                        }
                    ]
                }
            },
            "and fall",
        ),
        ({"spent": {"rho": 1.0}}, "without delta"),
        ({"mechanisms": [{"name": 3, "epsilon": 1.0, "delta": 0.0, "details": {}}]}, "name must be a text"),
        ({"mechanisms": [{"name": "a", "epsilon": -1.0, "delta": 0.0, "details": {}}]}, "must not be negative"),
    ],
)
def test_from_dict_refuses_what_as_dict_never_gives(change, says):
    with pytest.raises(ParameterError, match=says):
        Guarantee.from_dict(promise(1.0).as_dict() | change)
    with pytest.raises(ParameterError, match="without epsilon"):
        Guarantee.from_dict({name: value for name, value in promise(1.0).as_dict().items() if name != "epsilon"})
    with pytest.raises(ParameterError, match="must be a mapping"):
        Guarantee.from_dict([])


def test_a_step_without_details():
    assert MechanismStep("Bound", 0.1, 0.0, {}).description() == "Bound: epsilon = 0.1, delta = 0."


def promise(epsilon, delta=0.0, relation=Relation.ADD_REMOVE, unit="user"):
    return Guarantee(epsilon, delta, relation, (MechanismStep("Noise", epsilon, delta, {}),), unit)


def test_guarantees_add_up_in_the_decimals_that_they_print_as():
    whole = compose([promise(0.1), promise(0.2), promise(0.3)])
    assert (whole.epsilon, whole.delta) == (0.6, 0.0)  # where floats give 0.6000000000000001
    assert len(whole.mechanisms) == 3
    assert compose([promise(0.1, 1e-8), promise(0.2, 2e-8), promise(0.3)]).delta == 3e-8
    assert whole.promise_line() == (
        "User-level (epsilon = 0.6, delta = 0) differential privacy under adding or removing one user's whole data."
    )


@given(st.lists(st.tuples(st.floats(1e-300, 1e9), st.floats(0, 0.99, allow_subnormal=False)), min_size=1, max_size=5))
@settings(deadline=None)
def test_sums_are_never_rounded_down(parts):
    whole = compose([promise(*part) for part in parts])
    shown = re.search(r"epsilon = (\S+), delta = (\S+)\)", whole.promise_line())
    for which, total in enumerate((whole.epsilon, whole.delta)):
        exact = sum(Fraction(repr(part[which])) for part in parts)
        assert Fraction(repr(total)) <= Fraction(shown[which + 1]) <= exact * Fraction(1 + 1e-13)
        if which == 1 or whole.delta == 0:  # with a delta, epsilon may be less than the sum
            assert exact <= Fraction(repr(total))


def test_guarantees_of_different_kinds_do_not_add_up():
    with pytest.raises(ParameterError, match="one relation only, got add-remove and replace"):
        compose([promise(1.0), promise(1.0, relation=Relation.REPLACE)])
    with pytest.raises(ParameterError, match="one unit only, got event and user"):
        compose([promise(1.0), promise(1.0, unit="event")])
    with pytest.raises(ParameterError, match="at least one guarantee"):
        compose([])
    with pytest.raises(ParameterError, match="takes guarantees"):
        compose([Budget(1)])


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (Bound(l0=1, l1=1, linf=1), "1 item, once"),
        (Bound(l0=3, l1=3, linf=1), "3 items, once each"),
        (Bound(l0=3, linf=1), "3 items, once each"),
        (Bound(l1=10, linf=10), "10 events"),
        (Bound(l1=1), "1 event"),
        (Bound(l0=1, l1=5, linf=5), "5 events and on 1 item"),
        (Bound(l0=2, l1=10, linf=5), "10 events and on 2 items and 5 on one item"),
        (Bound(l1=1, linf=1, grid=7), "an l1 norm of 1"),
        (Bound(l2=1), "an l2 norm of 1"),
    ],
)
def test_bounds_in_words(bound, words):
    assert bound.description() == words


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Guarantee(1.0, 0.0, Relation.REPLACE, ()).epsilon = 2.0
