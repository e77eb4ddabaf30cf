"""What a mechanism releases of contributions in this process, and its rows as they go out."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from headcount.mechanisms.columns.keys import Keys
from headcount.mechanisms.counting.input_digest import InputDigest
from headcount.mechanisms.counting.largest import ALL_ROWS, Largest
from headcount.mechanisms.counting.quality import EVERY_ROW, Quality
from headcount.mechanisms.counting.released import cut
from headcount.mechanisms.mechanism import Deciding
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.flags import options
from headcount.pipelines.reports.plan import Plan, label_of


class Kept(NamedTuple):
    """Which of the released rows go out: those that are good enough, and of these the largest."""

    quality: Quality
    largest: Largest

    @classmethod
    def of(cls, args: argparse.Namespace) -> Kept:
        """As the flags say; refuses what they cannot say."""
        quality = Quality(**options.quality(args)) if hasattr(args, "suppress_below") else EVERY_ROW
        return cls(quality, Largest(args.top, tuple(args.per or ())) if hasattr(args, "top") else ALL_ROWS)


@dataclasses.dataclass(frozen=True)
class Released:
    """Rows as a mechanism gives them, with names for keys and before any are left out; what it decided; and on an account the
    digest of its input."""

    rows: pa.RecordBatch
    keys: Keys | None
    kept: Kept
    decision: Any = None
    input_digest: str | None = None

    def files(self, number: int) -> list[pa.RecordBatch]:
        """The rows of each output file, as they go out; what is of no item is in the first."""
        if "item" not in self.rows.schema.names or self.keys is None:
            return [self.rows, *[self.rows.slice(0, 0)] * (number - 1)]
        parts = list(cut(self.rows, number))
        good = [self.kept.quality.keep(part) for part in parts] if self.kept.quality.limits else parts
        return [self.keys.restore(part) for part in self.kept.largest.keep(good, self.keys)]


def released(
    mechanism: Any,
    plan: Plan,
    contributions: Iterable[pa.RecordBatch],
    release: Release,
    command: str,
    keys: Keys | None,
    kept: Kept,
    digested: bool,
) -> Released:
    """The mechanism of a command on contributions: the rows are those of its transform in a pipeline, for the same release.

    `digested` says whether the digest of the input is asked for.
    """
    label, decision = plan.drawn_as or label_of(command), None
    digest = InputDigest(release.key_source.fetch(), release.id) if digested else None
    sums: list[bytes] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in contributions:
            if digest is not None:
                sums.append(digest.of(batch))
            yield batch

    read = batches()
    if isinstance(mechanism, Deciding):
        rows, decision = mechanism.run_decided(read, release, label)
    else:
        rows = mechanism.run(read, release, label)
    for _ in read:  # what a mechanism has no need of is part of the input, too
        pass
    return Released(rows, keys, kept, decision, None if digest is None else digest.whole(sums))
