"""The report and the explanation: complete, free of anything private, and right about the error."""

import datetime
import json
import math
from fractions import Fraction

import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration import expected_error
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.histogram.auto import Decided
from headcount.pipelines.reports import report


def plan(kind, scale, threshold, grid=0):
    scale = Fraction(scale)
    stddev = float(scale) * (math.sqrt(2) if kind == "laplace" else 1) / 2**grid
    return NoisePlan(kind, grid, scale, threshold, stddev, 1.0, 1e-8, Relation.ADD_REMOVE, Bound(l1=10))


def laplace_at_least(scale, k):
    """P(Z >= k), summed term by term."""
    scale = float(scale)
    q = math.exp(-1 / scale)
    return sum((1 - q) / (1 + q) * q ** abs(z) for z in range(k, k + int(60 * scale) + 60 + max(0, -k)))


@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, Fraction(20, 3), 50])
def test_the_stated_error_of_laplace_noise_is_exact(scale):
    """One less than each stated number does not do, by summing the probabilities."""
    tau = 1000
    error = expected_error.expected_error(plan("laplace", scale, tau))
    for chance, count in ((0.5, error.even_count), (0.999, error.sure_count)):
        assert laplace_at_least(scale, tau - count) >= chance > laplace_at_least(scale, tau - count + 1)
    width = int(error.half_width)
    assert 2 * laplace_at_least(scale, width + 1) <= 0.05
    assert width == 0 or 2 * laplace_at_least(scale, width) > 0.05
    assert error.threshold == tau


def test_the_stated_error_of_gaussian_noise():
    """By tables of the normal law, on a grid of 2**-4."""
    error = expected_error.expected_error(plan("gaussian", 1600, 16 * 500, grid=4))
    assert error.stddev == 100
    assert error.half_width == pytest.approx(195.996, abs=1e-2)
    assert (error.threshold, error.even_count, error.sure_count) == (500, 500, 810)


def test_a_count_is_never_below_one():
    error = expected_error.expected_error(plan("laplace", Fraction(1, 100), 1))
    assert (error.even_count, error.sure_count, error.half_width) == (1, 1, 0)


def guarantee_of(noise):
    step = noise.step("histogram")
    return Guarantee(noise.epsilon, noise.delta, noise.relation, (step,))


def test_explain_speaks_of_threshold_and_error():
    noise = calibrate_unknown_domain(Budget(1, 1e-8), Bound(l1=10, linf=10), Relation.ADD_REMOVE)
    text = report.explain(guarantee_of(noise), noise)
    error = expected_error.expected_error(noise)
    assert guarantee_of(noise).description() in text
    for number in (error.threshold, error.even_count, error.sure_count):
        assert f"{number:,.6g}" in text
    assert "50 %" in text and "99.9 %" in text and "95 %" in text


def test_explain_of_a_public_domain_has_no_threshold():
    noise = calibrate_public_domain(Budget(1), Bound(l1=10), Relation.ADD_REMOVE)
    text = report.explain(guarantee_of(noise), noise)
    assert "threshold: none" in text and "99.9" not in text


def test_the_report_holds_the_promise_and_public_parameters_only():
    noise = plan("laplace", 10, 200)
    about = report.About("histogram", "r1", {"bound": 10, "count": None}, summary={"users_needed": 7})
    content = report.make_report(about, guarantee_of(noise))
    found = json.loads(content)
    assert list(found) == ["headcount", "command", "release_id", "promise", "users_needed", "details"]
    assert found["release_id"] == "r1" and found["promise"] == guarantee_of(noise).promise_line()
    details = found["details"]
    assert list(details) == ["guarantee", "parameters", "versions"]
    assert details["guarantee"]["words"] == guarantee_of(noise).description().splitlines()
    assert (details["guarantee"]["epsilon"], details["guarantee"]["delta"]) == (1.0, 1e-8)
    assert details["parameters"] == {"bound": 10}
    assert {"python", "apache-beam", "numpy", "pyarrow"} < set(details["versions"])
    assert content == report.make_report(about, guarantee_of(noise))


def test_words_of_the_user_and_what_a_decision_tells_go_before_the_details():
    noise = plan("laplace", 10, 200)
    decided = Decided(ChosenBound(10, 0, "laplace"), guarantee_of(noise), noise)
    about = report.About("histogram", "r1", {}, "a note", "all shops", "week 3", summary={"users_needed": 1})
    found = json.loads(report.decided_report(decided, about))
    own = ["label", "period", "command", "release_id", "promise", "decision", "note", "users_needed"]
    assert list(found) == ["headcount", *own, "details"]
    assert (found["label"], found["period"], found["note"]) == ("all shops", "week 3", "a note")
    assert found["users_needed"] == expected_error.expected_error(noise).even_count
    assert found["details"]["chosen"]["bound"] == 10 and found["decision"] == decided.description()


def test_the_date_is_that_of_the_first_run():
    """A second run of a release is no other one, and writes the same bytes, on whatever day: the ledger knows the first, or
    the output that is there does; of another release, neither says anything."""
    there = json.dumps({"release_id": "r1", "date": "2020-02-29"}).encode()
    assert report.first_made("r1", "2021-03-01", there) == "2021-03-01"
    assert report.first_made("r1", None, there) == "2020-02-29"
    today = datetime.datetime.now(datetime.UTC).date()
    days = {str(today), str(today - datetime.timedelta(days=1))}  # it may be midnight just now
    for release, found in (("r2", there), ("r1", None), ("r1", b'{"release_id": "r1"}')):
        assert report.first_made(release, None, found) in days
