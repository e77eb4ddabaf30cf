"""The models of `headcount shape`: what the flags of each are, and what its mechanism is told."""

from __future__ import annotations

import argparse
from typing import Any

from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.shape.anonymized import ESTIMATES
from headcount.mechanisms.shape.estimators import CoverageQuestion, DistinctQuestion, EntropyQuestion, Question
from headcount.mechanisms.shape.papers.pan_private import PanPrivateMechanism, pan_private_counts
from headcount.mechanisms.shape.papers.shuffled import Shuffled, shuffled
from headcount.pipelines.flags import numbers, options
from headcount.pipelines.flags.flag import add

MODELS = ("central", "shuffle", "pan-private")
DISTINCT = "distinct-items"  # the property that is of all that users have

# The bound on what noise costs an entropy is some ten times what it does cost: at the usual 0.1, the estimator would change
# with the noise.
_ENTROPY = EntropyQuestion(accuracy=0.5)

#: Flags that are for some models alone, as they are called in the parsed arguments.
_ONLY = {
    **dict.fromkeys(("domain_size", "property", "most", "user", "item", "count", "explode"), ("central",)),
    **dict.fromkeys(("where", "join", "on"), ("central",)),
    **dict.fromkeys(("users", "reports"), ("shuffle",)),
    "salt": ("shuffle", "pan-private"),
    "may_be_seen": ("pan-private",),
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
    add(
        group,
        "--salt",
        metavar="TEXT",
        help="hash items to the buckets by this public text (default: items are the numbers of their buckets)",
        python=False,
    )
    add_bucket_mode(group)


def add_bucket_mode(group: argparse._ArgumentGroup) -> None:
    """What is kept near the truth."""
    add(
        group,
        "--mode",
        choices=("l1", "l2"),
        default="l1",
        help="l2 keeps every single count near its true one, for hashed items at about twice the noise (default: %(default)s)",
        rare=True,
    )


def add_users(group: argparse._ArgumentGroup) -> None:
    """The number that the shares of noise of the shuffle model are made for."""
    add(
        group,
        "--users",
        type=numbers.whole_number(),
        metavar="N",
        help="in the shuffle model: users who are sure to follow the protocol, a public number",
        python=False,
    )


def add_may_be_seen(group: argparse._ArgumentGroup) -> None:
    """What may be seen of pan-private counters."""
    add(
        group,
        "--may-be-seen",
        choices=("both", "either"),
        help="of pan-private counters: their file may be seen once, and the result too; or only one of the two (default: both)",
        rare=True,
        python=False,
    )


def add_estimate(group: argparse._ArgumentGroup) -> None:
    """What is taken from noisy cells."""
    add(
        group,
        "--estimate",
        choices=ESTIMATES,
        default="auto",
        help="what is taken from noisy cells: likelihood, the most likely shape; algorithm-1, the paper's own; auto, the first "
        "unless it is too far from the second (default: %(default)s)",
        rare=True,
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


def make_shuffled(args: argparse.Namespace) -> Shuffled:
    """The mechanism of the shuffle model that the flags ask for."""
    return shuffled(users=args.users, **_shared(args))


def make_counters(args: argparse.Namespace) -> PanPrivateMechanism:
    """The pan-private counters that the flags ask for."""
    return pan_private_counts(protect=args.may_be_seen or "both", **_shared(args))


def _shared(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "budget": options.make_budget(args),
        "buckets": args.buckets,
        "hashed": args.salt is not None,
        "mode": bucket_mode(args),
        "estimate": getattr(args, "estimate", "auto"),
        "relation": Relation.parse(args.relation),
    }


def central_parameters(args: argparse.Namespace) -> dict[str, Any]:
    """What the curator's mechanism and its transform are told alike; but for what is asked, if it is a property."""
    shared = {"budget": options.make_budget(args), "relation": Relation.parse(args.relation)}
    if args.property == DISTINCT:
        return shared | {"max_items": args.max_items}
    shared |= {"max_items": max_items(args)}
    if args.property is not None:
        return shared | {"samples": args.samples}
    sizes = {"domain_size": args.domain_size, "buckets": args.buckets}
    return shared | sizes | {"mode": args.mode, "estimate": args.estimate}


def questions(args: argparse.Namespace) -> tuple[Question, ...]:
    """What a shape is asked."""
    return _ENTROPY, DistinctQuestion(), CoverageQuestion(args.coverage)


def max_items(args: argparse.Namespace) -> int:
    """The items of one user that are samples of a shape."""
    return 1 if args.max_items is None else int(args.max_items)
