"""The stages of an estimated histogram in numbers: candidates to choose from, and noise for what is chosen.

All of it is public: budgets, bounds, scales. `estimates` says what the stages do, and `account` what they may cost.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.composition import renyi_left
from headcount.mechanisms.accounting.gaussian import gaussian_epsilon
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bound_choice.alone_choice import AloneChoice, alone_norms
from headcount.mechanisms.bound_choice.clip_choice import (
    ClipBound,
    ClipCandidate,
    ClipChoice,
    norms_of_list,
    totals_share,
)
from headcount.mechanisms.bounding.steps import ClipNormStep, LimitPerItemStep, Step
from headcount.mechanisms.calibration.expected_error import correlated
from headcount.mechanisms.calibration.noise import calibrate_public_domain, gaussian_plan
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.noisy import promised
from headcount.mechanisms.histogram.account import Account
from headcount.mechanisms.histogram.courses import Courses
from headcount.mechanisms.histogram.names import NamesPlan
from headcount.mechanisms.partitions.auto import TYPICAL, part_candidates
from headcount.mechanisms.partitions.candidates import StrategyCandidate
from headcount.mechanisms.partitions.curve_budget import CurvePart
from headcount.mechanisms.partitions.limited import LimitedChoice
from headcount.mechanisms.partitions.rounds import Round, curve_rounds, one_step_round, zcdp_rounds
from headcount.mechanisms.partitions.scored import PartitionChoice
from headcount.mechanisms.partitions.select import ChosenStrategy, selection_steps

#: More items than there are.
MANY = 10**9

# How the parts are composed, in words: with a selection curve, and else.
_COMPOSED = ("Renyi divergences of names and noise, after exact choices", "exact composition")

_MEAN_GAUSSIAN = math.sqrt(2 / math.pi)  # the mean size of Gaussian noise, by its standard deviation


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """What was chosen, and what follows from it: the noise of counts and totals, and the whole guarantee. All is public.

    `counts` is None where names and counts come from one step, `totals` where nothing is calibrated.
    """

    names: NamesPlan | None
    kept: ClipBound
    counts_steps: tuple[Step, ...]
    counts: NoisePlan | None
    totals_steps: tuple[Step, ...]
    totals: NoisePlan | None
    guarantee: Guarantee

    def description(self) -> str:
        """What was chosen, in one line."""
        parts = []
        if self.names is not None:
            parts.append(self.names.description())
        if self.counts is not None:
            cap = f", at most {self.kept.max_per_item:,} on one item" if self.kept.max_per_item else ""
            parts.append(f"a norm of {self.kept.bound:,}{cap}, with {self.counts.kind} noise")
        if self.totals is not None:
            parts.append(f"totals of at most {self.kept.totals_bound:,} for each user")
        return "chosen: " + "; ".join(parts)

    def report_fields(self) -> Mapping[str, Any]:
        """What was chosen, as a part of a report."""
        named = {} if self.names is None else self.names.named.report_fields()["chosen"]
        bounds = self.kept._replace(items=0, cap=0)._asdict()  # the rows tell their number, and max_per_item is the cap
        return {"chosen": named | {name: value for name, value in bounds.items() if value}}


@dataclasses.dataclass(frozen=True)
class Stages:
    """An account, and what of the bounds is given: `bound` and `max_per_item` of the counts, or None.

    `items` is the size of a public domain, of which Gaussian noise may share a draw; None if items are named first. `max_items`
    is how many items of a user name, if that is given: then nothing of naming is chosen.
    """

    account: Account
    relation: Relation
    bound: int | None
    max_per_item: int | None
    once: bool
    items: int | None = None
    max_items: int | None = None

    @property
    def named_by(self) -> ChosenStrategy | None:
        """How items are named, where that is given."""
        if self.max_items is None:
            return None
        if self.account.pure:
            return ChosenStrategy("laplace", 1)
        strategy, rounds = ("sips", 0) if self.laws is None else ("law", tuning.ROUNDS_OF_HISTOGRAM)
        return ChosenStrategy(strategy, self.max_items, rounds)

    @cached_property
    def names_choice(self) -> LimitedChoice:
        """The choice of how items are named, out of candidates that are calibrated for their part of the budget."""
        account = self.account
        assert account.names_choice is not None and account.names_limit is not None
        candidates = self._names_candidates()
        scored = PartitionChoice(account.names_choice, account.budget, self.relation, candidates)
        return LimitedChoice(account.names_limit, scored)

    def _names_candidates(self) -> tuple[StrategyCandidate, ...]:
        account, found = self.account, []
        if account.pure:
            found.append(StrategyCandidate.of("laplace", [self._one_step()], tuning.ONE_EVENT_WORTH))
        if self.laws is not None:
            found += part_candidates(self.laws, tuning.ROUNDS_OF_HISTOGRAM, one_item=not account.pure)
        elif account.gaussian:
            ways = [
                ChosenStrategy(strategy, items)
                for items in tuning.ITEMS_OF_SELECTION
                for strategy in ("weighted-gaussian", "sips")
            ]
            found += [StrategyCandidate.of(way.strategy, self.names_plan(way).rounds) for way in ways]
        return tuple(found)

    @property
    def laws(self) -> CurvePart | None:
        """What names by a selection curve may cost; None where names are noisy."""
        account = self.account
        if account.law is None:
            return None
        return CurvePart(account.budget, self.relation, account.law.order, account.law.cost, account.hiding)

    @cached_property
    def clip_choice(self) -> ClipChoice | None:
        """The choice of the bounds of counts and totals; None if neither is chosen."""
        account = self.account
        if account.counts_choice is None and account.totals_choice is None:
            return None
        asked = (
            account.counts_choice,
            account.totals_choice,
            account.budget,
            self.relation,
            self._candidates() if account.counts_choice is not None else (),
            tuning.NORMS_OF_TOTALS if account.totals_choice is not None else (),
            self._caps(),
            account.cap_choice,
        )
        if account.alone_choice is None:
            return ClipChoice(*asked)
        sharper = {"gaussian": account.counts_mu / math.hypot(account.counts_mu, account.totals_mu)}
        if account.pure:
            sharper["laplace"] = account.pure_counts / account.pure_alone
        return AloneChoice(*asked, alone_norms(asked[4], asked[6], sharper), account.alone_choice)

    def _caps(self) -> tuple[int, ...]:
        """The caps on one item to choose from, or the one that is given: 0 stands for none."""
        return tuning.CAPS if self.account.cap_choice is not None else (self.max_per_item or 0,)

    def names_plan(self, named: ChosenStrategy) -> NamesPlan:
        """The rounds that name items, for what was chosen."""
        if named.strategy == "laplace":
            return NamesPlan(named, (self._one_step(),))
        if self.laws is not None:
            return NamesPlan(named, curve_rounds(self.laws, named.max_items, named.rounds))
        account = self.account
        rounds = tuning.ROUNDS_OF_HISTOGRAM if named.strategy == "sips" else tuning.ROUNDS
        rho = account.names_mu**2 / 2
        return NamesPlan(
            named, zcdp_rounds(rho, account.hiding, named.max_items, self.relation, named.strategy, rounds)
        )

    def public_table(self, names: NamesPlan | None, items: int) -> list[int]:
        """The public part of the table of the bounds' choice, for this number of items: whether they are to be counted."""
        assert self.clip_choice is not None
        return self.clip_choice.items_table(0 if names is not None and names.counts_too else max(1, items))

    def plan(self, names: NamesPlan | None, chosen: ClipBound | None) -> StagePlan:
        """All numbers, for what was chosen: `chosen` has what is not given."""
        kept = self.given()
        if chosen is not None:
            kept = chosen if self.bound is None else kept._replace(totals_bound=chosen.totals_bound, items=chosen.items)
        account = self.account
        counts_mu, totals_mu = self.split(kept, kept.bound)
        alone = self.alone(kept)
        steps: list[MechanismStep] = []
        counts_steps: tuple[Step, ...] = ()
        totals_steps: tuple[Step, ...] = ()
        if names is not None:
            pure = names.counts_too
            cost = self._pure_names() if pure else self.names_cost()
            steps += selection_steps(names.named.strategy, cost, names.rounds)
        else:
            pure = kept.noise == "laplace"
        counts = None
        if names is None or not pure:
            counts_steps = self._steps(kept.bound, kept.max_per_item, pure)
            part = account.pure_alone if alone else account.pure_counts
            counts = self.noise(counts_steps, counts_mu, part, pure, self.items)
            steps += [
                MechanismStep("bounding of the counts", 0.0, 0.0, {"a user adds at most": counts.bound.description()}),
                counts.step("noise of the counts"),
            ]
        totals = None
        if account.totals_choice is not None and not alone:
            totals_steps = self._steps(kept.totals_bound, 0, pure)
            totals = self.noise(totals_steps, totals_mu, account.pure_totals, pure)
            steps.append(totals.step("noise of the totals"))
        counted = counts is not None
        spent = self.courses.taken(pure, alone) if account.pure and account.gaussian else None
        guarantee = self.guarantee(*steps, counted=counted and not alone, totalled=not alone, spent=spent)
        return StagePlan(names, kept, counts_steps, counts, totals_steps, totals, guarantee)

    def split(self, kept: ClipBound, norm: float) -> tuple[float, float]:
        """The mu of counts of this norm and of totals, for what was chosen, in the Gaussian plan alone. Where the bound of the
        counts is given, their noise is known before anything runs, and stays that."""
        account = self.account
        if self.alone(kept):
            return account.split(0.0)
        chosen = account.counts_choice is not None and norm > 0 and kept.items > 0
        if not (chosen and account.counts_mu and account.totals_mu):
            return account.counts_mu, account.totals_mu
        return account.split(totals_share(kept.items, norm, kept.totals_bound, account.totals_share))

    def alone(self, kept: ClipBound) -> bool:
        """Whether counts stand alone: no norm of totals was drawn."""
        return self.account.alone_choice is not None and kept.totals_bound == 0

    def given(self) -> ClipBound:
        """What is given in place of a choice; a bound of 0 where one step names and counts."""
        noise = "gaussian" if self.account.gaussian else "laplace"
        return ClipBound(self.bound or 0, self.max_per_item or 0, noise, 0)

    def ends(self) -> list[tuple[NamesPlan | None, ClipBound]]:
        """The most that can be chosen on each way: what cannot be calibrated for it is refused before anything runs."""
        asked = self.clip_choice
        candidates, norms = ((), ()) if asked is None else (asked.candidates, asked.norms)
        most = {each.noise: each for each in sorted(candidates, key=lambda each: each.bound)}
        bounds = [ClipBound(each.bound, each.max_per_item, each.noise, 0) for each in most.values()] or [self.given()]
        names: list[NamesPlan | None] = [None]
        if self.named_by is not None:
            names = [self.names_plan(self.named_by)]
        elif self.account.named:
            names = self.names_ends(self.names_choice)
        # Of one item or of many: the former leaves the counts the least precision, the latter the totals.
        return [
            (each, kept._replace(totals_bound=max(norms, default=0), items=items))
            for each in names
            for kept in bounds
            for items in (1, MANY)
        ]

    def names_ends(self, choice: LimitedChoice) -> list[NamesPlan | None]:
        """The least and the most of naming. Curves can be made for any number of items: one that is made anyway does."""
        first, last = choice.ends()
        return [self.names_plan(way) for way in (first, last if self.laws is None else TYPICAL)]

    def guarantee(
        self, *steps: MechanismStep, counted: bool = True, totalled: bool = True, spent: Losses | None = None
    ) -> Guarantee:
        """The whole promise, with these parts, or before anything is chosen; where names and counts came from one step, no
        bound of the counts was chosen, and of totals none if there are none. `spent` are the losses of the course taken."""
        account, budget = self.account, self.account.budget
        names = {"names_limit": "limit on items of a user, for naming", "names_choice": "choice of how items are named"}
        names |= {"cap_choice": "choice of the events of a user that count on one item"}
        names |= {"alone_choice": "choice of totals, or of a norm without them"}
        names |= {"counts_choice": "choice of the counts' bound", "totals_choice": "choice of the totals' bound"}
        found = [MechanismStep("all together", budget.epsilon, budget.delta, {"by": _COMPOSED[account.law is None]})]
        for field, name in names.items():
            part = getattr(account, field)
            if part is not None and (counted or field != "counts_choice") and (totalled or field != "totals_choice"):
                found.append(MechanismStep(name, part.epsilon, 0.0, {}))
        if not steps:
            what = "names and counts" if account.named else "counts"
            what += " and totals" if account.totals_choice is not None else ""
            told = {"calibrated for": "what is chosen"}
            steps = (MechanismStep(f"noise of {what}", budget.epsilon, budget.delta, told),)
        whole = (*found, *steps)
        made = Guarantee(budget.epsilon, budget.delta, self.relation, whole, losses=self.courses.planned())
        if spent is None:
            return made
        return dataclasses.replace(made, spent=spent.zcdp_to_order(), spent_order=spent.order_of_all())

    @property
    def courses(self) -> Courses:
        """What the ways cost that may be taken."""
        account = self.account
        at_once = self._one_step().plan.losses() if account.pure and account.named else Losses()
        return Courses(account, self.relation, self.laws, at_once)

    @property
    def chooses(self) -> bool:
        """Whether anything is chosen."""
        return self.account.names_choice is not None or self.clip_choice is not None

    def expected_error_lines(self) -> list[str]:
        """The noise of a count in words, where its bound is given: it follows from the budget alone."""
        if self.bound is None:
            return []
        account, lines = self.account, []
        for kind, there in (("gaussian", account.gaussian), ("laplace", account.pure)):
            if there:
                plan = self._counts_noise(self.bound, self.max_per_item or 0, kind)
                lines.append(
                    f"{kind} noise of a count, before it is calibrated: a standard deviation of {plan.stddev:,.4g} at "
                    f"{self.bound:,} as the bound"
                )
                lines += correlated(plan).values()
        return lines

    def _counts_noise(self, bound: int, max_per_item: int, kind: str) -> NoisePlan:
        account, pure = self.account, kind == "laplace"
        steps = self._steps(bound, max_per_item, pure)
        return self.noise(steps, account.counts_mu, account.pure_counts, pure, self.items)

    def _candidates(self) -> tuple[ClipCandidate, ...]:
        account = self.account
        kinds = ["gaussian"] if account.gaussian else []
        if account.pure and not account.named:
            kinds.append("laplace")
        found = []
        for kind in kinds:
            mean = self._mean_noise(account.counts_mu if kind == "gaussian" else 0.0, account.pure_counts)
            unit = Fraction(round(mean * 1024), 1024)
            for cap in self._caps():
                bounds = (self.bound,) if self.bound is not None else norms_of_list(self.items, cap, kind)
                found += [ClipCandidate(bound, cap, kind, self._cost(bound, cap, kind, unit)) for bound in bounds]
        return tuple(found)

    def _cost(self, bound: int, cap: int, kind: str, unit: Fraction) -> Fraction:
        """The expected size of the noise of a count; `unit` is that at a norm of 1, if no draw is shared."""
        if kind == "gaussian" and self.items is not None:
            plan = self._counts_noise(bound, cap, kind)
            if plan.shared is not None:
                return Fraction(round(_MEAN_GAUSSIAN * plan.stddev * 1024), 1024)
        return unit * bound

    def _mean_noise(self, mu: float, pure: float) -> float:
        """The mean size of the noise at a norm of 1."""
        return _MEAN_GAUSSIAN * math.sqrt(self.relation.users) / mu if mu > 0 else self.relation.users / pure

    def _steps(self, bound: int, max_per_item: int, pure: bool) -> tuple[Step, ...]:
        scaled = ClipNormStep(bound, 1 if pure else 2)
        return (LimitPerItemStep(max_per_item), scaled) if max_per_item else (scaled,)

    def noise(
        self, steps: tuple[Step, ...], mu: float, pure: float, is_pure: bool, items: int | None = None
    ) -> NoisePlan:
        """Noise without a threshold for what the steps promise: Laplace, or Gaussian of a precision of mu^2, on a public domain
        of this number of items."""
        bound = promised(steps)
        if is_pure:
            return calibrate_public_domain(Budget(pure), bound, self.relation, "laplace")
        deviation = (1 + 1e-9) / mu  # beyond the rounding of this line
        return gaussian_plan(deviation, self.cost(mu, 0.0), bound, self.relation, items)

    def cost(self, mu: float, hiding: float) -> Budget:
        """What one Gaussian part would cost alone."""
        delta = self.account.budget.delta
        return Budget(gaussian_epsilon(mu, delta - hiding), delta)

    def names_cost(self) -> Budget:
        """What names would cost alone, by Gaussian noise or by a selection curve."""
        account = self.account
        if account.law is None:
            return self.cost(account.names_mu, account.hiding)
        delta, (order, cost) = account.budget.delta, account.law
        alone = cost - renyi_left(order, delta - account.hiding) - math.log1p(-account.hiding)
        return Budget(alone, delta)

    def _one_step(self) -> Round:
        """Names and counts at once: of one event of each user, or of one item where users are counted."""
        return one_step_round(self._pure_names(), self.relation, "count" if self.once else "events")

    def _pure_names(self) -> Budget:
        return Budget(self.account.pure_counts, self.account.pure_hiding)
