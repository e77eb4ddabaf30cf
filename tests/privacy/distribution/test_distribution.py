"""Exact audits of learning a distribution: the log-ratios of every choice on neighbours, what all steps cost together, and
what one user can change. Each known mistake is made on purpose, and the audit must find it.

Nothing is sampled here but the noise of whole runs, with fixed keys, so that no test passes or fails by chance.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget, Zcdp, zcdp_rho
from headcount.mechanisms.accounting.gaussian import gaussian_delta
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import Domain
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.choice.exponential import em_exponents, probabilities
from headcount.mechanisms.counting.evidence import Evidence
from headcount.mechanisms.distribution.binomial_choice import GRID_BITS, BinomialChoice, rounded_down
from headcount.mechanisms.distribution.learn import BUCKETS, Steps, estimate, learn_distribution
from headcount.mechanisms.distribution.plan import choice_epsilon, plan_distribution, touched_symbols
from headcount.mechanisms.distribution.tables import ExactSamplesStep, ValueCounts, merge_values, split_values
from headcount.pipelines import parser
from headcount.pipelines.commands import distribution as command
from headcount.transforms.distribution import LearnDistribution
from tests.privacy.distribution.ratios import ROUNDING, log_ratio

UNIT = 1 << GRID_BITS
KINDS = pytest.mark.parametrize("kind", ["ks", "phs"])
EPSILONS = pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1, 10), Fraction(1, 2)], ids=str)


def table_of(held: dict[int, int]) -> ValueCounts:
    """The table of one symbol from {value: users}."""
    rows = np.array(sorted(held.items()), dtype=np.int64).reshape(-1, 2)
    return ValueCounts(pa.array(["x"]), np.array([0, len(rows)]), rows[:, 0].copy(), rows[:, 1].copy())


# m = 20 and s = 40: a user's count goes to 0, to m or elsewhere, or the user is there in one only.
CROWDS = [{}, {1: 20}, {10: 20, 1: 10}, {20: 20}, {20: 39}, {10: 39}, {3: 5, 4: 20, 5: 10}]
COUNTS = [0, 1, 10, 20]


def neighbours():
    for crowd in CROWDS:
        for a in COUNTS:
            for b in COUNTS:
                if a < b:
                    yield plus(crowd, a), plus(crowd, b)


def plus(crowd: dict[int, int], count: int) -> ValueCounts:
    """The crowd and one more user with this count; a count of 0 is in no table."""
    return table_of(crowd | ({count: crowd.get(count, 0) + 1} if count else {}))


def worst(choice: BinomialChoice, exponents) -> float:
    return max(log_ratio(exponents(choice, a), exponents(choice, b)) for a, b in neighbours()) / float(choice.epsilon)


@KINDS
@EPSILONS
def test_a_choice_keeps_its_epsilon(kind, epsilon):
    choice = BinomialChoice(20, 40, rounded_down(epsilon), kind)
    assert 0.5 < worst(choice, BinomialChoice.exponents) <= ROUNDING


@KINDS
@EPSILONS
def test_the_printed_exponent_is_caught(kind, epsilon):
    """S / (2 epsilon) is 1/epsilon-private; at epsilon = 1 both are the same, and no test could tell."""
    choice = BinomialChoice(20, 40, rounded_down(epsilon), kind)

    def printed(choice, table):
        return em_exponents(choice.losses(table)[0].tolist(), 2 * UNIT, 1 / choice.epsilon)

    found = worst(choice, printed) * float(choice.epsilon)
    assert found > 1.5 and found > 0.4 / float(epsilon)


@KINDS
def test_a_missing_factor_two_is_caught(kind):
    choice = BinomialChoice(20, 40, Fraction(1, 8), kind)

    def doubled(choice, table):
        return em_exponents(choice.losses(table)[0].tolist(), UNIT, choice.epsilon)

    assert worst(choice, doubled) > 1.02


@KINDS
def test_losses_move_by_one_user_at_most_in_integers(kind):
    """Random crowds and counts, more users than were said among them: exactly one unit, never more, and often that."""
    rng, most = np.random.default_rng(3), 0
    for _ in range(60 if kind == "ks" else 25):
        samples, users = int(rng.integers(1, 40)), int(rng.integers(10, 400))
        choice = BinomialChoice(samples, users, Fraction(1, 4), kind)
        values = rng.integers(0, samples + 1, rng.integers(0, 2 * users))
        crowd = {int(v): int((values == v).sum()) for v in np.unique(values) if v}
        a, b = (choice.losses(plus(crowd, int(rng.integers(0, samples + 1))))[0] for _ in range(2))
        most = max(most, int(np.abs(a - b).max()))
    assert most == UNIT


# --- as the command line asks for it -----------------------------------------------------------------------------------


def commanded(tmp_path, kind: str, epsilon: float, symbols: int, relation: Relation, *more: str) -> LearnDistribution:
    """The transform of a command line, as the job itself makes it."""
    path = tmp_path / "domain.txt"
    path.write_text("".join(f"s{i}\n" for i in range(symbols)))
    flags = ["--domain", str(path), "--epsilon", str(epsilon), "--hypothesis", kind, "--relation", relation.value]
    flags += ["--method", "dense", "--samples-per-user", "20", *more]
    args, _ = parser.parse(command.COMMAND, flags)
    command.check(args)
    return command.make_transform(args, None, str, None)


def drawn_law(choice: BinomialChoice, table: ValueCounts) -> np.ndarray:
    """The probability of each candidate by the very integers that `estimates` draws with."""
    excess, places = choice._excess(choice.losses(table)[0])
    law = np.zeros(len(choice.candidates))
    law[places] = np.exp(-excess / choice._denominator)
    return law / law.sum()


def spent(transform: LearnDistribution, users: int) -> float:
    """The privacy loss of the worst pair of neighbours: of all choices that one user can move, and of the number of users."""
    (plan,) = transform.mechanism.plans()
    choice = plan.choice(users)
    worst = max(np.abs(np.log(drawn_law(choice, a)) - np.log(drawn_law(choice, b))).max() for a, b in neighbours())
    return plan.touched * float(worst) + (plan.users.epsilon if isinstance(plan.users, NoisePlan) else 0.0)


@KINDS
@pytest.mark.parametrize(("epsilon", "symbols"), [(0.1, 1), (0.4, 3)])
@pytest.mark.parametrize("relation", Relation)
def test_what_the_command_draws_by_keeps_its_promise_and_the_printed_exponent_is_caught(
    tmp_path, monkeypatch, kind, epsilon, symbols, relation
):
    """m = 20 and s = 40, as a noisy number may say: too few users for "phs", and as private. The mutation is in the integers
    that are drawn by: S / (2 epsilon) in place of epsilon S / 2."""
    transform = commanded(tmp_path, kind, epsilon, symbols, relation)
    assert transform.mechanism.hypothesis == kind and transform.guarantee().delta == 0
    assert 0.5 * epsilon < spent(transform, 40) <= transform.guarantee().epsilon * ROUNDING

    def printed(self: BinomialChoice, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (losses - losses.min()) * self.epsilon.denominator, np.arange(len(losses))

    monkeypatch.setattr(BinomialChoice, "_excess", printed)
    monkeypatch.setattr(BinomialChoice, "_denominator", property(lambda self: 2 * UNIT * self.epsilon.numerator))
    assert spent(transform, 40) > 50 * transform.guarantee().epsilon


# --- zero counts -------------------------------------------------------------------------------------------------------


@KINDS
def test_a_symbol_that_the_user_does_not_have_is_not_touched_and_a_moving_number_of_users_is_caught(kind):
    """With a constant number of users a table without the user is the same table. If that number were taken from the data, the
    law of every symbol would move."""
    plan = plan_distribution(Budget(1, 1e-6), 1000, 5, Relation.ADD_REMOVE, 2000, "dense", kind)
    table = table_of({1: 900, 2: 50})
    before, after = plan.choice(2000), plan.choice(2001)
    object.__setattr__(after, "candidates", before.candidates)
    assert log_ratio(before.exponents(table), plan.choice(2000).exponents(table)) == 0
    assert log_ratio(before.exponents(table), after.exponents(table)) > 0.1 * float(before.epsilon)


def tables(users: list[dict[str, int]], domain: list[str], step: ExactSamplesStep) -> ValueCounts:
    rows = [(f"u{u}", item, count) for u, held in enumerate(users) for item, count in held.items()]
    user, item, count = (pa.array(list(column)) for column in zip(*rows, strict=True))
    shard = gather(chunk for _, chunk in split_by_user(contribution_batch(user, item, count), 1))
    batch = step.apply(shard, bytes(32)).to_batch()
    return merge_values([chunk for _, chunk in split_values(batch, 3)], pa.array(domain))


def changed(before: ValueCounts, after: ValueCounts) -> list[int]:
    pairs = ([[x.tolist() for x in table.row(i)] for i in range(len(table.symbols))] for table in (before, after))
    return [i for i, (a, b) in enumerate(zip(*pairs, strict=True)) if a != b]


def test_one_user_changes_its_own_symbols_only():
    """k = 1000, m = 5: a user on one symbol leaves every other statistic as it is."""
    domain = [f"s{i:04d}" for i in range(1000)]
    rng = np.random.default_rng(0)
    crowd = [{domain[i]: 1 for i in rng.choice(1000, 5, replace=False)} for _ in range(300)]
    step = ExactSamplesStep(5)
    before, after = tables(crowd, domain, step), tables([*crowd, {domain[7]: 5}], domain, step)
    assert changed(before, after) == [7]
    assert np.flatnonzero(before.holders() != after.holders()).tolist() == [7]
    # The known mistake: numbers of users who do not have the symbol, out of those in the data.
    zeros = [users - table.holders() for users, table in ((300, before), (301, after))]
    assert np.count_nonzero(zeros[0] != zeros[1]) == 999


def test_noise_on_zero_counts_would_break_the_promise():
    """Noise for K = 5 symbols on numbers that all 1000 move: the divergence at epsilon is far above the delta."""
    budget = Budget(1, 1e-6)
    noise = plan_distribution(budget, 1000, 5, Relation.ADD_REMOVE, 20_000, "sparse").noise
    sigma = float(noise.scale / 2**noise.grid)
    assert gaussian_delta(budget.epsilon, math.sqrt(5), sigma) < budget.delta
    assert gaussian_delta(budget.epsilon, math.sqrt(1000), sigma) > 0.1


@pytest.mark.parametrize(("relation", "most"), [(Relation.ADD_REMOVE, 3), (Relation.REPLACE, 6)])
def test_so_many_tables_change_as_the_plan_says(relation, most):
    domain = [f"s{i}" for i in range(10)]
    crowd = [{"s0": 2, "s5": 1}, {"s9": 3}]
    user, other = {"s0": 1, "s1": 1, "s2": 1}, {"s3": 1, "s4": 1, "s5": 1}
    step = ExactSamplesStep(3)
    without = crowd if relation is Relation.ADD_REMOVE else [*crowd, other]
    assert len(changed(tables([*crowd, user], domain, step), tables(without, domain, step))) == most
    assert touched_symbols(10, 3, relation) == most and touched_symbols(4, 3, relation) == min(4, most)


def test_a_user_who_falls_below_the_number_of_samples_leaves_its_own_symbols_and_the_count_only():
    """A kept user is replaced by one with m - 1 samples, who is left out."""
    domain = [f"s{i}" for i in range(6)]
    crowd = [{"s0": 2, "s1": 2}, {"s1": 1, "s2": 4}]  # the second is sampled
    step = ExactSamplesStep(4)
    kept, below = tables([*crowd, {"s3": 4}], domain, step), tables([*crowd, {"s0": 1, "s4": 2}], domain, step)
    assert changed(kept, below) == [3]
    assert int(kept.totals().sum()) // 4 - int(below.totals().sum()) // 4 == 1


# --- what all steps cost -----------------------------------------------------------------------------------------------


def exact(number: float) -> Fraction:
    return Fraction(repr(number))


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("k_m", [(3, 1), (4, 100), (100, 20), (1000, 5), (50, 1000)])
@pytest.mark.parametrize("budget", [Budget(1, 1e-6), Budget(0.1, 1e-9), Budget(5, 1e-3), Budget(1)])
def test_all_parts_together_cost_the_budget_and_no_more(budget, k_m, relation):
    symbols, samples = k_m
    touched = touched_symbols(symbols, samples, relation)
    dense = plan_distribution(budget, symbols, samples, relation, None, "dense")
    whole = dense.budget
    assert exact(whole.epsilon) + exact(dense.users.epsilon) <= exact(budget.epsilon) and whole.delta == budget.delta
    assert dense.users.scale >= 1 / exact(dense.users.epsilon)
    each = dense.choice(1000).epsilon
    fits = touched * each <= exact(whole.epsilon)
    if budget.delta:
        rho = exact(zcdp_rho(whole.epsilon, whole.delta))
        fits = fits or touched * each**2 / 8 <= rho
        assert touched * each**2 / 8 > 0.99 * rho or touched * each > 0.99 * exact(whole.epsilon)
    assert fits
    sparse = plan_distribution(budget, symbols, samples, relation, None, "sparse")
    for large in (1, 2, symbols):
        each, counted = sparse.choice(1000, large).epsilon, min(large, touched)
        if budget.delta:
            vector = touched * Fraction(4) ** sparse.noise.grid / (2 * sparse.noise.scale**2)
            total = vector + counted * each**2 / 8
            assert total <= rho and float(total) > 0.99 * float(
                rho
            )  # epsilon' passed twice would spend next to nothing
        else:
            total = touched / sparse.noise.scale + counted * each
            assert total <= exact(whole.epsilon) and float(total) > 0.99 * whole.epsilon


def test_choices_together_keep_epsilon_and_delta_and_too_small_a_number_of_them_is_caught():
    """The privacy loss of six choices that one replaced user moves, composed exactly: m = 3, a user with three symbols is
    replaced by one with three others. Calibrated for a single choice, delta would be far above the budget's."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    budget, users = Budget(1, 1e-3), 60
    plan = plan_distribution(budget, 50, 3, Relation.REPLACE, users, "dense")
    assert plan.touched == 6

    def delta(choice: BinomialChoice) -> float:
        composed = None
        for counts in [(0, 1)] * 3 + [(1, 0)] * 3:
            laws = [np.log(probabilities(choice.exponents(plus({1: 30}, count)))) for count in counts]
            one = losses.from_two_probability_mass_functions(
                *(dict(enumerate(law.tolist())) for law in laws), value_discretization_interval=1e-4
            )
            composed = one if composed is None else composed.compose(one)
        return composed.get_delta_for_epsilon(budget.epsilon)

    assert delta(plan.choice(users)) <= budget.delta
    assert delta(dataclasses.replace(plan.choice(users), epsilon=choice_epsilon(budget, 1))) > 10 * budget.delta


