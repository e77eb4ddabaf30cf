"""What a choice would come to on typical data, for `--explain`: whole releases of three small logs that are made up.

The logs are public, and always the same. So is the key, and so are the words: there is nobody to protect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.batches.domain import Domain, PartDomain
from headcount.mechanisms.batches.shards import one_shard
from headcount.mechanisms.choice.run import choose_bound
from headcount.mechanisms.columns.keys import joined
from headcount.mechanisms.domains.partly_public import PartlyPublic
from headcount.mechanisms.levels.release import LevelsMechanism
from headcount.mechanisms.mechanism import Deciding
from headcount.mechanisms.randomness.keys import Release
from headcount.mechanisms.sampled.auto import AutoSampled
from headcount.pipelines.sources.synthetic import drawn
from headcount.pipelines.studies.data import Data, in_memory
from headcount.pipelines.studies.kinds import ALL, InLevels, PartlyPublicItems, Told
from headcount.pipelines.studies.populations.trees import grown, usual_sizes
from headcount.pipelines.studies.scores import score

# Law, users, events and items of the logs: small, as all three run while somebody waits.
_LOGS = (("tail", 10_000, 100_000, 1_000), ("tail", 100_000, 500_000, 5_000), ("spread", 50_000, 150_000, 1_500))
_ASSUMED = (
    "the logs: 10,000 and 100,000 users with 10 and 5 events on average, where a hundredth of them has half of all events, on "
    "1,000 and 5,000 items; and 50,000 users alike with 3 events, on 1,500 items"
)
_LEVELS = "each event at random on one of the leaves, as many as there are items; each level has as many times the nodes above"
_YOURS = "for data like yours see headcount forecast, for public data headcount rehearse"
_MOST_ITEMS = 50_000  # of a public domain: each gets noise in each of the logs
_MOST_COMBINATIONS = 100  # of public columns: each gets noise for every item that is named
_SEED = 1


class _OpenKey:
    """A key that everybody knows, for releases of logs that are made up and for nothing else."""

    def fetch(self) -> bytes:
        """The key."""
        return bytes(32)


_RELEASE = Release(_OpenKey(), "explain")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one release came to: what was chosen, how many items it shows, the users that an item needs, the noise of a count,
    the median error, and which share does not count, of what. None is what cannot be said."""

    chosen: Mapping[str, Any]
    items: int | None = None
    needed: float | None = None
    noise: float | None = None
    median: float | None = None
    left_out: float | None = None
    of: str = ""
    levels: Told = dataclasses.field(default_factory=dict)  # of a key in levels


def description(mechanism: Any, question: str, levels: Sequence[str] = ()) -> list[str]:
    """What to expect of a mechanism that chooses something, as an answer to this question: lines for `--explain`. A key may be
    in levels of these names."""
    domain = getattr(mechanism, "domain", None)
    most = _MOST_COMBINATIONS if isinstance(domain, PartDomain) else _MOST_ITEMS
    if domain is not None and (domain.size if isinstance(domain, PartDomain) else len(domain)) > most:
        return [f"what is chosen depends on the data: {_YOURS}"]
    found = outcomes(mechanism, question, levels)
    return [
        "what to expect of typical data, which yours need not be: releases of three made-up logs gave",
        *_ranges(found),
        _ASSUMED,
        *([f"each event at random on one of {', '.join(domain.public)}"] if isinstance(domain, PartDomain) else []),
        *([_LEVELS] if levels else []),
        _YOURS,
    ]


def outcomes(mechanism: Any, question: str, levels: Sequence[str] = ()) -> list[Outcome]:
    """What the mechanism comes to on each of the logs. Their items are numbers, and a public domain is as large as its own."""
    domain = getattr(mechanism, "domain", None)
    if isinstance(domain, PartDomain):
        return _partly_outcomes(mechanism, domain, question)
    if levels:
        return [_in_levels(mechanism, InLevels(tuple(levels)), *log) for log in _LOGS]
    own: dict[str, Any] = {"item_type": int} if hasattr(mechanism, "item_type") else {}
    if domain is not None:
        own["domain"] = Domain(pa.array(np.arange(len(domain))))
    made, found = dataclasses.replace(mechanism, **own), []
    for law, users, events, items in _LOGS:
        items = items if domain is None else min(items, len(domain))
        user, item = drawn(law, events, users, items, _SEED)
        found.append(_outcome(made, in_memory([contribution_batch(pa.array(user), pa.array(item))], int), question))
    return found


def _partly_outcomes(mechanism: Any, domain: PartDomain, question: str) -> list[Outcome]:
    """The same where the items are named, and each event is at random on one of the public values."""
    kind, found = PartlyPublicItems(domain.size, domain.public), []
    for law, users, events, items in _LOGS:
        user, item = drawn(law, events, users, items, _SEED)
        value = np.random.default_rng(_SEED).integers(domain.size, size=len(item))
        keys = joined([pa.array(item), pa.array(value)])
        found.append(
            _outcome(kind.made(mechanism), in_memory([contribution_batch(pa.array(user), keys)], str), question)
        )
    return found


def _in_levels(mechanism: LevelsMechanism, kind: InLevels, law: str, users: int, events: int, items: int) -> Outcome:
    """What a release in levels of one log comes to."""
    user, item = drawn(law, events, users, items, _SEED)
    tree = grown(usual_sizes(items, len(kind.levels)), items, 1.0, 0.0)
    data = in_memory([contribution_batch(pa.array(user), tree.keys(item))], str)
    told, decision = kind.released(mechanism, data, _RELEASE, "Likely")
    named = sum(int(values["items"] or 0) for level, values in told.items() if level != ALL)
    needed = told[kind.levels[-1]]["users_needed"]
    of = f"the {mechanism.of} of nodes with a name, which the estimates make up for"
    return Outcome(decision.report_fields()["chosen"], named, needed, left_out=decision.left_out, of=of, levels=told)


