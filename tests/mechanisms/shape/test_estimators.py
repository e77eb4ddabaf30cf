"""Entropy, support size and coverage: the estimators estimate, their largest step is the largest, and the noise fits it.

Seeds and keys are fixed. Bounds on random values are at 5.5 standard deviations or more: each fails with probability below
1e-7 over the choice of seed and key.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.anonymized import anonymized_histogram, shape_rows
from headcount.mechanisms.shape.estimators import (
    CoverageQuestion,
    DistinctQuestion,
    EntropyQuestion,
    SupportQuestion,
    TooFarError,
    _coverage_table,
    coverage,
    plug_in_entropy,
    polynomial_entropy,
)
from headcount.mechanisms.shape.hashed import hashed_histogram
from headcount.mechanisms.shape.properties import ShapeProperties, central_property
from headcount.mechanisms.shape.tallies import Tally, make_tally

QUESTIONS = (EntropyQuestion(), CoverageQuestion(20_000), SupportQuestion(20_000))


def zipf(n):
    weights = 1 / np.arange(1, n + 1)
    return weights / weights.sum()


def uniform(n):
    return np.full(n, 1 / n)


def sample(weights, n, seed=0):
    counts = np.random.default_rng(seed).multinomial(n, weights)
    return make_tally(counts[counts > 0])


def entropy_of(weights):
    return float(-(weights * np.log(weights)).sum())


def estimators(n):
    yield from (plug_in_entropy(n, 0.0), plug_in_entropy(n, 0.5), polynomial_entropy(n, 2))
    yield polynomial_entropy(n, max(2, int(math.log(n))))
    for target in (1, n // 2 + 1, n, 2 * n - 1, 2 * n, 2 * n + 1, 3 * n, 9 * n):
        yield coverage(n, target, 0.0, 0.1)


@pytest.mark.seconds
@pytest.mark.parametrize("n", [3, 10, 1000, 20_000])
def test_the_largest_step_is_the_largest_of_all(n):
    """Over every count, beyond the number of samples too: what the noise is for, in grid units."""
    for made in estimators(n):
        values = [made.on_grid(c) for c in range(n + 5)]
        largest = max(abs(b - a) for a, b in zip(values, values[1:], strict=False))
        assert largest <= made.step <= 1.45 * largest + 8
        assert values[0] == 0 and all(isinstance(value, int) for value in values)


def test_a_step_that_leaves_out_the_first_count_is_caught():
    """The largest step of the entropy is from no user to one: without it the noise would be ten times too small."""
    made = plug_in_entropy(10_000, 0.5)
    inner = max(abs(made.on_grid(c + 1) - made.on_grid(c)) for c in range(1, 10_000))
    assert made.step > 1.1 * inner


def test_steps_are_those_of_the_spec():
    assert plug_in_entropy(100_000, 0.0).lipschitz == pytest.approx(math.log(1e5) / 1e5, rel=1e-3)
    assert plug_in_entropy(100_000, 0.0).lipschitz == pytest.approx(1.15e-4, rel=0.01)
    assert coverage(10_000, 30_000, 0.0, 0.1).lipschitz == pytest.approx(6.4, abs=0.1)
    assert coverage(10**6, 3 * 10**6, 0.0, 0.1).lipschitz == pytest.approx(14, abs=0.3)


def test_one_user_moves_the_sum_by_at_most_the_step_whatever_else_there_is():
    """A billion items of one user do not add a rounding each, as they would if G hung on more than the count: one unit for
    each of them would be more than the step."""
    for made in (plug_in_entropy(10**9, 0.5), polynomial_entropy(10**9, 12), coverage(10**6, 10**6 + 3, 0, 0.1)):
        before = make_tally(np.array([1, 2, 7, 900]), np.array([10**9, 500, 3, 1]))
        for count in (1, 2, 7, 900):
            after = make_tally(np.array([1, 2, 7, 900, count, count + 1]), np.array([10**9, 500, 3, 1, -1, 1]))
            assert abs(made.exact(after) - made.exact(before)) <= made.step
        assert made.step < 10**9


@pytest.mark.parametrize("weights", [zipf, uniform])
def test_entropies_come_nearer_to_the_truth_with_each_correction(weights):
    n = 100_000
    tally, truth = sample(weights(n), n), entropy_of(weights(n))
    found = []
    for kind in ("plug-in", "miller-madow", "polynomial"):
        made = EntropyQuestion(kind).estimator(n, 0.0)
        found.append(abs(made.value(made.exact(tally)) - truth))
    assert found[0] > found[1] > found[2] and found[2] < 0.17
    plain = plug_in_entropy(n, 0.0)
    x = np.repeat(tally.values, tally.cells) / n
    assert plain.value(plain.exact(tally)) == pytest.approx(-(x * np.log(x)).sum(), abs=1e-6)


@pytest.mark.parametrize("weights", [zipf, uniform])
@pytest.mark.parametrize("times", [0.5, 1, 2, 3])
def test_coverage_is_near_the_expected_number_of_distinct_items(weights, times):
    n = 50_000
    w, target = weights(n), int(times * n)
    made = coverage(n, target, 0.0, 0.1)
    assert made.value(made.exact(sample(w, n))) == pytest.approx((1 - (1 - w) ** target).sum(), abs=0.02 * target)


def test_the_guard_lowers_degree_and_smoothing_with_the_noise():
    assert EntropyQuestion(accuracy=0.1).estimator(10_000, 0.0).table != EntropyQuestion().estimator(10_000, 51).table
    loud = EntropyQuestion().estimator(10_000, 10_000)
    assert loud == plug_in_entropy(10_000, 0.5, 10_000)
    quiet, shaken = coverage(10_000, 30_000, 0, 0.01), coverage(10_000, 30_000, 50, 0.01)
    assert shaken.lipschitz * 50 <= 0.01 * 30_000 / 2 < quiet.lipschitz * 50
    with pytest.raises(ParameterError, match="90000 samples are more than 4 times the 10000"):
        coverage(10_000, 90_000, 1000, 0.1)
    with pytest.raises(ParameterError, match="too far for an accuracy of 0.001"):  # also if no smoothing is enough
        coverage(10_000, 90_000, 10**6, 0.001)


def test_answers_from_a_shape_are_post_processing_and_near_the_truth(make_release):
    """Uniform over 10,000 items, 20,000 users; the error is below that stated for the noise and 0.1 of the estimate's own."""
    rng = np.random.default_rng(1)
    items = [f"i{k}" for k in rng.integers(0, 10_000, 20_000)]
    batch = contribution_batch(pa.array([f"u{k}" for k in range(20_000)]), pa.array(items))
    for mode in ("l1", "central"):
        shape = anonymized_histogram(Budget(2), domain_size=10_000, mode=mode)
        asked = ShapeProperties(
            shape, (EntropyQuestion("miller-madow"), CoverageQuestion(40_000), SupportQuestion(20_000))
        )
        rows = asked.run([batch], make_release())
        assert rows.equals(asked.of_rows(shape.run([batch], make_release())))
        value = dict(zip(rows.column("property").to_pylist(), rows.column("value").to_pylist(), strict=True))
        assert abs(value["entropy"] - math.log(10_000)) < 0.2
        assert abs(value["support coverage"] - 10_000 * (1 - math.exp(-4))) < 1000
        assert abs(value["support size"] - 10_000) < 1500
        assert asked.guarantee().epsilon == 2


