"""How an estimated histogram splits its budget: choices, names, counts and totals, composed together.

A release follows one of two plans, and which one is a private choice itself. In the *Gaussian plan* counts and totals have
Gaussian noise. A selection curve names the items (`partitions`), and all of it is taken in Renyi divergences of one order.
Where the promise is one of zCDP, or leaves a curve too little, Gaussian noise names them, and all shares a precision mu^2. In
the *Laplace plan* one step of Laplace noise names and counts at once (or counts, where the items are public), and the totals
have Laplace noise too: better where users have an item or two.

Guarantee: both plans together with all choices are (epsilon, delta)-differentially private per user, by
`accounting.composition`, for the relation that the distances are of: `stages` makes noise and choices for one relation. With
Laplace noise alone delta is what the threshold takes, or 0. An account of `zcdp_account` is delta-approximate rho-zCDP: a draw
of range c is c^2/8-zCDP, Gaussian noise mu^2/2-zCDP, also on a grid, and thresholds hide but for delta; these add up.
Proof: docs/proofs/histogram.md.

Counts and totals share their precision by what was released before them (`split`): names, and bounds that were chosen. Given
that, they are Gaussian noise of the same mu together, however it is split, and the composition holds for every such outcome.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting import thresholds
from headcount.mechanisms.accounting.budget import Budget, Zcdp, check_budget, check_delta_for_names
from headcount.mechanisms.accounting.composition import (
    Parts,
    composed_delta,
    largest_divergence,
    largest_mu,
    renyi_left,
)
from headcount.mechanisms.checks import check_at_least_0
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.partitions.curve_budget import best_order

# Beyond the rounding of the formulas of selection curves.
_LAW_SLACK = 1 - 1e-9

# What the lattice of the composition takes of a sum of pure parts.
_PURE_SHARE = 0.995


class LawCost(NamedTuple):
    """What names by a selection curve cost neighbours: a Renyi divergence of at most `cost` of this order. The delta of
    selection is beside it."""

    order: float
    cost: float


@dataclasses.dataclass(frozen=True)
class Account:
    """The parts of a budget. None stands for what is not chosen, and a mu or pure part of 0 for what is not there."""

    budget: Budget
    names_choice: Budget | None
    counts_choice: Budget | None
    totals_choice: Budget | None
    names_mu: float
    counts_mu: float
    totals_mu: float
    hiding: float
    pure_counts: float
    pure_totals: float
    pure_hiding: float
    ranges_choices: tuple[Budget, ...] = ()  # of the ranges of values
    zcdp: Zcdp | None = None  # the promise, where it is one of zCDP: `budget` is what that implies
    law: LawCost | None = None  # of names by a selection curve, which have no mu
    users_choice: Budget | None = None  # of the totals' bound for users, where events have one of their own
    names_limit: Budget | None = None  # of the items per user that the choice of names may look at, drawn before it
    cap_choice: Budget | None = None  # of how many events of one user on one item count, on both ways
    alone_choice: Budget | None = None  # of whether counts stand alone, without totals, and at which norm
    pure_alone: float = 0.0  # of counts that stand alone with Laplace noise

    def __post_init__(self) -> None:
        parts = (
            "names_mu",
            "counts_mu",
            "totals_mu",
            "hiding",
            "pure_counts",
            "pure_totals",
            "pure_hiding",
            "pure_alone",
        )
        for name in parts:
            check_at_least_0(name, getattr(self, name))
        if (self.names_limit is None) != (self.names_choice is None):
            raise ParameterError("names_limit and names_choice are two draws of one choice: give both, or none")
        alone = self.alone_choice is not None
        others = self.counts_choice is None or self.named or self.zcdp is not None
        if (alone and others) or (self.pure_alone and not alone):
            raise ParameterError(
                "counts of a public list alone stand alone, where their bounds are chosen: give alone_choice beside "
                "counts_choice, and neither names nor zcdp"
            )
        if not (self.gaussian or self.pure):
            raise ParameterError("counts_mu and pure_counts are both 0, so that there is nothing to count with")
        if self.zcdp is not None:
            self._check_zcdp(self.zcdp)
        elif self.pure and self.named and (self.ranges_choices or self.users_choice is not None):
            raise ParameterError(
                "with names, more is chosen in the Gaussian plan alone: make the account with pure=False"
            )
        elif math.fsum([self.pure_alone, *_epsilons(*self.alone_choices)]) > self.budget.epsilon:
            raise ParameterError(f"counts that stand alone with Laplace noise cost more than {self.budget!r} has")
        elif not self.delta() <= self.budget.delta:
            raise ParameterError(f"the parts cost a delta of {self.delta()}, more than {self.budget!r} has")

    def check_named(self, named: bool) -> None:
        """Refuse a release that names its items with an account that has nothing for names, or the other way round."""
        if named != self.named:
            raise ParameterError(
                f"the account has {'no' if named else 'a'} domain to be for: make one with named={named}"
            )

    @property
    def named(self) -> bool:
        """Whether items are named first, by a way that is chosen or given: then something hides those of one user alone."""
        return max(self.hiding, self.pure_hiding) > 0

    @property
    def totals_share(self) -> float:
        """The share of totals in the precision of counts and totals, where nothing else is known."""
        return self.totals_mu**2 / (self.counts_mu**2 + self.totals_mu**2)

    def split(self, share: float) -> tuple[float, float]:
        """The mu of counts and of totals, if the totals have this share of the precision of both."""
        if not 0 <= share < 1:
            raise ParameterError(f"the share of totals must be 0 or more and below 1, got {share!r}")
        both = math.hypot(self.counts_mu, self.totals_mu) * (1 - 1e-12)
        return both * math.sqrt(1 - share), both * math.sqrt(share)

    @property
    def naming_choices(self) -> tuple[Budget, ...]:
        """The draws that decide how items are named, in their order."""
        return tuple(part for part in (self.names_limit, self.names_choice) if part is not None)

    @property
    def first_choices(self) -> tuple[Budget, ...]:
        """The draws up to the one that decides on the way: how items are named, or else the kind of noise, after the cap."""
        found = self.naming_choices if self.named else (self.cap_choice, self.alone_choice, self.counts_choice)
        return tuple(part for part in found if part is not None)

    @property
    def alone_choices(self) -> tuple[Budget, ...]:
        """The draws up to the one that decides whether counts stand alone; none if nothing does."""
        found = () if self.alone_choice is None else (self.cap_choice, self.alone_choice)
        return tuple(part for part in found if part is not None)

    @property
    def gaussian(self) -> bool:
        """Whether there is a Gaussian plan."""
        return self.counts_mu > 0

    @property
    def pure(self) -> bool:
        """Whether there is a Laplace plan."""
        return self.pure_counts > 0

    def _check_zcdp(self, zcdp: Zcdp) -> None:
        """Draws of range c are c^2/8-zCDP, Gaussian parts mu^2/2, and thresholds hide but for delta; all of it adds up."""
        choices = [*self.naming_choices, self.counts_choice, self.totals_choice, self.users_choice, self.cap_choice]
        rho = _rho(_epsilons(*choices, *self.ranges_choices), self.names_mu, self.counts_mu, self.totals_mu)
        if self.pure or rho > zcdp.rho or self.hiding > zcdp.delta:
            raise ParameterError(f"the parts cost a rho of {rho} and a delta of {self.hiding}, more than {zcdp!r} has")

    def _law_way(self, law: LawCost) -> Parts:
        """The plan of names by a selection curve: what follows the choice of it, in Renyi divergence of one order."""
        if self.names_mu or self.zcdp is not None or not self.hiding < 1:
            raise ParameterError(
                "names by a selection curve need no mu for names, and no promise of zCDP: make them anew"
            )
        if not (law.order > 1 and law.cost > 0):
            raise ParameterError(f"names by a selection curve need an order above 1 and a cost above 0, got {law}")
        choices = (self.counts_choice, self.totals_choice, self.users_choice, self.cap_choice)
        draws = _epsilons(*choices, *self.ranges_choices)
        beside = _rho(draws, self.counts_mu, self.totals_mu)
        return Parts(hiding=self.hiding, renyi=(law.order, law.cost + law.order * beside))

    def delta(self) -> float:
        """What all of it costs at epsilon."""
        named = self.named
        first = _epsilons(*self.first_choices)
        last = _epsilons(self.totals_choice, self.cap_choice if named else None)
        # With names, what follows the first choice in the Gaussian plan is the choice of the counts' bound as well.
        counts = self.counts_choice if named else None
        more = _epsilons(self.users_choice, *self.ranges_choices)
        second = (*_epsilons(counts), *more)
        ways = []
        if self.law is not None:
            ways.append(self._law_way(self.law))
        elif self.gaussian:
            mu = (self.names_mu**2 + self.counts_mu**2 + self.totals_mu**2) ** 0.5
            ways.append(Parts((*second, *last), mu, (), self.hiding))
        if self.pure:
            ways.append(Parts((*more, *last), 0.0, _positive(self.pure_counts, self.pure_totals), self.pure_hiding))
        whole = composed_delta(self.budget.epsilon, first, *ways)
        # Renyi divergences of discrete Gaussian noise are at most those of continuous noise: the others pay for the grid.
        return whole / thresholds.TOTAL_SHARE if self.gaussian and self.law is None else whole


def make_account(
    budget: Budget,
    *,
    named: bool,
    chosen: bool,
    calibrated: bool,
    gaussian: bool = True,
    pure: bool = True,
    precision: tuple[float, float, float] = tuning.HISTOGRAM_PRECISION,
    pure_share: float = tuning.LAPLACE_TOTALS_SHARE,
    ranges: int = 0,
    users_too: bool = False,
    capped: bool = False,
    alone: bool = False,
    way_given: bool = False,
) -> Account:
    """The account of a release whose items are `named` first, or public, with a bound for the counts that is `chosen`, or
    given, and counts that are `calibrated` by totals, or not; `gaussian` and `pure` say which ways may be taken.
    `precision` has the shares of names, counts and totals where all are there, `pure_share` that of totals in the Laplace
    plan, and `ranges` is the number of ranges to be chosen. With `users_too`, totals of users have a bound of their own
    beside those of events; with `capped`, it is chosen how many events of one user on one item count; with `alone`, whether
    counts of a public list stand alone. A selection curve names items, with counts and totals as sharp as they would be beside
    names by noise; by noise, where that leaves a curve too little. With `way_given` nothing is drawn for how items are named,
    and its share is spent on all the rest."""
    check_budget(budget)
    if named:
        check_delta_for_names(budget.delta)
    gaussian = gaussian and budget.delta > 0
    epsilon = budget.epsilon
    by_choice = named and not way_given
    limit, names, counts, totals, users, ends = _choices(epsilon, by_choice, chosen, calibrated, ranges, users_too)
    cap = Budget(tuning.CAP_CHOICE_SHARE * epsilon) if capped else None
    of_alone = Budget(tuning.ALONE_SHARE * epsilon) if alone and gaussian else None
    spent = sum(_epsilons(limit, names, None if named else counts, totals, cap, users, *ends, of_alone))
    rest = _PURE_SHARE * (epsilon - spent) if pure else 0.0
    pure_alone = _PURE_SHARE * (epsilon - sum(_epsilons(cap, of_alone))) if pure and of_alone else 0.0
    pure_totals = pure_share * rest if calibrated else 0.0
    pure_counts = rest - pure_totals
    pure_hiding = tuning.LAPLACE_THRESHOLD_DELTA * budget.delta if named and pure else 0.0
    choices, pures = (budget, names, counts, totals), (pure_counts, pure_totals, pure_hiding)
    if not gaussian:
        return Account(*choices, 0.0, 0.0, 0.0, 0.0, *pures, names_limit=limit, cap_choice=cap)
    hiding = tuning.THRESHOLD_DELTA * budget.delta if named else 0.0
    # The cap is drawn after what decides on the way, where that is how items are named, and before it elsewhere.
    first = _epsilons(limit, names) if named else _epsilons(cap, of_alone, counts)
    then = _epsilons(cap) if named else ()
    after = Parts((*_epsilons(counts if named else None, users, *ends, totals), *then), hiding=hiding)
    other = (
        [Parts((*_epsilons(users, *ends, totals), *then), pure=_positive(pure_counts, pure_totals), hiding=pure_hiding)]
        if pure
        else []
    )

    def largest(*other: Parts) -> tuple[float, float, float]:
        mu = largest_mu(epsilon, thresholds.TOTAL_SHARE * budget.delta, first, after, *other)
        if mu == 0:
            raise ParameterError(
                f"{budget!r} is too small for Gaussian noise beside its choices: raise epsilon or delta"
            )
        return _precision(mu, precision, named, calibrated)

    if named:
        mus = largest()
        shown = tuning.SELECTION_DELTA * budget.delta
        law = _law_cost(budget, first, mus, _rho(after.choices, *mus[1:]), shown, other)
        if law is not None:
            law_mus = (0.0, *mus[1:])
            made = Account(*choices, *law_mus, shown, *pures, ends, law=law, names_limit=limit)
            return dataclasses.replace(made, users_choice=users, cap_choice=cap)
    made = Account(*choices, *largest(*other), hiding, *pures, ends, names_limit=limit)
    return dataclasses.replace(made, users_choice=users, cap_choice=cap, alone_choice=of_alone, pure_alone=pure_alone)


def _law_cost(
    budget: Budget,
    first: Sequence[float],
    mus: tuple[float, float, float],
    beside: float,
    shown: float,
    other: Sequence[Parts],
) -> LawCost | None:
    """What names by a selection curve may cost in place of Gaussian ones of the first mu, beside a zCDP of so much that follows
    the first draws, and another way that may be taken; None if it is too little."""
    everything = beside + _rho(first)
    order = best_order(lambda order: budget.epsilon + renyi_left(order, budget.delta - shown) - order * everything)
    whole = largest_divergence(budget.epsilon, budget.delta, first, order, shown, *other)
    cost = (whole - order * beside) * _LAW_SLACK
    return LawCost(order, cost) if cost >= tuning.LEAST_PART_OF_SELECTION * order * _rho((), mus[0]) else None


def zcdp_account(
    zcdp: Zcdp,
    *,
    named: bool,
    chosen: bool,
    calibrated: bool,
    precision: tuple[float, float, float] = tuning.HISTOGRAM_PRECISION,
    ranges: int = 0,
    users_too: bool = False,
    capped: bool = False,
) -> Account:
    """The same for a promise of zCDP, in the Gaussian plan. All of its delta is for names; where there are none, it is what
    epsilon is stated for."""
    if named:
        check_delta_for_names(zcdp.delta)
    budget = (zcdp if named else Zcdp(zcdp.rho)).to_budget(zcdp.delta)
    unit = tuning.ZCDP_CHOICE_UNIT * zcdp.rho**0.5
    limit, names, counts, totals, users, ends = _choices(unit, named, chosen, calibrated, ranges, users_too)
    cap = Budget(tuning.CAP_CHOICE_SHARE * unit) if capped else None
    spent = _rho(_epsilons(limit, names, cap, counts, totals, users, *ends))
    # Beyond the rounding of all sums of these parts.
    mus = _precision((2 * (zcdp.rho - spent)) ** 0.5 * (1 - 1e-9), precision, named, calibrated)
    hiding = zcdp.delta * (1 - 1e-9) if named else 0.0
    parts = (budget, names, counts, totals, *mus, hiding, 0.0, 0.0, 0.0, ends, zcdp)
    return Account(*parts, users_choice=users, names_limit=limit, cap_choice=cap)


def _choices(
    epsilon: float, named: bool, chosen: bool, calibrated: bool, ranges: int, users_too: bool
) -> tuple[Budget | None, Budget | None, Budget | None, Budget | None, Budget | None, tuple[Budget, ...]]:
    """What choices of names (two draws), of the counts' bound, of the totals' one or two and of ranges take."""
    of_totals = tuning.TOTALS_CHOICE_SHARE / 2**0.5 if users_too else tuning.TOTALS_CHOICE_SHARE
    asked = [
        (float(tuning.NAMES_LIMIT_SHARE), named),
        (tuning.NAMES_CHOICE_SHARE_OF_HISTOGRAM, named),
        (tuning.COUNTS_CHOICE_SHARE, chosen),
    ]
    asked += [(of_totals, calibrated), (of_totals, users_too)]
    limit, names, counts, totals, users = (Budget(share * epsilon) if there else None for share, there in asked)
    ends = tuple(Budget(tuning.RANGE_CHOICE_SHARE / ranges**0.5 * epsilon) for _ in range(ranges))
    return limit, names, counts, totals, users, ends


def _precision(
    mu: float, precision: tuple[float, float, float], named: bool, calibrated: bool
) -> tuple[float, float, float]:
    """The mu of names, counts and totals, of one of all."""
    shares = precision if named else (0.0, 1 - tuning.PUBLIC_TOTALS_SHARE, tuning.PUBLIC_TOTALS_SHARE)
    if not calibrated:
        shares = (shares[0], 1 - shares[0], 0.0)
    names, counts, totals = (mu * share**0.5 * (1 - 1e-12) for share in shares)
    return names, counts, totals


def _epsilons(*choices: Budget | None) -> tuple[float, ...]:
    return tuple(choice.epsilon for choice in choices if choice is not None)


def _rho(draws: Sequence[float], *mus: float) -> float:
    """The zCDP of draws of these ranges, and of Gaussian noise."""
    return math.fsum([*(each**2 / 8 for each in draws), *(mu**2 / 2 for mu in mus)])


def _positive(*parts: float) -> tuple[float, ...]:
    return tuple(part for part in parts if part > 0)
