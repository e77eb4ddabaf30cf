"""Private histograms as transforms: `Histogram` (the paper, Algorithms 1 and 3), and its second half `NoisyCounts`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, Self

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.evidence import check_bounded
from headcount.mechanisms.counting.largest import ALL_ROWS, Largest
from headcount.mechanisms.counting.quality import Quality
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism, Decided
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.fixed import HistogramMechanism, noisy_bounded
from headcount.mechanisms.levels.factory import AnyHistogram, histogram_or_levels
from headcount.mechanisms.levels.release import LevelsMechanism
from headcount.mechanisms.randomness.keys import Release
from headcount.transforms.bounding import Bounded
from headcount.transforms.core.base import PrivateTransform
from headcount.transforms.core.choice import BoundAsDecided, choose
from headcount.transforms.core.contributions import ContributionBatch, as_contributions, is_contributions
from headcount.transforms.core.domain import OnlyDomain
from headcount.transforms.core.noise import Noise
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.core.rows import KeepGood, KeepLargest, count_row, estimate_row
from headcount.transforms.core.user_shards import UserShards, item_shards
from headcount.transforms.core.windows import check_windowing
from headcount.transforms.estimates import estimated
from headcount.transforms.keyed.domain import given_items
from headcount.transforms.levels import levelled


class Histogram(PrivateTransform):
    """How many users have each item, or how often it occurs: of items that come from the data, or of a public `domain`.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`. What is chosen is chosen privately, within the
    budget. Items that come from the data and that few users have stay hidden, which takes a delta.

    With the method "estimates" items are named first. Then each user's counts of named items, cut to `max_per_item` on one item
    and scaled down to an l2 norm of `bound`, are summed and get noise. A few noisy totals tell how much that has left out, and
    the result is `Estimate` rows (`IntEstimate` with `item_type=int`): `count` is an estimate of the true number, on the
    assumption that what was left out spreads over items of similar size like what was kept, and `low` to `high` is a 95 %
    interval that has the noise and how far this may be off. Without calibration the rows are `NoisyCount` (`NoisyIntCount`),
    of what the bound has left.

    With the method "one-stage" (the paper, Algorithms 1 and 3) the result is `NoisyCount` rows of the bounded counts, which may
    lie far below the truth. Without a domain each user counts with at most `max_per_item` events on one item, and of these with
    a uniform sample of at most `bound`. With a domain, counts are cut to `max_per_item` and scaled down to a norm of `bound`.

    Rows are sorted by item in each output file. Rows or `Contributions` go in. `with_decision()` gives what was chosen beside.

    Parameters:
        budget: what all of it may cost.
        domain: the public items, as tuples or a frame where the key has several columns (default: None, items come from the
            data). A list or frame travels with the job's graph: give more than some hundred thousand as a `DomainFile`. A
            mapping of key columns to ranges such as ("2026-11-01", "2026-11-30") and lists stands for all combinations; of some
            key columns, the others are named from the data, and each is counted with all of the public ones.
        method: "estimates" (default) or "one-stage".
        of: what is counted: "users" (default), each once on an item, or "events".
        bound: the norm of one user's counts, or for one stage the events that count (default: "auto", chosen privately). A
            small one loses events of busy users, a large one brings more noise for all.
        max_per_item: the events of one user on one item that count, for "events" (default: None, chosen or no such limit).
        calibrate: "totals" (default), or "none" to spend nothing on them and get bounded counts. Only for estimates.
        noise: "laplace", "gaussian", or "auto" (default): the better one. Gaussian noise is less where users have many items,
            and takes a delta.
        objective: what a bound is chosen for: "error" (default), counts close to the true ones in total, or "items", as many
            items as can be. Only for one stage without a domain.
        bound_method: how a bound is chosen (default: "auto"); see `ChooseBound`. Only for one stage.
        bound_share: the share of epsilon that the choice takes (default: a tenth, for "items" a twentieth). Only for one stage.
        max_items: how many items of a user name items, at most, where items come from the data (default: None, chosen
            privately). What the choice would take is then spent on names and counts. By 1, one step of Laplace noise names and
            counts users at once. Only for estimates.
        levels: whether the key columns are levels, from the widest to the finest (default: False). Then rows are those of every
            node, with the fields `level` and `other`; key columns below the level of a row are None.
        home: with levels of users, whether each user counts in one leaf alone, where it has the most rows, so that users add up
            (default: False).
        max_relative_error: leave out rows whose noise, at 1.96 standard deviations, is above this share of the count (default:
            None, none for that). Costs nothing.
        suppress_below: leave out rows whose noisy count is below this (default: None, none for that). Costs nothing.
        top: keep as many rows with the largest counts, in all or of each group (default: None, all). Costs nothing.
        per: with `top`: the key column, or a list of several, by whose values rows are grouped (default: None, in all).
        relation: what a neighbouring input is: "add-remove" one user (default), or "replace" one, which takes more noise.
        release: key and id of all randomness (default: None, a fresh key, for runners on this machine only).
        item_type: str or int, where the collection does not tell it (default: None, by the schema, the domain, or str).
        shards: into how many parts the users are cut (default: 64). More need less memory each; the result is the same.
        output_files: N for one element (k, record batch) for each k < N (default: None, rows).
    """

    mechanism: AnyHistogram
    _takes_windows = True
    _largest = ALL_ROWS

    def __init__(
        self,
        budget: Budget,
        *,
        domain: Any = None,
        method: str = "estimates",
        of: str = "users",
        bound: int | Literal["auto"] = "auto",
        max_per_item: int | None = None,
        calibrate: str | None = None,
        noise: str = "auto",
        objective: str | None = None,
        bound_method: str = "auto",
        bound_share: float | None = None,
        max_items: int | None = None,
        levels: bool = False,
        home: bool = False,
        max_relative_error: float | None = None,
        suppress_below: int | None = None,
        top: int | None = None,
        per: str | Sequence[str] | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        make = functools.partial(
            histogram_or_levels,
            budget,
            method=method,
            of=of,
            bound=bound,
            max_per_item=max_per_item,
            calibrate=calibrate,
            noise=noise,
            objective=objective,
            bound_method=bound_method,
            bound_share=bound_share,
            max_items=max_items,
            levels=2 if levels else 0,  # as many as the keys of the collection have, once these are known
            home=home,
            relation=Relation.parse(relation),
        )
        made = make(domain=items.domain, item_type=items.made)
        super().__init__(
            made, release=release, shards=shards, output_files=output_files, items=items, partly=make, levels=levels
        )
        self._quality = Quality(max_relative_error, suppress_below)
        self._largest = Largest(top, (per,) if isinstance(per, str) else tuple(per or ()))
        if levels and (self._quality.limits or top is not None):
            raise ParameterError(
                "rows in levels add up, which they would not if some were left out: leave out max_relative_error, "
                "suppress_below and top, and filter the rows"
            )

    def _given(self) -> str | None:
        return "the bound is" if isinstance(self.mechanism, HistogramMechanism) else None

    def _closes_in_streams(self) -> bool:
        return not isinstance(self.mechanism, LevelsMechanism)

    def _expand(self, rows: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        release, label = self._drawn(rows)
        h = self.mechanism
        self._largest.check_columns(self._keys)
        contributions = as_contributions(rows)
        if h.domain is not None:
            contributions = contributions | "OnlyDomain" >> OnlyDomain(h.domain)
        if isinstance(h, LevelsMechanism):
            files = self._output_files or item_shards(self._shards)
            made = levelled(contributions, h, release, self._shards, files)
            return self._result(self._shown(made.counts, estimate_row(str)), made.decision)
        if isinstance(h, EstimatesMechanism):
            files = self._output_files or item_shards(self._shards)
            made = estimated(contributions, h, release, self._shards, files)
            row = estimate_row if h.calibrated else count_row
            good = made.counts | "KeepGood" >> KeepGood(self._quality)
            return self._result(self._shown(self._kept(good), row(h.item_type)), made.decision)
        if isinstance(h, HistogramMechanism):
            bounded = contributions | "Bounded" >> Bounded(h.steps, release, self._shards)
            counts = bounded | "NoisyCounts" >> self._noise(h, h.plan, release)
            return self._shown(self._kept(counts), count_row(h.item_type))
        shards = contributions | "UserShards" >> UserShards(self._shards, release.windows)
        choice = choose(shards, h.auto.choice, release, self._shards, f"{label}/ChooseBound")
        decided = choice.chosen | "Calibrate" >> beam.Map(h.auto.decided).with_output_types(Decided)
        bounded = choice.shards | "Bounded" >> BoundAsDecided(
            h.auto, decided, release, self._shards, f"{label}/Bounded"
        )
        counts = bounded | "NoisyCounts" >> self._noise(h, decided, release)
        return self._result(self._shown(self._kept(counts), count_row(h.item_type)), decided)

    def _kept(self, counts: beam.PCollection) -> beam.PCollection:
        return counts | "KeepLargest" >> KeepLargest(self._largest, self._keys)

    def _noise(
        self,
        h: HistogramMechanism | AutoHistogramMechanism,
        plan: NoisePlan | beam.PCollection[Decided],
        release: Release,
    ) -> Noise:
        return Noise(plan, h.domain, h.item_type, release, self._shards, self._output_files, quality=self._quality)


class NoisyCounts(PrivateTransform):
    """Noisy counts by item of contributions that a bounding transform has bounded by `bound`.

    Guarantee: user-level (epsilon, delta)-differential privacy under `relation`, if the input is bounded as `bound` says,
    which is checked: unbounded input, another bound, or two bounded collections flattened together are refused. Without
    a `domain`, only items with a positive bounded sum get noise, and those below the threshold stay hidden.

    Parameters:
        budget: what the counts may cost.
        bound: what the bounding transform before promises (its `bound`); noise is made for it.
        domain, noise, relation, release, item_type, shards, output_files: as for `Histogram`.
    """

    mechanism: HistogramMechanism
    _takes_windows = True

    def __init__(
        self,
        budget: Budget,
        bound: Bound,
        *,
        domain: Any = None,
        noise: str = "auto",
        relation: Relation | str = Relation.ADD_REMOVE,
        release: Release | None = None,
        item_type: type | None = None,
        shards: int | None = None,
        output_files: int | None = None,
    ) -> None:
        items = given_items(item_type, domain)
        made = noisy_bounded(
            budget, bound, domain=items.domain, noise=noise, relation=Relation.parse(relation), item_type=items.made
        )
        super().__init__(made, release=release, shards=shards, output_files=output_files, items=items)

    def of(self, bounded: beam.PCollection) -> Self:
        """The same for the keys of a collection: with its domain by their names."""
        return self._of(bounded.element_type if is_contributions(bounded) else ContributionBatch)

    def expand(self, bounded: beam.PCollection) -> beam.PCollection:
        check_windowing(bounded)
        return self.of(bounded)._expand(bounded)

    def _expand(self, bounded: beam.PCollection) -> beam.PCollection:
        self._check_windows(bounded)
        # What comes from other hands is looked at again; the histograms wire bounding and noise together themselves.
        checked = bounded | "CheckBounded" >> beam.Map(_check_bounded).with_output_types(ContributionBatch)
        m = self.mechanism
        noise = Noise(m.plan, m.domain, m.item_type, self._release, self._shards, self._output_files)
        return self._shown(checked | "NoisyCounts" >> noise, count_row(m.item_type))


def _check_bounded(element: object) -> pa.RecordBatch:
    if not isinstance(element, pa.RecordBatch):
        raise InputError(
            "NoisyCounts takes the batches of a bounding transform; put RandClip, or LimitItems and LimitPerItem, before it"
        )
    return check_bounded(element)
