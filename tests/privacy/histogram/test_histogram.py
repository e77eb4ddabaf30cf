"""Audits of whole histograms on neighbours that break wrong versions (Liu et al., ICML 2023, Algorithms 1 and 3).

Each audit runs the mechanism on very many independent copies of two neighbouring data sets, and each is shown to catch the
bug that it is for. Keys are fixed; the stated false-alarm rates are those of a fresh key.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.names import hash64
from headcount.mechanisms.batches.packing import pack
from headcount.mechanisms.batches.shards import bound_of, gather
from headcount.mechanisms.batches.threads import Parts
from headcount.mechanisms.batches.user_shards import split_by_user
from headcount.mechanisms.bounding.clipping import rand_clip
from headcount.mechanisms.bounding.steps import Step
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.evidence import Evidence, Origin
from headcount.mechanisms.counting.noisy import add_noise, bounded_batches, noisy_counts
from headcount.mechanisms.counting.sums import merge_sums, sum_items, with_absent
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.histogram.fixed import bounded_histogram, unbounded_histogram
from headcount.transforms import Budget

SUBKEY = bytes(range(32))


def _above(successes: int, trials: int, probability: float) -> bool:
    """Whether so many successes refute `probability` as an upper bound, at a false-alarm rate of 1e-7."""
    return bool(stats.binom.sf(successes - 1, trials, probability) < 1e-7)


def _noised(items: list[str], sums: np.ndarray, plan: NoisePlan) -> pa.RecordBatch:
    """The mechanism's last steps on a histogram that is given: each item a world of its own."""
    chunk = pack({"item": pa.array(items), "sum": pa.array(sums)})
    histogram, digest = merge_sums([chunk], SUBKEY, str)
    return add_noise(histogram, plan, SUBKEY, Evidence.of([digest], []))


# Only items with a positive bounded sum get noise (Algorithm 3 as printed noises every raw item).

USERS, ITEMS_EACH = 5000, 300


def _many_one_off_items() -> pa.RecordBatch:
    """Users who each hold items that nobody else has: each user is one trial of the neighbour that adds it."""
    users = [f"u{u}" for u in range(USERS) for _ in range(ITEMS_EACH)]
    return contribution_batch(pa.array(users), pa.array([f"i{k}" for k in range(USERS * ITEMS_EACH)]))


