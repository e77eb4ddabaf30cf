"""`headcount choose-bound`: the private choice of a bound alone, for a release that is made later."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines import numbers, options
from headcount.pipelines.command import JobCommand, guarantee_words
from headcount.pipelines.commands.bound_options import add_choice, check_choice
from headcount.pipelines.jobs.run import Plan
from headcount.pipelines.sources.domain import read_domain
from headcount.transforms.bound_choice import ChooseBound
from headcount.transforms.core.result import CountsAndDecision


class ChosenAlone(NamedTuple):
    """What was chosen, and what choosing it promises."""

    chosen: ChosenBound
    guarantee: Guarantee

    def words(self) -> str:
        """What was chosen, in one line."""
        return self.chosen.words()

    def sections(self) -> Mapping[str, Any]:
        """What was chosen, as a part of the report."""
        return self.chosen.sections()


class ChooseRow(beam.PTransform):
    """Contributions -> the choice as the one row of an output, and as the decision for its report."""

    def __init__(self, choose: ChooseBound, files: int) -> None:
        super().__init__()
        self._choose = choose
        self._files = files

    def expand(self, contributions: beam.PCollection) -> CountsAndDecision:
        chosen = contributions | "ChooseBound" >> self._choose
        rows = chosen | "ToRow" >> beam.FlatMap(_to_row, self._files).with_output_types(tuple[int, pa.RecordBatch])
        decision = chosen | "WithGuarantee" >> beam.Map(ChosenAlone, self._choose.guarantee())
        return CountsAndDecision(rows, decision)


def _to_row(chosen: ChosenBound, files: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    row = pa.RecordBatch.from_pylist([chosen._asdict()])
    return ((k, row if k == 0 else row.slice(1)) for k in range(files))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    options.add_input(parser)
    group = options.add_budget(parser)
    group.add_argument(
        "--for-epsilon", type=numbers.number, metavar="E", help="the epsilon of the release that the bound is for"
    )
    group.add_argument(
        "--for-delta", type=numbers.number, default=0.0, metavar="D", help="the delta of that release (default: 0)"
    )
    add_choice(group)
    group.add_argument(
        "--kappa",
        type=numbers.number,
        metavar="K",
        help="of --bound-method em and gem without --domain: what a lost event weighs, 1 or more (default: 2)",
    )
    group.add_argument(
        "--sparsity",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="S",
        help="of Gaussian noise with --domain: how many items the weight of a user may stand for (default: a tenth of them)",
    )
    group.add_argument(
        "--users",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="N",
        help="of --bound-method output-perturbation: a public guess of their number (default: 100000)",
    )
    options.add_output(parser)
    options.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--for-epsilon")
    check_choice(args)
    if args.delta and args.bound_method != "dp-gd":
        raise ParameterError(f"--delta {args.delta} is of use to --bound-method dp-gd only: leave it out")
    uses = {
        "--kappa": (args.kappa, args.domain is None and args.bound_method in ("em", "gem")),
        "--sparsity": (args.sparsity, args.domain is not None and args.noise == "gaussian"),
        "--users": (args.users, args.bound_method == "output-perturbation"),
    }
    for flag, (number, is_used) in uses.items():
        if number is not None and not is_used:
            raise ParameterError(f"{flag} {number} is of no use here (see --help): leave it out")
    if args.domain is None and not 0 < args.for_delta < 0.5:
        raise ParameterError(
            "--for-delta must be positive, and below 1/2, if the items are not known beforehand, got "
            f"{args.for_delta}: give, for instance, --for-delta 1e-8, or --domain"
        )


def make_transform(
    args: argparse.Namespace, release: Release | None, item_type: type, shards: int | None
) -> ChooseBound:
    """The transform that the flags ask for."""
    domain = None if args.domain is None else read_domain(args.domain, item_type, args.max_item_bytes)
    return ChooseBound(
        options.make_budget(args),
        _for_budget(args),
        domain=domain,
        method=args.bound_method,
        objective=args.objective or "error",
        noise=args.noise,
        max_per_item=args.max_per_item,
        **{name: value for name, value in _weights(args).items() if value is not None},
        relation=Relation.parse(args.relation),
        release=release,
        item_type=item_type,
        shards=shards,
    )


def _weights(args: argparse.Namespace) -> dict[str, Any]:
    """Parameters of single methods, None where they are not given."""
    return {"kappa": args.kappa, "sparsity": args.sparsity, "users": args.users}


def _for_budget(args: argparse.Namespace) -> Budget:
    try:
        return Budget(args.for_epsilon, args.for_delta)
    except ParameterError as error:
        raise error.renamed(f"for_{error.parameter}") from None


def make_plan(args: argparse.Namespace, transform: ChooseBound, item_type: type) -> Plan:
    """What the command does to the events, and the public parameters of it."""
    parameters = options.shared_parameters(args) | {
        "for_epsilon": args.for_epsilon,
        "for_delta": args.for_delta,
        "objective": (args.objective or "error") if args.domain is None else None,
        "bound_method": args.bound_method,
        "max_per_item": args.max_per_item,
        "noise": args.noise,
        "public_domain": args.domain is not None,
        **_weights(args),
    }
    return Plan(ChooseRow(transform, args.output_files), transform.guarantee(), parameters, files="bound")


COMMAND = JobCommand(
    name="choose-bound",
    add_arguments=add_arguments,
    example=(
        "headcount choose-bound --input 'events-*.parquet' --user user_id --item query \\\n"
        "      --epsilon 0.1 --for-epsilon 0.9 --for-delta 1e-8 --output bound/"
    ),
    check=check,
    make_transform=make_transform,
    make_plan=make_plan,
    explain=guarantee_words,
)