def test_pure_and_concentrated_accounting_take_the_better():
    budget = Budget(1, 1e-6)
    assert choice_epsilon(budget, 1) == rounded_down(Fraction(1))
    rho = zcdp_rho(1, 1e-6)
    assert rho == pytest.approx(0.02435, rel=1e-3)
    assert float(choice_epsilon(budget, 100)) == pytest.approx(0.0441, rel=1e-2)
    assert float(choice_epsilon(Budget(1), 100)) == pytest.approx(0.01, rel=1e-3)
    assert Zcdp(rho).to_budget(1e-6).epsilon <= 1


def test_buckets_get_all_of_the_budget_or_half_of_it():
    """A user who is added is in one bucket; one who is replaced can leave one and enter another."""
    domain = ["a", "b", "c"]
    for relation, most in ((Relation.ADD_REMOVE, Fraction(1)), (Relation.REPLACE, Fraction(1, 2))):
        plans = learn_distribution(
            Budget(1, 1e-6), domain, samples_per_user="buckets", method="dense", relation=relation
        ).plans()
        assert [plan.samples for plan in plans] == list(BUCKETS)
        for plan, beyond in zip(plans, [*BUCKETS[1:], None], strict=True):
            assert plan.below == beyond and plan.relation is relation
            assert exact(plan.budget.epsilon) + exact(plan.users.epsilon) <= most
            assert exact(plan.budget.delta) <= most * Fraction(1, 10**6)


