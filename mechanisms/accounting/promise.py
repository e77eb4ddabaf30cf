"""One promise for many runs: the budget of every release, so that all runs together keep (epsilon, delta).

It is the inverse of what a ledger adds up (`totals`). Guarantee: `runs` runs of all releases with these budgets are together
(epsilon, delta)-differentially private, under the relation and for the unit of the releases, in any order, where what a release
asks may depend on what the ones before have released. Budgets follow from public numbers alone and are fixed before the first
run, which is what the totals ask for; with `adaptive` not even that is needed. Proof: docs/proofs/accounting.md, "One promise
for many runs".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, digits_down, zcdp_rho
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.totals import Spent
from headcount.mechanisms.checks import check_at_least_0, check_positive, check_whole
from headcount.mechanisms.errors import ParameterError

# What the release of a name costs at an epsilon and a delta: all that a ledger gets of it.
CostAt = Callable[[str, float, float], Sequence[Guarantee]]

# Budgets have so many digits, so that a file that names them is easy to read. What they cost is compared with the promise
# beyond the rounding of sums in another order.
_DIGITS, _DELTA_DIGITS = 4, 3
_BEYOND = 1 - 1e-6
# The search ends as soon as this share of epsilon is used; it aims between that and the whole.
_ENOUGH, _AIM = 0.997, 0.9988
_LOOKS, _LEAST = 60, 1e-4  # how often it looks, and down to which part of where it began
_MOST_RUNS = 10**5


def budgets(
    cost_at: CostAt,
    weights: Mapping[str, float],
    epsilon: float,
    delta: float,
    runs: int,
    adaptive: bool = False,
    pure: Collection[str] = (),
) -> dict[str, Budget]:
    """The budget of each release in a run: epsilons in proportion to `weights`, as large as the promise allows.

    Releases in `pure` get no delta, and the others equal parts. One release that runs once gets the promise as it is. At least
    99 % of the promised epsilon is used, at the promised delta, as `totals.Spent` adds it up.
    """
    epsilon, delta = check_positive("epsilon", epsilon), check_at_least_0("delta", delta)
    runs, shares = check_whole("runs", runs, 1, _MOST_RUNS), _shares(weights)
    if runs * len(shares) == 1 and not adaptive:
        return {name: Budget(epsilon, 0.0 if name in pure else delta) for name in shares}
    taking = sum(name not in pure for name in shares)
    each = digits_down(delta * tuning.PROMISE_DELTA / (runs * taking), _DELTA_DIGITS) if taking else 0.0
    deltas = {name: 0.0 if name in pure else each for name in shares}

    def at(scale: float) -> dict[str, Budget]:
        return {name: Budget(digits_down(scale * share, _DIGITS), deltas[name]) for name, share in shares.items()}

    def spent_at(scale: float) -> float:
        costs = [each for name, part in at(scale).items() for each in cost_at(name, part.epsilon, part.delta)]
        return _epsilon(Spent(repeated(costs, runs), adaptive), epsilon, delta)

    return at(_largest(spent_at, epsilon, digits_down(_start(shares.values(), epsilon, delta, runs), _DIGITS)))


def better_gaussian(releases: int, delta: float) -> bool:
    """Whether so many releases under one promise get less noise if it is Gaussian: Laplace noise grows with their number, and
    Gaussian noise, which is larger for one, with its root."""
    return delta > 0 and releases >= tuning.PROMISE_GAUSSIAN


def repeated(costs: Iterable[Guarantee], runs: int) -> list[Guarantee]:
    """What several runs of these cost, each the same: equal ones are one value, so that totals work them out once."""
    return [cost for cost in costs for _ in range(runs)]


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights in proportion to the largest."""
    if not weights:
        raise ParameterError("a promise for many runs needs one release at least, got none")
    checked = {name: check_positive(f"the weight of {name}", weight) for name, weight in weights.items()}
    largest = max(checked.values())
    return {name: weight / largest for name, weight in checked.items()}


def _start(shares: Collection[float], epsilon: float, delta: float, runs: int) -> float:
    """Where to look first: what Laplace noise would cost by zCDP, or what adds up to epsilon."""
    added = epsilon / (runs * math.fsum(shares))
    if not 0 < delta < 1:
        return added
    return max(added, math.sqrt(2 * zcdp_rho(epsilon, delta) / (runs * math.fsum(share**2 for share in shares))))


def _epsilon(spent: Spent, epsilon: float, delta: float) -> float:
    """What is spent at delta; above epsilon if a ledger, which asks for the delta at epsilon, would refuse it."""
    found = spent.epsilon(delta * _BEYOND)
    if found < _ENOUGH * epsilon or found > epsilon or spent.delta(epsilon) <= delta * _BEYOND:
        return found
    return math.nextafter(epsilon, math.inf)


def _largest(spent_at: Callable[[float], float], epsilon: float, start: float) -> float:
    """About the largest scale, of a few digits, at which no more than epsilon is spent.

    What is spent rises about as a power of the scale, so that the next look is where the last two say that it is right.
    """
    good, bad, scale = 0.0, math.inf, start
    seen: list[tuple[float, float]] = []
    for _ in range(_LOOKS):
        spent = spent_at(scale)
        if spent <= epsilon:
            good = max(good, scale)
            if spent >= _ENOUGH * epsilon:
                break
        else:
            bad = min(bad, scale)
        if math.isfinite(spent):
            seen = [*seen[-1:], (scale, spent)]
        scale = _next(seen, epsilon, good, bad)
        if scale in (good, bad) or scale < _LEAST * start:
            break
    if not good:
        raise ParameterError(
            f"no budget was found with which the releases keep epsilon = {epsilon:g} at the promised delta: raise one of them"
        )
    return good


def _next(seen: list[tuple[float, float]], epsilon: float, good: float, bad: float) -> float:
    """Where to look next: between what was good and what was bad."""
    power = 1.0
    if len(seen) == 2 and seen[0][0] != seen[1][0] and seen[0][1] != seen[1][1]:
        power = math.log(seen[1][1] / seen[0][1]) / math.log(seen[1][0] / seen[0][0])
    middle = math.sqrt(good * bad) if good and math.isfinite(bad) else good * 4 if good else bad / 4
    if not seen or not 0.2 < power < 5:
        return digits_down(middle, _DIGITS)
    scale, spent = seen[-1]
    wanted = digits_down(scale * (_AIM * epsilon / spent) ** (1 / power), _DIGITS)
    return wanted if good < wanted < bad else digits_down(middle, _DIGITS)
