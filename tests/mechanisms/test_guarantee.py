import dataclasses
import json

import pytest

from headcount.mechanisms.budget import Budget
from headcount.mechanisms.calibration import calibrate_public_domain, calibrate_unknown_domain
from headcount.mechanisms.contribution_bound import Bound
from headcount.mechanisms.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.relation import Relation


def test_words_of_an_unknown_domain():
    plan = calibrate_unknown_domain(Budget(1, 1e-8), Bound(l1=10), Relation.ADD_REMOVE)
    step = MechanismStep.of_plan("Noisy counts", plan)
    assert Guarantee(1.0, 1e-8, Relation.ADD_REMOVE, (step,)).words().splitlines() == [
        "User-level (epsilon = 1, delta = 1e-08) differential privacy under adding or removing one user's whole data.",
        "Noisy counts: epsilon = 1, delta = 1e-08; noise discrete Laplace, scale 10, grid 1, stddev 14.136245, "
        "threshold 202.",
    ]


def test_words_of_a_public_domain_and_of_replacement():
    plan = calibrate_public_domain(Budget(0.3, 1e-6), Bound(l2=10), Relation.REPLACE, "gaussian")
    words = Guarantee(0.3, 1e-6, plan.relation, (MechanismStep.of_plan("Noise", plan),)).words()
    assert "(epsilon = 0.3, delta = 1e-06)" in words
    assert "under replacing one user's whole data by any other." in words
    assert "discrete Gaussian" in words and "threshold" not in words


def test_numbers_are_shown_in_counts_and_in_full():
    plan = calibrate_public_domain(Budget(0.123456789012), Bound(l1=10, grid=7), Relation.ADD_REMOVE)
    step = MechanismStep.of_plan("Noise", plan)
    assert step.details["scale"] == pytest.approx(10 / 0.123456789012)
    assert step.details["grid"] == "2^-7"
    assert "epsilon = 0.123456789012," in step.words()


def test_as_dict_survives_json():
    plan = calibrate_unknown_domain(Budget(1, 1e-8), Bound(l1=100, linf=1), Relation.REPLACE)
    guarantee = Guarantee(1.0, 1e-8, Relation.REPLACE, (MechanismStep.of_plan("Noisy counts", plan),))
    as_dict = guarantee.as_dict()
    assert json.loads(json.dumps(as_dict)) == as_dict
    assert (as_dict["relation"], as_dict["unit"]) == ("replace", "user")
    assert as_dict["mechanisms"][0]["details"]["threshold"] == float(plan.threshold_in_counts)


def test_a_step_without_details():
    assert MechanismStep("Bound", 0.1, 0.0, {}).words() == "Bound: epsilon = 0.1, delta = 0."


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Guarantee(1.0, 0.0, Relation.REPLACE, ()).epsilon = 2.0
