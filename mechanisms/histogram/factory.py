"""The histogram that parameters ask for: estimates of the true counts, or the bounded counts of one stage."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_delta_or_domain
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, PartDomain, arrow_type, public_domain
from headcount.mechanisms.bounding.steps import check_bound
from headcount.mechanisms.calibration.noise import NOISES
from headcount.mechanisms.checks import check_one_of, check_whole
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.account import make_account
from headcount.mechanisms.histogram.auto import (
    AutoHistogramMechanism,
    auto_bounded_histogram,
    auto_unbounded_histogram,
)
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.fixed import HistogramMechanism, bounded_histogram, unbounded_histogram
from headcount.mechanisms.histogram.stages import Stages
from headcount.mechanisms.partitions.selection_curve import MOST_CURVE_ITEMS

METHODS = ("estimates", "one-stage")
OF = ("users", "events")
CALIBRATIONS = ("totals", "none")


def histogram(
    budget: Budget,
    *,
    domain: Iterable[str] | Iterable[int] | PartDomain | None = None,
    method: str = "estimates",
    of: str = "users",
    bound: int | Literal["auto"] = "auto",
    max_per_item: int | None = None,
    calibrate: str | None = None,
    noise: str = "auto",
    objective: str | None = None,
    bound_method: str = "auto",
    bound_share: float | Fraction | None = None,
    max_items: int | None = None,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> EstimatesMechanism | HistogramMechanism | AutoHistogramMechanism:
    """The histogram of a public domain, of the data's items, or of keys partly public; of users or of events, with a bound that
    is given or chosen."""
    check_one_of("method", method, METHODS)
    check_one_of("of", of, OF)
    if of == "users" and max_per_item is not None and check_bound("max_per_item", max_per_item) != 1:
        raise ParameterError(
            f"max_per_item={max_per_item!r} is for events, and users are counted, each once on an item: add of='events'",
            "max_per_item",
        )
    choosing = {"objective": objective, "bound_method": bound_method, "bound_share": bound_share}
    chosen = {name: value for name, value in choosing.items() if value not in (None, "auto")}
    if method == "estimates":
        for name, value in chosen.items():
            raise ParameterError(f"{name}={value!r} is for method='one-stage': give that, or leave {name} out", name)
        return estimates(
            budget,
            domain=domain,
            of=of,
            bound=bound,
            max_per_item=max_per_item,
            calibrate="totals" if calibrate is None else calibrate,
            noise=noise,
            max_items=max_items,
            relation=relation,
            item_type=item_type,
        )
    if max_items is not None:
        raise ParameterError(
            f"max_items={max_items!r} is for method='estimates', as one stage names and counts at once: leave one out",
            "max_items",
        )
    if calibrate not in (None, "none"):
        raise ParameterError(
            f"calibrate={calibrate!r} is for method='estimates', as one stage has no totals: leave one out", "calibrate"
        )
    if isinstance(domain, PartDomain):
        raise ParameterError(
            "method='one-stage' names and counts keys in one step, and where some key columns are public the others are named "
            "first: leave it out, or give a list or a range for each key column",
            "method",
        )
    cap = 1 if of == "users" else max_per_item
    if bound != "auto":
        for name, value in chosen.items():
            raise ParameterError(
                f"{name} is for bound='auto', got {name}={value!r} with bound={bound!r}: leave one out"
            )
    if domain is None:
        if bound == "auto":
            return auto_unbounded_histogram(
                budget,
                objective=objective or "error",
                method=bound_method,
                share=bound_share,
                max_per_item=cap,
                noise=noise,
                relation=relation,
                item_type=item_type,
            )
        return unbounded_histogram(
            budget, bound=bound, max_per_item=cap, noise=noise, relation=relation, item_type=item_type
        )
    if objective not in (None, "error"):
        raise ParameterError(
            f"objective={objective!r} is for items that come from the data: of a domain all are released; leave one out"
        )
    if bound == "auto":
        return auto_bounded_histogram(
            budget,
            domain,
            method=bound_method,
            share=bound_share,
            noise=noise,
            relation=relation,
            item_type=item_type,
            max_per_item=cap,
        )
    return bounded_histogram(
        budget, domain, bound=bound, noise=noise, relation=relation, item_type=item_type, max_per_item=cap
    )


def estimates(
    budget: Budget,
    *,
    domain: Iterable[str] | Iterable[int] | PartDomain | None = None,
    of: str = "users",
    bound: int | Literal["auto"] = "auto",
    max_per_item: int | None = None,
    calibrate: str = "totals",
    noise: str = "auto",
    max_items: int | None = None,
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> EstimatesMechanism:
    """Estimates of the true counts: items are named, counted, and the counts calibrated by totals. Keys partly public are named
    by their private columns and counted on whole keys, which one step of Laplace noise cannot do at once. With `max_items` of a
    user nothing is spent on choosing how items are named: by one, names and counts come at once where that can be."""
    check_budget(budget)
    check_one_of("calibrate", calibrate, CALIBRATIONS)
    check_one_of("noise", noise, NOISES)
    arrow_type(item_type)
    partly = isinstance(domain, PartDomain)
    names = domain if domain is None or isinstance(domain, PartDomain) else public_domain(domain, item_type)
    named = not isinstance(names, Domain)
    if named:
        check_delta_or_domain(budget.delta)
    if partly and noise == "laplace":
        raise ParameterError(
            "noise='laplace' names and counts keys in one step, and where some key columns are public the others are named "
            "first: leave it out, or give a list or a range for each key column",
            "noise",
        )
    items_given = check_names_by(max_items, named)
    if items_given not in (None, 1) and noise == "laplace":
        raise ParameterError(
            f"max_items={max_items!r} is not for noise='laplace', where one step names and counts one item of each user: leave "
            "one out",
            "max_items",
        )
    given = None if bound == "auto" else check_bound("bound", bound)
    cap = 1 if of == "users" else None if max_per_item is None else check_bound("max_per_item", max_per_item)
    gaussian, pure = noise != "laplace", noise != "gaussian" and not partly and items_given in (None, 1)
    if gaussian and budget.delta == 0:
        if noise == "gaussian":
            raise ParameterError("noise='gaussian' needs a delta above 0, got 0: give one, or take Laplace", "noise")
        gaussian = False
    if gaussian and names is None and of == "events":
        pure = False  # one step that names and counts sees one event of each user, and leaves the others to the totals
    if given is not None:
        if named and not gaussian:
            raise ParameterError(
                f"bound={bound!r} is not for noise='laplace', where one step names and counts one event of each user: leave "
                "one out, or give method='one-stage'",
                "bound",
            )
        pure = not gaussian
    gaussian = gaussian and not (pure and items_given == 1)  # of one item that is given, one step names and counts
    chosen, calibrated = given is None and (gaussian or not named), calibrate == "totals"
    account = make_account(
        budget,
        named=named,
        chosen=chosen,
        calibrated=calibrated,
        gaussian=gaussian,
        pure=pure,
        capped=cap is None and given is None and (chosen or calibrated),
        alone=isinstance(names, Domain) and chosen and calibrated and len(names) <= tuning.ALONE_KEYS,
        way_given=items_given is not None,
    )
    size = len(names) if isinstance(names, Domain) else None
    stages = Stages(account, relation, given, cap, of == "users", size, items_given)
    made = EstimatesMechanism(stages, names, item_type)
    for way, kept in stages.ends():
        stages.plan(way, kept)
    return made


def check_names_by(max_items: object, named: bool) -> int | None:
    """How many items of a user name, where that is given; an error if it cannot be, or if all are public."""
    if max_items is None:
        return None
    if not named:
        raise ParameterError(
            f"max_items={max_items!r} says how items are named, and those of a domain are known: leave one out",
            "max_items",
        )
    return check_whole("max_items", max_items, 1, MOST_CURVE_ITEMS)
