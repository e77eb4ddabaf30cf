"""The success probability of a binomial distribution, chosen privately by how often users succeeded (Algorithms 1 and 2).

Of every user we know N, how often a symbol was among its m samples; if the symbol has probability p, N is Bin(m, p). The
candidates are a public cover of all p. Two losses of a candidate, both from T(x) = #{users with N > x} alone, where s is the
number of users, a *constant* that is public or was released before:

    "ks" (the default): loss(p) = max over x of | T(x) - s P[Bin(m, p) > x] |, s times the Kolmogorov distance;
    "phs" (the paper's, private hypothesis selection of Bun, Kamath, Steinke, Wu 2019): minus S(p) = min over q of Gamma(p, q).
        Let W be the x where Bin(m, p) is the likelier, P and Q its mass by p and by q. Gamma is s if P - Q <= 3 alpha, and else
        max(0, #{users with N in W} - s (Q + 3 alpha / 2)).

Guarantee: with exponents epsilon * loss / 2, one choice is epsilon-differentially private, and (epsilon^2 / 8)-zCDP, between
tables of one symbol in which one user has another N (or is there in one only). Proof: T(x) moves by at most 1, for each x and
all in one direction: N -> N' moves T(x) for the x between them. All that T is compared with is a function of s, m and p,
rounded to multiples of 2**-10 before the data come in: whatever it is, it is the same for both neighbours. So |T(x) - c| moves
by at most 1, and so do maxima and minima of such (for "phs": W is {x > c} or {x < c}, and has T(c) or s - T(c - 1) users).
Hence the range of dloss is at most 2: `em_exponents` with spread 2. A user who does not have the symbol is in no T(x).
Proof: docs/proofs/distribution.md.

What differs from the paper: its exponent S / (2 epsilon), which is 1/epsilon-private, is a misprint with a privacy loss of 20
for epsilon = 0.05. Alpha is found from public numbers, where one that is too small selects garbage; "ks" needs none, at the
cost of |H| m in place of |H|^2 steps. For binomials the Kolmogorov distance is the total variation, so that the paper's bound
carries over.

All is replay-stable: the cover and the distributions are made by +, -, *, / and square roots alone, which IEEE 754 rounds in
one way (and the logarithms that "phs" takes are rounded to multiples of 2**-20 at once).
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headcount.mechanisms import tuning
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.choice.exponential import em_exponents, select_by_excess
from headcount.mechanisms.distribution.tables import ValueCounts
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.lanes import GEOMETRIC_LIMIT, Lanes
from headcount.mechanisms.randomness.subkeys import block_key

KINDS = ("ks", "phs")

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Losses are integers in units of 2**-GRID_BITS.
GRID_BITS = 10
#: With these, a numerator of epsilon times a loss fits int64.
MOST_USERS = 10**10
NUMERATOR_BITS = 16
_LEAST_EPSILON = Fraction(1, 2**32)

#: From here on the paper's alpha says that there are too few users.
LARGEST_ALPHA = 0.25

# Laws are computed where they are not smaller than e^-55, for some candidates at a time, and losses for some symbols.
_NEGLIGIBLE = 55.0
_LAW_ENTRIES, _LOSS_ENTRIES = 1 << 20, 1 << 23


def cover(samples: int, step: float) -> Floats:
    """Probabilities from 0 to 1, ascending, such that two next to each other have binomial distributions about `step` apart.

    In p = sin^2(t) a total variation of `step` is a step of step / (0.8 sqrt(m)) in t, for every p. Each point is the one
    before, turned by the angle whose half has the tangent step / (1.6 sqrt(m)).
    """
    half = step / (1.6 * math.sqrt(samples))
    cosine, sine = (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)
    x, y, points = 1.0, 0.0, []
    while x > 0:
        points.append(y * y)
        x, y = x * cosine - y * sine, x * sine + y * cosine
    return np.array([p for p in points if p < 1] + [1.0])


@dataclasses.dataclass(frozen=True)
class BinomialChoice:
    """How p is chosen for each symbol: from m = `samples` samples of each of s = `users` users, at `epsilon` a symbol.

    Every field is public, or was released before. `epsilon` has a numerator below 2**16 (`rounded_down` makes one).
    """

    samples: int
    users: int
    epsilon: Fraction
    kind: str = "ks"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(f"the kind of a choice must be one of {KINDS}, got {self.kind!r}")
        check_whole("users", self.users, 1, MOST_USERS)
        if not (self.epsilon > 0 and self.epsilon.numerator < 2**NUMERATOR_BITS):
            raise ParameterError(
                f"epsilon must be positive, with a numerator below 2^16, got {self.epsilon!r}", "epsilon"
            )
        if self.epsilon < _LEAST_EPSILON:
            raise ParameterError(
                f"a choice at epsilon = {float(self.epsilon):.3g} is no better than none: raise the budget"
            )

    @cached_property
    def step(self) -> float:
        """The distance of the cover's points in total variation."""
        if self.kind == "phs":
            return self.alpha / 2
        by_privacy = tuning.COVER_BY_PRIVACY / (float(self.epsilon) * self.users)
        return max(
            min(max(by_privacy, tuning.COVER_BY_SAMPLING / math.sqrt(self.users)), tuning.WIDEST_COVER),
            self._least_step,
        )

    @property
    def _least_step(self) -> float:
        return 4 * math.sqrt(self.samples) / tuning.MOST_PROBABILITIES[self.kind] / 3

    @cached_property
    def alpha(self) -> float:
        """The accuracy that the paper's method needs to be told, at least what |H|, s and epsilon allow; in units of 2**-20.

        |H| depends on alpha in turn: the cover of a smaller alpha is larger, so that going up from the least alpha, the first
        one that is enough is found.
        """
        alpha = 2 * self._least_step
        while alpha < LARGEST_ALPHA:
            log = math.log(1.26 * math.sqrt(self.samples) / (alpha / 2) / tuning.MISSED)
            needed = max(
                math.sqrt((log + math.log(2)) / (2 * self.users)), 4 * log / (1.5 * float(self.epsilon) * self.users)
            )
            if needed <= alpha:
                break
            alpha = min(needed, 1.1 * alpha)
        return min(math.ceil(alpha * 2**20) / 2**20, LARGEST_ALPHA)

    @property
    def has_too_few_users(self) -> bool:
        """Whether no accuracy below `LARGEST_ALPHA` can be had, so that what "phs" chooses says nothing; "ks" needs none."""
        return self.kind == "phs" and self.alpha >= LARGEST_ALPHA

    @property
    def edge(self) -> float:
        """Below this, and above 1 less this, "phs" does not tell probabilities apart, and takes all of them for it: there is no
        hypothesis on the other side that is 3 alpha away. It is 0 for "ks"."""
        return -math.expm1(math.log1p(-3 * self.alpha) / self.samples) if self.kind == "phs" else 0.0

    @cached_property
    def candidates(self) -> Floats:
        """The probabilities to choose from."""
        return cover(self.samples, self.step)

    def losses(self, table: ValueCounts) -> Integers:
        """The loss of every candidate (a column) for every symbol (a row), in units of 2**-GRID_BITS."""
        return (_ks_losses if self.kind == "ks" else _phs_losses)(self, table)

    def exponents(self, table: ValueCounts, symbol: int = 0) -> list[Fraction]:
        """The candidates' exponents for one symbol: each is chosen with a probability proportional to exp(-exponent)."""
        losses = self.losses(table.take(np.array([symbol])))[0].tolist()
        return em_exponents(losses, 2 << GRID_BITS, self.epsilon)

    def estimates(self, table: ValueCounts, subkey: bytes, digest: int) -> Floats:
        """The chosen p of every symbol, each from the lane of the symbol with its whole table.

        `digest` stands for the tables of all symbols, so that a changed input changes all choices.
        """
        chosen = np.empty(len(table.symbols), dtype=np.int64)
        empty = np.diff(table.offsets) == 0
        ids, key = table.lane_ids(subkey), block_key(subkey, digest.to_bytes(16, "little"))
        absent = np.flatnonzero(empty)
        if len(absent):  # symbols that nobody has share their losses
            excess, places = self._excess(self.losses(table.take(absent[:1]))[0])
            for symbol in absent:
                chosen[symbol] = places[
                    select_by_excess(excess, self._denominator, Lanes(key, ids[symbol : symbol + 1]))
                ]
        held = np.flatnonzero(~empty)
        each = max(1, _LOSS_ENTRIES // len(self.candidates))
        for start in range(0, len(held), each):
            group = held[start : start + each]
            for symbol, losses in zip(group, self.losses(table.take(group)), strict=True):
                excess, places = self._excess(losses)
                chosen[symbol] = places[
                    select_by_excess(excess, self._denominator, Lanes(key, ids[symbol : symbol + 1]))
                ]
        return self.candidates[chosen]

    @property
    def _denominator(self) -> int:
        return (2 << GRID_BITS) * self.epsilon.denominator

    def _excess(self, losses: Integers) -> tuple[Integers, Integers]:
        """The exponents less the smallest, as integers over the denominator, and the places of their candidates.

        Those above GEOMETRIC_LIMIT, which are never taken, are left out at once.
        """
        excess = (losses - losses.min()) * self.epsilon.numerator
        places = np.flatnonzero(excess <= min((GEOMETRIC_LIMIT + 1) * self._denominator, 2**62))
        return excess[places], places


def least_users(samples: int, epsilon: Fraction, kind: str) -> int:
    """The least number of users that a choice says anything for: public, as it follows from public numbers alone."""

    def enough(users: int) -> bool:
        return not BinomialChoice(samples, users, epsilon, kind).has_too_few_users

    return 1 + bisect.bisect_left(range(1, MOST_USERS), True, key=enough)


def rounded_down(epsilon: Fraction) -> Fraction:
    """The largest fraction up to `epsilon` with a numerator below 2**16 and a power of two as denominator."""
    bits = 0
    while epsilon * 2**bits < 2 ** (NUMERATOR_BITS - 1):
        bits += 1
    numerator = math.floor(epsilon * 2**bits)
    return Fraction(min(numerator, 2**NUMERATOR_BITS - 1), 2**bits)


def _laws(p: Floats, samples: int) -> Iterator[tuple[slice, int, Floats]]:
    """(candidates, first value, law): law[y, c] = P[Bin(m, p_c) = first + y], for ascending p, some of them at a time.

    Values that are left out have probabilities below about e^-55 (by Bernstein's inequality). The recursion starts at the
    mode, so that nothing that matters vanishes in floats.
    """
    widest = 2 * _radius(samples / 4) + 3
    each = max(1, int(_LAW_ENTRIES // min(widest, samples + 1)))
    for start in range(0, len(p), each):
        block = slice(start, start + each)
        some = p[block]
        radius = _radius(samples * float((some * (1 - some)).max()))
        first = max(0, math.floor(samples * some[0] - radius))
        last = min(samples, math.ceil(samples * some[-1] + radius))
        yield block, first, _law(some, samples, first, last)


def _radius(variance: float) -> float:
    return _NEGLIGIBLE / 3 + math.sqrt(_NEGLIGIBLE**2 / 9 + 2 * _NEGLIGIBLE * variance)


def _law(p: Floats, samples: int, first: int, last: int) -> Floats:
    mode = np.clip(np.floor((samples + 1) * p).astype(np.int64), first, last)
    weight = np.zeros((last - first + 1, len(p)))
    weight[mode - first, np.arange(len(p))] = 1
    odds = np.divide(p, 1 - p, out=np.zeros(len(p)), where=p < 1)  # at p = 1 nothing lies above the mode
    against = np.divide(1 - p, p, out=np.zeros(len(p)), where=p > 0)
    for y in range(first, last):
        below = np.searchsorted(mode, y, side="right")
        np.multiply(
            weight[y - first, :below], odds[:below] * ((samples - y) / (y + 1)), out=weight[y + 1 - first, :below]
        )
    for y in range(last, first, -1):
        above = np.searchsorted(mode, y, side="left")
        np.multiply(
            weight[y - first, above:], against[above:] * (y / (samples - y + 1)), out=weight[y - 1 - first, above:]
        )
    total = np.zeros(len(p))
    for y in range(last - first + 1):  # in this order on every machine
        total += weight[y]
    return np.divide(weight, total, out=weight)


def scaled_tails(p: Floats, samples: int, users: int) -> Iterator[tuple[slice, int, Integers]]:
    """(candidates, first, tails): tails[x, c] = s P[Bin(m, p_c) > first + x] in units of 2**-GRID_BITS, rounded.

    For x below `first` it is s, and for x beyond the last row it is 0.
    """
    scale = float(users << GRID_BITS)
    for block, first, law in _laws(p, samples):
        tail = law[1:]
        for x in range(len(tail) - 2, -1, -1):
            tail[x] += tail[x + 1]
        yield block, first, np.rint(np.minimum(tail, 1.0) * scale).astype(np.int64)


def _tails_of(table: ValueCounts, symbol: int, samples: int) -> Integers:
    """T(x) for x = 0 .. m - 1, in units of 2**-GRID_BITS."""
    value, users = table.row(symbol)
    if len(value) and not 1 <= value[0] <= value[-1] <= samples:
        raise ParameterError(
            f"a user counts with more than {samples} samples of one symbol, which no step before allows"
        )
    at = np.zeros(samples + 1, dtype=np.int64)
    at[value] = np.minimum(users, MOST_USERS)
    return np.minimum(np.cumsum(at[::-1])[::-1][1:], MOST_USERS) << GRID_BITS


def _ks_losses(choice: BinomialChoice, table: ValueCounts) -> Integers:
    """T is constant between a symbol's values, and what it is compared with falls in x: only ends of such pieces count."""
    samples, all_users = choice.samples, choice.users << GRID_BITS
    symbols = range(len(table.symbols))
    held = [_tails_of(table, symbol, samples) for symbol in symbols]
    ends = [np.flatnonzero(_ends(table.row(symbol)[0], samples)) for symbol in symbols]
    losses = np.empty((len(symbols), len(choice.candidates)), dtype=np.int64)
    for block, first, tails in scaled_tails(choice.candidates, samples, choice.users):
        beyond = first + len(tails)
        difference = np.empty(tails.shape[1], dtype=np.int64)
        for symbol in symbols:
            mine, worst = held[symbol], losses[symbol, block]
            worst[:] = abs(mine[beyond]) if beyond < samples else 0
            if first > 0:
                np.maximum(worst, max(abs(mine[0] - all_users), abs(mine[first - 1] - all_users)), out=worst)
            inside = ends[symbol]
            inside = inside[np.searchsorted(inside, first) : np.searchsorted(inside, beyond)]
            for x in {first, beyond - 1, *inside.tolist()}:
                np.subtract(tails[x - first], mine[x], out=difference)
                np.maximum(worst, np.abs(difference, out=difference), out=worst)
    return losses


def _ends(value: Integers, samples: int) -> npt.NDArray[np.bool_]:
    """At which x a piece of T begins or ends; where T is 0, only the first can matter."""
    marked = np.zeros(samples + 1, dtype=bool)
    marked[0] = True
    marked[value - 1] = True
    marked[value] = True
    return marked[:samples]


def _phs_losses(choice: BinomialChoice, table: ValueCounts) -> Integers:
    """Minus the scores S, for some candidates at a time against all others."""
    samples, users, p = choice.samples, choice.users, choice.candidates
    above = np.zeros((samples + 2, len(p)), dtype=np.int64)  # row c: s P[Bin(m, p) >= c]
    for block, first, tails in scaled_tails(p, samples, users):
        above[: first + 1, block] = users << GRID_BITS
        above[first + 1 : first + 1 + len(tails), block] = tails
    held = [
        np.concatenate([[users << GRID_BITS], _tails_of(table, i, samples), [0]]) for i in range(len(table.symbols))
    ]
    losses = np.empty((len(held), len(p)), dtype=np.int64)
    every = np.arange(len(p))
    margin, slack = (math.ceil(factor * choice.alpha * (users << GRID_BITS)) for factor in (3, 1.5))
    for i in range(len(p)):
        cut = _likelier_from(p, i, samples)
        # W is {y >= cut} against a smaller q, and {y < cut} against a larger one.
        sign = np.where(every < i, 1, -1)
        mass, other = (np.where(every < i, a, (users << GRID_BITS) - a) for a in (above[cut, i], above[cut, every]))
        close = mass - other <= margin
        base = np.where(every < i, 0, users << GRID_BITS)
        for symbol, mine in enumerate(held):
            gamma = np.maximum(0, base + sign * mine[cut] - other - slack)
            losses[symbol, i] = -int(np.where(close, users << GRID_BITS, gamma).min())
    return losses


def _likelier_from(p: Floats, i: int, samples: int) -> Integers:
    """For every other candidate, the least y from which on the larger of the two p is the likelier.

    Bin(m, p) is the likelier of p > q where y ln(p/q) > (m - y) ln((1-q)/(1-p)).
    """
    large, small = np.maximum(p, p[i]), np.minimum(p, p[i])
    with np.errstate(divide="ignore", invalid="ignore"):
        up, down = np.log(large) - np.log(small), np.log1p(-small) - np.log1p(-large)
        cut = samples * (down / (up + down))
    cut = np.where(large == 1, np.where(small == 0, 0.5, samples - 0.5), np.where(small == 0, 0.5, cut))
    cut = np.where(large == small, 0.0, cut)
    return np.clip(np.floor(np.rint(cut * 2**20) / 2**20).astype(np.int64) + 1, 0, samples + 1)
