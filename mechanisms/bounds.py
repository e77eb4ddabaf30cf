"""Which private choice of a bound: all methods of paper 000 by name, and the one that goes beyond it.

`choose_unknown_domain` and `choose_public_domain` make the choice as a value; `decide` runs it. The budget of a choice and
that of the release which uses it add up, as both look at the same data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import pyarrow as pa

from headcount.mechanisms import quantile_choice, tail_choice
from headcount.mechanisms.batches import gather, split_by_user
from headcount.mechanisms.budget import Budget, check_budget
from headcount.mechanisms.calibration import public_noise
from headcount.mechanisms.chosen import Choice, ChosenBound
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.joint_choice import JointChoice
from headcount.mechanisms.keys import Release, block_key, lane_key, subkey
from headcount.mechanisms.lane_ids import decision_lane_ids
from headcount.mechanisms.norm_bins import GRID, grid_to
from headcount.mechanisms.randomness import Lanes
from headcount.mechanisms.relation import Relation
from headcount.mechanisms.steps import check_bound
from headcount.mechanisms.volume_choice import VolumeChoice

UNKNOWN_DOMAIN_METHODS = ("joint", "em", "gem")
METHODS = tuple(dict.fromkeys((*UNKNOWN_DOMAIN_METHODS, *quantile_choice.METHODS, *tail_choice.METHODS)))


def default_share(objective: str) -> Fraction:
    """The share of the budget that a choice takes unless another is given."""
    return Fraction(1, 20) if objective == "items" else Fraction(1, 10)


def split_budget(budget: Budget, share: float | Fraction, method: str) -> tuple[Budget, Budget]:
    """What the choice may cost, and what is left for the release. Only the method "dp-gd" takes a part of delta."""
    check_budget(budget)
    if isinstance(share, bool) or not 0 < share < 1:
        raise ParameterError(f"bound_share must lie between 0 and 1, got {share!r}")
    weights = (float(share), float(1 - Fraction(str(share))))
    if budget.delta == 0:
        choice, release = budget.split(*weights)
    else:
        choice, release = budget.split(*weights, delta=weights if method == "dp-gd" else (0, 1))
    return choice, release


def choose_unknown_domain(
    budget: Budget,
    release_budget: Budget,
    relation: Relation,
    method: str = "auto",
    objective: str = "error",
    noise: str = "auto",
    max_per_item: int | None = None,
    kappa: float = 2,
) -> Choice:
    """The choice for a histogram whose items come from the data: "joint" (the default), or Algorithm 4 by "em" or "gem"."""
    _check_budgets(budget, release_budget)
    if not 0 < release_budget.delta < 0.5:
        raise ParameterError(
            "delta must be positive and below 1/2, as the items come from the data: give Budget(epsilon, delta), or take "
            f"BoundedHistogram with a domain, got {release_budget.delta}"
        )
    if method in ("auto", "joint"):
        if noise not in ("auto", "laplace", "gaussian"):
            raise ParameterError(f"noise must be 'auto', 'laplace' or 'gaussian', got {noise!r}")
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
    users: int = 100_000,
    max_per_item: int | None = None,
) -> Choice:
    """The choice for a histogram over `domain_size` public items; "auto" takes the method that public numbers favour.

    With `max_per_item` it is made on counts that are cut to so much, as those of the release then must be; their norm is
    limited by the size of the domain, and so is the bound.
    `sparsity` (Gaussian noise) is how many items a user's weight may stand for: any number keeps the guarantee. By default
    a tenth of the domain, as in the paper, but ten at least.
    """
    _check_budgets(budget, release_budget)
    cap, grid = None, GRID
    if max_per_item is not None:
        cap = check_bound("max_per_item", max_per_item)
        grid = grid_to(cap * domain_size if public_noise(noise) == "laplace" else _root(cap**2 * domain_size))
    if public_noise(noise) == "laplace":
        if method == "auto":
            method = quantile_choice.favoured(budget, release_budget, relation, domain_size, grid)
        return quantile_choice.QuantileChoice(budget, release_budget, relation, domain_size, method, grid, cap)
    if release_budget.delta == 0:
        raise ParameterError("Gaussian noise needs a delta above 0, got 0: give one, or take Laplace")
    if sparsity is None:
        sparsity = min(domain_size, max(10, -(-domain_size // 10)))
    sparsity, users = check_bound("sparsity", sparsity), check_bound("users", users)
    if method == "auto":
        method = tail_choice.favoured(budget, release_budget, relation, domain_size, sparsity, grid)
    return tail_choice.TailChoice(budget, release_budget, relation, domain_size, sparsity, method, users, grid, cap)


def _root(square: int) -> int:
    """The square root, rounded up."""
    return math.isqrt(square - 1) + 1


def _check_budgets(budget: Budget, release_budget: Budget) -> None:
    check_budget(budget)
    check_budget(release_budget, "the budget of the release")


def encode_table(table: Sequence[int]) -> bytes:
    """A table of integers of any size as bytes, in one form only."""
    return json.dumps(list(table), separators=(",", ":")).encode()


def add_tables(tables: Iterable[bytes]) -> list[int]:
    """The sum of encoded tables, entry by entry."""
    return [sum(entries) for entries in zip(*map(json.loads, tables), strict=True)]


def choice_subkey(key: bytes, release_id: str, label: str, choice: Choice) -> bytes:
    """The subkey of a choice, from its label and all that defines it."""
    budgets = [choice.budget, choice.release_budget]
    shared = {
        "name": choice.name,
        "relation": choice.relation.value,
        "budgets": [[repr(budget.epsilon), repr(budget.delta)] for budget in budgets],
    }
    return subkey(key, release_id, label, {"choice": choice.parameters(), **shared})


def decide(choice: Choice, table: Sequence[int], subkey: bytes) -> ChosenBound:
    """The private choice, with randomness that hangs on the whole table: another table, other bits."""
    ids = decision_lane_ids(lane_key(subkey), encode_table(table), choice.draws)
    return choice.choose(table, Lanes(block_key(subkey), ids))


def choose_bound(batches: Iterable[pa.RecordBatch], choice: Choice, release: Release, label: str) -> ChosenBound:
    """The choice on contribution batches, without Beam: what `ChooseBound` gives."""
    chunks = [chunk for batch in batches for _, chunk in split_by_user(batch, 1)]
    tables = [encode_table([0] * choice.entries)]
    if chunks:
        shard = gather(chunks)
        tables.append(encode_table(choice.user_table(shard)))
        by_item = [chunk for _, chunk in choice.item_chunks(shard, 1)]
        if by_item:
            tables.append(encode_table(choice.item_table(by_item)))
    return decide(choice, add_tables(tables), choice_subkey(release.key_source.fetch(), release.id, label, choice))
