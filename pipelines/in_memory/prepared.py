"""What a command makes of a frame: its mechanism, and contributions that are yet to be read."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from headcount.mechanisms.sampled.over_values import SearchOverValues, TreeOverValues
from headcount.pipelines.command import JobCommand
from headcount.pipelines.flags import options
from headcount.pipelines.in_memory import frames


class Prepared(NamedTuple):
    """A mechanism of public numbers alone, the events that it is for, and the type of their items."""

    mechanism: Any
    events: frames.Events
    item_type: type


def prepared(command: JobCommand[Any], args: argparse.Namespace, data: Any) -> Prepared:
    """The mechanism of a command and the events of a frame, by flags that were checked. A domain in them gets its names."""
    if command.name == "quantiles":
        mechanism = command.make_mechanism(args, int)
        assert isinstance(mechanism, SearchOverValues | TreeOverValues)
        return Prepared(mechanism, frames.values(data, args, mechanism.axis, mechanism.leaves), int)
    if hasattr(args, "by"):
        events = frames.people(data, args)
    else:
        if command.name != "total":
            options.require(args, "--item")
        events = frames.every_row(data, args) if args.item is None else frames.counted(data, args)
    item_type = str if events.keys is None else events.keys.item_type
    if getattr(args, "domain", None) is not None:
        args.domain = frames.named_domain(args.domain, events.keys, args.max_item_bytes)
    return Prepared(command.make_mechanism(args, item_type), events, item_type)
