"""The transforms of `headcount shape`, and what its jobs read in the models without trust in whoever counts.

What is read there has its noise already: nothing is drawn but the fresh noise of a counter's output, and no key is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import apache_beam as beam

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.shape.estimators import Question
from headcount.pipelines.commands.shape import models
from headcount.pipelines.flags import options
from headcount.pipelines.jobs.source import Source
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import columns_of
from headcount.pipelines.sources.read import ReadEvents
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.papers.pan_private import PanPrivateCounts
from headcount.transforms.papers.shuffled import MESSAGE, ShuffledReports
from headcount.transforms.shape.answers import rows_and_answers
from headcount.transforms.shape.properties import DistinctItems, Entropy, SupportCoverage, SupportSize
from headcount.transforms.shape.release import AnonymizedHistogram


def make_transform(args: argparse.Namespace, release: Release, shards: int) -> beam.PTransform:
    """The transform that the flags ask for."""
    asked = models.questions(args)
    if args.model == "shuffle":
        return make_reports(args, shards, args.output_files).with_answers(*asked)
    if args.model == "pan-private":
        return OfCounters(make_counts(args, args.input[0]), asked, args.output_files)
    given = models.central_parameters(args) | options.how_to_run(args, release, shards)
    if args.property is None:
        return AnonymizedHistogram(**given).with_answers(*asked)
    if args.property == models.DISTINCT:
        return DistinctItems(**given).with_decision()
    if args.property == "entropy":
        return Entropy(**given).with_decision()
    if args.property == "support-size":
        return SupportSize(most=args.most, **given).with_decision()
    return SupportCoverage(target=args.coverage, **given).with_decision()


def make_reports(
    args: argparse.Namespace, shards: int | None = None, output_files: int | None = None
) -> ShuffledReports:
    """The transform of the shuffle model that the flags ask for."""
    return ShuffledReports(
        options.make_budget(args),
        users=args.users,
        buckets=args.buckets,
        salt=args.salt,
        relation=args.relation,
        shards=shards,
        output_files=output_files,
        reports=getattr(args, "reports", None),
        mode=models.bucket_mode(args),  # type: ignore[arg-type]
        estimate=getattr(args, "estimate", "auto"),
    )


def make_counts(args: argparse.Namespace, state: str, batch: str = "") -> PanPrivateCounts:
    """The pan-private counters in the file `state` that the flags ask for."""
    return PanPrivateCounts(
        options.make_budget(args),
        buckets=args.buckets,
        state=state,
        batch=batch,
        salt=args.salt,
        protect=args.may_be_seen or "both",
        relation=args.relation,
        mode=models.bucket_mode(args),  # type: ignore[arg-type]
        estimate=getattr(args, "estimate", "auto"),
    )


class Messages(Source):
    """Files of messages of the shuffle model, with the columns bucket and sign."""

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        inputs = events.expand_inputs(args.input, args.input_format, args.delimiter)
        self._inputs = inputs.absolute() if remote else inputs
        self._columns = columns_of(MESSAGE[0], f"{MESSAGE[1]}:int")
        self._types = events.column_types(self._inputs, self._columns)
        self.size = self._inputs.decoded(self._types)

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Record batches of messages."""
        return pipeline | "Read" >> ReadEvents(self._inputs, self._columns, self._types)


class Counters(Source):
    """The file of pan-private counters, which is released: from then on it holds the rows, and gives the same again.

    So what is read is what is published, and is compared as that.
    """

    digested = False

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        if args.salt is not None and args.samples is None:
            raise ParameterError("--salt hashes items to buckets: give --samples, about how many events there were")
        self._counts, self._samples = make_counts(args, args.input[0]), args.samples
        self._counts.check(self._samples)

    @classmethod
    def check_again(cls, args: argparse.Namespace) -> None:
        """Refuse counters that are not released yet: to compare them would release them, as a report says."""
        if not make_counts(args, args.input[0]).is_released():
            raise InputError("--input holds counters that are not released: no output came from them, and none is made")

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """The released rows. Their noise is drawn here, and they are stored, before any step of the job has them."""
        return pipeline | "Released" >> beam.Create([self._counts.release(self._samples)], reshuffle=False)


class OfCounters(beam.PTransform):
    """The released rows of pan-private counters, and what they answer."""

    def __init__(
        self, counts: PanPrivateCounts, questions: Iterable[Question], output_files: int | None = None
    ) -> None:
        super().__init__()
        self.mechanism, self._questions, self._output_files = counts.mechanism, tuple(questions), output_files

    def expand(self, released: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        return rows_and_answers(released, self.mechanism, self._questions, self._output_files)


SOURCES: dict[str, type[Source]] = {"shuffle": Messages, "pan-private": Counters}
