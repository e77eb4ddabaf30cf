"""A grid of releases without Beam: methods by epsilons, several releases of each, scored against the truth.

The data is read, consolidated and counted once. Each release has an id of its own under one key: a fresh one that nobody keeps,
or a given one, which repeats the study.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import Any

import pyarrow as pa

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Deciding, Mechanism
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
from headcount.pipelines.spawned import spawned
from headcount.pipelines.studies.data import Data
from headcount.pipelines.studies.methods import Method, Promised
from headcount.pipelines.studies.scores import LARGE_FROM, Score, mean, score


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method at one epsilon: the score of each release, and what was decided in it; or why it was `refused`."""

    method: Method
    promised: Promised
    scores: tuple[Score, ...] = ()
    decisions: tuple[str | None, ...] = ()
    refused: str | None = None

    @property
    def mean(self) -> Score | None:
        """The mean of the releases; None if there is none."""
        return mean(self.scores) if self.scores else None


def grid(
    data: Data,
    methods: Sequence[Method],
    promises: Sequence[Promised],
    releases: int,
    *,
    large_from: int = LARGE_FROM,
    release: Release | None = None,
    processes: int = 1,
    step: Callable[[str], None] = lambda doing: None,
) -> list[Cell]:
    """The cells of all methods at all promises, method by method. `step` is told of each release: of one in this process before
    it begins, and else when those of its cell are done.

    A budget that a method refuses makes a cell without scores: another method may take it. With several `processes`, each has
    the data, and the cells are the same.
    """
    first = Release(ephemeral_key()) if release is None else release
    numbered = [Release(first.key_source, f"{first.id}-{number}") for number in range(1, releases + 1)]
    asked = [(method, promised) for method in methods for promised in promises]
    if min(processes, len(asked)) <= 1:
        return [_cell(data, *each, numbered, large_from, functools.partial(step, _doing(*each))) for each in asked]
    with spawned(min(processes, len(asked)), _keep, data) as pool:
        coming = {pool.submit(_kept_cell, *each, numbered, large_from): each for each in asked}
        for done in as_completed(coming):
            done.result()  # one that fails ends the rest
            for _ in numbered:
                step(_doing(*coming[done]))
        return [each.result() for each in coming]


def _doing(method: Method, promised: Promised) -> str:
    return f"{method.name} at epsilon {promised.epsilon:g}"


def _cell(
    data: Data,
    method: Method,
    promised: Promised,
    numbered: Sequence[Release],
    large_from: int,
    step: Callable[[], None],
) -> Cell:
    try:
        made = method.mechanism(promised, data.item_type)
    except ParameterError as error:
        for _ in numbered:
            step()
        return Cell(method, promised, refused=str(error))
    scores, decisions = [], []
    for each in numbered:
        step()
        rows, decision = run_once(made, data, each, method.label)
        scores.append(score(rows, data, method.question, large_from, decision))
        decisions.append(None if decision is None else decision.description())
    return Cell(method, promised, tuple(scores), tuple(decisions))


_kept: list[Data] = []  # of a process that is spawned: the data, which it gets once


def _keep(data: Data) -> None:
    _kept.append(data)


def _kept_cell(method: Method, promised: Promised, numbered: Sequence[Release], large_from: int) -> Cell:
    return _cell(_kept[0], method, promised, numbered, large_from, lambda: None)


def run_once(mechanism: Mechanism, data: Data, release: Release, label: str) -> tuple[pa.RecordBatch, Any]:
    """The released rows, and what was decided on the way, or None."""
    if isinstance(mechanism, Deciding):
        rows, decision = mechanism.run_decided(data.batches, release, label)
        return rows, decision
    return mechanism.run(data.batches, release, label), None
