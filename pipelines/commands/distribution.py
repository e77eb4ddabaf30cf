"""`headcount distribution`: how likely each public symbol is, from users with many samples each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.mechanisms.choice.protocol import ChosenBound
from headcount.mechanisms.distribution.binomial_choice import KINDS, MOST_USERS
from headcount.mechanisms.distribution.learn import DistributionRelease, learn_distribution
from headcount.mechanisms.distribution.plan import METHODS, ROBUST, DistributionPlan
from headcount.mechanisms.distribution.samples_choice import RULES
from headcount.mechanisms.distribution.tables import MOST_SAMPLES
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.randomness.keys import Release
from headcount.pipelines.command import JobCommand, Rows
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.reports.plan import Plan
from headcount.pipelines.sources.domain import domain_of, planned_domain
from headcount.pipelines.terminal import one_line

if TYPE_CHECKING:
    from headcount.mechanisms.batches.domain import Domain, PartDomain
    from headcount.mechanisms.domains.domain_files import DomainFile
    from headcount.transforms.distribution import LearnDistribution

_TYPICAL_USERS = (1000, 10_000, 100_000, 1_000_000)  # that --explain speaks of, and samples of each
_TYPICAL_SAMPLES = (1, 10, 100, 1000, 10_000)
_SHOWN, _BAR = 20, 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    groups.add_input(parser)
    group = groups.add_budget(parser)
    groups.add_domain(group, "the symbols, which must be public", needed=True)
    group.add_argument(
        "--samples-per-user",
        type=numbers.whole_number_or(*RULES, "buckets", most=MOST_SAMPLES),
        default="auto",
        metavar="auto|median|buckets|M",
        help=f"samples of each user that count (up to {MOST_SAMPLES}), users with fewer are left out; auto and median choose "
        "it privately, buckets learns from users of all sizes apart (default: %(default)s)",
    )
    group.add_argument(
        "--users",
        type=numbers.whole_number(most=MOST_USERS),
        metavar="N",
        help="the number of users with M samples or more, if it is public (default: counted with noise if needed)",
    )
    group.add_argument(
        "--method",
        choices=("auto", *METHODS),
        default="auto",
        help="auto takes gaussian or laplace, which are right for the mean of users who differ; dense and sparse have lower "
        "errors where all users are alike, and are far off where they are not (default: %(default)s)",
    )
    add(
        group,
        "--hypothesis",
        choices=KINDS,
        default=KINDS[0],
        help="how dense and sparse choose probabilities: ks by the largest difference of distribution functions, phs by all "
        "pairs of hypotheses, as in the paper, which needs more users (default: %(default)s)",
        rare=True,
    )
    groups.add_output(parser)
    groups.add_release(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse parameters that do not go together, by the names of their flags."""
    options.require(args, "--epsilon", "--domain")
    if args.users is not None and isinstance(args.samples_per_user, str):
        raise ParameterError(
            f"--users {args.users} is the number of those with enough samples, which is not known for --samples-per-user "
            f"{args.samples_per_user}: give a number for that, or leave --users out"
        )
    if args.method == "gaussian" and options.make_budget(args).delta == 0:
        raise ParameterError("--method gaussian needs a --delta above 0, for instance --delta 1e-8, got 0.0")
    if args.method in ("auto", *ROBUST) and args.hypothesis != KINDS[0]:
        raise ParameterError(f"--hypothesis {args.hypothesis} is of no use to --method {args.method}: leave it out")


def make_mechanism(args: argparse.Namespace, item_type: type) -> DistributionRelease:
    """The mechanism that the flags ask for."""
    return learn_distribution(**_parameters(args, item_type, planned_domain(args)))


def make_transform(args: argparse.Namespace, release: Release, item_type: type, shards: int) -> LearnDistribution:
    """The same as a transform."""
    from headcount.transforms.distribution import LearnDistribution

    transform = LearnDistribution(
        **_parameters(args, item_type, domain_of(args)), **options.how_to_run(args, release, shards)
    )
    return transform if transform.mechanism.choice is None else transform.with_decision()


def _parameters(
    args: argparse.Namespace, item_type: type, domain: Domain | PartDomain | DomainFile | None
) -> dict[str, Any]:
    return {
        **options.of_factory(learn_distribution, args),
        "budget": options.make_budget(args),
        "domain": domain,
        **options.typed(args, item_type),
    }


