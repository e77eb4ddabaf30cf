"""Anonymized histograms without a trusted curator (the paper, shuffle model): users add the noise themselves.

Each user sends messages (bucket, +1) and (bucket, -1) through a shuffler, which hides who sent which; the analyst adds them up
by bucket, and Algorithm 1 does the rest. A user of bucket b sends (b, +1) and shares of noise for every bucket. Over all n
users these are Z1 messages +1 and Z2 messages -1 with Z1, Z2 ~ NB(1, p), so that Z1 - Z2 is discrete Laplace noise, and Z3
*pairs* (+1, -1) with Z3 ~ NB(r, q). The pairs cancel out in the sum. Without them the analyst would see that a bucket has at
least as many +1 as it has users, which is no privacy at all (exactly delta = 1 - p, at every epsilon): they are mandatory.

Guarantee: what the shuffler gives out is (epsilon, delta)-differentially private under REPLACE, if at least `users` users
follow the protocol; others may do what they like. REPLACE only: the shares are made for a fixed number of users. It holds for
one bucket whose count goes from h + 1 (P) to h (Q), with the analyst's view (number of +1, number of -1): H(P||Q) = 0 from
ln(1/p) on, and H(Q||P) is `flooded_delta`, both exactly; a replaced user changes two buckets, one in each direction, so that
epsilon = ln(1/p) + epsilon_Q. In mode "l2" with hashed items (Corollary 3) a user sends a second report, of a second hash into
`ranks` further buckets (`hashed.rank_buckets`), and each of both is made for half of epsilon and delta. Where every item has a
bucket of its own, mode "l2" needs no more than mode "l1". Proof: docs/proofs/shape.md.

The noise is exact. A user's share of NB(r, q) over all B buckets is a compound Poisson: clusters of size k come with the rate
(B r / n) q^k / k, each to a uniform bucket. They are had by thinning: proposals with the rational rate (B r / n) q / (1 - q), a
geometric size k >= 1 of parameter q, accepted with probability 1/k. All three are sampled in integers (`randomness.system`),
from the operating system, never from a release key: whoever holds that must not be able to take the noise off.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pyarrow as pa

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.system import SystemLanes, geometric, poisson
from headcount.mechanisms.shape.anonymized import Estimate, check_estimate
from headcount.mechanisms.shape.hashed import BucketMode, crowded, rank_buckets, summed_shape
from headcount.mechanisms.shape.tallies import Tally, check_cells, make_tally

_FLOOD_UNIT = 64  # r is a multiple of 1/64
_P_UNIT = 1 << 20  # p is a multiple of 2^-20, rounded up
_TAIL = 1e-15

_REASON = "shares of the noise are made for a known number of users and buckets; neither can come from the data"


@dataclasses.dataclass(frozen=True)
class Shuffled:
    """The protocol as a value: randomizer, analyst's sum and what follows from it."""

    epsilon: float
    delta: float
    users: int
    buckets: int
    p: Fraction
    flood_shape: Fraction  # r
    flood: Fraction  # q
    mode: BucketMode = "l1"
    ranks: int = 0  # buckets of the second report, if there is one
    estimate: Estimate = "auto"
    name = "ShuffledReports"

    @property
    def cells(self) -> int:
        """The buckets of all reports; those of the second come after those of the first."""
        return self.buckets + self.ranks

    @property
    def reports_each(self) -> int:
        """How many buckets a user is in."""
        return 2 if self.ranks else 1

    @property
    def messages_per_bucket(self) -> float:
        """The expected number of noise messages in each bucket, of all users together."""
        p, q = float(self.p), float(self.flood)
        return 2 * p / (1 - p) + 2 * float(self.flood_shape) * q / (1 - q)

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        noise = {"users who follow the protocol, at least": self.users, "buckets": self.cells, "p": float(self.p)}
        flood = {"q": float(self.flood), "r": float(self.flood_shape), "messages per bucket": self.messages_per_bucket}
        spent = self.reports_each * math.log(1 / self.p)
        adds = "one item, once" if self.ranks == 0 else "one item, once in each of two reports"
        steps = (
            MechanismStep("bounding", 0.0, 0.0, {"a user adds at most": adds}),
            MechanismStep("shares of discrete Laplace noise", spent, 0.0, noise),
            MechanismStep("flood of cancelling pairs", self.epsilon - spent, self.delta, flood),
        )
        return Guarantee(self.epsilon, self.delta, Relation.REPLACE, steps)

    def report(self, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The messages (bucket, sign) of one or more users of these buckets, in random order; to be sent once, and kept.

        With `ranks`, a user is a row of two buckets, one of each report (`cells`). A second call for the same user would draw
        other noise, which averages out: store the messages before sending them.
        """
        given = np.asarray(own, dtype=np.int64)
        each = given[:, None] if given.ndim == 1 else given
        if each.size and each.shape[1] != self.reports_each:
            raise InputError(
                f"a user reports {self.reports_each} buckets, got {each.shape[1]}; hash items with cells_of"
            )
        users, own, limits = len(each), each.ravel(), (0, self.buckets, self.cells)
        for number, column in enumerate(each.T):
            if column.size and not limits[number] <= int(column.min()) <= int(column.max()) < limits[number + 1]:
                raise InputError(
                    f"a bucket is not between {limits[number]} and {limits[number + 1] - 1}; hash items with cells_of"
                )
        one = Fraction(1)
        plus, minus = (self._share(users, one, self.p) for _ in range(2))
        pairs = self._share(users, self.flood_shape, self.flood)
        bucket = np.concatenate([own, plus, minus, pairs, pairs])
        ends = np.cumsum([len(own) + len(plus), len(minus), len(pairs), len(pairs)])
        sign = np.ones(ends[-1], dtype=np.int64)
        sign[ends[0] : ends[1]] = sign[ends[2] :] = -1
        order = np.argsort(SystemLanes(len(bucket)).words(np.arange(len(bucket))), kind="stable")
        return bucket[order], sign[order]

    def _share(self, users: int, shape: Fraction, q: Fraction) -> np.ndarray:
        """Buckets of this number of users' share of NB(shape, q) in every bucket, one entry for each unit."""
        proposals = poisson(self.cells * shape * users / self.users * q / (1 - q))
        lanes = SystemLanes(proposals)
        size = geometric(lanes, q) + 1
        kept = np.flatnonzero(lanes.uniform_below(size, np.arange(proposals)) == 0) if proposals else np.zeros(0, int)
        home = SystemLanes(len(kept)).uniform_below(self.cells, np.arange(len(kept)))
        return np.repeat(home, size[kept])

    def sums(self, bucket: np.ndarray, sign: np.ndarray) -> np.ndarray:
        """The analyst's noisy count of each bucket; sums of parts of the messages add up."""
        return np.bincount(bucket[sign > 0], minlength=self.cells) - np.bincount(bucket[sign < 0], minlength=self.cells)

    def shape(self, sums: np.ndarray, hashed: bool = True, reports: int | None = None) -> pa.RecordBatch:
        """The rows count, items, error: Algorithm 1 on the noisy sums of all buckets and, if items were `hashed` to them,
        collisions taken out (Algorithm 2).

        `reports` is how many users sent messages, if that is not about `users`. More of them bring more noise: t times as
        many have that of t noises. The nearest whole t is taken, at least one, so that a number in between has a bias.
        """
        tallies = make_tally(sums[: self.buckets]), make_tally(sums[self.buckets :])
        return self.shape_of_tally(tallies[0], hashed, reports, tallies[1])

    def shape_of_tally(
        self, sums: Tally, hashed: bool = True, reports: int | None = None, ranks: Tally | None = None
    ) -> pa.RecordBatch:
        """The same, from how many buckets have which sum, and how many of those of the second report."""
        for tally, size in ((sums, self.buckets), (ranks, self.ranks)):
            found = 0 if tally is None else int(tally.cells.sum())
            if found != size:
                raise ParameterError(f"every one of the {size} buckets has a sum, got {found}")
        sent = self.users if reports is None else check_cells("reports", reports, _REASON)
        noises = max(1, round(sent / self.users))
        samples = sent if hashed else None
        return summed_shape(
            sums, ranks if self.ranks else None, float(self.p), samples, noises, self.mode, self.estimate
        )

    def notes(self, shape: Tally) -> tuple[str, ...]:
        """What a released shape tells of public numbers that do not fit the data."""
        return crowded(shape, self.buckets)


def shuffled(
    budget: Budget,
    *,
    users: int,
    buckets: int,
    relation: Relation = Relation.REPLACE,
    mode: BucketMode = "l1",
    hashed: bool = True,
    estimate: Estimate = "auto",
) -> Shuffled:
    """The protocol for at least this number of users who follow it. Items are `hashed` to buckets with `buckets.cells_of`, or
    have one each: in mode "l2" the first need a second report for their ranks."""
    number, size = check_cells("users", users, _REASON), check_cells("buckets", buckets, _REASON)
    if relation is not Relation.REPLACE:
        raise ParameterError(
            "the shuffle model's shares of noise are made for a fixed number of users, so that it knows replacing a user only, "
            f"got {relation.value!r}: give relation 'replace'"
        )
    if not 0 < budget.delta < 0.5:
        raise ParameterError(
            f"the shuffle model needs a delta above 0 and below 1/2, for instance 1e-8, got {budget.delta}"
        )
    if budget.epsilon > 20:
        raise ParameterError(f"the shuffle model's epsilon must be at most 20, got {budget.epsilon}")
    check_one_of("mode", mode, get_args(BucketMode), ": the curator's mode needs the users' data")
    ranks = rank_buckets(number) if mode == "l2" and hashed else 0
    check_cells("buckets of both reports", size + ranks, _REASON)
    parts = 2 if ranks else 1
    p, flood_shape, flood = _calibrated(budget.epsilon / parts, budget.delta / parts)
    noise = {"p": p, "flood_shape": flood_shape, "flood": flood}
    chosen = check_estimate(estimate)
    return Shuffled(budget.epsilon, budget.delta, number, size, **noise, mode=mode, ranks=ranks, estimate=chosen)


@functools.lru_cache(maxsize=64)
def _calibrated(epsilon: float, delta: float) -> tuple[Fraction, Fraction, Fraction]:
    """p, r and q: ln(1/p) is at most its share of epsilon, and of all floods that suffice the one with fewest messages.

    More flood is more noise on top, so that delta falls with r, and bisection finds the least.
    """
    exact = math.exp(-float(tuning.SHUFFLED_NOISE_SHARE) * epsilon) * (1 + 1e-12)
    p = Fraction(math.ceil(exact * _P_UNIT), _P_UNIT)
    if p >= 1:
        raise ParameterError(f"epsilon = {epsilon} is too small for the shuffle model's noise: raise it")
    rest = (epsilon - math.log(1 / p)) * (1 - 1e-12)
    best: tuple[float, Fraction, Fraction] | None = None
    for q in tuning.FLOODS:
        cost = float(2 * q / (1 - q))
        low, high = 0, _FLOOD_UNIT
        while flooded_delta(rest, float(p), high / _FLOOD_UNIT, float(q)) > delta and high < 2**20:
            low, high = high, 2 * high
        if high >= 2**20 or (best is not None and low / _FLOOD_UNIT * cost >= best[0]):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            enough = flooded_delta(rest, float(p), middle / _FLOOD_UNIT, float(q)) <= delta
            low, high = (low, middle) if enough else (middle, high)
        if best is None or high / _FLOOD_UNIT * cost < best[0]:
            best = (high / _FLOOD_UNIT * cost, Fraction(high, _FLOOD_UNIT), q)
    if best is None:
        raise ParameterError(f"no flood of messages gives delta = {delta} at epsilon = {epsilon}: raise either")
    return p, best[1], best[2]


def flooded_delta(epsilon: float, p: float, flood_shape: float, flood: float) -> float:
    """H_epsilon(Q||P) for the views of a bucket with h users (Q) and h + 1 (P), from above.

    (1 - p) sum_u max(0, a_u - e^epsilon p a_(u-1)), a_u = p^2 a_(u-1) + NB(r, q)(u): given the difference of the two numbers
    of messages, u is what they have in common. The sum is cut where less than 1e-15 is left, which is added.
    """
    if flood_shape == 0:
        return 1 - p
    from scipy import stats  # slow to import, and only calibration needs it

    last = int(stats.nbinom.isf(_TAIL, flood_shape, 1 - flood)) + 200
    masses = stats.nbinom.pmf(np.arange(last + 1), flood_shape, 1 - flood).tolist()
    factor, before, total = math.exp(epsilon) * p, 0.0, 0.0
    for mass in masses:
        here = p * p * before + mass
        total += max(0.0, here - factor * before)
        before = here
    return ((1 - p) * total + 2 * _TAIL) * (1 + 1e-9)
