"""Cohorts that are drawn before their data is seen (paper 001, Lemma 6): who is asked, where not everybody can be.

Sample and threshold takes each user with probability p, by itself. Asking a fixed number of users is something else: where all
asked users but one are known to have one item, their number tells whether the last one was among them, and delta is at least p.
Two ways are left:

* `draw_cohort` draws the number of users as the independent coins would, S ~ Bin(n, p), and then S users without replacement:
  the same law as the coins, hence the same guarantee, *as long as S stays secret*.
* `known_cohort` is for a size that an adversary knows: s = m + c sqrt(m) users are asked, and each takes part with probability
  m / s, secretly. This is not the law of independent coins (the number who take part varies by sqrt(c) m^(1/4) in place of
  sqrt(m)), and c is a parameter of the privacy: with n = 2000, m = 400 and epsilon = 0.1, where the coins have a delta of
  6e-27, it is 2e-11 at c = 10, 1e-6 at c = 3, 3e-4 at c = 1 and 0.2 at c = 0. So it is checked, by that worst case, and refused
  unless it leaves nine tenths of delta; it holds for replaced users only, since n is public.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np

from headcount.mechanisms.budget import Budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.keys import Release, block_key, lane_key, subkey
from headcount.mechanisms.lane_ids import decision_lane_ids
from headcount.mechanisms.randomness import Lanes
from headcount.mechanisms.relation import Relation
from headcount.mechanisms.thinning import binomial

LEAST_SLACK = 10
MOST_USERS = 10**9


def draw_cohort(users: int, rate: Fraction, release: Release, label: str = "Cohort") -> np.ndarray:
    """The numbers, ascending, of those of the users 0 .. users - 1 who are asked: each with probability `rate`, independently.

    How many they are must stay secret, as must the result. A release repeats its cohort: one id is for one survey.
    """
    users = _checked("users", users)
    if isinstance(rate, bool) or not isinstance(rate, Fraction) or not 0 < rate < 1:
        raise ParameterError(f"the rate must be a Fraction between 0 and 1, got {rate!r}")
    parameters = {"users": users, "rate": f"{rate.numerator}/{rate.denominator}"}
    key = subkey(release.key_source.fetch(), release.id, label, parameters)
    size = int(binomial(_lanes(key, b"size", 1), [users], rate)[0])
    return np.sort(_shuffled(_lanes(key, b"users", users))[:size])


def _lanes(key: bytes, what: bytes, count: int) -> Lanes:
    return Lanes(block_key(key, what), decision_lane_ids(lane_key(key), what, count))


def _shuffled(lanes: Lanes) -> np.ndarray:
    """The lanes in random order: by their words, with as many more words as it takes to tell all apart."""
    every = np.arange(lanes.n)
    words = [lanes.words(every)]
    while True:
        order = np.lexsort(words)
        same = np.ones(max(0, lanes.n - 1), dtype=bool)
        for column in words:
            same &= np.diff(column[order]) == 0
        if not same.any():
            return order
        words.append(lanes.words(every))


@dataclasses.dataclass(frozen=True)
class KnownCohort:
    """`size` of `users` are asked, a uniform choice, and each takes part with probability `rate`, in secret.

    Together they take part with probability `sampled`, for which a threshold must be calibrated (`least_threshold`), with the
    `rest` of the budget: that the size is known costs the other part.
    """

    users: int
    size: int
    rate: Fraction
    rest: Budget

    @property
    def sampled(self) -> Fraction:
        """The probability that a user takes part."""
        return self.rate * self.size / self.users


def known_cohort(
    budget: Budget, users: int, sample: int, slack: float = LEAST_SLACK, relation: Relation | str = Relation.REPLACE
) -> KnownCohort:
    """A cohort of a size that everybody may know, of which `sample` users take part on average; refused if it gives them away.

    The check is of the worst case that is known, and no proof: where the size can be kept secret, `draw_cohort` has one.
    """
    users, sample = _checked("users", users), _checked("sample", sample)
    if Relation.parse(relation) is not Relation.REPLACE:
        raise ParameterError(
            f"a cohort of known size protects replaced users only, as it shows how many there are: give relation = "
            f"{Relation.REPLACE.value!r}, got {Relation.parse(relation).value!r}"
        )
    if isinstance(slack, bool) or not LEAST_SLACK <= slack <= MOST_USERS:
        raise ParameterError(f"the slack of a cohort of known size must be at least {LEAST_SLACK}, got {slack!r}")
    size = math.ceil(sample + slack * math.sqrt(sample))
    if size > users:
        raise ParameterError(
            f"a sample of {sample} with a slack of {slack} needs a cohort of {size}, more than the {users} users there are"
        )
    lost = known_size_delta(users, sample, size, budget.epsilon)
    if lost > budget.delta / 10:
        raise ParameterError(
            f"a known cohort of {size} for a sample of {sample} of {users} users has a delta of {lost:.2g} at epsilon = "
            f"{budget.epsilon}, more than a tenth of {budget.delta}: raise the slack ({slack}), or keep the size secret"
        )
    rest = Budget(budget.epsilon, math.nextafter(budget.delta * 0.9, 0))
    return KnownCohort(users, size, Fraction(sample, size), rest)


def known_size_delta(users: int, sample: int, size: int, epsilon: float) -> float:
    """The divergence at `epsilon` where all users have one item, but for one whose own item stays hidden; both directions.

    Of t ~ Bin(size, sample / size) who take part, that user is one with probability t / users: then t - 1 are seen.
    """
    from scipy import stats  # slow to import, and nobody else needs it

    seen = np.arange(size + 1)
    without = stats.binom.pmf(seen, size, sample / size)
    above = np.append(without[1:], 0.0)
    with_user = (1 - seen / users) * without + (seen + 1) / users * above
    both = [(with_user, without), (without, with_user)]
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in both) * (1 + 1e-9)


def _checked(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MOST_USERS:
        raise ParameterError(f"{name} must be an integer from 1 to {MOST_USERS}, got {value!r}")
    return int(value)
