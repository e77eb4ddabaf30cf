"""Known bugs, put into this installation for the length of an audit: what it must see.

Some were found in other libraries by people who looked, and are rebuilt where this one does the same thing; some were found
here. A bug is there inside of `with bug.put_in():` alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from headcount.mechanisms.accounting import thresholds, totals
from headcount.mechanisms.batches import contributions, frames
from headcount.mechanisms.bounding import clipping, steps
from headcount.mechanisms.choice import exponential
from headcount.mechanisms.randomness import noise

Put = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True)
class Bug:
    """One bug: what goes wrong, where it was found, the case whose audit sees it, and how it is put in."""

    what: str
    where: str
    case: str
    put_in: Put


def _everywhere(real: Any, other: Any) -> Put:
    """Put `other` in the place of a function, in every module of Headcount that has it by name."""

    @contextlib.contextmanager
    def put() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, module in list(sys.modules.items()):
                if name.startswith("headcount.") and name != __name__:
                    for attribute in [each for each, value in vars(module).items() if value is real]:
                        stack.enter_context(mock.patch.object(module, attribute, other))
            yield

    return put


def _permute_and_flip(exponents: Any, lanes: Any) -> int:
    """Look at candidates in random order, and take the first whose coin of probability e^-excess falls."""
    excess, denominator = exponential._excess(exponents)
    left = list(range(len(exponents)))
    while True:
        place = left[int(lanes.uniform_below(len(left), [0])[0])]
        if bool(lanes.bernoulli_exp(np.array([excess[place]], excess.dtype), denominator, [0])[0]):
            return place
        left.remove(place)


_threshold = thresholds.laplace_threshold
_clip_norm = clipping.clip_norm
_contribution_batch = contributions.contribution_batch
_by_curve = noise.by_curve
_frame_reader = frames.frame_reader


def _without_the_point_mass(spread: Any, scale: Any, delta: float) -> int:
    return _threshold(spread, scale, delta) - 1


def _by_leaves(shard: Any, bound: int, p: int) -> Any:
    """Users in levels are scaled by the norm of their counts at the leaves, as if they had no others."""
    if not pa.types.is_string(shard.items.type):
        return _clip_norm(shard, bound, p)
    heads = [name.partition(":")[0] for name in shard.items.to_pylist()]
    depth = np.array([int(head.rstrip("+")) + head.endswith("+") for head in heads])
    leaves = np.where((depth == depth.max(initial=0))[shard.item], shard.count, 0)
    norms = clipping.squared_norms(dataclasses.replace(shard, count=leaves))
    value = clipping._scaled_rows(shard, norms, bound, bound << clipping.clip_grid(bound), p)
    rows = np.flatnonzero(value)
    return shard.keep(rows, value[rows])


def _unchecked() -> contextlib.AbstractContextManager[Any]:
    """The same, and what a user adds is not checked again before noise is drawn."""
    stack = contextlib.ExitStack()
    stack.enter_context(_everywhere(clipping.clip_norm, _by_leaves)())
    stack.enter_context(_everywhere(steps.check_kept, lambda shard: None)())
    return stack


def _raw(shard: Any, chosen: Any, subkeys: Any, label: str) -> Any:
    """The steps are done, and what they give is dropped. (Counts are in the units that follow.)"""
    bound = steps.promise_of(chosen, shard.bound, label)
    return dataclasses.replace(shard, bound=bound, count=shard.count << bound.grid)


def _redefined(users: Any, items: Any, *more: Any, **others: Any) -> pa.RecordBatch:
    """Users are told apart by a column that was changed after they were bounded: each row is another user."""
    names = pa.array([f"{name} {number}" for number, name in enumerate(users.to_pylist())], pa.string())
    return _contribution_batch(names, items, *more, **others)


def _certain_beyond_the_last(lanes: Any, law: bytes) -> Any:
    """The curve ends where nearly everything is named, and beyond that everything is."""
    chances = [int.from_bytes(law[place : place + 16], "little") / 2**128 for place in range(0, len(law), 16)]
    last = next(state for state, chance in enumerate(chances) if chance >= 0.98)
    return np.minimum(_by_curve(lanes, law), last)


def _of_rows(frame: Any, columns: Any = None) -> pa.RecordBatchReader:
    """A column of texts that are all numbers is one of numbers."""
    table = _frame_reader(frame, columns).read_all()
    for place, name in enumerate(table.schema.names):
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if pa.types.is_string(table.schema.field(name).type):
                table = table.set_column(place, name, table.column(name).cast(pa.int64()))
    return table.to_reader()


def _root_of_the_number(guarantees: Any, delta: float, adaptive: bool = False) -> float:
    """Epsilons add up like standard deviations."""
    return math.sqrt(sum(each.epsilon**2 for each in guarantees))


def _likeliest(exponents: Any, lanes: Any) -> int:
    return int(np.argmin([float(each) for each in exponents]))


_ELSEWHERE, _HERE = "in another library", "here, before the first release"

BUGS: dict[str, Bug] = {
    "permute-and-flip": Bug(
        "permute-and-flip is charged like a draw of the exponential mechanism, whose range is smaller",
        _ELSEWHERE,
        "forty choices",
        _everywhere(exponential.select, _permute_and_flip),
    ),
    "point-mass": Bug(
        "the delta of a threshold leaves out the outcome at the threshold itself",
        _ELSEWHERE,
        "a page of one user alone",
        _everywhere(thresholds.laplace_threshold, _without_the_point_mass),
    ),
    "norm-of-a-tree": Bug(
        "users in levels are scaled by the norm of their leaves, and not of all levels",
        _ELSEWHERE,
        "a user of many leaves in levels",
        _unchecked,
    ),
    "redefined-column": Bug(
        "a bound on rows per user is believed after the column of users was redefined",
        _ELSEWHERE,
        "rows of one user",
        _everywhere(contributions.contribution_batch, _redefined),
    ),
    "raw-data-used": Bug(
        "clipped data is made, and raw data is used",
        _ELSEWHERE,
        "events of a public list",
        _everywhere(steps.bound_shard, _raw),
    ),
    "odometer": Bug(
        "what releases cost together is computed by a formula that holds for none",
        _ELSEWHERE,
        "two releases on one account",
        _everywhere(totals.total_epsilon, _root_of_the_number),
    ),
    "certain-selection": Bug(
        "items beyond the last state of a selection curve are named for certain",
        _HERE,
        "many pages near the last state",
        _everywhere(noise.by_curve, _certain_beyond_the_last),
    ),
    "types-of-rows": Bug(
        "the type of a column is guessed from its rows, so that one row changes all of them",
        _HERE,
        "a row of another type",
        _everywhere(frames.frame_reader, _of_rows),
    ),
    "free-bound": Bug(
        "a bound is chosen by what is best for the data, and not charged",
        _HERE,
        "a bound, by ranks",
        _everywhere(exponential.select, _likeliest),
    ),
}
