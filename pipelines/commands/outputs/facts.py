"""What a release statement says, as short sentences, from a report alone: for the Markdown and for a record of the registry.

A statement is for people outside. So it says what a job promised and how, and as plainly what it does not protect, what it
cannot know, and what is not done. None of it costs epsilon: all is in the report already.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headcount.mechanisms.accounting.budget import digits_up, sum_up
from headcount.mechanisms.accounting.guarantee import Guarantee
from headcount.mechanisms.accounting.relation import Relation
from headcount.mechanisms.accounting.windows import WINDOWS
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.command import COMMANDS
from headcount.pipelines.sinks.output import REPORT
from headcount.pipelines.sinks.repeated import REPORT_MARK

PURE, APPROXIMATE, ZCDP = "Pure DP", "Approximate DP", "Zero-concentrated DP"  # as the registry calls them
_OF_PEOPLE = ("funnel", "retention", "activity", "actives")
_MODELS = {
    "central": "Central",
    "shuffle": "Shuffle",
    "pan-private": "Central",
}  # by the flag, as the registry calls them
# Parameters that whoever ran the job says are public, in the words of a statement.
_TAKEN_AS_PUBLIC = {
    "users": "the number of users: {}",
    "domain_size": "a number that the distinct items do not exceed: {}",
    "buckets": "the number of buckets that items are hashed to: {}",
    "samples": "the number of samples: {}",
    "lo": "the least value: {}",
    "step": "the conditions of the steps: {}",
    "bins": "where bins of the number of events begin: {}",
    "from_": "the first day: {}",
    "to": "the last day: {}",
    "hi": "the largest value: {}",
    "sum": "the ranges of values that are added up: {}",
    "mean": "the ranges of values of means: {}",
    "variance": "the ranges of values of variances: {}",
    "quantile": "the ranges of values of quantiles, each with the shares before it: {}",
}


class Converted(NamedTuple):
    """The promise in other terms: its numbers, where they say something, and by what rule they follow."""

    terms: str
    epsilon: float | None
    delta: float | None
    rho: float | None
    how: str


class OverTime(NamedTuple):
    """What a ledger says of all releases of a data set, as far as a statement tells it."""

    dataset: str
    releases: int
    total: str
    limit: str
    holds: bool  # this release
    approval: str | None = None  # who has approved the plan that this release is of


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of one release."""

    report: Mapping[str, Any]
    guarantee: Guarantee
    parameters: Mapping[str, Any]

    @property
    def variant(self) -> str:
        """Which definition of differential privacy the job was given its budget in."""
        if "rho" in self.parameters and "epsilon" not in self.parameters:
            return ZCDP
        return PURE if self.guarantee.delta == 0 else APPROXIMATE

    @property
    def model(self) -> str:
        """Who is trusted, as the registry calls it."""
        return _MODELS[self.parameters.get("model", "central")]

    @property
    def unit(self) -> str:
        """Who is promised something, as the registry calls it."""
        return f"{self.guarantee.unit.capitalize()}-level"

    @property
    def users(self) -> int | None:
        """The number of users, where whoever ran the job has given it; that users were to be counted is no number of them."""
        given = self.parameters.get("users")
        return given if type(given) is int else None

    @property
    def product(self) -> str:
        """What was published, in a sentence."""
        name = self.report["command"]
        return f"{COMMANDS[name].help} (`headcount {name}`)" if name in COMMANDS else f"`headcount {name}`"

    @property
    def versions(self) -> str:
        """The software with its versions."""
        libraries = self.report["details"].get("versions", {})
        made = {"Headcount": self.report[REPORT_MARK], **libraries}
        return ", ".join(f"{name} {version}" for name, version in made.items())

    def adjacency(self) -> str:
        """What a neighbouring input is, in a sentence."""
        column, window = self.parameters.get("user"), WINDOWS.get(self.guarantee.unit)
        change = self.guarantee.relation.description(self.guarantee.unit)
        told = f"Two inputs are neighbours if one becomes the other by {change}."
        if column is None:
            return told
        whose, zone = "all rows", self.parameters.get("time_zone") or "UTC"  # which a report leaves out
        if window is not None:
            whose += f" of one {window}, by the column `{self.parameters.get('time')}` in the zone {zone},"
        told = f"{told} A {self.guarantee.unit} is {whose} with one value in the column `{column}`, in all input files."
        return " ".join([told, *self._prepared()])

    def _prepared(self) -> list[str]:
        """What was done to rows before anything else, in sentences."""
        found = []
        if "where" in self.parameters:
            found.append(
                f"Only rows where `{self.parameters['where']}` were counted; the promise is about all rows, whether they are "
                "such or not."
            )
        if "join_digest" in self.parameters:
            found.append(
                f"Columns of a table were put beside the rows, by the column `{self.parameters.get('on')}` (digest of the "
                f"table: {self.parameters['join_digest']}); the promise takes that table for public."
            )
        return found

    def plainly(self) -> str:
        """The promise for somebody who knows nothing of it."""
        factor, delta = math.exp(self.guarantee.epsilon), self.guarantee.delta
        times = f"{factor:,.3g}" if factor < 100 else f"{factor:,.0f}" if factor < 1e9 else f"{factor:.1g}"
        beyond = f", and {delta:.3g} on top" if delta else ""
        return (
            "Whatever anybody concludes from the published files, the data of any one "
            f"{self.guarantee.unit} make it more likely, or less, by a factor of {times} at most{beyond}."
        )

    def given(self) -> Converted:
        """The promise in the terms that the job was given its budget in."""
        if self.variant is ZCDP:
            rho, delta = self.parameters["rho"], self.parameters["delta"]
            return Converted(ZCDP, None, delta, rho, "as the job was told: delta-approximate rho-zCDP")
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        return Converted(self.variant, epsilon, delta, None, "as the job was told")

    def converted(self) -> list[Converted]:
        """The same promise in other terms; each follows from it, and is weaker or as strong."""
        epsilon, delta, rho = self.guarantee.epsilon, self.guarantee.delta, self.parameters.get("rho")
        found = []
        if self.variant is ZCDP:
            how = "implied by the above, by the formula of Canonne, Kamath and Steinke (2020)"
            found.append(Converted(APPROXIMATE, epsilon, delta, None, how))
        elif rho is not None:
            how = "by which the rounds of the job are composed, with the rest of delta for the conversion"
            found.append(Converted(ZCDP, None, None, rho, how))
        elif (known := self.guarantee.losses.zcdp()) is not None:
            how = "by the privacy losses of its mechanisms: delta-approximate rho-zCDP"
            found.append(Converted(ZCDP, None, known.delta, known.rho, how))
        if self.guarantee.relation is Relation.ADD_REMOVE:
            both = sum_up([epsilon, epsilon]), min(1.0, _up((1 + math.exp(epsilon)) * delta))
            how = f"if the data of one {self.guarantee.unit} are replaced: 2 epsilon and (1 + e^epsilon) delta"
            found.append(Converted(APPROXIMATE if delta else PURE, *both, None, how))
        return found

    def mechanisms(self) -> list[str]:
        """What took which part of the promise, line by line."""
        return [step.description() for step in self.guarantee.mechanisms]

    def tuning(self) -> list[str]:
        """How parameters were set, and what that cost."""
        choices = [step for step in self.guarantee.mechanisms if "choice" in step.name]
        said = []
        for step in choices:
            cost = f"epsilon = {step.epsilon:.6g}" + (f", delta = {step.delta:.3g}" if step.delta else "")
            name = sentence(step.name, "")
            said.append(f"{name}: made by the job from the data, privately; its cost ({cost}) is part of the promise.")
        if "decision" in self.report and choices:
            chosen = self.report["decision"].splitlines()[0].removeprefix("chosen: ")
            said.append(f"What was chosen is published: {chosen}.")
        if "bound_from" in self.parameters:
            earlier = self.parameters["bound_from"]
            said.append(f"The bound was chosen privately by another release, {earlier}, whose cost comes on top.")
        if "like" in self.parameters:
            most, earlier = self.parameters["max_per_item"], self.parameters["like"]
            said.append(
                f"That at most {most:,} events of a user count on one item was taken from another release, {earlier}."
            )
        said.append(
            "All other parameters were given by whoever ran the job. Headcount sets none of them by looking at the data; that "
            "nobody else did so is a promise of the publisher, and not of the software."
        )
        return said

    def composition(self, over_time: OverTime | None) -> list[str]:
        """How costs add up: inside the release, and over time."""
        said = [
            "Inside this release every step that looks at the data is counted, choices included: the promise is of all of them."
        ]
        if over_time is None:
            return [
                *said,
                "Over time: no ledger was named for this statement, so it says nothing of other releases of the same users. "
                "Epsilons and deltas of several releases add up, or to somewhat less by exact composition.",
            ]
        number = "1 release" if over_time.releases == 1 else f"{over_time.releases:,} releases"
        among = "this one among them" if over_time.holds else "this one is not among them"
        approved = [] if over_time.approval is None else [over_time.approval]
        return [
            *said,
            f"Over time: the ledger of the data set `{over_time.dataset}` holds {number}, {among}. {over_time.total}",
            f"Its limit: {over_time.limit}; a job that would exceed it is refused before it reads anything.",
            *approved,
        ]

    def post_processing(self) -> list[str]:
        """What was done to released numbers, at no cost."""
        said = ["Rows are sorted, and rounded where the columns say so."]
        if self.report["command"] in _OF_PEOPLE:
            said.append(
                "Counts below 0 are 0, those of a funnel are the nearest ones that fall, and shares are made of them."
            )
        if self.parameters.get("calibrate") == "totals" or "assumption" in self.report:
            said.append(sentence(self.report.get("assumption", "counts are scaled by released totals")))
        for left_out in self.report.get("left_out", []):
            said.append(
                f"Left out of the result, by released numbers alone: {left_out['rows']:,} rows, as {left_out['because']}."
            )
        return said

    def not_protected(self) -> list[str]:
        """What the promise does not cover, most important first."""
        unit, window = self.guarantee.unit, WINDOWS.get(self.guarantee.unit)
        said = [
            "No published number was left without protection. These are taken for public, and are published or follow:"
        ]
        said[0] += f" the names of the columns, every parameter in {REPORT}, and the number and names of the files."
        if "public_columns" in self.parameters:
            said.append(
                f"Of the key columns these were public before: {', '.join(map(str, self.parameters['public_columns']))}. Which "
                "of their values are in the result says nothing of the data. The others were named from the data."
            )
        elif "domain_digest" in self.parameters:
            said.append(
                "The list of the items was public before (digest of its keys: "
                f"{self.parameters['domain_digest']}): that an item is in the result says nothing of the data."
            )
        known = [
            words.format(value)
            for name, words in _TAKEN_AS_PUBLIC.items()
            if (value := _given(self.users if name == "users" else self.parameters.get(name))) is not None
        ]
        if self.guarantee.relation is Relation.REPLACE and self.users is None:
            known.append("the number of users, which replacing one does not change")
        if known:
            said.append(f"Whoever ran the job says that these are public: {'; '.join(known)}.")
        said.append(
            f"The unit is a {unit} by an id: a person with k ids is k of them, and is promised k times epsilon, with a larger "
            "delta. Households, companies and other groups are not units."
        )
        if window is not None:
            told = f"A user who is there in n {window}s is promised n times epsilon, with a larger delta."
            said.append(sentence(self.report.get("protected", told)))
        said.append(
            "What holds of many is not hidden: a conclusion about people in general is one about each of them, whether or not "
            "they are in the data."
        )
        said.append(
            "Outside the promise, and for the operator alone: whether a job failed, its run time, memory, logs and counters, "
            "the pages of its runner, and the time stamps and temporary files of the runner."
        )
        said.append("The data before the release: how they were collected, stored, and who may read them.")
        return said

    def floating_point(self) -> str:
        """What is done against leaks through the arithmetic."""
        return (
            "Sums, bounds and noise are integers, on a grid of a power of 1/2 where a bound is below 1. Discrete Laplace and "
            "discrete Gaussian noise, samples and choices are drawn by exact integer and rational arithmetic, so that every "
            "probability is as stated. Thresholds for Gaussian noise are computed in floating point, and 0.1 % of delta is set "
            "aside for that. Events of probability below e^-1000 are left out of the samplers."
        )

    def timing(self) -> str:
        """What is done against leaks through time and machines, and what is not."""
        return (
            "The release is a set of files, not a service: nobody outside can ask, or time an answer. Nothing is done to make "
            "run time, memory or traffic independent of the data, and drawing noise takes a time that depends on key and data: "
            "none of these may be published. A step that a runner repeats draws the same noise again, so retries give nothing "
            "away."
        )

    def randomness(self) -> str:
        """Where the noise comes from."""
        return (
            "Random bits come from AES-256 and BLAKE2b under a secret key of 256 bits, a release id and the data, so that the "
            "promise holds against feasible adversaries. Whoever has the key can take the noise off: it must be guarded like "
            "the data."
        )

    def trust(self) -> list[str]:
        """Who is trusted with what."""
        if self.parameters.get("model") == "shuffle":
            return [
                "Users send messages that a shuffler mixes; the analyst sees messages and no sender. The shuffler is trusted "
                "to mix, and at least the stated number of users to follow the protocol."
            ]
        said = [
            "The operator who runs the job reads the raw data, and is trusted with it, with the key and with the machines.",
            "Readers of the published files are not trusted: they may know the code, all parameters and the data of everybody "
            "else, and may have written much of the data.",
        ]
        if self.parameters.get("model") == "pan-private":
            said.append(
                "The counters between events and release have noise of their own: their file may be seen as stated."
            )
        return said


