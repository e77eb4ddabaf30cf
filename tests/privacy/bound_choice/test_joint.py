"""The joint choice of bound, cap and noise on its worst neighbours: exact probabilities, and the mutations that they catch.

No sampling: each test computes the chances of all candidates on both neighbours. The neighbours put every user at a kink of
the loss, where it is steepest; with tau = 0 the log-ratio then comes close to epsilon.
"""

import functools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.packing import pack, unpack
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice import expected_sums, joint
from headcount.mechanisms.bound_choice.candidates import Candidate
from headcount.mechanisms.bound_choice.expected_sums import CandidateGrid, split_sums
from headcount.mechanisms.bound_choice.joint import JointChoice
from headcount.mechanisms.choice.exponential import gem_exponents, probabilities
from headcount.mechanisms.histogram.auto import auto_unbounded_histogram

EPSILON = Fraction(1, 10)
COPIES = 100


@pytest.fixture(autouse=True)
def sharp(monkeypatch):
    """Without tau, and with the noise weight of the worst cases."""
    monkeypatch.setattr(joint, "gem_exponents", functools.partial(gem_exponents, tau=0))
    monkeypatch.setattr(tuning, "LEAST_COUNT_BY_NOISE", 3)


def automatic(relation, objective):
    """The choice of an automatic histogram, by a tenth of epsilon = 1."""
    return auto_unbounded_histogram(Budget(1, 1e-8), objective=objective, share=0.1, relation=relation).auto.choice


def choice_among(candidates, relation, objective):
    """The choice of an automatic histogram among these candidates, the last of them in many copies."""
    caps = tuple(sorted({c.cap for c in candidates if c.cap is not None}))
    choice = automatic(relation, objective)
    choice.__dict__["candidate_grid"] = CandidateGrid(tuple(sorted({c.bound for c in candidates})), caps)
    choice.__dict__["candidates"] = (*candidates[:-1], *[candidates[-1]] * COPIES)
    return choice


def table(choice, *kinds):
    """The table of data in which each kind of user, {item: count}, occurs a number of times.

    Entries add up, so a thousand equal users are one user's entries a thousandfold.
    """
    chunks = []
    for times, counts in kinds:
        rows = {"user": ["u"] * len(counts), "item": list(counts), "count": pa.array(counts.values(), pa.int64())}
        shard = gather(chunk for _, chunk in split_by_user(pa.RecordBatch.from_pydict(rows), 1))
        for _, chunk in split_sums(shard, choice.candidate_grid, 1):
            columns, _ = unpack(chunk)
            for name in ("level", "slope"):
                columns[name] = pa.array(np.asarray(columns[name]) * times)
            chunks.append(pack(columns))
    return choice.item_table(chunks)


def log_ratio(choice, before, after):
    one, other = (np.log(probabilities(choice.exponents(t))) for t in (before, after))
    return float(np.abs(one - other).max())


def moves(choice, before, after):
    """By how many sensitivities each loss moves."""
    return [
        Fraction(a - b) * choice.unit(c) / choice.sensitivity(c)
        for b, a, c in zip(before, after, choice.candidates, strict=True)
    ]


def items(prefix, number, count=1):
    return {f"{prefix}{n}": count for n in range(number)}


def add_remove_error():
    """One more user with 1024 items, each of which 20480 users hold: every one of them at the threshold of A."""
    candidates = (
        Candidate(1, 1, "laplace", 10**6, 1),
        Candidate(32, 1, "laplace", 640, 10),
        Candidate(1024, 1, "laplace", 20480, 100),
    )
    choice = choice_among(candidates, Relation.ADD_REMOVE, "error")
    data = [(20480, items("x", 1024)), (4500, {"y": 1})]
    return choice, table(choice, *data), table(choice, *data, (1, items("x", 1024)))


def replace_error():
    candidates = (
        Candidate(1, 1, "laplace", 20, 1),
        Candidate(1000, 1, "laplace", 1300, 100),
        Candidate(1000, None, "laplace", 20000, 100),
    )
    choice = choice_among(candidates, Relation.REPLACE, "error")
    data = [(20, {"y": 1000}), (1300, items("x", 1000)), *[(500, {f"s{n}": 1}) for n in range(8)], (170, {"s8": 1})]
    return choice, table(choice, *data, (1, items("x", 1000))), table(choice, *data, (1, {"y": 1000}))


def replace_items():
    candidates = (
        Candidate(1, 1, "laplace", 1000, 1),
        Candidate(64, 1, "laplace", 1280, 1),
        Candidate(1000, None, "laplace", 20000, 1),
    )
    choice = choice_among(candidates, Relation.REPLACE, "items")
    data = [(10, {"y": 1000}), (640, items("x", 64)), (612, {"z": 1})]
    return choice, table(choice, *data, (1, items("x", 64))), table(choice, *data, (1, {"y": 1000}))


CASES = [add_remove_error, replace_error, replace_items]


@pytest.mark.parametrize("case", CASES)
def test_one_user_moves_no_loss_by_more_than_its_sensitivity(case):
    choice, before, after = case()
    moved = moves(choice, before, after)
    assert max(map(abs, moved)) == 1
    if choice.relation is Relation.ADD_REMOVE:
        assert min(moved) >= 0  # scores rise only, losses fall only: what the one-sided form needs


@pytest.mark.parametrize("case", CASES)
def test_the_choice_keeps_epsilon_and_nearly_uses_it_up(case):
    assert 0.9 * EPSILON < log_ratio(*case()) <= EPSILON


