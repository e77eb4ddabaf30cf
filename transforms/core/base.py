"""What every transform that releases something has: a mechanism, its guarantee, a release, and how the work is spread."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Self

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms import checks
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.windows import USER_WINDOW, over_releases
from headcount.mechanisms.batches.domain import Domain, PartDomain, public_domain
from headcount.mechanisms.columns.keys import ITEM, Keys
from headcount.mechanisms.columns.level_keys import LevelKeys
from headcount.mechanisms.domains.partly_public import check_windows, windows_refused
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Promise
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.core.contributions import ContributionBatch, contributed, is_contributions, reading_of
from headcount.transforms.core.release import full_label, release_for
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import ToRows
from headcount.transforms.core.user_shards import check_shards
from headcount.transforms.core.windows import check_stream, check_windowing
from headcount.transforms.keyed.domain import GivenItems
from headcount.transforms.keyed.rows import ToKeyedRows, is_named_by_columns, keyed_row

_MOST_FILES = 10_000


class PrivateTransform(beam.PTransform):
    """A mechanism, wired: `expand` does the steps of its `run`, and gives the same rows for the same release and label.

    `release` is where randomness comes from; None is a fresh key on this machine. One with windows makes a release of the rows
    of each window, for a collection in these. `shards` spreads the work and changes nothing
    in the result. With `output_files=N` the result is one element (k, record batch) for each k < N in place of rows.

    Those that show items do the steps in `_expand`: there `mechanism` has the type that the items of the collection have, and
    `_shown` gives the columns that the items were made of. `items` are what the caller says of them, if anything. `partly`
    makes the mechanism for a domain of some of the key columns, which are known where the transform is applied. With
    `levels`, the key columns are levels, and the mechanism is one of all of them (`of_depth`).
    """

    mechanism: Promise
    _domain_field = "domain"  # what a mechanism calls its public domain
    _takes_windows = False  # whether keys may be windows that overlap

    def __init__(
        self,
        mechanism: Promise,
        *,
        release: Release | None,
        shards: int | None,
        output_files: int | None = None,
        items: GivenItems | None = None,
        partly: Callable[..., Promise] | None = None,
        levels: bool = False,
    ) -> None:
        super().__init__()
        self._partly, self._levels = partly, levels
        self.mechanism, self._items = mechanism, items or GivenItems()
        self._keys = Keys.plain(self._items.made)
        self._release, self._shards, self._output_files = release, check_shards(shards), check_files(output_files)
        self._decides = False

    def guarantee(self, windows: int | None = None) -> Guarantee:
        """What is promised, before anything runs: to each user, or for a release in windows to what a user did in one of them.
        With `windows=n` it is what a user is promised in total who is there in n of these."""
        public = None if self._release is None else self._release.windows
        if public is None:
            if windows is not None:
                raise ParameterError("the release has no windows: leave out windows, or give Release(key, windows=...)")
            return self._promise()
        if windows is None:
            return self._promise().per(USER_WINDOW)
        return over_releases(self._promise(), checks.check_whole("windows", windows, 1, public.number))

    def _promise(self) -> Guarantee:
        """What one release promises to each of its users."""
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

    def expand(self, rows: beam.PCollection) -> Any:
        check_windowing(rows)
        return self._of(contributed(rows))._expand(rows)

    def _expand(self, rows: beam.PCollection) -> Any:
        raise NotImplementedError

    def _of(self, batches: type[ContributionBatch]) -> Self:
        """The same transform for contributions of this element type; refuses keys that it was not made for."""
        keys, said = batches.keys, self._items.item_type
        if not batches.known:  # the caller is asked, and a worker sees to it
            keys = Keys.plain(self._items.made, keys.names[0])
        elif said not in (None, keys.item_type):
            raise ParameterError(
                f"item_type says {said.__name__}, but the key {', '.join(map(repr, keys.names))} is "
                f"{keys.item_type.__name__} by its schema: leave out item_type",
                "item_type",
            )
        made = self._but(_keys=keys)._of_domain(self._items.of(keys), keys.item_type)
        if not self._levels:
            return made
        mechanism: Any = made.mechanism
        return made._but(mechanism=mechanism.of_depth(len(keys.fields)), _keys=LevelKeys(keys.fields))

    def _of_domain(self, domain: Domain | PartDomain | None, item_type: type) -> Self:
        """The same with the mechanism for items of this type, and with this domain; None if it has it."""
        changed: dict[str, Any] = {}
        if isinstance(domain, PartDomain):
            if self._partly is not None:
                return self._but(mechanism=self._partly(domain=domain, item_type=item_type))
            public_domain(domain, item_type)  # refuses it
        if getattr(self.mechanism, "item_type", item_type) is not item_type:
            changed["item_type"] = item_type
        if domain is not None:
            changed[self._domain_field] = domain
        mechanism: Any = self.mechanism
        return self._but(mechanism=dataclasses.replace(mechanism, **changed)) if changed else self

    def _drawn(self, rows: beam.PCollection) -> tuple[Release, str]:
        """The one release of all steps, and the label of what they draw. Refuses rows that no release may be made of."""
        check_stream(rows, self._closes_in_streams())
        self._check_windows(rows)
        return release_for(rows, self._release, self._reading(rows)), full_label(rows)

    def _closes_in_streams(self) -> bool:
        """Whether each window is known to be released soon after its end, while an unbounded collection goes on."""
        return False

    def _check_windows(self, rows: beam.PCollection) -> None:
        """Refuses keys that are windows which overlap, unless the transform takes them and their days are public."""
        fields = rows.element_type.keys.fields if is_contributions(rows) else ()
        for column in (field.column for field in fields):
            if column.days and not self._takes_windows:
                raise windows_refused(column, False)
        if fields:
            check_windows(rows.element_type.keys, getattr(self.mechanism, self._domain_field, None))

    def _reading(self, rows: beam.PCollection) -> str:
        """How rows are read, which the key of a release depends on."""
        return reading_of(rows)

    def _shown(self, batches: beam.PCollection, row: Any) -> beam.PCollection:
        """(file, record batch) as the caller wants them, with the key columns: as they are, or as rows."""
        keys = self._keys
        if ITEM not in row._fields or not is_named_by_columns(keys):
            return batches if self._output_files is not None else batches | "ToRows" >> ToRows(row)
        keyed_row(row, keys)  # refuses a column that is there twice
        restored = self._with_key_columns(batches)
        return restored if self._output_files is not None else restored | "ToRows" >> ToKeyedRows(row, keys)

    def _with_key_columns(self, batches: beam.PCollection) -> beam.PCollection:
        """(file, record batch) with the key columns in place of the name."""
        if not is_named_by_columns(self._keys):
            return batches
        return batches | "KeyColumns" >> beam.Map(_restored, self._keys).with_output_types(tuple[int, pa.RecordBatch])

    def _result(self, counts: beam.PCollection, decision: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        """The counts, and the decision if it was asked for."""
        return CountsAndDecision(counts, decision) if self._decides else counts


def _restored(file: tuple[int, pa.RecordBatch], keys: Keys) -> tuple[int, pa.RecordBatch]:
    number, batch = file
    return number, keys.restore(batch)


def check_files(output_files: int | None) -> int | None:
    """The number of output files, or None for rows."""
    return None if output_files is None else checks.check_whole("output_files", output_files, 1, _MOST_FILES)
