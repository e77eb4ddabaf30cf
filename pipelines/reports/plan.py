"""What a command says of its release before it has seen any data, for whoever runs it, on Beam or without."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headcount.mechanisms.accounting.guarantee import Guarantee

Parameters = Mapping[str, Any]  # of texts, numbers and lists of them


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a command says of what it computes, and promises, before it has seen any data.

    `parameters` are the public ones, for the report; `files` begins the names of the files. A `note` is what a reader must know
    of the numbers: it is shown with them, and is in the report. `summary` is what else the report says of the rows, as in
    `report.Summarized`; what a decision says goes before. `drawn_as` is the label of what is drawn, if it is not the command's.
    `asked` are the flags as they were given, before anything follows from them.
    """

    guarantee: Guarantee
    parameters: Parameters
    files: str = "counts"
    note: str | None = None
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    drawn_as: str | None = None
    asked: Parameters = dataclasses.field(default_factory=dict, compare=False)

    def stating(self, more: Parameters) -> Plan:
        """The same with more parameters, which are known once the input was looked at."""
        return dataclasses.replace(self, parameters={**self.parameters, **more})


def label_of(command: str) -> str:
    """The label of a command's transform, and of what it draws: part of every subkey, so never changed."""
    return command.title().replace("-", "")
