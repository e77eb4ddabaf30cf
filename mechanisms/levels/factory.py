"""The histogram that parameters ask for: of the nodes of all levels of a key, or of its items."""

from __future__ import annotations

from typing import Any

from headcount.mechanisms.accounting.budget import Budget
from headcount.mechanisms.errors import ParameterError
from headcount.mechanisms.histogram.auto import AutoHistogramMechanism
from headcount.mechanisms.histogram.estimates import EstimatesMechanism
from headcount.mechanisms.histogram.factory import histogram
from headcount.mechanisms.histogram.fixed import HistogramMechanism
from headcount.mechanisms.levels.release import LevelsMechanism, in_levels

#: All kinds of histograms.
AnyHistogram = EstimatesMechanism | HistogramMechanism | AutoHistogramMechanism | LevelsMechanism

# What parameters of `histogram` may be beside levels, besides those that levels have.
_USUAL: dict[str, tuple[Any, ...]] = {
    "domain": (None,),
    "method": ("estimates",),
    "bound": ("auto",),
    "calibrate": (None, "totals"),
    "noise": ("auto", "gaussian"),
    "objective": (None,),
    "bound_method": ("auto",),
    "bound_share": (None,),
}


def histogram_or_levels(budget: Budget, *, levels: int = 0, home: bool = False, **given: Any) -> AnyHistogram:
    """The counts of the nodes of all levels of a key with so many columns; without levels, what `histogram` gives."""
    if not levels:
        if home:
            raise ParameterError("home=True says where a user counts in levels: give levels, or leave home out", "home")
        return histogram(budget, **given)
    for name, usual in _USUAL.items():
        if name in given and given[name] not in usual:
            told = "a domain" if name == "domain" else f"{name}={given[name]!r}"
            raise ParameterError(f"{told} is not for counts in levels, which name their nodes: leave it out", name)
    own = {name: given[name] for name in ("of", "max_per_item", "max_items", "relation") if name in given}
    return in_levels(budget, depth=levels, home=home, **own)