@pytest.mark.slow("accuracy")
@pytest.mark.parametrize(("mode", "runs"), [("l1", 30), ("central", 30)])
def test_errors_of_answers_from_a_shape_are_as_stated(mode, runs):
    """Root mean square errors against the answers without noise: at most 2.5 times the stated ones (where sorted counts go
    from one to the next is uncertain with a long tail), and for the number of distinct items at least a quarter of them."""
    n, questions = (
        10_000,
        (EntropyQuestion("miller-madow"), DistinctQuestion(), CoverageQuestion(), CoverageQuestion(25_000)),
    )
    asked = ShapeProperties(anonymized_histogram(Budget(1), domain_size=n, mode=mode), questions)
    found = []
    for run in range(runs):
        tally = sample(zipf(n), n, run)
        rows = asked.source.shape(tally, bytes([run]) * 32)
        exact = [q.estimator(n, float(np.asarray(rows.column("error")).sum())) for q in questions]
        truth = np.array([estimator.value(estimator.exact(tally)) for estimator in exact])
        answers = asked.of_rows(rows)
        found.append([np.asarray(answers.column("value")) - truth, np.asarray(answers.column("noise_stddev"))])
    error = np.sqrt(np.mean([np.square(gap) for gap, _ in found], axis=0))
    stated = np.mean([stddev for _, stddev in found], axis=0)
    assert (error < 2.5 * stated).all() and error[1] > stated[1] / 4


