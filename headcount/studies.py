"""One study on a frame, by the flags, checks and runs of its command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headcount import frames
from headcount.keywords import namespace, spelled
from headcount.mechanisms.errors import HeadcountError
from headcount.pipelines.commands.studies import compare
from headcount.pipelines.studies.comparison import Comparison
from headcount.pipelines.studies.data import in_memory


def compared(parameters: Mapping[str, Any], data: Any) -> Comparison:
    """What `headcount compare` finds on a frame that is public or made up."""
    try:
        args = namespace(compare.COMMAND, {name: _with_commas(name, value) for name, value in parameters.items()})
        compare.check(args)
        events = frames.counted(data, args)
        item_type = str if events.keys is None else events.keys.item_type
        return compare.compared(in_memory(events.batches, item_type), args)
    except HeadcountError as error:
        raise spelled(error) from None


def _with_commas(name: str, value: Any) -> Any:
    """A list of what the command line has as one text with commas."""
    listed = name in ("epsilon", "methods") and isinstance(value, Iterable) and not isinstance(value, str)
    return ",".join(map(str, value)) if listed else value
