"""What every transform that releases something has: a mechanism, its guarantee, a release, and how the work is spread."""

from __future__ import annotations

import copy
from typing import Any, Self

import apache_beam as beam

from headcount.mechanisms import checks
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Promise
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.contributions import check_whole
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import ToRows
from headcount.transforms.core.user_shards import check_shards

_MOST_FILES = 10_000


class PrivateTransform(beam.PTransform):
    """A mechanism, wired: `expand` does the steps of its `run`, and gives the same rows for the same release and label.

    `release` is where randomness comes from; None is a fresh key on this machine. `shards` spreads the work and changes nothing
    in the result. With `output_files=N` the result is one element (k, record batch) for each k < N in place of rows.
    """

    mechanism: Promise

    def __init__(
        self, mechanism: Promise, *, release: Release | None, shards: int | None, output_files: int | None = None
    ) -> None:
        super().__init__()
        self.mechanism = mechanism
        self._release, self._shards, self._output_files = release, check_shards(shards), check_files(output_files)
        self._decides = False

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        return self.mechanism.guarantee()

    def with_decision(self) -> Self:
        """The same transform, but its result has two fields: `counts`, which are the rows, and `decision`: one element with
        what the job has decided, and the guarantee in its numbers. Refused where nothing is decided."""
        given = self._given()
        if given is not None:
            raise ParameterError(f"nothing is decided where {given} given: leave out with_decision()")
        return self._but(_decides=True)

    def _given(self) -> str | None:
        """What is given, so that nothing is left to decide ("the bound is"); None if the job does decide."""
        return "all is"

    def _but(self, **changed: Any) -> Self:
        """A copy with other attributes: one that is in a pipeline already must not change behind its back."""
        twin = copy.copy(self)
        for name, value in changed.items():
            setattr(twin, name, value)
        return twin

    def _drawn(self, rows: beam.PCollection) -> tuple[Release, str]:
        """The one release of all steps, and the label of what they draw. Refuses rows that no release may be made of."""
        check_whole(rows)
        return release_for(rows.pipeline, self._release), full_label(rows)

    def _shown(self, batches: beam.PCollection, row: Any) -> beam.PCollection:
        """(file, record batch) as the caller wants them: as they are, or as rows."""
        return batches if self._output_files is not None else batches | "ToRows" >> ToRows(row)

    def _result(self, counts: beam.PCollection, decision: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        """The counts, and the decision if it was asked for."""
        return CountsAndDecision(counts, decision) if self._decides else counts


def check_files(output_files: int | None) -> int | None:
    """The number of output files, or None for rows."""
    return None if output_files is None else checks.check_whole("output_files", output_files, 1, _MOST_FILES)
