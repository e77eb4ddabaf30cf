"""Which private choice of a bound: all methods of the paper by name, and the one that goes beyond it.

`choose_unknown_domain` and `choose_public_domain` make the choice as a value; `decide` runs it. The budget of a choice and
that of the release which uses it add up, as both look at the same data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from headcount.mechanisms import tuning
from headcount.mechanisms.accounting.budget import Budget, check_budget, check_delta_or_domain
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bound_choice import l1_quantile, l2_tail
from headcount.mechanisms.bound_choice.joint import JointChoice
from headcount.mechanisms.bound_choice.papers.baselines import BASELINES
from headcount.mechanisms.bound_choice.papers.volume import VolumeChoice
from headcount.mechanisms.bounding.steps import check_bound
from headcount.mechanisms.calibration.noise import NOISES, public_noise
from headcount.mechanisms.checks import check_one_of
from headcount.mechanisms.choice.norm_bins import grid_to
from headcount.mechanisms.choice.protocol import Choice, ChosenBound
from headcount.mechanisms.errors import ParameterError

UNKNOWN_DOMAIN_METHODS = ("joint", "em", "gem")
#: The methods for Gaussian noise over a public domain.
GAUSSIAN: Mapping[str, type[l2_tail.TailChoice]] = dict.fromkeys(l2_tail.METHODS, l2_tail.TailChoice) | BASELINES
METHODS = tuple(dict.fromkeys((*UNKNOWN_DOMAIN_METHODS, *l1_quantile.METHODS, *GAUSSIAN)))


def choose_unknown_domain(
    budget: Budget,
    release_budget: Budget,
    relation: Relation,
    method: str = "auto",
    objective: str = "error",
    noise: str = "auto",
    max_per_item: int | None = None,
    kappa: float = 2,
) -> Choice[ChosenBound]:
    """The choice for a histogram whose items come from the data: "joint" (the default), or Algorithm 4 by "em" or "gem"."""
    _check_budgets(budget, release_budget)
    check_delta_or_domain(release_budget.delta)
    if method in ("auto", "joint"):
        check_one_of("noise", noise, NOISES)
        cap = None if max_per_item is None else check_bound("max_per_item", max_per_item)
        return JointChoice(budget, release_budget, relation, objective, noise, cap)
    if method not in UNKNOWN_DOMAIN_METHODS:
        raise ParameterError(
            f"the method for an unknown domain must be 'auto' or one of {UNKNOWN_DOMAIN_METHODS}, got {method!r}"
        )
    if noise == "gaussian" or max_per_item is not None or objective != "error":
        raise ParameterError(
            f"the method {method!r} is the paper's: Laplace noise, no max_per_item, objective 'error'; take the method "
            "'joint' for anything else"
        )
    return VolumeChoice(budget, release_budget, relation, method, Fraction(str(kappa)))


def choose_public_domain(
    budget: Budget,
    release_budget: Budget,
    relation: Relation,
    domain_size: int,
    noise: str = "laplace",
    method: str = "auto",
    sparsity: int | None = None,
    users: int = tuning.GUESSED_USERS,
    max_per_item: int | None = None,
) -> Choice[ChosenBound]:
    """The choice for a histogram over `domain_size` public items; "auto" takes the method that public numbers favour.

    With `max_per_item` it is made on counts that are cut to so much, as those of the release then must be; their norm is
    limited by the size of the domain, and so is the bound.
    `sparsity` (Gaussian noise) is how many items a user's weight may stand for: any number keeps the guarantee. By default
    a tenth of the domain, as in the paper, but ten at least.
    """
    _check_budgets(budget, release_budget)
    cap, grid = None, tuning.NORMS_OF_PUBLIC_DOMAIN
    if max_per_item is not None:
        cap = check_bound("max_per_item", max_per_item)
        grid = grid_to(cap * domain_size if public_noise(noise) == "laplace" else _root(cap**2 * domain_size))
    if public_noise(noise) == "laplace":
        if method == "auto":
            method = l1_quantile.favoured(budget, release_budget, relation, domain_size, grid)
        return l1_quantile.QuantileChoice(budget, release_budget, relation, domain_size, method, grid, cap)
    if release_budget.delta == 0:
        raise ParameterError("Gaussian noise needs a delta above 0, got 0: give one, or take Laplace")
    if sparsity is None:
        sparsity = min(domain_size, max(tuning.LEAST_SPARSITY, -(-domain_size // tuning.SPARSITY)))
    sparsity, users = check_bound("sparsity", sparsity), check_bound("users", users)
    if method == "auto":
        method = l2_tail.favoured(budget, release_budget, relation, domain_size, sparsity, grid)
    if method not in GAUSSIAN:
        raise ParameterError(f"the method for Gaussian noise must be one of {tuple(GAUSSIAN)}, got {method!r}")
    return GAUSSIAN[method](budget, release_budget, relation, domain_size, sparsity, method, users, grid, cap)


def _root(square: int) -> int:
    """The square root, rounded up."""
    return math.isqrt(square - 1) + 1


def _check_budgets(budget: Budget, release_budget: Budget) -> None:
    check_budget(budget)
    check_budget(release_budget, "the budget of the release")
