"""The methods that answer one question. A method is a command line: what a study runs is what that command would release."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headcount.mechanisms.columns.key_column import parse_columns
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.mechanism import Mechanism
from headcount.mechanisms.partitions.rounds import STRATEGIES
from headcount.pipelines import parser
from headcount.pipelines.command import JobCommand, load
from headcount.pipelines.flags import options
from headcount.pipelines.reports.plan import label_of
from headcount.pipelines.suggestions import did_you_mean, nearest


class Question(NamedTuple):
    """What is asked of the items, and the truth that answers are measured by: "events" or "users"."""

    description: str
    of: str
    counts: bool  # or names alone


#: By the names that the command line has for them.
QUESTIONS = {
    "users": Question("how many users have each item", "users", True),
    "events": Question("how often each item occurs", "events", True),
    "names": Question("which items there are", "users", False),
}


class Promised(NamedTuple):
    """The budget of one release, and what its neighbours are."""

    epsilon: float
    delta: float
    relation: str = "add-remove"

    def flags(self) -> list[str]:
        """The same on a command line."""
        return ["--epsilon", repr(self.epsilon), "--delta", repr(self.delta), "--relation", self.relation]


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to answer a question: the words of a command, without what it reads, promises and writes."""

    name: str
    question: str
    command: tuple[str, ...]

    @property
    def label(self) -> str:
        """What is drawn is called after the command, as in a job."""
        return label_of(self.command[0])

    def description(self) -> str:
        """What to type, without what is read, promised and written."""
        return " ".join(("headcount", *self.command))

    def levels(self) -> tuple[str, ...]:
        """The names of the levels of its key, from the widest; none for a key without levels."""
        args, _ = parser.parse(load(self.command[0]), self.command[1:])
        if getattr(args, "levels", None) is None:
            return ()
        options.settle_levels(args)
        return tuple(column.name for column in parse_columns(args.item))

    def mechanism(self, promised: Promised, item_type: type) -> Mechanism:
        """The mechanism that the command would run, or its refusal."""
        command = load(self.command[0])
        assert isinstance(command, JobCommand)
        args, _ = parser.parse(command, [*self.command[1:], *promised.flags()])
        try:
            command.check(args)
            made = command.make_mechanism(args, item_type)
        except ParameterError as error:
            raise parser.in_flags(command, error) from None
        assert isinstance(made, Mechanism)
        return made


_ANSWERS = {
    "histogram": "users",
    "plume": "users",
    "count-release": "users",
    "sampled": "users",
    "partitions": "names",
}


def method_of(command: tuple[str, ...]) -> Method:
    """The method that the words of a command stand for; refuses one that answers none of the questions."""
    if not command or command[0] not in _ANSWERS:
        given = " ".join(command)
        raise ParameterError(f"--method must begin with one of {', '.join(_ANSWERS)}, got {given!r}")
    args, _ = parser.parse(load(command[0]), command[1:])
    question = getattr(args, "of", _ANSWERS[command[0]])
    return Method(" ".join(command), question, command)


def methods_of(questions: Iterable[str], max_items: int) -> list[Method]:
    """All methods that answer these questions. Strategies that choose nothing take `max_items` items of each user."""
    events = ("--of", "events")
    found = [
        Method("histogram", "users", ("histogram",)),
        Method("histogram-events", "events", ("histogram", *events)),
        Method("not-calibrated", "events", ("histogram", *events, "--calibrate", "none")),
        Method("one-stage", "events", ("histogram", *events, "--method", "one-stage")),
        Method("count-release", "users", ("count-release",)),
        Method("plume", "users", ("plume",)),
        Method("sampled", "users", ("sampled",)),
        Method("partitions", "names", ("partitions",)),
    ]
    limit = ("--max-items", str(max_items))
    found += [Method(each, "names", ("partitions", "--strategy", each, *limit)) for each in STRATEGIES]
    asked = set(questions)
    return [method for method in found if method.question in asked]


def named(methods: Sequence[Method], names: Sequence[str]) -> list[Method]:
    """Those of the methods that have these names; refuses a name that none has."""
    known = [method.name for method in methods]
    for name in names:
        if name not in known:
            near = did_you_mean(nearest(name, known)) or f"those of these questions are {', '.join(known)}"
            raise ParameterError(f"--methods has no method {name!r}; {near}")
    return [method for method in methods if method.name in names]
