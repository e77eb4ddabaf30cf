"""Algorithm 4, the choice by V(C), on the neighbours that move it most: exact, with mutations."""

import dataclasses
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bound_choice.expected_sums import FRACTION_BITS
from headcount.mechanisms.bound_choice.papers.volume import VolumeChoice
from headcount.mechanisms.choice.exponential import probabilities
from headcount.mechanisms.histogram.auto import auto_unbounded_histogram

EPSILON = 0.1
MOST = 40
SATURATED = [({"key": MOST}, 3000)]
STRANGERS = {
    "one-off items": {f"own{n}": 1 for n in range(MOST)},
    "the saturated item": {"key": MOST},
    "one event": {"key": 1},
    "half of each": {"key": MOST // 2} | {f"own{n}": 1 for n in range(MOST // 2)},
    "far above": {"key": 100 * MOST},
}


def choice_by(name, relation, kappa=2, bounds=tuple(range(1, MOST + 1))):
    """The choice of an automatic histogram, by a tenth of epsilon = 1, among few bounds."""
    choice = auto_unbounded_histogram(Budget(1, 1e-6), method=name, relation=relation).auto.choice
    return dataclasses.replace(choice, kappa=Fraction(kappa), bounds=bounds)


def table(choice, *kinds):
    rows = [
        (f"{k}-{u}", item, n)
        for k, (counts, times) in enumerate(kinds)
        for u in range(times)
        for item, n in counts.items()
    ]
    users, items, counts = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_pydict({"user": users, "item": items, "count": pa.array(counts, pa.int64())})
    shard = gather(chunk for _, chunk in split_by_user(batch, 1))
    by_item = choice.item_table([chunk for _, chunk in choice.item_chunks(shard, 1)])
    return [u + i for u, i in zip(choice.user_table(shard), by_item, strict=True)]


def volume(choice, counts_of_users):
    """V(C) by its definition, in floats."""
    values = []
    for candidate in choice.candidates:
        sums: dict[str, float] = {}
        lost = 0.0
        for counts in counts_of_users:
            m = sum(counts.values())
            lost += max(m - candidate.bound, 0)
            for item, n in counts.items():
                sums[item] = sums.get(item, 0) + n * min(1, candidate.bound / m)
        values.append(float(choice.kappa) * lost + sum(min(h, candidate.threshold) for h in sums.values()))
    return values


def log_ratio(choice, before, after):
    one, other = (np.log(probabilities(choice.exponents(t))) for t in (before, after))
    return float(np.abs(one - other).max())


@pytest.mark.parametrize("kappa", [1, 2, "7/2"])
def test_the_table_is_minus_v_up_to_a_shift(kappa):
    rng = np.random.default_rng(2)
    users = [
        {f"i{i}": int(n) for i, n in zip(rng.integers(0, 30, 5), rng.integers(1, 30, 5), strict=True)}
        for _ in range(200)
    ]
    choice = choice_by("gem", Relation.ADD_REMOVE, kappa)
    found = table(choice, *[(counts, 1) for counts in users])
    shift = float(choice.kappa) * sum(sum(counts.values()) for counts in users)
    unit = choice.kappa.denominator << FRACTION_BITS
    losses = [shift - score / unit for score in found]
    assert losses == pytest.approx(volume(choice, users), abs=1e-4)


@pytest.mark.parametrize("kappa", [1, 2, 4])
def test_one_user_moves_v_by_at_most_its_sensitivity(kappa):
    choice = choice_by("em", Relation.ADD_REMOVE, kappa)
    before = table(choice, *SATURATED)
    unit = choice.kappa.denominator << FRACTION_BITS
    for stranger in STRANGERS.values():
        m = sum(stranger.values())
        after = table(choice, *SATURATED, (stranger, 1))
        for bound, a, b in zip(choice.bounds, after, before, strict=True):
            moved = Fraction(a - b, unit)  # of -q = -V + kappa * all events
            assert 0 <= moved <= kappa * bound  # what the generalised form needs
            if m <= MOST:
                assert 0 <= kappa * m - moved <= kappa * MOST - (kappa - 1) * bound  # the change of V itself


@pytest.mark.parametrize("kappa", [1, 2, 4])
@pytest.mark.parametrize("name", ["em", "gem"])
@pytest.mark.parametrize("relation", list(Relation))
def test_no_stranger_costs_more_than_epsilon(name, relation, kappa):
    choice = choice_by(name, relation, kappa)
    tables = {who: table(choice, *SATURATED, (stranger, 1)) for who, stranger in STRANGERS.items()}
    others = list(tables.values()) if relation is Relation.REPLACE else [table(choice, *SATURATED)]
    assert max(log_ratio(choice, one, two) for one in others for two in tables.values()) <= EPSILON + 1e-12


def test_the_range_is_tight_and_the_largest_bound_alone_is_too_little(monkeypatch):
    """Two candidates far apart, and a user who is all above the lower: by far the most of epsilon is used."""
    choice = choice_by("em", Relation.ADD_REMOVE, bounds=(10, 1500))
    crowd = ({"key": 1500}, 3000)
    before, after = table(choice, crowd), table(choice, ({"key": 1500}, 3001))
    assert 0.99 * EPSILON < log_ratio(choice, before, after) <= EPSILON
    monkeypatch.setattr(VolumeChoice, "spread", lambda self: Fraction(self.bounds[-1]))
    assert log_ratio(choice, before, after) > 1.9 * EPSILON


def test_users_far_above_all_candidates_count_like_those_at_the_largest():
    """V itself is unbounded, but the part above shifts all candidates alike."""
    choice = choice_by("em", Relation.ADD_REMOVE)
    before = table(choice, *SATURATED)
    ratios = [log_ratio(choice, before, table(choice, *SATURATED, ({"key": MOST * n}, 1))) for n in (1, 3, 100)]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-6)


def test_kappa_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        choice_by("gem", Relation.ADD_REMOVE, "1/2")
