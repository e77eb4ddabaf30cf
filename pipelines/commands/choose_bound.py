"""`headcount choose-bound`: the private choice of a bound alone, for a release that is made later."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.bound_choice.by_name.standalone import StandaloneChoice, standalone_choice
from headcount.mechanisms.bounding.steps import MAX_BOUND
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand
from headcount.pipelines.commands.bound_options import add_choice, check_choice
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan, label_of
from headcount.pipelines.sources.domain import domain_of, planned_domain

if TYPE_CHECKING:
    from headcount.mechanisms.batches.domain import Domain, PartDomain
    from headcount.mechanisms.domains.domain_files import DomainFile
    from headcount.transforms.bound_choice import ChooseRow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser)
    add(
        group,
        "--for-epsilon",
        needed=True,
        type=numbers.number,
        metavar="E",
        help="the epsilon of the release that the bound is for",
    )
    group.add_argument(
        "--for-delta", type=numbers.number, default=0.0, metavar="D", help="the delta of that release (default: 0)"
    )
    add_choice(group)
    add(
        group,
        "--kappa",
        type=numbers.number,
        metavar="K",
        help="of --bound-method em and gem without --domain: what a lost event weighs, 1 or more (default: 2)",
        rare=True,
    )
    add(
        group,
        "--sparsity",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="S",
        help="of Gaussian noise with --domain: how many items the weight of a user may stand for (default: a tenth of them)",
        rare=True,
    )
    group.add_argument(
        "--users",
        type=numbers.whole_number(most=MAX_BOUND),
        metavar="N",
        help="of --bound-method output-perturbation: a public guess of their number (default: 100000)",
    )
    groups.add_output(parser)
    groups.add_release(parser)


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
            "--for-delta must be positive, and below 1/2, if the items are not given, got "
            f"{args.for_delta}: give, for instance, --for-delta 1e-8, or --domain"
        )


def make_mechanism(args: argparse.Namespace, item_type: type) -> StandaloneChoice:
    """The mechanism that the flags ask for."""
    return standalone_choice(**_parameters(args, item_type, planned_domain(args)))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> ChooseRow:
    """The same as a transform."""
    from headcount.transforms.bound_choice import ChooseBound, ChooseRow

    choose = ChooseBound(**_parameters(args, item_type, domain_of(args)), release=release, shards=shards)
    return ChooseRow(choose, args.output_files)


def _parameters(
    args: argparse.Namespace, item_type: type, domain: Domain | PartDomain | DomainFile | None
) -> dict[str, Any]:
    given = {name: value for name, value in options.of_factory(standalone_choice, args).items() if value is not None}
    return given | {
        "budget": options.make_budget(args),
        "release_budget": _for_budget(args),
        "domain": domain,
        "method": args.bound_method,
        "objective": args.objective or "error",
        **options.typed(args, item_type),
    }


def _for_budget(args: argparse.Namespace) -> Budget:
    try:
        return Budget(args.for_epsilon, args.for_delta)
    except ParameterError as error:
        raise error.renamed(f"for_{error.parameter}") from None


def make_plan(args: argparse.Namespace, made: StandaloneChoice, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    objective = (args.objective or "error") if args.domain is None else None
    parameters = {"objective": objective, "public_domain": args.domain is not None}
    inside = f"{label_of('choose-bound')}/{made.name}"  # the choice is a step of the command's transform
    return Plan(made.guarantee(), parameters, files="bound", drawn_as=inside)


def explain(args: argparse.Namespace, made: StandaloneChoice) -> str:
    """The promise, and what would be chosen on typical data, before anything is read."""
    from headcount.pipelines.studies import typical

    return "\n".join([made.guarantee().description().rstrip(), "", *typical.description(made, "events")])


_CALL = """How much one user should count, chosen privately for a release that comes later and costs its own budget.

Guarantee: user-level (epsilon, delta)-differential privacy of the choice alone, under `relation`.

    chosen = headcount.choose_bound(frame, user="user_id", item="page", epsilon=0.1, for_epsilon=0.9, for_delta=1e-8)
    headcount.histogram(
        frame, user="user_id", item="page", of="events", epsilon=0.9, delta=1e-8, method="one-stage",
        bound_from=chosen.report,
    )

Parameters:
The result has one row: bound, max_per_item, noise.
"""

COMMAND = JobCommand(
    name="choose-bound",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount choose-bound --input visits.parquet --user user_id --item query \\\n"
        "      --epsilon 0.1 --for-epsilon 0.9 --for-delta 1e-8 --output bound/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
)