def replace_crosswise():
    """A user of 4096 items comes to repeat one item: two losses of sensitivity 128 move apart, and one of 8192 rises."""
    candidates = (
        Candidate(64, 1, "laplace", 1000, 1),
        Candidate(4096, 1, "laplace", 64000, 1),
        Candidate(64, None, "laplace", 12800, 1),
    )
    data = [(64000, items("x", 4096)), (64003, items("v", 4096)), (200, {"y": 4096}), (300, {"w": 4096})]

    def under(relation):
        choice = choice_among(candidates, relation, "error")
        return choice, table(choice, *data, (1, items("x", 4096))), table(choice, *data, (1, {"y": 4096}))

    return under


def test_the_one_sided_form_is_caught_where_a_user_is_replaced():
    under = replace_crosswise()
    assert log_ratio(*under(Relation.REPLACE)) <= EPSILON
    assert log_ratio(*under(Relation.ADD_REMOVE)) > 1.4 * EPSILON


def first_count(candidate, whole, fraction, threshold):
    """The sum of clip(H - threshold, 0, 1), in units of 2**-30."""
    beyond, at = whole > threshold, whole == threshold
    return (int(np.count_nonzero(beyond)) << joint.FRACTION_BITS) + int(fraction[at].sum())


def steeper(candidate, whole, fraction, saved=joint._saved):
    """The counts saved, with a slope of 3 in place of 2 just beyond the threshold."""
    return saved(candidate, whole, fraction) + first_count(candidate, whole, fraction, candidate.threshold)


def narrower(candidate, whole, fraction, shown=joint._shown):
    """The soft number of items, with a ramp that is twice as steep at its foot."""
    return shown(candidate, whole, fraction) + 2 * first_count(candidate, whole, fraction, candidate.threshold // 2)


@pytest.mark.parametrize("case", [add_remove_error, replace_error])
def test_a_steeper_loss_is_caught(case, monkeypatch):
    monkeypatch.setattr(joint, "_saved", steeper)
    choice, before, after = case()
    assert max(map(abs, moves(choice, before, after))) == Fraction(3, 2)
    assert log_ratio(choice, before, after) > EPSILON


def test_a_narrower_ramp_is_caught(monkeypatch):
    monkeypatch.setattr(joint, "_shown", narrower)
    choice, before, after = replace_items()
    assert max(map(abs, moves(choice, before, after))) == 2
    assert log_ratio(choice, before, after) > EPSILON


def add_remove_capped(objective):
    """One more user with seven events on each of six items, all of them at a kink, of whom the bound leaves three."""
    choice = choice_among((Candidate(3, 1, "laplace", 20, 1),), Relation.ADD_REMOVE, objective)
    data = [({"error": 20, "items": 10}[objective], {f"x{n}": 1}) for n in range(6)]
    return choice, table(choice, *data), table(choice, *data, (1, items("x", 6, 7)))


def rounded_up(count, rows, totals, grid, lines=expected_sums._lines):
    """Slopes rounded to nearest: 2**30/6 is 2/3 beyond a whole number."""
    step, level, slope = lines(count, rows, totals, grid)
    total = np.repeat(totals, rows)
    return step, level, slope + (2 * ((count << 30) % total) >= total)


def all_events(count, rows, totals, grid, lines=expected_sums._lines):
    """Slopes of all seven events in place of the one under the cap."""
    return lines(count * np.where(len(count) == 6, 7, 1), rows, totals, grid)


@pytest.mark.parametrize("objective", ["error", "items"])
@pytest.mark.parametrize("mutation", [rounded_up, all_events])
def test_a_line_that_is_too_steep_is_caught(objective, mutation, monkeypatch):
    """A user whom the cap changes moves the loss by its sensitivity, but for the rounding down, and never by more."""
    assert 1 - Fraction(6, 2**30) < max(moves(*add_remove_capped(objective))) <= 1
    monkeypatch.setattr(expected_sums, "_lines", mutation)
    assert max(moves(*add_remove_capped(objective))) > 1


@pytest.mark.parametrize("case", CASES)
def test_half_the_sensitivity_is_caught(case, monkeypatch):
    full = JointChoice.sensitivity
    monkeypatch.setattr(JointChoice, "sensitivity", lambda self, candidate: full(self, candidate) / 2)
    assert log_ratio(*case()) > EPSILON


def test_a_noise_weight_beyond_the_threshold_would_break_it():
    """The loss caps a at t. Without the cap it would jump at the threshold, by far more than its sensitivity."""
    candidate = Candidate(1024, 1, "laplace", 20480, 10**6)
    below, at = (joint._saved(candidate, np.array([whole]), np.array([0])) for whole in (20479, 20480))
    assert below == at == 0
    just_above = joint._saved(candidate, np.array([20480]), np.array([1]))
    assert just_above == 1


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("objective", ["error", "items"])
def test_random_neighbours_keep_epsilon_among_the_real_candidates(relation, objective, monkeypatch):
    """All 354 candidates and the real tau, on data whose items lie about their thresholds."""
    monkeypatch.undo()
    rng = np.random.default_rng(11)
    choice = automatic(relation, objective)
    for _ in range(6):
        data = []
        for _n in range(12):
            held = rng.choice(400, size=int(rng.integers(1, 60)), replace=False)
            kind = {f"i{i}": int(c) for i, c in zip(held, rng.zipf(1.6, len(held)) % 300 + 1, strict=True)}
            data.append((int(rng.integers(1, 3000)), kind))
        heavy = {f"i{i}": int(c) for i, c in enumerate(rng.integers(1, 40, 300))}
        dense = items("i", 400, 5)
        before = table(choice, *data, *([(1, dense)] if relation is Relation.REPLACE else []))
        after = table(choice, *data, (1, heavy))
        moved = moves(choice, before, after)
        assert max(map(abs, moved)) <= 1
        if relation is Relation.ADD_REMOVE:
            assert min(moved) >= 0
        assert log_ratio(choice, before, after) <= EPSILON
