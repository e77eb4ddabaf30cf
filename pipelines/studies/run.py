"""A grid of releases in this process: methods by epsilons, several releases of each, scored against the truth.

The data is read, consolidated and counted once. Each release has an id of its own under one key: a fresh one that nobody keeps,
or a given one, which repeats the study.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Deciding, Mechanism
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
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
    step: Callable[[str], None] = lambda doing: None,
) -> list[Cell]:
    """The cells of all methods at all promises, method by method. `step` is told what begins, before each release.

    A budget that a method refuses makes a cell without scores: another method may take it.
    """
    first = Release(ephemeral_key()) if release is None else release
    numbered = [Release(first.key_source, f"{first.id}-{number}") for number in range(1, releases + 1)]
    cells = []
    for method in methods:
        for promised in promises:
            doing = f"{method.name} at epsilon {promised.epsilon:g}"
            try:
                made = method.mechanism(promised, data.item_type)
            except ParameterError as error:
                for _ in numbered:
                    step(doing)
                cells.append(Cell(method, promised, refused=str(error)))
                continue
            scores, decisions = [], []
            for each in numbered:
                step(doing)
                rows, decision = run_once(made, data, each, method.label)
                scores.append(score(rows, data, method.question, large_from, decision))
                decisions.append(None if decision is None else decision.description())
            cells.append(Cell(method, promised, tuple(scores), tuple(decisions)))
    return cells


def run_once(mechanism: Mechanism, data: Data, release: Release, label: str) -> tuple[pa.RecordBatch, Any]:
    """The released rows, and what was decided on the way, or None."""
    if isinstance(mechanism, Deciding):
        rows, decision = mechanism.run_decided(data.batches, release, label)
        return rows, decision
    return mechanism.run(data.batches, release, label), None
