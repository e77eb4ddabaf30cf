"""Private histograms (the paper, Algorithms 1 and 3): sums by item, noise, and a threshold where items are unknown.

Guarantee: with contributions bounded as the `NoisePlan` says, the released counts are (epsilon, delta)-differentially
private for the plan's relation, per user. Two corrections to the paper matter here. Noise goes only to items with a
positive *bounded* sum, since one user's many other items would each get a chance to pass the threshold (Algorithm 3 as
printed); and the plan's threshold is the one for discrete noise. Noise lanes depend on the item, its sum and a digest of
the whole bounded histogram, so a repeated run repeats the noise and a changed input changes all of it.
Proof: docs/proofs/histogram.md.

`Histogram.run` is the mechanism without Beam, by the steps of `bounding` and `counting.noisy`; a pipeline with the same key, id
and label gives exactly its rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.batches.domain import Domain, arrow_type, only_domain, public_domain
from headcount.mechanisms.bounding.steps import (
    ClipNormStep,
    LimitPerItemStep,
    RandClipStep,
    Step,
    check_bound,
)
from headcount.mechanisms.calibration.bound import Bound
from headcount.mechanisms.calibration.noise import calibrate_public_domain, calibrate_unknown_domain, public_noise
from headcount.mechanisms.calibration.noise_plan import NoisePlan
from headcount.mechanisms.counting.noisy import bounded_batches, mechanism_steps, noisy_counts, promised
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release

#: What a histogram is called, whatever its domain and its bound: also the default label of its transform.
NAME = "Histogram"


@dataclasses.dataclass(frozen=True)
class HistogramMechanism:
    """A whole private histogram as a value: the bounding steps, the noise for what they promise, and the domain.

    `run` is the mechanism without Beam; the transforms wire the same parts into a pipeline.
    """

    name: str
    steps: tuple[Step, ...]
    plan: NoisePlan
    domain: Domain | None
    item_type: type

    def guarantee(self) -> Guarantee:
        """What is promised, before anything runs."""
        plan = self.plan
        return Guarantee(plan.epsilon, plan.delta, plan.relation, mechanism_steps(plan), losses=plan.losses())

    def run(self, batches: Iterable[pa.RecordBatch], release: Release, label: str | None = None) -> pa.RecordBatch:
        """The released rows item, bounded_count, noise_stddev, low, high, sorted by item, of contribution batches."""
        label = self.name if label is None else label
        if self.domain is not None:
            batches = (only_domain(batch, self.domain) for batch in batches)
        bounded = bounded_batches(batches, self.steps, release, f"{label}/Bounded")
        return noisy_counts(bounded, self.plan, release, f"{label}/NoisyCounts", self.domain, self.item_type)


def unbounded_histogram(
    budget: Budget,
    *,
    bound: int,
    max_per_item: int | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> HistogramMechanism:
    """Algorithm 3, corrected: items come from the data, and those that too few users hold stay hidden.

    Each user counts with at most `max_per_item` events on one item, and of these with a uniform sample of at most `bound`.
    """
    steps = unknown_domain_steps(bound, max_per_item)
    plan = calibrate_unknown_domain(budget, promised(steps), relation, noise)
    arrow_type(item_type)
    return HistogramMechanism(NAME, steps, plan, None, item_type)


def bounded_histogram(
    budget: Budget,
    domain: Iterable[str] | Iterable[int],
    *,
    bound: int,
    noise: str = "laplace",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
    max_per_item: int | None = None,
) -> HistogramMechanism:
    """Algorithm 1: every item of a public domain is released, also those that nobody holds.

    Each user's counts are cut to `max_per_item` on each item, then scaled down to a norm of `bound`: l2 for Gaussian noise,
    else l1, after which "auto" takes the noise that is less. With a `max_per_item` of 1 it is users that are counted, and not
    events.
    """
    steps = public_domain_steps(bound, noise, max_per_item)
    names = public_domain(domain, item_type)
    plan = calibrate_public_domain(budget, promised(steps), relation, noise, len(names))
    return HistogramMechanism(NAME, steps, plan, names, item_type)


def noisy_bounded(
    budget: Budget,
    bound: Bound,
    *,
    domain: Iterable[str] | Iterable[int] | None = None,
    noise: str = "auto",
    relation: Relation = Relation.ADD_REMOVE,
    item_type: type = str,
) -> HistogramMechanism:
    """The noise alone, for contributions that somebody else has bounded: what `NoisyCounts` adds."""
    names = None if domain is None else public_domain(domain, item_type)
    if names is None:
        plan = calibrate_unknown_domain(budget, bound, relation, noise)
    else:
        plan = calibrate_public_domain(budget, bound, relation, public_noise(noise), len(names))
    return HistogramMechanism("NoisyCounts", (), plan, names, item_type)


def unknown_domain_steps(bound: int, max_per_item: int | None) -> tuple[Step, ...]:
    """How contributions to items that come from the data are bounded: by a sample, so that counts stay whole.

    The cap comes first: events that it drops would else use up the sample. Both orders promise the same.
    """
    if max_per_item is None:
        return (RandClipStep(bound),)
    if check_bound("max_per_item", max_per_item) > check_bound("bound", bound):
        raise ParameterError(f"max_per_item must not exceed the bound {bound}, got {max_per_item!r}", "max_per_item")
    return LimitPerItemStep(max_per_item), RandClipStep(bound)


def public_domain_steps(bound: int, noise: str, max_per_item: int | None = None) -> tuple[Step, ...]:
    """How contributions to public items are bounded: cut on each item, then scaled down in the norm that the noise asks for.

    The cut comes first, so that many events on one item leave the others what they are. It may thus exceed the bound.
    """
    scaled = ClipNormStep(bound, 1 if public_noise(noise) == "laplace" else 2)
    if max_per_item is None:
        return (scaled,)
    return LimitPerItemStep(check_bound("max_per_item", max_per_item)), scaled