def test_the_curator_leaves_out_what_is_too_far_for_the_samples_it_counted():
    """An error would come after the noise of the count, and the next run would pay for it again."""
    asked = central_property(Budget(0.01), CoverageQuestion(90_000, 0.01))
    assert asked.of_tally(sample(uniform(10_000), 10_000), bytes(32), "id", "A").num_rows == 0
    with pytest.raises(ParameterError, match="too far"):
        central_property(Budget(0.01), CoverageQuestion(90_000, 0.01), samples=10_000)


@pytest.mark.slow("accuracy")
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.name)
def test_the_noise_of_the_curator_has_the_stated_stddev(question, relation):
    """400 keys: the variance of Laplace noise, of kurtosis 6, is known to 11 %; 5.5 times that is allowed."""
    tally = sample(uniform(10_000), 10_000)
    asked = central_property(Budget(1), question, samples=10_000, relation=relation)
    rows = [asked.of_tally(tally, k.to_bytes(32, "little"), "id", "A") for k in range(400)]
    values = np.array([row.column("value")[0].as_py() for row in rows])
    stated = rows[0].column("noise_stddev")[0].as_py()
    estimator, plan = asked.plan(10_000)
    assert abs(values.var() / stated**2 - 1) < 0.62
    assert abs(values.mean() - estimator.value(estimator.exact(tally))) < 5.5 * stated / 20
    assert plan.scale == relation.users * estimator.step
    assert asked.guarantee().epsilon == 1


@pytest.mark.slow("accuracy")
@pytest.mark.parametrize("question", (*QUESTIONS, DistinctQuestion(), CoverageQuestion()), ids=lambda q: q.name)
def test_the_stated_stddev_holds_the_noise_of_the_counted_samples_too(question):
    """300 keys: the root mean square error is at most 1.5 times what is stated; without the count's noise, entropies would
    be off by four times as much at 2000 samples."""
    tally = sample(zipf(2000), 2000)
    asked = central_property(Budget(1), question)
    rows = [asked.of_tally(tally, k.to_bytes(32, "little"), "id", "A").to_pylist()[0] for k in range(300)]
    estimator, plan = asked.plan(2000)
    error = math.sqrt(np.mean([(row["value"] - estimator.value(estimator.exact(tally))) ** 2 for row in rows]))
    assert error < 1.5 * np.mean([row["noise_stddev"] for row in rows])
    if question.name == "entropy":
        assert error > 3 * plan.stddev / 2.0**estimator.grid


def test_the_curator_counts_samples_that_are_not_public(make_release):
    asked = central_property(Budget(1), EntropyQuestion())
    promise = asked.guarantee()
    assert promise.epsilon == pytest.approx(1) and promise.epsilon <= 1
    assert [step.epsilon for step in promise.mechanisms] == [0, 0.1, 0.9]
    rng = np.random.default_rng(1)
    batch = contribution_batch(
        pa.array([f"u{k}" for k in range(20_000)]), pa.array([f"i{k}" for k in rng.integers(0, 5000, 20_000)])
    )
    rows = asked.run([batch], make_release())
    assert abs(rows.column("value")[0].as_py() - math.log(5000)) < 0.1
    assert rows.equals(asked.run([batch], make_release())) and not rows.equals(asked.run([batch], make_release("b")))
    assert asked.run([], make_release()).num_rows == 1


def test_private_numbers_and_wrong_parameters_are_refused():
    with pytest.raises(ParameterError, match="epsilon = 1e-07 is too small for max_items = 1000"):
        central_property(Budget(1e-7), EntropyQuestion(), max_items=1000)
    with pytest.raises(ParameterError, match="must be a Budget"):
        central_property(1.0, EntropyQuestion())
    with pytest.raises(ParameterError, match="samples must be an integer from 3"):
        central_property(Budget(1), EntropyQuestion(), samples=2)
    with pytest.raises(ParameterError, match="got 'best'"):
        EntropyQuestion("best")
    with pytest.raises(ParameterError, match="accuracy must be a number between 0 and 1, got 2"):
        CoverageQuestion(10, 2)
    with pytest.raises(ParameterError, match="most must be an integer"):
        SupportQuestion(0)
    assert tuning.USERS_SHARE == 0.1


@pytest.mark.parametrize(
    "question", [EntropyQuestion("plug-in"), EntropyQuestion(), CoverageQuestion(), DistinctQuestion()]
)
@pytest.mark.parametrize("epsilon", [1e-1, 1e-3, 1e-5])
def test_much_noise_is_no_reason_to_say_nothing(question, epsilon):
    """1000 items of each user: the grid gets coarser with the noise, whose scale has an end, and rounding stays below it."""
    asked = central_property(Budget(epsilon), question, max_items=1000)
    samples = 10**12
    estimator, plan = asked.plan(samples)
    assert asked.of_tally(make_tally(np.array([samples])), bytes(32), "id", "A").num_rows == 1
    assert plan.scale >= 1000 * estimator.step / Fraction(epsilon)
    items, half_a_unit = 10**7, 0.5
    assert items * half_a_unit < plan.stddev


