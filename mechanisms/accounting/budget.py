"""Privacy budgets: (epsilon, delta), zero-concentrated differential privacy, and the way between them.

The conversion is Proposition 12 of Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy"
(2020), at its exact minimum: dp-accounting offers the same formula on a fixed list of orders only.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

from headcount.mechanisms import tuning
from headcount.mechanisms.checks import check_at_least_0, check_inner, check_number, check_positive, check_probability
from headcount.mechanisms.errors import ParameterError


@dataclasses.dataclass(frozen=True)
class Budget:
    """A bound on the privacy loss: P[M(D) in S] <= e^epsilon P[M(D') in S] + delta for neighbours D, D'.

    `delta` 0 is pure differential privacy. The relation of the neighbours is a parameter of each mechanism.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", check_probability("delta", self.delta))

    @property
    def epsilon_fraction(self) -> Fraction:
        """Epsilon as the exact decimal that it prints as: 0.1 is 1/10, not the binary number nearest to it.

        The decimal is what its owner wrote and what the report states, and its small numerator and
        denominator keep noise scales small.
        """
        return _decimal(self.epsilon)

    def split(self, *weights: float, delta: tuple[float, ...] | None = None) -> tuple[Budget, ...]:
        """Parts that together cost this budget (basic composition), their epsilons in proportion to
        `weights`.

        A delta above 0 that meets more than one part must be given weights of its own, since most steps need
        none: `delta=(0, 1)` gives it whole to the second. Rounding is downwards: the parts, in the decimals
        that they print as, never add up to more than the whole.
        """
        return tuple(Budget(*part) for part in _split(self.epsilon, self.delta, weights, delta))


@dataclasses.dataclass(frozen=True)
class Zcdp:
    """delta-approximate rho-zCDP: except with probability delta, the Renyi divergence of every order a > 1
    between the outputs on neighbours is at most a * rho. Both parameters add up under composition."""

    rho: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_positive("rho", self.rho))
        object.__setattr__(self, "delta", check_probability("delta", self.delta))

    def split(self, *weights: float, delta: tuple[float, ...] | None = None) -> tuple[Zcdp, ...]:
        """Parts that together cost this, as `Budget.split`: rho in proportion to `weights`."""
        return tuple(Zcdp(*part) for part in _split(self.rho, self.delta, weights, delta))

    def to_budget(self, delta2: float) -> Budget:
        """The (epsilon, delta + (1 - delta) delta2) that this promises, with the least epsilon for
        `delta2`."""
        epsilon = zcdp_epsilon(self.rho, delta2)
        own, more = _decimal(self.delta), _decimal(float(delta2))
        return Budget(epsilon, _round_up(own + (1 - own) * more))

    @classmethod
    def from_budget(cls, budget: Budget, delta: float = 0.0) -> Zcdp:
        """The largest rho such that `delta`-approximate rho-zCDP keeps within `budget`."""
        delta = check_probability("delta", delta)
        if not delta < budget.delta:
            raise ParameterError(
                f"zCDP needs a budget with a delta above its own {delta}, got {budget.delta}: raise that"
            )
        own, whole = _decimal(delta), _decimal(budget.delta)
        return cls(zcdp_rho(budget.epsilon, _round_down((whole - own) / (1 - own))), delta)


def check_budget(budget: Budget, name: str = "the budget") -> None:
    """Refuses what is no `Budget`: a number alone, or a `Zcdp` where that cannot be spent."""
    if not isinstance(budget, Budget):
        raise ParameterError(f"{name} must be a Budget(epsilon, delta), got {budget!r}", name)


def check_parts(whole: Budget | Zcdp, *parts: Budget | Zcdp) -> None:
    """Refuses parts that together cost more than the whole (basic composition): their losses and their deltas add up.

    All are of one kind, and count as the decimals that they print as, which `split` keeps to.
    """
    if any(type(part) is not type(whole) for part in parts):
        raise ParameterError(f"parts of {whole!r} must be of its kind, got {parts!r}")
    for name in ("epsilon" if isinstance(whole, Budget) else "rho", "delta"):
        costs = [getattr(part, name) for part in parts]
        if sum_up(costs) > getattr(whole, name):
            raise ParameterError(
                f"parts with {name} = {' + '.join(map(repr, costs))} cost more than the whole budget of {name} = "
                f"{getattr(whole, name)!r}: divide it with split"
            )


def check_promise(zcdp: Zcdp, promise: Budget) -> None:
    """Refuses an (epsilon, delta) that `zcdp` does not keep."""
    own, more = _decimal(zcdp.delta), _decimal(zcdp_delta(zcdp.rho, promise.epsilon))
    if own + (1 - own) * more > _decimal(promise.delta):
        raise ParameterError(f"{zcdp!r} does not promise {promise!r}: convert it with to_budget")


def zcdp_for_names(budget: Zcdp | Budget) -> tuple[Zcdp, Budget]:
    """The zCDP that a release of items which nobody knew may cost, and what that promises in epsilon and delta.

    A `Zcdp` keeps its delta for the items, and is converted with a second one of the same size. Of a `Budget`, half of delta
    (`tuning.NAMES_DELTA`) is for the items and half for the conversion.
    """
    if not isinstance(budget, Zcdp | Budget):
        raise ParameterError(f"the budget must be a Zcdp(rho, delta) or a Budget(epsilon, delta), got {budget!r}")
    check_delta_for_names(budget.delta)
    if isinstance(budget, Zcdp):
        return budget, budget.to_budget(budget.delta)
    return Zcdp.from_budget(budget, budget.delta * tuning.NAMES_DELTA), budget


def check_delta_for_names(delta: float) -> None:
    """Refuses a delta with which no item that comes from the data can be named."""
    if not 0 < delta < 0.5:
        raise ParameterError(
            f"naming items that come from the data needs a delta above 0 and below 1/2, got {delta}: which items there are "
            "cannot be hidden with certainty"
        )


def check_delta_or_domain(delta: float) -> None:
    """Refuses a delta with which items that come from the data cannot be counted, and says what else there is."""
    if not 0 < delta < 0.5:
        raise ParameterError(
            "delta must be positive and below 1/2, as the items come from the data: give Budget(epsilon, delta), or a "
            f"public domain, got {delta}",
            "delta",
        )


def check_order(order: float) -> float:
    """The order up to which Renyi divergences are bounded: above 1, and infinite where they all are."""
    if order != math.inf and not check_number("order", order) > 1:
        raise ParameterError(f"order must be above 1, got {order!r}", "order")
    return order


def zcdp_delta(rho: float, epsilon: float, order: float = math.inf) -> float:
    """The least delta that rho-zCDP promises at `epsilon` >= 0, where it holds for orders up to `order`.

    delta = min over 1 < a <= order of exp((a-1)(a rho - epsilon)) (1 - 1/a)^a / (a-1). With u = a-1 its logarithm is
    u((1+u) rho - epsilon) + u ln u - (1+u) ln(1+u), which is convex. Its derivative, (1+2u) rho - epsilon - ln(1 + 1/u),
    increases from minus infinity, and bisection finds the one root; beyond the order, that is the least. Every u up to the
    order gives a valid delta, so that an inexact root costs tightness, never privacy.
    """
    most = check_order(order) - 1
    u = min(_best_u(rho, epsilon), most)
    log_delta = u * ((1 + u) * rho - epsilon) - math.log1p(u) - u * math.log1p(1 / u)
    return max(math.exp(min(0.0, log_delta)), math.ulp(0.0))  # never 0, which would promise more


def zcdp_order(rho: float, epsilon: float) -> float:
    """The order at which rho-zCDP is converted at `epsilon`, as in `zcdp_delta`: it falls as rho rises."""
    return 1 + _best_u(rho, epsilon)


def _best_u(rho: float, epsilon: float) -> float:
    rho, epsilon = check_positive("rho", rho), check_at_least_0("epsilon", epsilon)
    low = max(-700.0, -(3 * rho + 1))  # ln u where the derivative is negative (or delta is 1 anyway)
    high = math.log(max(1.0, (epsilon + 1) / rho))  # where it is positive
    for _ in range(80):
        middle = (low + high) / 2
        u = math.exp(middle)
        if (1 + 2 * u) * rho - epsilon - math.log1p(1 / u) < 0:
            low = middle
        else:
            high = middle
    return math.exp(high)


def zcdp_epsilon(rho: float, delta: float, order: float = math.inf) -> float:
    """The least epsilon that rho-zCDP promises with `delta`, where it holds for orders up to `order`; rounded upwards."""
    rho, delta = check_positive("rho", rho), check_inner("delta", delta)
    high = rho + 2 * math.sqrt(rho * math.log(1 / delta))  # the looser classical bound, for all orders
    while zcdp_delta(rho, high, order) > delta:
        high *= 2
    return _bisect(lambda epsilon: zcdp_delta(rho, epsilon, order) <= delta, good=high, bad=0.0)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho such that rho-zCDP promises (epsilon, delta), rounded downwards."""
    epsilon, delta = check_positive("epsilon", epsilon), check_inner("delta", delta)
    log = math.log(1 / delta)
    good = (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2  # by the looser classical bound
    bad = 2 * good
    while zcdp_delta(bad, epsilon) <= delta:
        good, bad = bad, 2 * bad
    return _bisect(lambda rho: zcdp_delta(rho, epsilon) <= delta, good=good, bad=bad)


def _bisect(holds: Callable[[float], bool], good: float, bad: float) -> float:
    """The point nearest to the border at which `holds` was seen to be true."""
    for _ in range(100):
        middle = (good + bad) / 2
        if middle in (good, bad):
            break
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good


def sum_up(values: Iterable[float]) -> float:
    """The sum of the decimals that numbers print as, rounded upwards: no less than what they add up to."""
    return _round_up(sum((_decimal(value) * times for value, times in Counter(values).items()), Fraction(0)))


def digits_up(value: float, digits: int) -> float:
    """The least number of this many decimal digits that is not below the value."""
    return _digits(value, digits, decimal.ROUND_CEILING)


def digits_down(value: float, digits: int) -> float:
    """The largest number of this many decimal digits that is not above the value."""
    return _digits(value, digits, decimal.ROUND_FLOOR)


def _digits(value: float, digits: int, rounding: str) -> float:
    return float(decimal.Context(prec=digits, rounding=rounding).create_decimal(repr(value)))


def _decimal(number: float) -> Fraction:
    return Fraction(repr(number))


def _split(
    loss: float, delta: float, weights: tuple[float, ...], delta_weights: tuple[float, ...] | None
) -> list[tuple[float, float]]:
    """The (loss, delta) of each part, rounded down; see `Budget.split`."""
    loss_shares = _shares("weight", weights)
    if not any(loss_shares) or not all(loss_shares):
        raise ParameterError(f"every weight of a split must be positive, got {weights}")
    if delta_weights is None:
        if delta > 0 and len(weights) > 1:
            raise ParameterError(
                f"a budget with delta = {delta} was split into {len(weights)} parts without saying "
                "which gets the delta; give its weights, e.g. delta=(0, 1) for the second part only"
            )
        delta_weights = (1,) * len(weights)
    if len(delta_weights) != len(weights):
        raise ParameterError(
            f"a split into {len(weights)} parts got {len(delta_weights)} delta weights: {delta_weights}"
        )
    delta_shares = _shares("delta weight", delta_weights)
    if not any(delta_shares):
        raise ParameterError(f"at least one delta weight must be positive, got {delta_weights}")
    return [
        (_round_down(_decimal(loss) * share), _round_down(_decimal(delta) * delta_share))
        for share, delta_share in zip(loss_shares, delta_shares, strict=True)
    ]


def _shares(name: str, weights: tuple[float, ...]) -> tuple[Fraction, ...]:
    if not weights:
        raise ParameterError(f"a split needs at least one {name}")
    exact = tuple(_decimal(check_at_least_0(name, weight)) for weight in weights)
    whole = sum(exact)
    return tuple(weight / whole if whole else weight for weight in exact)


def _round_down(exact: Fraction) -> float:
    number = float(exact)
    while _decimal(number) > exact:
        number = math.nextafter(number, -math.inf)
    return number


def _round_up(exact: Fraction) -> float:
    number = float(exact)
    while _decimal(number) < exact:
        number = math.nextafter(number, math.inf)
    return number