# --- whole runs ----------------------------------------------------------------------------------------------------------


def test_the_number_of_users_is_a_noisy_one(make_release):
    """300 ids: its variance is that of the noise, to 6.5 standard errors of it (the kurtosis of Laplace noise is 6), 1e-10 at
    most. The exact number would have none."""
    domain, step, key = ["a", "b"], ExactSamplesStep(2), make_release().key_source.fetch()
    table = tables([{"a": 1, "b": 1}] * 500, domain, step)
    plan = plan_distribution(Budget(1, 1e-6), 2, 2, Relation.ADD_REMOVE, None, "dense")
    found = []
    for number in range(300):
        steps = Steps(plan, Domain(pa.array(domain)), f"id-{number}", "x")
        evidence = Evidence(steps.digest(table, key), ())
        found.append(estimate(table, steps, evidence, key).users)
    assert np.var(found) == pytest.approx(plan.users.stddev**2, rel=6.5 * math.sqrt(5 / 300))
    assert abs(np.mean(found) - 500) < 6.5 * plan.users.stddev / math.sqrt(300)


def test_a_changed_input_changes_all_randomness(make_release):
    """One id on two inputs must not show which symbols changed: choices and noise of untouched symbols differ as well."""
    domain = [f"s{i:02d}" for i in range(40)]
    rng = np.random.default_rng(5)
    users = [dict(zip(domain, row.tolist(), strict=True)) for row in rng.multinomial(10, np.full(40, 1 / 40), 400)]
    crowd = [{item: count for item, count in held.items() if count} for held in users]
    step, release = ExactSamplesStep(10), make_release()
    before, after = tables(crowd, domain, step), tables([*crowd, {"s00": 10}], domain, step)
    assert changed(before, after) == [0]
    for method in ("dense", "sparse", "laplace"):
        plan = plan_distribution(Budget(1, 1e-6), 40, 10, Relation.ADD_REMOVE, 400, method)
        steps, key = Steps(plan, Domain(pa.array(domain)), release.id, "x"), release.key_source.fetch()
        found = []
        for table in (before, after):
            found.append(estimate(table, steps, Evidence(steps.digest(table, key), ()), key).probability[1:])
        assert np.mean(found[0] != found[1]) > 0.7
