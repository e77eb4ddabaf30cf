"""`headcount shape` in the models without trust in whoever counts: of users' messages, and of pan-private counters.

What is read has its noise already: nothing is drawn here but the fresh noise of a counter's output, and no key is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import apache_beam as beam

from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.anonymized import ESTIMATES
from headcount.mechanisms.shape.estimators import Question
from headcount.mechanisms.shape.properties import ShapeProperties
from headcount.pipelines import numbers, options
from headcount.pipelines.jobs.run import Source
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import columns_of
from headcount.transforms.core.result import CountsAndDecision
from headcount.transforms.pan_private import PanPrivateCounts
from headcount.transforms.shape_answers import rows_and_answers
from headcount.transforms.shuffled import MESSAGE, ShuffledReports

MODELS = ("central", "shuffle", "pan-private")

#: Flags that are for some models alone, as they are called in the parsed arguments.
_ONLY = {
    **dict.fromkeys(("domain_size", "property", "most", "user", "item", "count", "explode"), ("central",)),
    **dict.fromkeys(("users", "reports"), ("shuffle",)),
    "salt": ("shuffle", "pan-private"),
    "protect": ("pan-private",),
    "samples": ("central", "pan-private"),
}


def add_protocol(group: argparse._ArgumentGroup) -> None:
    """What all who take part in the shuffle model, or write to one file of counters, must say alike."""
    group.add_argument(
        "--buckets",
        type=numbers.whole_number(),
        metavar="B",
        help="how many buckets there are; about four for each user or event",
    )
    group.add_argument(
        "--salt",
        metavar="TEXT",
        help="hash items to the buckets by this public text (default: items are the numbers of their buckets)",
    )
    add_bucket_mode(group)


def add_bucket_mode(group: argparse._ArgumentGroup) -> None:
    """What is kept near the truth."""
    group.add_argument(
        "--mode",
        choices=("l1", "l2"),
        default="l1",
        help="l2 keeps every single count near its true one, for hashed items at about twice the noise (default: %(default)s)",
    )


def add_users(group: argparse._ArgumentGroup) -> None:
    """The number that the shares of noise of the shuffle model are made for."""
    group.add_argument(
        "--users",
        type=numbers.whole_number(),
        metavar="N",
        help="in the shuffle model: users who are sure to follow the protocol, a public number",
    )


def add_protect(group: argparse._ArgumentGroup) -> None:
    """What may be seen of pan-private counters."""
    group.add_argument(
        "--protect",
        choices=("both", "either"),
        help="of pan-private counters: their file may be seen once and the result besides, or one of the two (default: both)",
    )


def add_estimate(group: argparse._ArgumentGroup) -> None:
    """What is taken from noisy cells."""
    group.add_argument(
        "--estimate",
        choices=ESTIMATES,
        default="auto",
        help="what is taken from noisy cells: likelihood, the most likely shape; algorithm-1, the paper's own; auto, the first "
        "unless it is too far from the second (default: %(default)s)",
    )


def check(args: argparse.Namespace) -> None:
    """Refuse flags that say nothing in the model."""
    for name, models in _ONLY.items():
        if getattr(args, name) is not None and args.model not in models:
            flag = f"--{name.replace('_', '-')}"
            raise ParameterError(f"{flag} is for --model {' and '.join(models)}, not for {args.model}: leave it out")
    if args.model == "central":
        return
    if args.max_items not in (None, 1):
        raise ParameterError(f"--max-items must be 1 with --model {args.model}, got {args.max_items}")
    options.require(args, "--buckets")
    if args.mode == "central":
        raise ParameterError(
            f"--mode central needs the users' data, and --model {args.model} has none of it: take l1 or l2"
        )
    if args.model == "shuffle":
        options.require(args, "--users")
    elif args.input is not None and len(args.input) != 1:
        raise ParameterError(f"--model pan-private takes one file of counters as --input, got {len(args.input)}")


def bucket_mode(args: argparse.Namespace) -> str:
    """The mode by its flag; auto is l1."""
    return "l1" if args.mode == "auto" else str(args.mode)


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
        mode=bucket_mode(args),  # type: ignore[arg-type]
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
        protect=args.protect or "both",
        relation=args.relation,
        mode=bucket_mode(args),  # type: ignore[arg-type]
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
        return pipeline | "Read" >> events.ReadEvents(self._inputs, self._columns, self._types)


class Counters(Source):
    """The file of pan-private counters, which is released: from then on it holds the rows, and gives the same again."""

    def __init__(self, args: argparse.Namespace, remote: bool) -> None:
        if args.salt is not None and args.samples is None:
            raise ParameterError("--salt hashes items to buckets: give --samples, about how many events there were")
        self._counts, self._samples = make_counts(args, args.input[0]), args.samples
        self._counts.check(self._samples)

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
        self.guarantee = ShapeProperties(self.mechanism, self._questions).guarantee

    def expand(self, released: beam.PCollection) -> beam.PCollection | CountsAndDecision:
        return rows_and_answers(released, self.mechanism, self._questions, self._output_files)
