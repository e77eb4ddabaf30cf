"""Private choice of one candidate out of a public list, by a loss that the data give to each: lower is better.

A mechanism here has two halves. `em_exponents` and `gem_exponents` turn the losses into exponents x(c), and hold the
privacy argument; `select` draws by them, and is exact: exponents are rational, no float is involved, and every probability is
as stated. All of it is pure differential privacy (delta = 0). Proof: docs/proofs/choice.md.

Write dq(c) for the change of candidate c's loss between two neighbours. It is the caller who knows the neighbouring
relation, and who must bound dq for it; each function states which bound it needs. Candidates, bounds and tau must not
depend on the data.

McSherry, Talwar: "Mechanism Design via Differential Privacy" (2007), with the bound on the range of dq by Dong, Durfee,
Rogers (2020); Raskhodnikova, Smith: "Lipschitz Extensions for Node-Private Graph Statistics" (2016) for the generalised
mechanism. Changed: the generalised mechanism's scores are rounded down to a grid, which keeps their sensitivity, and there
is a sharper form for losses that move one way only.

Neglected: a candidate whose exponent is above the smallest by more than GEOMETRIC_LIMIT, with probability below e^-4096.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import numbers
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from headcount.mechanisms import tuning
from headcount.mechanisms.checks import is_whole, wrong
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import GEOMETRIC_LIMIT, Lanes, exp_floor

#: Scores are multiples of 1 / GRID.
GRID = 2**10


# Upper bounds of 2^48 e^-w for w = 0, 1, ...; the last is 1, for that w and all larger ones. With these, the draws for
# 16,384 candidates fit the 62 bits that are fast.
_WEIGHT_BITS = 48
_UPPER_WEIGHTS = (2**_WEIGHT_BITS, *(exp_floor(w, _WEIGHT_BITS) + 1 for w in range(1, 35)))

# Numerators and denominators up to here are drawn with in int64.
_LARGEST = 2**62

Rational = int | Fraction
Integers = npt.NDArray[Any]  # int64; Python integers (dtype object) where int64 is too narrow


def em_exponents(losses: Sequence[Rational], spread: Rational, epsilon: Rational) -> list[Fraction]:
    """The exponential mechanism by range: x(c) = epsilon (q(c) - min q) / spread.

    Drawing once by `select` is epsilon-differentially private if for all neighbours

        max dq(c) - min dq(c) <= spread,      both over the candidates c.

    That is so for spread = D if 0 <= dq <= D for all neighbours or their reverse (losses that only rise, or only fall, when a
    user is added). It is so for spread = 2 D if |dq| <= D, such as when a user is replaced; often less will do.

    Proof for `select`: P(c) = e^-x(c) / Z. With l = epsilon / spread, dq moves e^-x(c) by e^(-l dq(c)), up to a factor that all
    share, and moves Z by a mean of such factors. So log P(c) moves by at most l (max dq - min dq) <= epsilon.
    """
    ratios, step = _ratios("losses", losses), _positive("epsilon", epsilon) / _positive("spread", spread)
    low, unit = _least(ratios)
    times, parts = step.numerator, step.denominator * unit
    return [
        Fraction(times * (n * unit - low * d), parts * d) for n, d in ratios
    ]  # one fraction of each, as it takes time


def gem_exponents(
    losses: Sequence[Rational],
    sensitivities: Sequence[Rational],
    epsilon: Rational,
    one_sided: bool,
    tau: int | None = None,
) -> list[Fraction]:
    """The generalised exponential mechanism, for losses whose sensitivities D(c) differ between the candidates.

    x(c) = epsilon floor(GRID s(c)) / (2 GRID), where s(c) is the largest, over all candidates c', of

        [(q(c) + tau D(c)) - (q(c') + tau D(c'))] / width(c, c').

    Drawing once by `select` is epsilon-differentially private if for all neighbours

        |dq(c)| <= D(c)  for every c, with one_sided=False: width = D(c) + D(c');
        -D(c) <= dq(c) <= 0 for every c (or all with the other sign), with one_sided=True: width = max(D(c), D(c')).

    The second, which has about twice the power, is the case of losses that only fall (or only rise) when a user is
    added, under ADD_REMOVE. It is wrong under REPLACE, where some losses rise while others fall.

    Proof: dq(c) - dq(c') is at most width(c, c') in size, so each quotient, and the largest of them, moves by at most 1;
    floor(GRID s) moves by at most GRID, as GRID is an integer. Hence x moves by at most epsilon / 2 either way, and its
    range by at most epsilon: the proof of `em_exponents`, with x as loss and epsilon as spread.

    `tau` is public, and matters to utility only. The default is (2 / epsilon) ln(candidates / 0.05) rounded up. Then the chosen
    c has, with probability 0.95 and up to the grid, q(c) <= q(c') + 2 tau D(c') for every c': one of small sensitivity that is
    nearly best is not lost among those of large.
    """
    values, epsilon = _fractions("losses", losses), _positive("epsilon", epsilon)
    weights = [_positive("every sensitivity", sensitivity) for sensitivity in sensitivities]
    if len(weights) != len(values):
        raise ParameterError(f"each of {len(values)} losses needs a sensitivity, got {len(weights)}")
    if tau is None:
        tau = default_tau(len(values), epsilon)
    elif not is_whole(tau, 0):
        raise wrong("tau", "must be an integer, 0 or more", tau)
    step = epsilon / (2 * GRID)
    return [step * score for score in _gem_scores(values, weights, one_sided, tau)]


@functools.lru_cache(maxsize=1024)
def log_weight(weight: float, times: float = 1) -> Fraction:
    """What to add to the exponent of a candidate of the public weight `weight ** -times`, on both neighbours."""
    return Fraction(round(times * math.log(weight) * 2**20), 2**20)


def default_tau(candidates: int, epsilon: Fraction) -> int:
    """The tau of `gem_exponents` for this number of candidates, where none is given."""
    return math.ceil(2 / epsilon * Fraction(math.log(candidates / tuning.MISSED)))


def select(exponents: Sequence[Fraction], lanes: Lanes) -> int:
    """The index c with probability e^-x(c) / sum e^-x, drawn with the words of one lane.

    This is also the distribution of the largest of -x(c) + Gumbel noise. The lane's identity must hold the whole table of
    losses, so that two tables never share their words.

    If x has a range of at most epsilon between neighbours, as above, then besides epsilon-differential privacy this is
    (epsilon^2 / 8)-zCDP.
    """
    return select_by_excess(*_excess(exponents), lanes)


def probabilities(exponents: Sequence[Fraction]) -> npt.NDArray[np.float64]:
    """What `select` gives to each candidate, in floats: for audits and reports."""
    ratios = _ratios("exponents", exponents)
    low, unit = _least(ratios)
    weights = np.exp(
        [-((n * unit - low * d) / (d * unit)) for n, d in ratios]
    )  # the difference is taken before it is rounded
    return weights / weights.sum()


def _gem_scores(values: list[Fraction], weights: list[Fraction], one_sided: bool, tau: int) -> list[int]:
    """floor(GRID s(c)) for every candidate, where s(c) >= 0 as c' = c is among those compared.

    A quotient of candidates with their own denominators is that of integers after multiplication by both; the floor of
    the largest is the largest floor.
    """
    shifted = [value + tau * weight for value, weight in zip(values, weights, strict=True)]
    units = [math.lcm(a.denominator, d.denominator) for a, d in zip(shifted, weights, strict=True)]
    rows = [(int(a * unit), int(d * unit), unit) for a, d, unit in zip(shifted, weights, units, strict=True)]
    # If q + tau D and D are both no larger than those of some c', then its quotient is no smaller, or both are negative:
    # such c' need not be compared.
    front: list[int] = []
    for c in sorted(range(len(rows)), key=lambda c: (weights[c], shifted[c])):
        if not front or shifted[c] < shifted[front[-1]]:
            front.append(c)
    tops, widths, others = np.array([rows[c] for c in front], dtype=object).T
    scores = []
    for top, width, unit in rows:
        own, other = width * others, widths * unit
        joint = np.maximum(own, other) if one_sided else own + other
        scores.append(max(0, *((top * others - tops * unit) * GRID // joint)))
    return scores


def select_by_excess(excess: Integers, denominator: int, lanes: Lanes) -> int:
    """`select` for exponents x that are integers over one denominator, the smallest of them 0: fast for many candidates.

    A candidate has a whole part w = floor(x). One round draws an integer uniformly below the sum of all candidates' upper
    weights, which are floor(2^48 e^-w) + 1 (for w = 0 just 2^48). It falls to a candidate c with probability proportional to
    c's upper weight, and its place among those of c is a uniform integer. Read as the first digits of a uniform number R below
    the upper weight, it passes if R < 2^48 e^-w, with further digits drawn only if these do not settle it. Then c is taken with
    probability e^-(x - w). So a round takes c with probability proportional to

        upper weight * 2^48 e^-w / upper weight * e^-(x - w) = 2^48 e^-x,

    and the first round that takes one has the distribution of `select`. Fewer than 3 rounds are needed in the mean, however
    many candidates there are: all are looked at once, by w alone.
    """
    if lanes.n != 1:
        raise ParameterError(f"a selection draws with one lane, got {lanes.n}")
    bucket = np.minimum(excess // denominator, len(_UPPER_WEIGHTS) - 1).astype(np.int64)
    ends = _ends(np.bincount(bucket).tolist())
    while True:
        drawn = int(lanes.uniform_below(ends[-1], [0])[0])
        found = bisect.bisect_right(ends, drawn)
        place, digits = divmod(drawn - (ends[found - 1] if found else 0), _UPPER_WEIGHTS[found])
        candidate = _member(bucket, found, place)
        whole, rest = divmod(int(excess[candidate]), denominator)
        if _is_below(digits, whole, lanes) and lanes.bernoulli_exp(np.array([rest], excess.dtype), denominator, [0])[0]:
            return candidate


def _ends(sizes: list[int]) -> list[int]:
    """Where the integers end that fall to the candidates of each whole part, by their number."""
    return list(itertools.accumulate(n * weight for n, weight in zip(sizes, _UPPER_WEIGHTS, strict=False)))


def _member(bucket: npt.NDArray[np.int64], whole: int, place: int) -> int:
    """The candidate at a place among those of one whole part."""
    return int(np.flatnonzero(bucket == whole)[place])


def _is_below(digits: int, whole: int, lanes: Lanes) -> bool:
    """Whether a uniform number whose whole part is `digits` is below 2^48 e^-whole."""
    if whole > GEOMETRIC_LIMIT:
        return False
    bits = _WEIGHT_BITS
    while True:
        edge = exp_floor(whole, bits)
        if digits != edge:  # below it by a whole unit, or above what lies within a unit of it
            return digits < edge
        digits, bits = digits << 64 | int(lanes.words([0])[0]), bits + 64


def _excess(exponents: Sequence[Fraction]) -> tuple[Integers, int]:
    """The exponents less the smallest, as integers over one denominator."""
    ratios = _ratios("exponents", exponents)
    denominator = math.lcm(*{d for _, d in ratios})
    numerators = [n * (denominator // d) for n, d in ratios]
    low = min(numerators)
    wide = max(max(numerators) - low, denominator) > _LARGEST
    return np.array([n - low for n in numerators], dtype=object if wide else np.int64), denominator


def _least(ratios: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The least of these ratios."""
    low, unit = ratios[0]
    for n, d in ratios:
        if n * unit < low * d:
            low, unit = n, d
    return low, unit


def _fractions(what: str, values: Sequence[Any]) -> list[Fraction]:
    return [Fraction(*ratio) for ratio in _ratios(what, values)]


def _ratios(what: str, values: Sequence[Any]) -> list[tuple[int, int]]:
    """Numerators and denominators as Python integers, which do not wrap as NumPy's do.

    They are data: no message shows them.
    """
    if len(values) == 0:
        raise ParameterError("there must be at least one candidate to choose from, got none")
    for value in values:
        if not isinstance(value, numbers.Rational):
            raise ParameterError(f"{what} must be integers or Fractions, got a {type(value).__name__}: make them so")
    return [(int(value.numerator), int(value.denominator)) for value in values]


def _positive(name: str, value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, numbers.Rational) or value <= 0:
        raise wrong(name, "must be a positive integer or Fraction", value)
    return Fraction(int(value.numerator), int(value.denominator))