def facts_of(report: Mapping[str, Any]) -> Facts:
    """The facts of a finished report; refuses one that does not hold them."""
    try:
        details = report["details"]
        guarantee, parameters = Guarantee.from_dict(details["guarantee"]), dict(details["parameters"])
        found = Facts(report, guarantee, parameters)
        found.variant, found.model, report[REPORT_MARK]  # noqa: B018
        return found
    except (KeyError, TypeError, ValueError, ParameterError) as error:
        raise InputError(f"{REPORT} is not as a job wrote it: its promise or its parameters are not whole") from error


def rounded_up(value: float) -> str:
    """A number in six digits that is not below it: what is promised is not to look better than it is."""
    return f"{digits_up(value, 6):.6g}"


def _up(value: float) -> float:
    """A little above, whatever the last rounding did."""
    return math.nextafter(value, math.inf) if value else value


def sentence(text: str, end: str = ".") -> str:
    """Words of a report as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + end


def listed(sentences: Sequence[str]) -> str:
    """Sentences as a list in Markdown."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _given(value: Any) -> str | int | float | None:
    """What a parameter says of the data: of a list, the ranges in it that are given and not chosen."""
    if value is None or isinstance(value, str | int | float):
        return value
    ranges = [each for each in value if isinstance(each, str) and not each.endswith(":auto")]
    return ", ".join(ranges) or None
