"""Looking before anything is spent: what methods would give, measured on data that is public or made up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.call import suggesting

if TYPE_CHECKING:
    from headcount.call import Columns
    from headcount.pipelines.studies.comparison import Comparison


@suggesting
def compare(
    *,
    public_data: Any,
    user: str,
    item: Columns,
    count: str | None = None,
    epsilon: float | Sequence[float] = (0.1, 0.5, 1.0, 2.0, 5.0),
    delta: float = 1e-8,
    relation: str = "add-remove",
    question: str | Sequence[str] | None = None,
    methods: str | Sequence[str] | None = None,
    releases: int = 3,
    max_items: int | None = None,
    large_from: int = 100,
    drop_null: bool = False,
    max_item_bytes: int = 4096,
    time_zone: str = "UTC",
    protect: str = "user",
    time: str | None = None,
    windows: int | None = None,
    explode: str | None = None,
) -> Comparison:
    """What each method would give at each epsilon, measured against the truth of data that is public or made up.

    Guarantee: none. The result is exact in part, and so is not private: it is for data of which nobody needs protection.

        headcount.compare(public_data=frame, user="user_id", item="page", epsilon=[0.1, 1])

    Parameters:
        public_data: the events, as `histogram` takes them; public or made up, as their name here says.
        epsilon: one, or several (default: 0.1, 0.5, 1, 2 and 5).
        delta: that of every release (default: 1e-8).
        question: "events", how often items occur, "users", how many have them, "names", which there are; or a list of these
            (default: None, all).
        methods: some of the methods, by the names that the result has for them (default: None, all).
        releases: how often each method runs at each epsilon (default: 3).
        max_items: for the strategies that name items and choose nothing: items of one user that count at most (default: None,
            so many as nine tenths of the users have).
        large_from: an item of so many users or more is large, and missed if it is not shown (default: 100).
        user, item, count, relation, and all that follow: as for `histogram`.

    The result has a row for each release: question, method, command, epsilon, delta, relation, release, what it is worth, and
    what it decided; `to_pandas()` gives them, and `save(folder)` writes compare.csv and compare.html.
    """
    return _compared({name: value for name, value in locals().items() if name != "public_data"}, public_data)


def _compared(parameters: Mapping[str, Any], data: Any) -> Comparison:
    """What the command finds, by its flags, checks and runs."""
    from headcount import frames
    from headcount.keywords import namespace, spelled
    from headcount.mechanisms.errors import HeadcountError
    from headcount.pipelines.commands.studies import compare as command
    from headcount.pipelines.studies.data import in_memory

    try:
        args = namespace(command.COMMAND, {name: _with_commas(name, value) for name, value in parameters.items()})
        command.check(args)
        events = frames.counted(data, args)
        item_type = str if events.keys is None else events.keys.item_type
        return command.compared(in_memory(events.batches, item_type), args)
    except HeadcountError as error:
        raise spelled(error) from None


def _with_commas(name: str, value: Any) -> Any:
    """A list of what the command line has as one text with commas."""
    listed = name in ("epsilon", "methods") and isinstance(value, Iterable) and not isinstance(value, str)
    return ",".join(map(str, value)) if listed else value
