"""Bounding as transforms: what one user contributes, limited before anything is counted.

Each brings all rows of a user together, bounds them, and gives contribution batches that carry their bound. So a step can
follow another, and `NoisyCounts` knows what it may rely on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import BoundedWindow

from headcount.mechanisms.batches.shards import gather
from headcount.mechanisms.bounding.steps import (
    ClipNormStep,
    LimitItemsStep,
    LimitPerItemStep,
    RandClipStep,
    Step,
    bound_shard,
    promise_of,
    provenance,
    step_subkeys,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.ahead import Ahead
from headcount.transforms.core.contributions import as_contributions, reading_of
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.user_shards import UserShards, check_shards
from headcount.transforms.core.windows import WindowKey, window_keys


class Bounded(beam.PTransform):
    """Contributions with the given steps applied to each user's rows, all in one pass over the user's shard.

    The shards only spread the work: the result is the same for any number of them.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        release: Release | None = None,
        shards: int | None = None,
        drawn_as: str | None = None,
    ) -> None:
        super().__init__()
        self._steps = tuple(steps)
        self._release = release
        self._shards = check_shards(shards)
        # The label of what is drawn, if not the transform's own: where steps with other labels must draw the same.
        self._drawn_as = drawn_as

    @property
    def bound(self) -> Bound:
        """What this transform alone promises of every user: what `NoisyCounts` must be told."""
        return promise_of(self._steps, Bound(), "")

    def default_label(self) -> str:
        return "+".join(step.name for step in self._steps)

    def expand(self, rows: beam.PCollection) -> beam.PCollection[pa.RecordBatch]:
        release = release_for(rows, self._release, reading_of(rows))
        label = full_label(rows)
        contributions = as_contributions(rows)
        return (
            contributions  # record batches
            | "UserShards" >> UserShards(self._shards, release.windows)  # (shard, Arrow streams)
            | "Bound"
            >> beam.ParDo(_Bound(self._steps, release, self._drawn_as or label, label, self._shards)).with_output_types(
                contributions.element_type
            )
        )


class RandClip(Bounded):
    """At most `bound` events of each user, a uniform sample: l1 <= bound."""

    def __init__(self, bound: int, *, release: Release | None = None, shards: int | None = None) -> None:
        super().__init__([RandClipStep(bound)], release, shards)


class ClipNorm(Bounded):
    """Each user's counts scaled down to an l1 (p=1) or l2 (p=2) norm of at most `bound`. For public domains only."""

    def __init__(self, bound: int, *, p: int = 1, release: Release | None = None, shards: int | None = None) -> None:
        super().__init__([ClipNormStep(bound, p)], release, shards)


class LimitItems(Bounded):
    """At most `items` distinct items of each user, a uniform choice, with their counts: l0 <= items."""

    def __init__(self, items: int, *, release: Release | None = None, shards: int | None = None) -> None:
        super().__init__([LimitItemsStep(items)], release, shards)


class LimitPerItem(Bounded):
    """At most `count` events of each user on any item: linf <= count."""

    def __init__(self, count: int, *, release: Release | None = None, shards: int | None = None) -> None:
        super().__init__([LimitPerItemStep(count)], release, shards)


class _Bound(Ahead):
    """Fetches the key on the worker, so that it is never part of the pipeline."""

    def __init__(self, steps: tuple[Step, ...], release: Release, drawn_as: str, label: str, number: int) -> None:
        self._steps, self._release = steps, release
        self._drawn_as, self._label, self._number = drawn_as, label, number

    def setup(self) -> None:
        self._keys = window_keys(self._release)

    def process(
        self, group: tuple[int, Iterable[bytes]], window: BoundedWindow = beam.DoFn.WindowParam
    ) -> Iterator[pa.RecordBatch]:
        shard, chunks = group
        # A runner may fetch chunks, which only this thread can do.
        yield from self.ahead(window, (shard, list(chunks)), self._keys(window))

    def compute(self, group: tuple[int, list[bytes]], own: WindowKey) -> Iterator[pa.RecordBatch]:
        shard, chunks = group
        subkeys = step_subkeys(own.key, own.id, self._drawn_as, self._steps)
        origin = provenance(self._label, own.id, self._number)
        yield bound_shard(gather(chunks), self._steps, subkeys, origin).to_batch(shard)
