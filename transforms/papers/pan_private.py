"""`PanPrivateCounts`: counters in a file that may be seen, to which each job adds its events.

The counters lie in one file, with noise in them before the first event. Jobs add batches of events to it, and only the file
stays when the events are deleted: whoever gets hold of it learns of no event. While a job runs, its events are where a
runner has them; the promise is about what is kept.

The noise is the operating system's. It is drawn where the caller is, never in a step of a pipeline, which a runner may run
again: by `start` and `announce_intrusion`, which write it to the file at once, and by `release`, which stores the rows in
place of the counters before it returns them. The steps of a job draw nothing. Adding a batch replaces the file as a whole,
with the batch's name in it, so that a step that runs again finds it there and adds nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.packing import from_ipc, to_ipc
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.shape.anonymized import Estimate
from headcount.mechanisms.shape.estimators import Question
from headcount.mechanisms.shape.hashed import BucketMode
from headcount.mechanisms.shape.papers.pan_private import PanPrivateMechanism, PanPrivateState, pan_private_counts
from headcount.mechanisms.shape.properties import ShapeAnswers, ShapeProperties
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.windows import check_whole
from headcount.transforms.papers.bucket_sums import Hashing, SumByBucket, check_salt, read_sums
from headcount.transforms.shape.answers import check_questions

_MARK = b"headcount.pan_private"


class PanPrivateCounts(PrivateTransform):
    """Adds a batch of events to pan-private counters; their shape is released once, at the end (the paper).

    Guarantee: epsilon-differential privacy to each *event* under `relation`, towards whoever sees the file `state` at one
    moment and the released shape (`protect="both"`), or only one of the two ("either"); a copy that is kept of the file is
    one such view, as is every version that an object store or a backup keeps.

    `start()` makes the file before the first event. Then each job adds the events of one batch; one job at a time may write.
    Items go in, strings or integers, one for each event, or record batches with a column item and, if events are counted, a
    column count. The result is the name of the batch, once it is in the file. `release()` ends it all; what follows from its
    rows costs nothing: `answers()`.

    Parameters:
        budget: what an event's part in all of it may cost.
        buckets: how many counters there are, about four for each event's item. Fewer bring collisions, more bring noise.
        state: the path of the file.
        batch: the name of these events, which is never used twice; needed to add them.
        salt: a public text chosen before the data, by which items are hashed to buckets (default: None, items are the numbers
            of their buckets).
        protect: "both" (default) or "either", which takes half of the noise and protects less.
        mode: "l1" (default), or "l2", which keeps every single count near its true one besides (Corollary 3): for hashed items
            by further counters and twice the noise.
        estimate: "auto" (default), "likelihood" or "algorithm-1", the paper's own.
        relation: as for `Histogram`, of events.
    """

    mechanism: PanPrivateMechanism

    def __init__(
        self,
        budget: Budget,
        *,
        buckets: int,
        state: str,
        batch: str = "",
        salt: str | None = None,
        protect: Literal["both", "either"] = "both",
        mode: BucketMode = "l1",
        estimate: Estimate = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
    ) -> None:
        made = pan_private_counts(
            budget,
            buckets=buckets,
            hashed=check_salt(salt) is not None,
            protect=protect,
            mode=mode,
            estimate=estimate,
            relation=Relation.parse(relation),
        )
        super().__init__(made, release=None, shards=None)  # the noise is in the file
        self._file, self._batch, self._salt = _StateFile(state, made, salt), batch, salt

    def start(self) -> None:
        """Makes the file, with noise in every counter; refused if it is there."""
        if self._file.exists():
            raise ParameterError(f"state {self._file.path!r} is there already: counters are started once")
        self._file.write(_Stored(self.mechanism.start(), ()))

    def announce_intrusion(self) -> None:
        """Fresh noise on every counter, after the file was seen: it may then be seen once more."""
        stored = self._file.read()
        stored.state.announce_intrusion()
        self._file.write(stored)

    def release(self, samples: int | None = None) -> pa.RecordBatch:
        """The rows count, items, error, which from now on are all that the file holds; a second call gives them again.

        `samples` is about how many events there were, a public number; needed if items are hashed, to take collisions out.
        """
        self.check(samples)
        asked = {"samples": samples, "mode": self.mechanism.mode, "estimate": self.mechanism.estimate}
        rows = self._file.released(asked)
        if rows is None:
            rows = self.mechanism.shape(self._file.read().state, samples)
            self._file.write(rows, asked)
        return rows

    def is_released(self) -> bool:
        """Whether the file holds released rows, and counters no more."""
        return self._file.released() is not None

    def check(self, samples: int | None = None) -> None:
        """Refuses what `release(samples)` would refuse, and changes nothing."""
        if self._salt is not None and samples is None:
            raise ParameterError("items are hashed to buckets: give samples, about how many events there were")
        if self._salt is None and samples is not None:
            raise ParameterError(
                f"items are not hashed without a salt, so that there are no collisions to take out, got samples = {samples!r}: "
                "leave it out"
            )
        if not self.is_released():
            self._file.read()

    def add(self, events: Iterable[pa.RecordBatch]) -> bool:
        """Adds the events of this batch here, without a pipeline; False if they are in the file already."""
        self._check_batch()
        summed = _SumEvents(self.mechanism, self._salt)
        return self._file.add(self._batch, map(summed.batch_arrays, events))

    def answers(self, *questions: Question) -> ShapeAnswers:
        """What the released rows say of these questions (see `mechanisms.shape.estimators`); refused before `release()`.

        They are read from the file, which holds nothing else any more: any number of answers costs nothing.
        """
        rows = self._file.released()
        if rows is None:
            raise ParameterError(
                f"state {self._file.path!r} holds counters yet, which no answer may come from: release()"
            )
        return ShapeProperties(self.mechanism, check_questions(questions)).answers(rows)

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        check_whole(items)
        self._check_batch()
        sums = items | "SumByBucket" >> beam.ParDo(_SumEvents(self.mechanism, self._salt)).with_output_types(
            tuple[int, bytes]
        )
        # One element at least: that a batch had no events must not show in its name missing from the file.
        nothing = items.pipeline | "Nothing" >> beam.Create([(0, b"")], reshuffle=False)
        return (
            (sums, nothing)
            | "WithNothing" >> beam.Flatten()
            | "Gather" >> beam.GroupByKey()  # (0, packed sums): also the barrier before the file is touched
            | "AddToState" >> beam.ParDo(_AddToState(self._file, self._batch)).with_output_types(str)
        )

    def _check_batch(self) -> None:
        if not self._batch or not isinstance(self._batch, str):
            raise ParameterError(
                f"batch must be the name of these events, which no other batch has, got {self._batch!r}", "batch"
            )


@dataclasses.dataclass
class _Stored:
    """What is in the file before the release."""

    state: PanPrivateState
    batches: tuple[str, ...]


class _StateFile:
    """The one file; it is always replaced as a whole."""

    def __init__(self, path: str, plan: PanPrivateMechanism, salt: str | None) -> None:
        if not isinstance(path, str) or not path:
            raise ParameterError(f"state must be the path of a file, got {path!r}", "state")
        self.path, self._scale = path, plan.scale
        # What a file is made for goes into it. One that is made for "either" must not be released as for "both", or vice versa.
        self._made_for = {"scale": str(plan.scale), "protect": plan.protect, "relation": plan.relation.value}
        self._made_for["buckets"] = str(plan.buckets)
        # Batches that are hashed by two salts would be counted as different items.
        self._made_for |= {"salt": repr(salt)} | ({"ranks": str(plan.ranks)} if plan.ranks else {})

    def exists(self) -> bool:
        return bool(FileSystems.exists(self.path))

    def released(self, asked: dict[str, Any] | None = None) -> pa.RecordBatch | None:
        """The released rows, if that is what it holds; refused if they were released with other words than is asked for."""
        content, about = self._content()
        if not about["released"]:
            return None
        self._check_made_for(about)
        if asked is not None and about.get("asked") != asked:
            words = ", ".join(f"{name} {value!r}" for name, value in about.get("asked", {}).items())
            raise ParameterError(f"state {self.path!r} was released once and for all, with {words}: give the same")
        return content

    def read(self) -> _Stored:
        """The counters."""
        content, about = self._content()
        if about["released"]:
            raise InputError(
                "these counters were released; an event added now would be seen without noise: start new ones"
            )
        self._check_made_for(about)
        counters = np.array(content.column("counter"))
        return _Stored(PanPrivateState(counters, self._scale, about["noises"]), tuple(about["batches"]))

    def _check_made_for(self, about: dict[str, Any]) -> None:
        if about.get("made_for") != self._made_for:
            words = ", ".join(f"{name} {value}" for name, value in self._made_for.items())
            raise ParameterError(f"state {self.path!r} was not made for counters of {words}")

    def add(self, batch: str, moved: Iterable[tuple[np.ndarray, np.ndarray]]) -> bool:
        """Adds a batch's events in each counter, once: False if an earlier call has added it."""
        stored = self.read()
        if batch in stored.batches:
            return False
        for cells, events in moved:
            stored.state.count(cells, events)
        self.write(_Stored(stored.state, (*stored.batches, batch)))
        return True

    def write(self, content: _Stored | pa.RecordBatch, asked: dict[str, Any] | None = None) -> None:
        """Replaces the file: whoever reads it finds the old one or the new one."""
        if isinstance(content, _Stored):
            state = content.state
            about: dict[str, Any] = {"released": False, "made_for": self._made_for, "noises": state.noises}
            about["batches"] = list(content.batches)
            rows = pa.RecordBatch.from_pydict({"counter": pa.array(state.counters, pa.int64())})
        else:
            about, rows = {"released": True, "made_for": self._made_for, "asked": asked}, content
        data = to_ipc(rows.replace_schema_metadata({_MARK: json.dumps(about).encode()}))
        if FileSystems.get_scheme(self.path) is not None:  # in an object store, a file appears whole or not at all
            with FileSystems.create(self.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
                file.write(data)
            return
        # One name for all drafts: that of a killed process is a further view of the counters, and must not stay.
        try:
            with open(self._draft, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._draft, self.path)
        except BaseException:
            self._remove_draft()
            raise

    @property
    def _draft(self) -> str:
        return f"{self.path}.draft"

    def _remove_draft(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._draft)

    def _content(self) -> tuple[pa.RecordBatch, dict[str, Any]]:
        if FileSystems.get_scheme(self.path) is None:
            self._remove_draft()
        if not self.exists():
            raise ParameterError(f"state {self.path!r} is not there: start() makes it, before the first event")
        with FileSystems.open(self.path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            data = file.read()
        try:
            content = from_ipc(data)
            about: dict[str, Any] = json.loads(content.schema.metadata[_MARK])
        except (pa.ArrowInvalid, KeyError, TypeError, StopIteration):
            raise ParameterError(f"state {self.path!r} is not a file of pan-private counters") from None
        return content.replace_schema_metadata(None), about


class _SumEvents(SumByBucket):
    def __init__(self, plan: PanPrivateMechanism, salt: str | None) -> None:
        super().__init__(plan.cells)
        self._hashing = Hashing(plan.buckets, salt, plan.ranks)

    def arrays(self, elements: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        return self._moved(elements, np.ones(len(elements), dtype=np.int64))

    def batch_arrays(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        if "item" not in batch.schema.names:
            raise InputError("no column 'item' in a batch of events")
        item, counted = batch.column("item"), "count" in batch.schema.names
        checked = contribution_batch(item, item, batch.column("count") if counted else None)
        item = checked.column("item")
        names = item.dictionary_decode() if isinstance(item, pa.DictionaryArray) else item
        one_each = "count" not in checked.schema.names
        return self._moved(names, np.ones(len(names), np.int64) if one_each else np.asarray(checked.column("count")))

    def _moved(self, items: list[Any] | pa.Array, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The counters, one or two for each item, and by how much they move."""
        cells = self._hashing.buckets(items)
        return cells.ravel(), events if cells.ndim == 1 else np.repeat(events, cells.shape[1])


class _AddToState(beam.DoFn):
    def __init__(self, file: _StateFile, batch: str) -> None:
        self._file, self._batch = file, batch

    def process(self, group: tuple[int, Iterable[bytes]]) -> Iterator[str]:
        self._file.add(self._batch, map(read_sums, filter(None, group[1])))  # at most once, however often this runs
        yield self._batch
