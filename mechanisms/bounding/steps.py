"""Bounding steps as values: what each does to a shard of users, and what it then promises of every one of them.

A transform and the pure function hold the same steps, so what is proved of the function holds for the pipeline.
Proof: docs/proofs/bounding.md.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from headcount.mechanisms.batches.run_sums import run_sums
from headcount.mechanisms.batches.shards import Shard
from headcount.mechanisms.bounding.clipping import (
    clip_grid,
    clip_norm,
    limit_items,
    limit_per_item,
    rand_clip,
    squared_norms,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.checks import check_whole
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.subkeys import subkey as derive_subkey

MAX_BOUND = 10**9


def check_bound(name: str, value: object) -> int:
    """A bound as a plain integer, or an error that names it."""
    return check_whole(name, value, 1, MAX_BOUND)


class Step(Protocol):
    """One bounding step: what it does to a shard, and what it then promises of every user."""

    @property
    def name(self) -> str:
        """The step's label, which is part of its randomness."""

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        """The shard with every user's rows bounded."""

    def promise(self, before: Bound) -> Bound:
        """The bound that holds after the step, given the one before."""


@dataclasses.dataclass(frozen=True)
class RandClipStep:
    """`rand_clip` with its bound."""

    bound: int
    name = "RandClip"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", check_bound("bound", self.bound))

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        return rand_clip(shard, self.bound, subkey)

    def promise(self, before: Bound) -> Bound:
        return dataclasses.replace(
            before,
            l0=_least(before.l0, self.bound),
            l1=_least(before.l1, self.bound),
            linf=_least(before.linf, self.bound),
        )


@dataclasses.dataclass(frozen=True)
class LimitItemsStep:
    """`limit_items` with its bound."""

    items: int
    name = "LimitItems"

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", check_bound("items", self.items))

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        return limit_items(shard, self.items, subkey)

    def promise(self, before: Bound) -> Bound:
        l0 = _least(before.l0, self.items)
        return dataclasses.replace(before, l0=l0, l1=_least(before.l1, _product(l0, before.linf)))


@dataclasses.dataclass(frozen=True)
class LimitPerItemStep:
    """`limit_per_item` with its bound."""

    count: int
    name = "LimitPerItem"

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", check_bound("count", self.count))

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        return limit_per_item(shard, self.count)

    def promise(self, before: Bound) -> Bound:
        linf = _least(before.linf, self.count)
        return dataclasses.replace(before, linf=linf, l1=_least(before.l1, _product(before.l0, linf)))


@dataclasses.dataclass(frozen=True)
class ClipNormStep:
    """`clip_norm` with its bound; the last step, since counts are fractions after it."""

    bound: int
    p: int
    name = "ClipNorm"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", check_bound("bound", self.bound))
        if self.p not in (1, 2):
            raise ParameterError(f"p must be 1 or 2, got {self.p!r}", "p")

    def apply(self, shard: Shard, subkey: bytes) -> Shard:
        return clip_norm(shard, self.bound, self.p)

    def promise(self, before: Bound) -> Bound:
        l1 = _least(before.l1, self.bound) if self.p == 1 else before.l1
        return dataclasses.replace(
            before,
            l1=l1,
            l2=_least(before.l2, self.bound),
            linf=_least(before.linf, self.bound),
            grid=clip_grid(self.bound),
        )


def promise_of(steps: Sequence[Step], before: Bound, label: str) -> Bound:
    """What the steps promise together; `label` names them, after those that came before."""
    for step in steps:
        if before.scaled:
            raise ParameterError(f"{step.name} cannot follow ClipNorm, which leaves fractions: put ClipNorm last")
        before = step.promise(before)
    return dataclasses.replace(before, label=json.dumps([*json.loads(before.label or "[]"), label]))


def provenance(label: str, release_id: str, shards: int) -> str:
    """What tells the result of a bounding transform from that of every other one, and of every other run."""
    return f"{label} of {release_id} in {shards}"


def bound_shard(shard: Shard, steps: Sequence[Step], subkeys: Sequence[bytes], label: str) -> Shard:
    """Applies the steps one after another; the result carries the bound that they promise.

    What an earlier step is said to promise is checked first: the new promise builds on it.
    """
    check_kept(shard)
    bound = promise_of(steps, shard.bound, label)
    for step, subkey in zip(steps, subkeys, strict=True):
        shard = step.apply(shard, subkey)
    return dataclasses.replace(shard, bound=bound)


def check_kept(shard: Shard) -> None:
    """Refuses a shard with a user who does not keep the bound that it carries."""
    bound, starts = shard.bound, shard.offsets[:-1]
    unit = 1 << bound.grid
    kept = (
        (bound.l0, lambda limit: shard.rows_per_user() <= limit),
        (bound.l1, lambda limit: run_sums(shard.count, starts) <= limit * unit),
        (bound.l2, lambda limit: squared_norms(shard) <= (limit * unit) ** 2),
        (bound.linf, lambda limit: shard.count <= limit * unit),
    )
    if not all(limit is None or np.all(keeps(limit)) for limit, keeps in kept):
        raise not_kept(bound)


def not_kept(bound: Bound) -> InputError:
    """The error about contributions that do not keep the bound that they carry."""
    return InputError(
        f"a user's contributions are not bounded by {bound.describe()}, as an earlier step promised; put nothing "
        "between the steps, and use each of their results once"
    )


def step_subkeys(key: bytes, release_id: str, label: str, steps: Sequence[Step]) -> list[bytes]:
    """The subkey of each step, from its label and its parameters."""
    return [
        derive_subkey(key, release_id, f"{label}/{step.name}", dataclasses.asdict(step))  # type: ignore[call-overload]
        for step in steps
    ]


def _least(bound: int | None, other: int | None) -> int | None:
    return min((value for value in (bound, other) if value is not None), default=None)


def _product(items: int | None, count: int | None) -> int | None:
    return None if items is None or count is None else items * count


def one_each(items: int) -> tuple[Step, ...]:
    """At most `items` distinct items of a user, chosen uniformly, each counted once."""
    return LimitItemsStep(items), LimitPerItemStep(1)
