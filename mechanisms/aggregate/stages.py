"""The stages of an aggregate in numbers: candidates to choose from, and noise for what is chosen. All of it is public.

Who takes what of the budget is told by `histogram.account`, whose counts are the sums of all metrics here. How keys are named,
and totals noised, is that of `histogram.stages`.
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
from headcount.mechanisms.accounting.guarantee import Guarantee, MechanismStep
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.aggregate.choice import KeysCandidate, KeysChoice
from headcount.mechanisms.aggregate.measures import (
    AUXILIARY_MOMENTS,
    HALVES,
    HalvesPlan,
    MeasuresPlan,
    make_halves,
    make_plan,
)
from headcount.mechanisms.aggregate.metrics import Metrics
from headcount.mechanisms.aggregate.ranges import ChosenEnds, RangeChoice
from headcount.mechanisms.aggregate.totals import totals_norm
from headcount.mechanisms.bound_choice.clip_choice import ClipBound
from headcount.mechanisms.bounding.steps import ClipNormStep, Step
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.columns.value_ranges import ChosenRange
from headcount.mechanisms.histogram.account import Account
from headcount.mechanisms.histogram.names import NamesPlan
from headcount.mechanisms.histogram.stages import MANY, Stages
from headcount.mechanisms.partitions.limited import LimitedChoice
from headcount.mechanisms.partitions.select import in_items, selection_steps

_GRID = f"1, 2, 5, 10 and so on, from {float(tuning.RANGE_ENDS[0]):g} to {float(tuning.RANGE_ENDS[-1]):g}"

_MEAN_GAUSSIAN = math.sqrt(2 / math.pi)  # the mean size of Gaussian noise, by its standard deviation


@dataclasses.dataclass(frozen=True)
class AggregatePlan:
    """What was chosen, and what follows from it: the noise of sums and totals, and the whole guarantee. All is public."""

    names: NamesPlan | None
    kept: ClipBound
    metrics: Metrics  # with the ranges that were chosen
    measures: MeasuresPlan
    totals_steps: tuple[Step, ...]
    totals: NoisePlan | None
    guarantee: Guarantee
    users_for_ranges: int = 0  # that it takes to choose ranges well, where any were chosen

    @property
    def ranges(self) -> tuple[ChosenRange, ...]:
        """The ranges that were chosen."""
        return tuple(of for of in self.metrics.values if isinstance(of, ChosenRange))

    @property
    def cap(self) -> int:
        """How many rows of a user on one key count at most, where rows are counted; else 0."""
        return 0 if self.totals is None or not self.metrics.counts_rows else self.kept.cap

    def description(self) -> str:
        """What was chosen, in one line."""
        parts = [] if self.names is None else [self.names.description()]
        seen, sampled = self.kept.max_per_item, ""
        if self.cap:
            parts.append(f"at most {_rows(self.cap)} of a user on one item count")
            sampled = "sums of "
        noise = ", with Laplace noise" if self.measures.noise == "laplace" else ""
        parts.append(f"{sampled}{in_items(self.kept.bound)} of each user, with at most {_rows(seen)} on each{noise}")
        if self.totals is not None:
            rows_or_keys = "items" if self.metrics.only_users else "rows"
            users = f"{in_items(self.kept.users_bound)} and " if self.kept.users_bound else ""
            parts.append(f"totals of at most {users}{self.kept.totals_bound:,} {rows_or_keys} for each user")
        for of in self.ranges:
            least = (
                ", hardly more than the least there is: too few users, or values above 0, to choose by, so give a range"
            )
            parts.append(
                f"{of.column} from {of.low:g} to {of.high:g}{least if of.high <= tuning.RANGE_ENDS[3] else ''}"
            )
        return "chosen: " + "; ".join(parts)

    def report_fields(self) -> Mapping[str, Any]:
        """What was chosen, as a part of a report."""
        chosen: dict[str, Any] = {}
        if self.names is not None:
            chosen["names"] = self.names.named.report_fields()["chosen"]
        chosen |= {"max_items": self.kept.bound, "max_per_item": self.cap or self.kept.max_per_item}
        chosen |= {"sampled_per_item": self.kept.max_per_item} if self.cap else {}
        if self.totals is not None:
            chosen["totals_bound"] = self.kept.totals_bound
            chosen |= {"users_bound": self.kept.users_bound} if self.kept.users_bound else {}
        chosen |= {f"range of {of.of.text()}": [of.low, of.high] for of in self.ranges}
        return {"chosen": chosen}


@dataclasses.dataclass(frozen=True)
class AggregateStages:
    """An account, what is asked for, and what of the bounds is given: keys of a user and rows on a key, or None."""

    account: Account
    relation: Relation
    metrics: Metrics
    max_items: int | None
    max_per_item: int | None

    @cached_property
    def shared(self) -> Stages:
        """The stages of a histogram with the same account: what names keys, and noises totals."""
        return Stages(self.account, self.relation, None, None, self.metrics.only_users)

    @property
    def names_choice(self) -> LimitedChoice:
        """The choice of how keys are named."""
        return self.shared.names_choice

    @property
    def calibrated(self) -> bool:
        """Whether totals are estimates."""
        return self.account.totals_choice is not None

    @cached_property
    def choice(self) -> KeysChoice | None:
        """The choice of the bounds; None if all are given and nothing is calibrated."""
        account = self.account
        if account.counts_choice is None and account.totals_choice is None:
            return None
        return KeysChoice(
            account.counts_choice,
            account.totals_choice,
            account.budget,
            self.relation,
            self._candidates() if account.counts_choice is not None else (),
            tuning.NORMS_OF_TOTALS if self.calibrated else (),
            self._caps(),
            account.cap_choice,
            users_budget=account.users_choice,
            of_means=account.pure,
        )

    def _caps(self) -> tuple[int, ...]:
        """The rows of a user on a key that count in totals: those to choose from, or the number that is given; 0 stands for
        none."""
        if self.account.cap_choice is not None:
            return tuning.CAPS
        if self.metrics.totals == ("users",):
            return (1,)
        return (self.max_per_item or 0 if self.calibrated else 0,)

    @cached_property
    def ranges_choice(self) -> RangeChoice | None:
        """The choice of the ranges of values; None if all are given."""
        account, asked = self.account, self.metrics.autos
        return RangeChoice(account.ranges_choices, account.budget, self.relation, asked) if asked else None

    def ranges_table(self, plan: AggregatePlan, keys: int) -> list[int]:
        """The public part of the table from which ranges are chosen: the mean noise of all sums of values, for each row of a
        user that counts at most. That of quantiles does not grow with their range, which then cuts as little as can be."""
        assert self.ranges_choice is not None
        found = []
        for place, of in self.ranges_choice.ranges.items():
            stddevs = plan.measures.stddevs
            noise = 0.0
            if f"sum{place}" in stddevs:
                noise = math.hypot(of.midpoint * stddevs.get("rows", 0.0), of.half * stddevs[f"sum{place}"])
            rows = min(plan.measures.max_items, max(1, keys)) * plan.measures.max_per_item
            found.append(_MEAN_GAUSSIAN * noise * max(1, keys) / rows)
        return self.ranges_choice.noise_table(found)

    def plan(
        self, names: NamesPlan | None, chosen: ClipBound | None, ranges: ChosenEnds | None = None
    ) -> AggregatePlan:
        """All numbers, for what was chosen: `chosen` has what is not given. The ranges of values, which are chosen last, have
        no part in others."""
        account, kept = self.account, self.given()
        if chosen is not None:
            if account.counts_choice is None:  # then the bounds of the sums are given
                chosen = chosen._replace(bound=kept.bound, max_per_item=kept.max_per_item, noise=kept.noise)
            kept = chosen
        # Of what is asked for beside totals, no total tells: it has all of its precision from the sums.
        only_totals = all(metric.is_total for metric in self.metrics.each)
        norm = kept.max_per_item * math.sqrt(kept.bound) * (1 if only_totals else tuning.RATIO_NOISE_PRICE)
        counts_mu, totals_mu = self.shared.split(kept, norm)
        steps: list[MechanismStep] = []
        if names is not None:
            steps += selection_steps(names.named.strategy, self.shared.names_cost(), names.rounds)
        pure = kept.noise == "laplace"
        measures: MeasuresPlan | None = make_plan(self.metrics, kept.bound, kept.max_per_item, counts_mu, self.relation)
        if pure:
            measures = self._halves(kept.bound, kept.max_per_item)
        assert measures is not None  # no bounds are chosen, or taken as given, for which there is no such noise
        steps += self._sums(measures, counts_mu)
        totals_steps: tuple[Step, ...] = ()
        totals = None
        if self.calibrated:
            totals_steps = (ClipNormStep(totals_norm(kept, len(self.metrics.totals)), 1 if pure else 2),)
            totals = self.shared.noise(totals_steps, totals_mu, account.pure_totals, pure)
            steps.append(totals.step("noise of the totals"))
        metrics = self.metrics if ranges is None else self.metrics.chosen(ranges.ends)
        users = 0 if self.ranges_choice is None else self.ranges_choice.users_needed
        spent = self.shared.courses.taken(pure) if account.pure else None
        guarantee = self.guarantee(*steps, spent=spent)
        return AggregatePlan(names, kept, metrics, measures, totals_steps, totals, guarantee, users)

    def given(self) -> ClipBound:
        """What is given in place of a choice."""
        noise = "gaussian"
        if self.max_items is not None and self.max_per_item is not None:
            noise = self._least_noise(self.max_items, self.max_per_item).noise
        return ClipBound(self.max_items or 0, self.max_per_item or 0, noise, 0)

    def _halves(self, items: int, rows: int) -> HalvesPlan | None:
        """Laplace noise for these bounds; None if it is not for this release."""
        if not self.account.pure:
            return None
        return make_halves(self.metrics, items, rows, self.account.pure_counts, self.relation)

    def _least_noise(self, items: int, rows: int) -> MeasuresPlan:
        """Gaussian or Laplace noise for these bounds, whichever is less in rows."""
        plan, halves = (
            make_plan(self.metrics, items, rows, self.account.counts_mu, self.relation),
            self._halves(items, rows),
        )
        return plan if halves is None or _in_rows(plan) <= _in_rows(halves) else halves

    def ends(self) -> list[tuple[NamesPlan | None, ClipBound | None]]:
        """The least and the most that can be chosen, with either noise: what cannot be calibrated for it is refused before
        anything runs."""
        names: list[NamesPlan | None] = [None]
        if self.account.names_choice is not None:
            names = self.shared.names_ends(self.names_choice)
        bounds: tuple[ClipBound | None, ...] = (None,)
        if self.choice is not None:
            bounds = (*self.choice.ends(), *self.choice.largest())
        if self.calibrated:
            # Of one key or of many: the former leaves the sums the least precision, the latter the totals.
            bounds = tuple(kept._replace(items=items) for kept in bounds if kept is not None for items in (1, MANY))
        return [(name, kept) for name in names for kept in bounds]

    def guarantee(self, *steps: MechanismStep, spent: Losses | None = None) -> Guarantee:
        """The whole promise, with these parts, or before anything is chosen; `spent` are the losses of the course that was
        taken, where another kind of noise could have been."""
        account, budget = self.account, self.account.budget
        by = "exact composition" if account.law is None else f"Renyi divergences of order {account.law.order:.5g}"
        if account.zcdp is not None:
            hidden = f"{account.zcdp.delta:g}-approximate " if account.hiding else ""
            by = f"{hidden}{account.zcdp.rho:.8g}-zCDP"
        found = [MechanismStep("all together", budget.epsilon, budget.delta, {"by": by})]
        parts: dict[str, Budget | None] = {
            "limit on keys of a user, for naming": account.names_limit,
            "choice of how keys are named": account.names_choice,
            "choice of the rows of a user that count on one key": account.cap_choice,
            "choice of the keys and rows of a user that count": account.counts_choice,
            "choice of the totals' bound": account.totals_choice,
            "choice of the totals' bound for users": account.users_choice,
        }
        if self.ranges_choice is not None:
            texts = (of.text() for of in self.ranges_choice.ranges.values())
            parts |= {
                f"choice of the range of {text}": part for text, part in zip(texts, account.ranges_choices, strict=True)
            }
        found += [MechanismStep(name, part.epsilon, 0.0, {}) for name, part in parts.items() if part is not None]
        if not steps:
            what = "sums" if account.names_choice is None else "names and sums"
            what += " and totals" if self.calibrated else ""
            details = {"calibrated for": "what is chosen"}
            steps = (MechanismStep(f"noise of {what}", budget.epsilon, budget.delta, details),)
        steps = (*found, *steps)
        made = Guarantee(budget.epsilon, budget.delta, self.relation, steps, losses=self.shared.courses.planned())
        if spent is None:
            return made
        return dataclasses.replace(made, spent=spent.zcdp_to_order(), spent_order=spent.order_of_all())

    def expected_error_lines(self) -> list[str]:
        """What is to be expected, in words, before anything is chosen: it follows from the budget alone."""
        lines = []
        if self.account.names_choice is not None:
            needed = min(candidate.threshold for candidate in self.names_choice.candidates) / 2**10
            lines.append(f"a key needs about {needed:,.0f} users to be shown, if each has one key, and more if not")
        for of in self.metrics.autos.values():
            lowest = (
                f"-U to U, with U out of {_GRID}"
                if of.low < 0
                else f"0 to U, with U out of {_GRID}; less than 0 counts as 0"
            )
            lines.append(f"values of {of.column} are cut to a range that is chosen privately: {lowest}")
        if self.ranges_choice is not None:
            lines.append(
                f"with fewer than about {self.ranges_choice.users_needed:,} users such a range may be far too small"
            )
        keys = (1, 10, 100) if self.max_items is None else (self.max_items,)
        rows = 1 if self.max_per_item is None else self.max_per_item
        for items in keys:
            plan = self._least_noise(items, rows)
            sizes = ", ".join(
                f"{each.stddev:,.4g} for {_words(each.kind, each.value, self.metrics)}"
                for each in plan.measures
                if each.kind not in (*AUXILIARY_MOMENTS, "missing")
            )
            lines.append(
                f"with {in_items(items)} of each user and {rows} of its rows on each, noise has a stddev of {sizes}"
            )
        if self.calibrated and self.account.counts_choice is not None:
            more = self.account.counts_mu / self.account.split(tuning.MOST_TOTALS_SHARE)[0]
            lines.append(
                f"noise is up to {more:.1f} times that where a few users have most events: totals then need more of the budget"
            )
        return lines

    def _sums(self, measures: MeasuresPlan, mu: float) -> list[MechanismStep]:
        pure = measures.noise == "laplace"
        cost = Budget(self.account.pure_counts) if pure else self.shared.cost(mu, 0.0)
        kept = f"{in_items(measures.max_items)}, {measures.max_per_item} rows on each"
        stddevs: dict[str, str | int | float] = {
            f"stddev of {_words(measure.kind, measure.value, self.metrics)}": measure.stddev
            for measure in measures.measures
        }
        return [
            MechanismStep("bounding of the sums", 0.0, 0.0, {"a user adds at most": kept}),
            MechanismStep(
                "noise of all sums",
                cost.epsilon,
                cost.delta,
                {"noise": f"discrete {measures.noise.capitalize()}"} | stddevs,
            ),
        ]

    def _candidates(self) -> tuple[KeysCandidate, ...]:
        caps = tuning.CAPS if self.max_per_item is None else (self.max_per_item,)
        found, metrics = [], self.metrics.each
        totals = sum(metric.is_total for metric in metrics)
        of_each = (totals + tuning.RATIO_NOISE_PRICE * (len(metrics) - totals)) / len(metrics)
        for items in tuning.ITEMS_OF_AGGREGATE if self.max_items is None else (self.max_items,):
            for cap in caps:
                plan = self._least_noise(items, cap)
                noise = _MEAN_GAUSSIAN * _in_rows(plan) * of_each
                if self.account.pure:
                    noise = plan.stddevs["sum0"] * (1 if plan.noise == "laplace" else tuning.NOISE_WITH_WAVES)
                found.append(KeysCandidate(items, cap, plan.noise, Fraction(max(1, round(noise * 1024)), 1024)))
        return tuple(found)


def _in_rows(plan: MeasuresPlan) -> float:
    """The standard deviation in rows: with users alone these are rows, and where there are sums alone a half range counts as
    one."""
    sizes = {name.rstrip("0123456789"): size for name, size in plan.stddevs.items()}
    return next(sizes[kind] for kind in ("rows", "users", "sum") if kind in sizes)


def _rows(number: int) -> str:
    return f"{number:,} {'row' if number == 1 else 'rows'}"


def _words(kind: str, value: int, metrics: Metrics) -> str:
    if value < 0:
        return kind
    column = metrics.values[value].column
    if kind == "flag":
        return f"users with {column} less those without"
    if kind == "tree":
        return f"rows in each part of the range of {column}"
    if kind in HALVES[:2]:
        return f"{kind} halves of {column}"
    if kind in AUXILIARY_MOMENTS:
        return f"{kind}s of {column}"
    if kind == "missing":
        return f"rows without {column}"
    what = "sums" if kind == "sum" else "squares"
    return f"{what} of {column} (in half ranges{'' if kind == 'sum' else ' squared'})"
