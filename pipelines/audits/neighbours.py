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
from headcount.mechanisms.errors import InputError
from headcount.mechanisms.mechanism import Mechanism
from headcount.mechanisms.randomness.keys import KeySource, Release
from headcount.pipelines import parser
from headcount.pipelines.command import JobCommand, load
from headcount.pipelines.in_memory.prepared import prepared
from headcount.pipelines.sources.domain import domain_of

_NO_ROW, _REFUSED = -1e18, -2e18  # below all that is released


@dataclasses.dataclass(frozen=True)
class Watched:
    """The number of an outcome that is looked at: the sum of a column over the rows that have these values.

    Without a column, the number of these rows. An outcome without such a row has a number of its own, below all others. A
    number is cut to the range `within`: where several are added up, what lies beyond it tells nothing more.
    """

    column: str | None = None
    rows: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    within: tuple[float, float] = (-math.inf, math.inf)

    def score(self, released: pa.RecordBatch) -> float:
        """The number of one outcome."""
        kept = np.ones(released.num_rows, dtype=bool)
        for name, wanted in self.rows.items():
            values = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else [wanted]
            column = released.column(name)
            kept &= np.asarray(pc.is_in(column, value_set=pa.array(values, column.type)), dtype=bool)
        if self.column is None:
            return float(np.count_nonzero(kept))
        if not kept.any():
            return _NO_ROW
        found = released.column(self.column).filter(pa.array(kept))
        low, high = self.within
        return min(max(float(pc.sum(found.cast(pa.float64())).as_py() or 0.0), low), high)


@dataclasses.dataclass(frozen=True)
class WatchedType(Watched):
    """Whether items are released as texts."""

    def score(self, released: pa.RecordBatch) -> float:
        """1 if they are."""
        return float(pa.types.is_string(released.schema.field("item").type))


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """A command line without its files, on the rows of `others`, and on these and the rows of `one` user more.

    With `times`, a release is that many of them, one after another, and what is stated is what the ledger would add up to, at
    the delta of one.
    """

    line: str
    others: pa.Table
    one: pa.Table
    watched: Watched
    times: int = 1

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
        return Repeated(mechanism, tuple(events.batches), self.watched, self.times)


@dataclasses.dataclass(frozen=True)
class Repeated:
    """A mechanism and the contributions of one of two neighbours."""

    mechanism: Mechanism
    batches: tuple[pa.RecordBatch, ...]
    watched: Watched
    times: int = 1

    def stated(self) -> Budget:
        """The epsilon and delta that are promised."""
        one = self.mechanism.guarantee()
        if self.times == 1:
            return Budget(one.epsilon, one.delta)
        return Budget(totals.total_epsilon([one] * self.times, one.delta), one.delta)

    def score(self, source: KeySource, name: str) -> float:
        """The number of one release: releases of other names draw anew. One that is refused is an outcome, too."""
        run, parts = self.mechanism.run, [f"{name}-{number}" for number in range(self.times)]
        try:
            return sum(self.watched.score(run(iter(self.batches), Release(source, each), "Audit")) for each in parts)
        except InputError:
            return _REFUSED