@pytest.mark.parametrize("target", [1250, 1500, 1900, 2000])
def test_extrapolation_to_twice_the_samples_is_steady_for_items_of_many_users(target):
    """Over Poisson counts of every mean: nearly no bias, and no variance from items that everybody knows. Without smoothing,
    an item's weight for twice the samples is 0 or 2 by the parity of its count: a variance of 1."""
    made, plain = coverage(1000, target, 0.0, 0.1), _coverage_table(1000, target / 1000 - 1, None, 0.0)
    counts = np.arange(200)
    smooth, parity = (np.array([each.value(each.on_grid(c)) for c in counts.tolist()]) for each in (made, plain))
    assert made.lipschitz <= plain.lipschitz and (smooth[11:] == 1).all()
    for mean in (0.1, 0.5, 1, 2, 5, 10, 20, 50):
        law = stats.poisson.pmf(counts, mean)
        truth = 1 - math.exp(-mean * target / 1000)
        assert law @ parity == pytest.approx(truth, abs=1e-6)
        assert law @ smooth == pytest.approx(truth, abs=1.5e-4)
        spread, before = (law @ values**2 - (law @ values) ** 2 for values in (smooth, parity))
        assert spread < before + 1e-6
        if mean >= 20:
            assert spread < 2e-4 and (target < 2000 or before > 0.99)


def test_coverage_is_between_the_distinct_items_and_what_so_many_samples_can_have():
    """500 items of two users each: Good and Toulmin's sum is about zero for twice as many samples."""
    shape = Tally(np.array([2]), np.array([500]))
    estimator = CoverageQuestion().estimator(1000, 0.0)
    assert abs(estimator.value(estimator.exact(shape))) < 10
    for target, value, limited in ((None, 0, 500), (3000, 9e9, 3000), (300, 9e9, 300), (800, 700, 500)):
        assert CoverageQuestion(target).limited(value, 1000, 500) == limited
    assert CoverageQuestion(800).limited(700, 1000) == 700
    rows = shape_rows(shape, np.zeros(1))
    found = ShapeProperties(
        anonymized_histogram(Budget(1), domain_size=2000), (DistinctQuestion(), CoverageQuestion())
    ).of_rows(rows)
    assert found.column("value").to_pylist() == [500, 500]


def test_of_nothing_there_is_nothing_to_say_but_that():
    rows = shape_rows(Tally(*np.zeros((2, 0), dtype=np.int64)), np.zeros(0))
    questions = (EntropyQuestion(), DistinctQuestion(), CoverageQuestion())
    answers = ShapeProperties(anonymized_histogram(Budget(1), domain_size=2000), questions).answers(rows)
    assert answers.description() == "samples 0; distinct items among them 0 +- 0"


def test_public_numbers_that_do_not_fit_are_told():
    rows = shape_rows(Tally(np.array([1]), np.array([1000])), np.zeros(1))
    few, enough = anonymized_histogram(Budget(1), domain_size=1000), anonymized_histogram(Budget(1), domain_size=1001)
    hashed, many = (hashed_histogram(Budget(1), users=None, buckets=buckets) for buckets in (2000, 4000))
    for source, words in ((few, "all 1,000 cells are in use"), (hashed, "more than half of the 2,000 buckets")):
        answers = ShapeProperties(source, (DistinctQuestion(),)).answers(rows)
        assert words in answers.description() and words in answers.report_fields()["notes"][0]
    for source in (enough, many):
        answers = ShapeProperties(source, (DistinctQuestion(),)).answers(rows)
        assert answers.notes == () and "notes" not in answers.report_fields()


def test_a_question_far_too_far_is_refused_and_never_overflows():
    for samples, target in ((3, 10**14), (50, 10**15)):
        with pytest.raises(TooFarError, match="ask for fewer"):
            coverage(samples, target, 10.0, 0.1)


def test_parts_that_cost_more_than_the_whole_are_refused():
    made = central_property(Budget(1), EntropyQuestion())
    with pytest.raises(ParameterError, match="cost more than the whole budget"):
        dataclasses.replace(made, budget=Budget(0.95))
