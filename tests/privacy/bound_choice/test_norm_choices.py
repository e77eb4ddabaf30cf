"""The choices from users' norms on their worst neighbours, exactly, and the mutations that these tests catch."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice.by_name.methods import choose_public_domain
from headcount.mechanisms.bound_choice.l2_tail import TailChoice
from headcount.mechanisms.bound_choice.papers import baselines
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.histogram.auto import auto_bounded_histogram
from headcount.mechanisms.randomness.lanes import Lanes

EPSILON = 0.1
UNIT = 1 << 20  # of a weight


def quantile(name, relation=Relation.ADD_REMOVE, items=20):
    """The choice of an automatic histogram, by a tenth of epsilon = 1."""
    return auto_bounded_histogram(Budget(1), range(items), method=name, relation=relation, item_type=int).auto.choice


def tail(name, relation=Relation.ADD_REMOVE, items=20, sparsity=9):
    """The same with Gaussian noise, for users of a sparsity that is the square of a whole number."""
    budget = Budget(1, 1e-2 if name == "dp-gd" else 1e-6)
    made = auto_bounded_histogram(budget, range(items), method=name, noise="gaussian", relation=relation, item_type=int)
    return dataclasses.replace(made.auto.choice, sparsity=sparsity, users=1000)


def capped(make, cap=3):
    """The same choices on counts of at most `cap` on one item."""
    return lambda name, relation=Relation.ADD_REMOVE: dataclasses.replace(make(name, relation), max_per_item=cap)


def table(choice, users):
    """The table of users, each a list of counts on distinct items."""
    total = [0] * choice.entries
    if users:
        rows = [(f"u{u}", f"i{i}", n) for u, counts in enumerate(users) for i, n in enumerate(counts)]
        names, items, counts = zip(*rows, strict=True)
        batch = pa.RecordBatch.from_pydict({"user": names, "item": items, "count": pa.array(counts, pa.int64())})
        total = choice.user_table(gather(chunk for _, chunk in split_by_user(batch, 1)))
    return total


def log_ratio(choice, before, after):
    one, other = (np.log(probabilities(choice.exponents(t))) for t in (before, after))
    return float(np.abs(one - other).max())


ORDINARY = [[1]] * 300 + [[2, 1]] * 200 + [[5, 5, 5]] * 150 + [[40]] * 60 + [[300, 7]] * 20
STRANGERS = {
    "nobody": [],
    "tiny": [[1]],
    "dense": [[1] * 90_000],
    "huge": [[10**9]],
    "wide": [[3] * 81],
}
CHOICES = [
    *[(quantile, name) for name in ("quantile-rank", "quantile-gem")],
    *[(tail, name) for name in ("em", "gem", "m-quantile")],
    *[(capped(quantile), name) for name in ("quantile-rank", "quantile-gem")],
    *[(capped(tail), name) for name in ("em", "gem", "m-quantile")],
]


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("make", "name"), CHOICES)
def test_no_stranger_costs_more_than_epsilon(make, name, relation):
    choice = make(name, relation)
    tables = {who: table(choice, ORDINARY + stranger) for who, stranger in STRANGERS.items()}
    others = ["nobody"] if relation is Relation.ADD_REMOVE else [who for who in STRANGERS if who != "nobody"]
    worst = max(log_ratio(choice, tables[one], tables[other]) for one in others for other in tables if one != other)
    assert worst <= EPSILON + 1e-12


users = st.lists(st.lists(st.integers(1, 2000), min_size=1, max_size=30), min_size=1, max_size=30)


@settings(deadline=None, max_examples=60)
@given(users, st.lists(st.integers(1, 10**7), min_size=1, max_size=60), st.sampled_from(CHOICES))
def test_random_neighbours_keep_epsilon(held, stranger, kind):
    make, name = kind
    for relation in Relation:
        choice = make(name, relation)
        other = held[:-1] if relation is Relation.REPLACE else held
        assert log_ratio(choice, table(choice, held), table(choice, [*other, stranger])) <= EPSILON + 1e-12


@pytest.mark.parametrize(
    ("make", "name", "crowd", "stranger"),
    [
        (quantile, "quantile-rank", [[2]] * 20 + [[10**6]] * 20, [10**6]),
        (tail, "em", [[2]] * 100 + [[10**5] * 9] * 20, [10**5] * 9),
        (tail, "m-quantile", [[2]] * 50 + [[10**6]] * 60, [10**6]),
    ],
)
def test_a_choice_by_rank_nearly_uses_epsilon_up(make, name, crowd, stranger):
    """At the lowest bound too many users are above, and at all others too few: one more is further off, or closer."""
    choice = make(name)
    spent = log_ratio(choice, table(choice, crowd), table(choice, [*crowd, stranger]))
    assert 0.95 * EPSILON < spent <= EPSILON + 1e-12


@pytest.mark.parametrize(("make", "name"), [*CHOICES[:5], (tail, "dp-gd"), (tail, "output-perturbation")])
def test_a_choice_with_a_cap_on_one_item_sees_capped_counts_alone(make, name):
    cut = [[min(count, 3) for count in counts] for counts in ORDINARY]
    choice = capped(make)(name)
    assert table(choice, ORDINARY) == table(make(name), cut) != table(make(name), ORDINARY)
    assert [end.max_per_item for end in choice.ends()] == [3, 3] and choice.details()["cap on one item"] == 3
    assert [end.max_per_item for end in make(name).ends()] == [0, 0] and "cap on one item" not in make(name).details()


@pytest.mark.parametrize("items", [1, 2, 19, 10**6])
@pytest.mark.parametrize("cap", [1, 3, 10**9])
@pytest.mark.parametrize(("noise", "p"), [("laplace", 1), ("gaussian", 2)])
def test_with_a_cap_no_bound_is_a_candidate_that_exceeds_every_norm(items, cap, noise, p):
    """The largest candidate loses nothing of anybody, and is the least whole number that does not."""
    choice = choose_public_domain(
        Budget(EPSILON), Budget(0.9, 1e-6), Relation.ADD_REMOVE, items, noise, max_per_item=cap
    )
    largest, norm = choice.grid[-1], items * cap**p
    assert largest == tuning.NORMS_OF_PUBLIC_DOMAIN[-1] < norm or (largest - 1) ** p < norm <= largest**p
    assert list(choice.grid) == sorted(set(choice.grid)) and set(choice.grid[:-1]) <= set(tuning.NORMS_OF_PUBLIC_DOMAIN)
    assert choice.grid[0] == 1 and choice.ends()[1].bound == largest
    lanes = Lanes(bytes(32), np.zeros((choice.draws, 2), dtype=np.uint64))
    assert choice.choose(table(choice, ORDINARY), lanes).bound in choice.grid


def test_the_weight_of_a_dense_user_is_capped():
    choice = tail("em", sparsity=9)
    before, after = table(choice, ORDINARY), table(choice, [*ORDINARY, [1] * 90_000])
    assert sum(after) - sum(before) == 3 * UNIT


def test_an_uncapped_weight_is_caught(monkeypatch):
    """As the paper has it: a user with 90,000 items has a weight of 300, a hundred times what epsilon pays for."""
    capped = TailChoice.cap
    uncapped = tail("em")
    before = table(uncapped, ORDINARY)
    monkeypatch.setattr(TailChoice, "cap", property(lambda self: 2**62))
    after = table(uncapped, [*ORDINARY, [1] * 90_000])
    monkeypatch.setattr(TailChoice, "cap", capped)
    assert sum(after) - sum(before) == 300 * UNIT
    assert log_ratio(uncapped, before, after) > 10 * EPSILON


@pytest.mark.parametrize("name", ["quantile-gem", "gem"])
def test_the_one_sided_form_is_refused_for_replacing(name):
    """A user with many events for one with few: all losses move one way, a large and a small user both: the widest."""
    make = quantile if "quantile" in name else tail
    two_sided, one_sided = make(name, Relation.REPLACE), make(name, Relation.ADD_REMOVE)
    assert two_sided.exponents(table(two_sided, ORDINARY)) != one_sided.exponents(table(one_sided, ORDINARY))


# Output perturbation: Algorithm 2.


@pytest.mark.parametrize("relation", list(Relation))
def test_the_perturbed_optimum_moves_by_no_more_than_its_sensitivity(relation):
    choice = dataclasses.replace(tail("output-perturbation", relation), users=10**9, grid=(1, 1000, 100_000))
    most = Fraction(choice.cap, UNIT) / choice.strong_convexity
    places = {who: choice.crossing(table(choice, ORDINARY + stranger)) for who, stranger in STRANGERS.items()}
    gaps = [abs(one - other) for one in places.values() for other in places.values()]
    assert 0 < max(gaps) <= most


def test_the_sensitivity_of_the_optimum_is_reached():
    """Where the crossing lies inside a bin, another full weight moves it by all of sqrt(s)/L: a quarter would be caught."""
    choice = dataclasses.replace(tail("output-perturbation", items=2), users=10**9, grid=(1, 1000, 100_000))
    crowd = [[100] * 9] * 40
    moved = choice.crossing(table(choice, [*crowd, [100] * 9])) - choice.crossing(table(choice, crowd))
    most = Fraction(choice.cap, UNIT) / choice.strong_convexity
    assert moved == most


def test_an_uncapped_optimum_is_caught(monkeypatch):
    choice = dataclasses.replace(tail("output-perturbation", items=2), users=10**9, grid=(1, 1000, 100_000))
    most = Fraction(choice.cap, UNIT) / choice.strong_convexity
    crowd = [[100] * 9] * 40
    monkeypatch.setattr(TailChoice, "cap", property(lambda self: 2**62))
    moved = choice.crossing(table(choice, [*crowd, [1] * 90_000])) - choice.crossing(table(choice, crowd))
    assert moved > 20 * most


def test_the_perturbed_bound_is_clamped(monkeypatch):
    choice = tail("output-perturbation")
    for noise in (-(2**40), 2**40):
        monkeypatch.setattr(baselines, "discrete_laplace", lambda lanes, scale, noise=noise: np.array([noise]))
        assert 1 <= choice.choose(table(choice, ORDINARY), None).bound <= choice.grid[-1]


def test_the_perturbing_noise_covers_the_rounded_sensitivity(monkeypatch):
    choice, seen = tail("output-perturbation"), []

    def spy(lanes, scale):
        seen.append(scale)
        return np.array([0])

    monkeypatch.setattr(baselines, "discrete_laplace", spy)
    choice.choose(table(choice, ORDINARY), None)
    parts = Fraction(choice.cap * 1024, UNIT) / choice.strong_convexity
    assert seen == [math.ceil(parts) / Fraction(1, 10)]


# DP gradient descent: C_DPSGD.


def test_the_descent_draws_gaussian_noise_for_all_its_steps(monkeypatch):
    choice, seen = tail("dp-gd"), []

    def spy(lanes, sigma):
        seen.append(sigma)
        return np.zeros(16, dtype=np.int64)

    monkeypatch.setattr(baselines, "discrete_gaussian", spy)
    choice.choose(table(choice, ORDINARY), None)
    from dp_accounting.dp_event import GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(float(seen[0] / choice.cap)), 16))
    delta = accountant.get_delta(EPSILON)
    assert 0.98 * 1e-3 < delta <= 1e-3


def test_the_descent_needs_a_delta():
    with pytest.raises(ValueError, match="delta above 0"):
        baselines.DescentChoice(Budget(EPSILON), Budget(0.9, 1e-6), Relation.ADD_REMOVE, 20, 9)


def test_replacing_leaves_more_users_above_the_bound():
    """u is twice as large, so is the rank: with the rank of adding, the bound would be too high."""
    assert quantile("quantile-rank", items=90).rank == 100
    assert quantile("quantile-rank", Relation.REPLACE, items=90).rank == 200