def _users_shown(counts: pa.RecordBatch) -> int:
    return len({int(item[1:]) // ITEMS_EACH for item in counts.column("item").to_pylist()})


def test_a_user_with_many_one_off_items_stays_hidden_and_noise_on_raw_items_is_caught(make_release):
    """P[any own item of a user is shown] <= delta = 1e-3, over 5000 users with 300 own items each; false alarm 1e-7. With noise
    on every raw item it is near 0.1, which the audit sees with power above 1 - 1e-9."""
    release, raw = make_release(), _many_one_off_items()
    histogram = unbounded_histogram(Budget(1, 1e-3), bound=1)
    (bounded,) = bounded_batches([raw], histogram.steps, release, "A")
    fixed = noisy_counts(Parts.of(bounded), histogram.plan, release, "B")
    assert not _above(_users_shown(fixed), USERS, 1e-3)
    assert len(bounded.column("item").unique()) <= USERS, "structural: at most min(C, m) items of a user get noise"

    sums, digest = merge_sums([chunk for _, chunk in sum_items(bounded, 1)], SUBKEY, str)
    every_raw_item = with_absent(sums, raw.column("item"), SUBKEY)
    paper = add_noise(every_raw_item, histogram.plan, SUBKEY, Evidence.of([digest], []))
    assert _above(_users_shown(paper), USERS, 1e-3)


# The threshold hides own items, and one lower does not.


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("bound", "counts"), [(1, (1,)), (4, (1, 1, 1, 1)), (4, (4,))])
def test_own_items_are_shown_with_probability_at_most_delta(noise, relation, bound, counts):
    """200,000 worlds at delta = 0.01, false alarm 1e-7. A threshold lower by one stddev is caught with power above 1 - 1e-9
    where this way to spread is the worst one."""
    delta, worlds = 0.01, 200_000 // len(counts)
    whole = Bound(l0=bound, l1=bound, linf=bound)
    plan = calibrate_unknown_domain(Budget(1, delta), whole, relation, noise)
    items = [f"{world} {k}" for world in range(worlds) for k in range(len(counts))]
    sums = np.tile(np.array(counts, dtype=np.int64), worlds)
    shown = {item.split()[0] for item in _noised(items, sums, plan).column("item").to_pylist()}
    assert not _above(len(shown), worlds, delta)
    lower = plan.threshold - max(1, round(plan.stddev * 2**plan.grid))
    shown = {
        item.split()[0]
        for item in _noised(items, sums, dataclasses.replace(plan, threshold=lower)).column("item").to_pylist()
    }
    assert _above(len(shown), worlds, delta)


# Shared items: the scale holds for the relation, and without the factor for REPLACE it does not.


def _log_ratio(plan: NoisePlan, bound: int, worlds: int) -> float:
    """ln P[E] / P'[E] of {a high, b low}, where one user's C events lie on a in D and on b in D'."""
    heavy = 10_000 << plan.bound.grid

    def probability(a: int, b: int) -> float:
        items = [f"{world} {name}" for world in range(worlds) for name in "ab"]
        unit = 1 << plan.bound.grid
        sums = np.tile(np.array([heavy + a * unit, heavy + b * unit], dtype=np.int64), worlds)
        counts = _noised(items, sums, plan)
        assert counts.num_rows == 2 * worlds
        value = dict(zip(counts.column("item").to_pylist(), counts.column("bounded_count").to_pylist(), strict=True))
        base = heavy / unit
        hits = sum(value[f"{world} a"] >= base + bound and value[f"{world} b"] <= base for world in range(worlds))
        return hits / worlds

    return math.log(probability(bound, 0) / probability(0, bound))


@pytest.mark.parametrize("domain", ["public", "unknown"])
def test_replacing_a_user_costs_epsilon_and_without_the_factor_two_it_costs_twice(domain):
    """eps = 1, 100,000 worlds: the estimate of the log-ratio has a standard error below 0.012, so 1.07 refutes it at a
    false-alarm rate below 1e-7; the scale for ADD_REMOVE gives 2."""
    bound, worlds = 5, 100_000
    if domain == "unknown":
        plan = calibrate_unknown_domain(Budget(1, 1e-6), Bound(l0=5, l1=5, linf=5), Relation.REPLACE, "laplace")
    else:
        plan = calibrate_public_domain(Budget(1), Bound(l1=5, l2=5, linf=5, grid=8), Relation.REPLACE, "laplace")
    assert _log_ratio(plan, bound, worlds) < 1.07
    unscaled = dataclasses.replace(plan, scale=plan.scale / 2)
    assert _log_ratio(unscaled, bound, worlds) > 1.8


def test_gaussian_noise_of_the_public_domain_keeps_delta_under_replace_and_without_sqrt_two_does_not():
    """The exact event of the Gaussian's divergence at eps = 1, delta = 0.01, in 200,000 worlds; false alarm 1e-7."""
    bound, worlds, epsilon, delta = 5, 200_000, 1.0, 0.01
    whole = Bound(l2=5, linf=5, grid=8)

    def divergence_is_above(plan: NoisePlan) -> bool:
        # Worlds with the user on a (D) and on b (D'): the worst event is a half space of x_a - x_b.
        unit, heavy = 1 << 8, 10_000 << 8
        items = [f"{world} {name}" for world in range(2 * worlds) for name in "ab"]
        sums = np.empty((2 * worlds, 2), dtype=np.int64)
        sums[:worlds], sums[worlds:] = (heavy + bound * unit, heavy), (heavy, heavy + bound * unit)
        counts = _noised(items, sums.ravel(), plan)
        order = {item: k for k, item in enumerate(counts.column("item").to_pylist())}
        count = np.asarray(counts.column("bounded_count"))
        a = count[[order[f"{world} a"] for world in range(2 * worlds)]]
        b = count[[order[f"{world} b"] for world in range(2 * worlds)]]
        sigma = plan.stddev
        cut = epsilon * sigma**2 / bound  # where the densities' ratio is e^epsilon
        inside = (a - b) > cut
        p, q = inside[:worlds].mean(), inside[worlds:].mean()
        error = math.sqrt(p * (1 - p) / worlds) + math.exp(epsilon) * math.sqrt(q * (1 - q) / worlds)
        return bool(p - math.exp(epsilon) * q > delta + 5.4 * error)

    plan = calibrate_public_domain(Budget(epsilon, delta), whole, Relation.REPLACE, "gaussian")
    assert not divergence_is_above(plan)
    halved = dataclasses.replace(plan, scale=plan.scale * 7 / 10, stddev=plan.stddev * 0.7)
    halved = dataclasses.replace(halved, scale=type(plan.scale)(round(halved.scale)))
    assert divergence_is_above(halved)


# Structure: one user moves the bounded histogram by at most the bound.


def _sums(batch: pa.RecordBatch) -> Counter[str]:
    found: Counter[str] = Counter()
    for item, count in zip(batch.column("item").to_pylist(), batch.column("count").to_pylist(), strict=True):
        found[item] += count
    return found


def _bounded_sums(rows: list[tuple[str, str]], bound: int) -> Counter[str]:
    users, items = zip(*rows, strict=True)
    batch = contribution_batch(pa.array(users), pa.array(items))
    shard = gather([chunk for _, chunk in split_by_user(batch, 1)])
    return _sums(rand_clip(shard, bound, SUBKEY).to_batch())


def _moved(with_user: Counter[str], without: Counter[str]) -> int:
    return sum(abs(with_user[item] - without[item]) for item in with_user.keys() | without.keys())


def test_one_user_moves_the_sums_by_the_bound_even_if_its_hash_collides_and_merging_by_hash_is_caught():
    """Two users whose hashes collide are still bounded one by one. Told apart by the hash alone, the newcomer would push the
    other's events out of a common sample: up to twice the bound."""
    bound = 10
    names = ["a user's own nam", "00000178|%jIK=G2"]
    assert len(set(hash64(pa.array(names)).tolist())) == 1
    one, other = ([(name, f"{letter}{k}") for k in range(100)] for name, letter in zip(names, "ab", strict=True))
    assert _moved(_bounded_sums(one + other, bound), _bounded_sums(one, bound)) == bound
    merged = [("same hash", item) for _, item in one + other]
    assert _moved(_bounded_sums(merged, bound), _bounded_sums([("same hash", item) for _, item in one], bound)) > bound


def _capped_sums(user: list[tuple[str, int]], steps: Sequence[Step], release) -> dict[str, float]:
    """What one user adds to each item after the steps, in counts."""
    items, counts = zip(*user, strict=True)
    rows = contribution_batch(pa.array(["u"] * len(items)), pa.array(items), pa.array(counts))
    (batch,) = bounded_batches([rows], steps, release, "Bounded")
    return {item: count / 2 ** bound_of(batch).grid for item, count in _sums(batch).items()}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_user_adds_one_to_a_public_item_however_often_it_comes_and_a_cap_left_out_is_caught(make_release, noise):
    """One user with a thousand events on one item. The batch without the cap says so itself, and no noise step takes it."""
    release, budget = make_release(), Budget(1, 1e-6)
    capped, plain = (
        bounded_histogram(budget, ["a", "b"], bound=20, noise=noise, max_per_item=cap) for cap in (1, None)
    )
    user = [("a", 400), ("b", 1), ("a", 600)]
    assert _capped_sums(user, capped.steps, release) == {"a": 1, "b": 1}
    assert _capped_sums(user, plain.steps, release)["a"] > 19
    rows = contribution_batch(pa.array(["u"]), pa.array(["a"]), pa.array([1000]))
    with pytest.raises(InputError, match="calibrated for contributions bounded by .*linf <= 1,.*linf <= 20,"):
        noisy_counts(bounded_batches([rows], plain.steps, release, "B"), capped.plan, release, "N", capped.domain)


def test_the_cap_comes_before_the_scaling_and_cutting_afterwards_is_caught(make_release):
    """A cap above the bound: the frequent item must not crowd out the others, as it does if the counts are scaled first."""
    user, release = [("a", 1000), *[(f"b{k}", 1) for k in range(8)]], make_release()
    for noise, whole in (("laplace", 16), ("gaussian", math.sqrt(72))):
        capped = _capped_sums(
            user, bounded_histogram(Budget(1, 1e-6), ["a"], bound=4, noise=noise, max_per_item=8).steps, release
        )
        assert capped["a"] == pytest.approx(4 * 8 / whole, abs=0.01)
        assert capped["b0"] == pytest.approx(4 / whole, abs=0.01)
        scaled = _capped_sums(user, bounded_histogram(Budget(1, 1e-6), ["a"], bound=4, noise=noise).steps, release)
        assert scaled["b0"] < 0.02 < capped["b0"]


@pytest.mark.parametrize(("p", "noise"), [(1, "laplace"), (2, "gaussian")])
def test_no_user_exceeds_what_is_promised_with_a_cap(make_release, p, noise):
    random = np.random.default_rng(11)
    for bound, cap in ((1, 1), (3, 1), (5, 3), (3, 5), (100, 7)):
        histogram = bounded_histogram(Budget(1, 1e-6), ["a"], bound=bound, noise=noise, max_per_item=cap)
        assert histogram.plan.bound.linf == min(bound, cap)
        for _ in range(20):
            user = [(f"i{k}", int(n)) for k, n in enumerate(random.zipf(1.3, random.integers(1, 60)) % 10**6 + 1)]
            added = np.array(list(_capped_sums(user, histogram.steps, make_release()).values()))
            assert (added**p).sum() <= bound**p and added.max() <= min(bound, cap)


def test_two_bounded_collections_flattened_have_twice_the_sensitivity_and_are_refused(make_release):
    release, bound = make_release(), 10
    histogram = unbounded_histogram(Budget(1, 1e-6), bound=bound)
    rows = contribution_batch(pa.array(["u"] * 50), pa.array([f"i{k}" for k in range(50)]))
    halves = [bounded_batches([rows], histogram.steps, release, label)[0] for label in ("One", "Two")]
    assert sum(sum(_sums(half).values()) for half in halves) == 2 * bound
    with pytest.raises(InputError, match="may count twice"):
        noisy_counts(Parts.of(*halves), histogram.plan, release, "Noise")
    assert noisy_counts(Parts.of(halves[0]), histogram.plan, release, "Noise").num_rows == 0


def test_evidence_of_one_origin_passes_and_any_other_does_not():
    plan = unbounded_histogram(Budget(1, 1e-6), bound=10).plan
    right = Origin(dataclasses.replace(plan.bound, label="X"), "0", "string")
    Evidence.of([1], [right, dataclasses.replace(right, part="1")]).check(plan.bound)
    tighter = dataclasses.replace(right, bound=dataclasses.replace(right.bound, l1=9))
    Evidence.of([1], [tighter]).check(plan.bound)
    wrong = {
        "arrives twice": [right, right],
        "may count twice": [right, dataclasses.replace(right, bound=plan.bound, part="1")],
        "calibrated for": [dataclasses.replace(right, bound=dataclasses.replace(right.bound, l1=11))],
        "in steps of 2": [dataclasses.replace(right, bound=dataclasses.replace(right.bound, grid=3))],
        "users are strings in some rows": [right, dataclasses.replace(right, part="1", users="int64")],
    }
    for words, origins in wrong.items():
        with pytest.raises(InputError, match=words):
            Evidence.of([1], origins).check(plan.bound)


def test_noise_depends_on_key_id_label_plan_and_domain_one_by_one(make_release):
    """Nobody is above the bound, so the bounded histogram is the same and only the subkey can differ. Noise of scale 20 on 200
    items: independent draws agree on more than a quarter of them with a probability below 1e-20."""
    users, items = [f"u{k}" for k in range(40_000)], [f"i{k % 200}" for k in range(40_000)]
    batch = contribution_batch(pa.array(users), pa.array(items))
    domain = sorted(set(items))

    def noise(
        bound: int = 20, release=None, label: str = "A", extra: tuple[str, ...] = (), epsilon: float = 1, cap=None
    ) -> dict:
        histogram = bounded_histogram(Budget(epsilon), [*domain, *extra], bound=bound, max_per_item=cap)
        counts = histogram.run([batch], release or make_release(), label)
        found = dict(zip(counts.column("item").to_pylist(), counts.column("bounded_count").to_pylist(), strict=True))
        return {item: round(found[item] - 200) for item in domain}

    base = noise()
    assert noise() == base
    others = {
        "key": noise(release=make_release(key=8)),
        "id": noise(release=make_release("other")),
        "label": noise(label="B"),
        "plan": noise(epsilon=1.0000001),
        "bound": noise(bound=21),
        "domain": noise(extra=("one more",)),
        "cap": noise(cap=1),
        "a cap that the bound implies": noise(cap=30),
        "another one": noise(cap=40),
    }
    drawn = {"base": base, **others}
    for one, other in itertools.combinations(drawn, 2):
        assert sum(drawn[one][item] == drawn[other][item] for item in domain) < 50, (one, other)