def make_plan(args: argparse.Namespace, plan: DistributionRelease, item_type: type) -> Plan:
    """What the command says of itself, and the public parameters of it."""
    given = isinstance(plan.samples, int)
    parameters = {
        "symbols": len(plan.symbols),
        "samples_per_user": plan.samples,
        "users": plan.users,
        "method": plan.plans()[0].method if given else plan.method,
    }
    return Plan(plan.guarantee(), parameters, files="distribution", note=_note(plan))


def _note(plan: DistributionRelease) -> str | None:
    """What a reader must know of the errors where "phs" may have too few users, which the noisy number of them tells."""
    if plan.hypothesis == "ks" or plan.users is not None:
        return None
    if plan.choice is None and all(each.least_users() == 1 for each in plan.plans()):
        return None
    return (
        "--hypothesis phs needs many users (see --explain): where the noisy number of them is too small, the errors are 1 and "
        "the probabilities say nothing"
    )


def explain(args: argparse.Namespace, plan: DistributionRelease) -> str:
    """The promise and the errors to expect, in words, before anything is read."""
    if plan.choice is not None:
        plans = [each for m in _TYPICAL_SAMPLES for each in plan.plans(ChosenBound(m, 0, ""))]
    else:
        plans = list(plan.plans()[::4])  # one, or some of the buckets
    robust = plans[0].method in ROBUST
    which = ", whichever samples per user are chosen" if plan.choice is not None else ""
    lines = [
        plan.guarantee().description(),
        "",
        f"the sum of all errors to expect, if the {len(plan.symbols):,} symbols were equally likely{which}:",
        *map(_expected, plans),
    ]
    lines += [
        "",
        "users with fewer samples are left out, and a user's samples beyond that number do not count",
        *(
            ["for users who are all alike: the more they differ, the larger are the errors, which the result will say"]
            * robust
        ),
        *(["all users are taken to be alike: where they differ, the result is biased, and as private"] * (not robust)),
    ]
    return "\n".join(lines)


def _expected(plan: DistributionPlan) -> str:
    numbers = [plan.users] if isinstance(plan.users, int) else _TYPICAL_USERS
    errors = ", ".join(f"{plan.l1_error(users):.3g} for {users:,} users" for users in numbers)
    least = plan.least_users()
    needed = f"; by phs, fewer than {least:,} users are too few" if least > 1 else ""
    return f"{plan.samples:,} of each user's samples, method {plan.method}: {errors}{needed}"


def plot(rows: Sequence[tuple[str, float, float]]) -> str:
    """The largest probabilities (item, probability, error) as bars: # up to the lower end of the error, - to its upper end."""
    largest = sorted(rows, key=lambda row: (-row[1], row[0]))[:_SHOWN]
    most = max(probability + error for _, probability, error in largest)
    lines = []
    for item, probability, error in largest:
        name = one_line(item)
        name = name if len(name) <= 20 else f"{name[:17]}..."
        low, high = (round(_BAR * max(0.0, end) / most) for end in (probability - error, probability + error))
        lines.append(f"{name:<20} {probability:>9.4%}  {error:>8.4%} {'#' * low}{'-' * (high - low)}")
    which = "probabilities" if len(rows) <= _SHOWN else f"{_SHOWN} largest of {len(rows):,} probabilities"
    if all(error >= 1 for _, _, error in rows):
        lines.append("errors of 1 say that nothing is known: there are too few users")
    return "\n".join([f"the {which}, with the error to expect:", *lines])


def show(report: Mapping[str, Any], rows: Rows) -> str:
    """The plot of what was learnt."""
    named = [(", ".join(str(row[key]) for key in report["keys"]), row) for row in rows]
    return plot([(name, float(row["probability"]), float(row["error"])) for name, row in named])


_CALL = """How likely each of given symbols is, from users with many samples each.

Guarantee: user-level (epsilon, delta)-differential privacy under `relation`.

    headcount.distribution(frame, user="user_id", item="genre", domain=["jazz", "rock"], epsilon=1, delta=1e-6)

Parameters:
The result has the columns of `item`, and probability, error.
"""

COMMAND = JobCommand(
    name="distribution",
    call=_CALL,
    add_arguments=add_arguments,
    example=(
        "headcount distribution --input visits.parquet --user user_id --item device --domain devices.txt \\\n"
        "      --epsilon 1 --delta 1e-6 --output devices/"
    ),
    check=check,
    make_mechanism=make_mechanism,
    make_plan=make_plan,
    explain=explain,
    make_transform=make_transform,
    show=show,
)