def _outcome(mechanism: Any, data: Data, question: str) -> Outcome:
    if isinstance(mechanism, AutoSampled):  # to calibrate a sample takes seconds, and what it needs is nearly known
        kept = choose_bound(data.batches, mechanism.choice, _RELEASE, "Likely").bound
        counted = np.minimum(data.pairs, kept).sum() / data.pairs.sum()
        of, needed = "the distinct items of users", mechanism.choice.w50[kept]
        return Outcome({"max_items": kept}, needed=needed, left_out=1 - float(counted), of=of)
    assert isinstance(mechanism, Deciding)
    rows, decision = mechanism.run_decided(data.batches, _RELEASE, "Likely")
    chosen = {} if decision is None else decision.report_fields().get("chosen", {})
    if "of" in rows.schema.names:  # totals
        (row,) = (row for row in rows.to_pylist() if row["of"] == "events")
        left_out = _left_out(row["bounded_count"], data.events.sum())
        return Outcome(chosen, noise=row["noise_stddev"], left_out=left_out, of="all events")
    if "item" not in rows.schema.names:
        return Outcome(chosen)
    place, worth = data.places(rows.column("item")), score(rows, data, question)
    shown = np.zeros(len(data.items), dtype=bool)
    shown[place[place >= 0]] = True
    domain = getattr(mechanism, "domain", None)
    named = users_needed(data.users, shown) if domain is None else None
    if isinstance(domain, PartlyPublic):
        whole = one_shard(data.batches)
        assert whole is not None
        parts = domain.projected(whole)
        known = np.asarray(pc.is_in(parts.items, domain.private_parts(rows.column("item"))))
        named = users_needed(np.bincount(parts.item, minlength=len(parts.items)), known)
    found = Outcome(chosen, rows.num_rows, named, median=worth.median_error)
    if "bounded_count" not in rows.schema.names or rows.num_rows == 0:
        return found
    noise = float(np.median(np.asarray(rows.column("noise_stddev"))))
    held = float(np.asarray(rows.column("bounded_count")).sum())
    true = data.truth(question)[shown].sum()
    of = f"the {question} of items shown{', which the estimates make up for' if 'count' in rows.schema.names else ''}"
    return dataclasses.replace(found, noise=noise, left_out=_left_out(held, true), of=of)


def users_needed(users: np.ndarray, shown: np.ndarray) -> float | None:
    """The number of users that best tells items shown from items hidden; None unless there are both."""
    if shown.all() or not shown.any():
        return None
    order = np.argsort(users, kind="stable")
    ranked, seen = users[order], shown[order]
    # Wrong, where items from a place on are taken for shown: those shown before it, and those hidden from it on.
    wrong = np.append(0, np.cumsum(seen)) + np.append(np.cumsum(~seen[::-1])[::-1], 0)
    best = np.flatnonzero(wrong == wrong.min())
    return float(ranked[min(int(best[len(best) // 2]), len(ranked) - 1)])


def _left_out(held: float, true: float) -> float:
    return min(max(1 - held / true, 0.0), 1.0) if true else 0.0


def _ranges(found: Sequence[Outcome]) -> list[str]:
    """What all outcomes have, in words."""
    lines = [f"- chosen: {_chosen([one.chosen for one in found])}"]
    shown = [one.items for one in found if one.items is not None]
    if shown and not any(shown):
        return [*lines, "- no item is shown in any of them: a larger epsilon or delta, or more users, are needed"]
    if shown and not all(shown):
        lines.append(f"- no item is shown in {shown.count(0)} of the {len(shown)}, and in the others:")
    lines += [_level([one.levels[level] for one in found], level) for level in found[0].levels]
    for name, text, form in _TOLD:
        values = [value for one in found if (value := getattr(one, name)) is not None and one.items != 0]
        if values:
            lines.append(
                f"- {text.format(_range(map(form, (min(values), max(values)))), max(one.of for one in found))}"
            )
    return lines


def _level(found: Sequence[Mapping[str, float | None]], level: str | None) -> str:
    """What all releases have at one level, in words."""
    parts = []
    for name, text, form in _OF_LEVEL:
        values = [value for one in found if (value := one[name]) is not None]
        if values:
            parts.append(text.format(_range(map(form, (min(values), max(values))))))
    return f"- {level}: {'; '.join(parts)}"


def _chosen(found: Sequence[Mapping[str, Any]]) -> str:
    """What was chosen, one after another: from the least to the most of numbers, and all texts."""
    parts = []
    for name in dict.fromkeys(name for one in found for name in one):
        values = [one[name] for one in found if one.get(name) not in (None, "")]
        if values and isinstance(values[0], str):
            parts.append(f"{name} {' or '.join(dict.fromkeys(values))}")
        elif values:
            parts.append(f"{name} {_range(f'{value:,g}' for value in (min(values), max(values)))}")
    return ", ".join(part.replace("_", " ") for part in parts)


def _range(ends: Iterable[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


def _about(value: float) -> str:
    """A number to two digits."""
    return f"{float(f'{value:.2g}'):,.10g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


_TOLD: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("needed", "an item of about {} users is shown with a chance of 50 %", _about),
    ("noise", "noise: a standard deviation of about {}", _about),
    ("median", "half of the counts are within {} of the true ones", _percent),
    ("left_out", "the bound leaves out {} of {}", _percent),
)
_OF_LEVEL: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("items", "{} with a name", _about),
    ("median_error", "half of the counts are within {} of the true ones", _percent),
    ("half_width", "half of the intervals reach {} to either side, or less", _about),
    ("other", "{} other", _percent),
)
