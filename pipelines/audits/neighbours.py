"""Two neighbours and a command on both: what is run again and again, and the number that is looked at of each outcome."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.accounting import totals
from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.losses import Losses
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.mechanism import Mechanism
from headcount.mechanisms.randomness.keys import KeySource, Release
from headcount.pipelines import parser
from headcount.pipelines.audits.claims import OfDelta, OfEpsilon, OfLosses
from headcount.pipelines.audits.evidence import Claim
from headcount.pipelines.command import JobCommand, load
from headcount.pipelines.in_memory.prepared import prepared
from headcount.pipelines.sources.domain import domain_of

_NO_ROW, _REFUSED = -1e18, -2e18  # below all that is released


@dataclasses.dataclass(frozen=True)
class Watched:
    """The number of an outcome that is looked at: the sum of a column, or its mean, over the rows that have these values.

    From it that over the rows that `less` describes is taken off. Without a column, rows are counted. An outcome without such a
    row has the number `absent`, by default below all others. A number is cut to the range `within`: where several are added up,
    what lies beyond it tells nothing more.
    """

    column: str | None = None
    rows: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    within: tuple[float, float] = (-math.inf, math.inf)
    less: Mapping[str, Any] | None = None
    absent: float = _NO_ROW
    mean: bool = False

    def score(self, released: pa.RecordBatch) -> float:
        """The number of one outcome."""
        found = self._number(released, self.rows)
        if found is None:
            return self.absent
        if self.less is not None:
            found -= self._number(released, self.less) or 0.0
        low, high = self.within
        return min(max(found, low), high)

    def _number(self, released: pa.RecordBatch, rows: Mapping[str, Any]) -> float | None:
        kept = np.ones(released.num_rows, dtype=bool)
        for name, wanted in rows.items():
            values = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else [wanted]
            column = released.column(name)
            kept &= np.asarray(pc.is_in(column, value_set=pa.array(values, column.type)), dtype=bool)
        if self.column is None:
            return float(np.count_nonzero(kept))
        if not kept.any():
            return None
        found = released.column(self.column).filter(pa.array(kept))
        return float((pc.mean if self.mean else pc.sum)(found.cast(pa.float64())).as_py() or 0.0)


@dataclasses.dataclass(frozen=True)
class WatchedType(Watched):
    """Whether items are released as texts."""

    def score(self, released: pa.RecordBatch) -> float:
        """1 if they are."""
        return float(pa.types.is_string(released.schema.field("item").type))


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """A command line without its files, on the rows of `others`, and on these and the rows of `one` user more.

    `by` says what of the promise is looked for (`claims`): its "losses", its "epsilon" by one event, or its "delta". `of` are
    the losses that the proof claims of these inputs, where it needs no delta for them. `most` is the share of the
    promise that can be seen on them by any number of releases, where that is known from elsewhere, and `why` the reason.

    With `times`, a release is that many of them, one after another, and what is stated is what the ledger would add up to, at
    the delta of one.
    """

    line: str
    others: pa.Table
    one: pa.Table
    watched: Watched
    times: int = 1
    runs: int = 1000
    by: str = "losses"
    of: Losses | None = None
    most: float = 1.0
    why: str = ""

    @property
    def command(self) -> str:
        """The name of the command."""
        return self.line.split()[0]

    def prepared(self, with_one: bool) -> Repeated:
        """The command on one of the two, with its rows read."""
        command = load(self.command)
        assert isinstance(command, JobCommand)
        args, _ = parser.parse(command, [*shlex.split(self.line)[1:], "--input", "rows", "--output", "rows"])
        command.check_flags(args)
        if getattr(args, "domain", None) is not None:
            args.domain = domain_of(args)
        table = pa.concat_tables([self.others, self.one]) if with_one else self.others
        mechanism, events, _ = prepared(command, args, table)
        return Repeated(mechanism, tuple(events.batches), self)


@dataclasses.dataclass(frozen=True)
class Repeated:
    """A mechanism and the contributions of one of two neighbours."""

    mechanism: Mechanism
    batches: tuple[pa.RecordBatch, ...]
    case: Neighbours

    def stated(self) -> Budget:
        """The epsilon and delta that are promised."""
        one, times = self.mechanism.guarantee(), self.case.times
        if times == 1:
            return Budget(one.epsilon, one.delta)
        return Budget(totals.total_epsilon([one] * times, one.delta), one.delta)

    def claim(self) -> Claim:
        """The same, in the form that is looked at."""
        stated = self.stated()
        if self.case.by == "delta":
            return OfDelta(stated.epsilon, stated.delta)
        if self.case.by == "epsilon":
            return OfEpsilon(stated.epsilon, stated.delta)
        if self.case.of is not None:
            return OfLosses(self.case.of, 0.0)
        return OfLosses(Losses.together([self.mechanism.guarantee().losses] * self.case.times), stated.delta)

    def score(self, source: KeySource, name: str) -> float:
        """The number of one release: releases of other names draw anew. One that is refused is an outcome, too."""
        run, parts = self.mechanism.run, [f"{name}-{number}" for number in range(self.case.times)]
        watched = self.case.watched
        try:
            return sum(watched.score(run(iter(self.batches), Release(source, each), "Audit")) for each in parts)
        except InputError:
            return _REFUSED
