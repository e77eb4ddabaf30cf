"""Looking before anything is spent: what methods would give, measured on data that is public or made up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.functions import suggesting

if TYPE_CHECKING:
    from headcount.functions import Columns, Path
    from headcount.pipelines.studies.outlook import Forecast
    from headcount.pipelines.studies.rehearsal import Rehearsal
    from headcount.result import Result


@suggesting
def rehearse(
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
    where: str | None = None,
    join: Any = None,
    on: str | None = None,
) -> Rehearsal:
    """What each method would give at each epsilon, measured against the truth of data that is public or made up.

    Guarantee: none. The result is exact in part, and so is not private: it is for data that nobody needs to protect.

        headcount.rehearse(public_data=frame, user="user_id", item="page", epsilon=[0.1, 1])

    Parameters:
        public_data: the events, as `histogram` takes them; public or made up, as their name here says.
        epsilon: one, or several (default: 0.1, 0.5, 1, 2 and 5).
        delta: that of every release (default: 1e-8).
        question: "events", how often items occur, "users", how many have them, "names", which there are; or a list of these
            (default: None, all).
        methods: some of the methods, by the names that the result has for them (default: None, all).
        releases: how often each method runs at each epsilon (default: 3).
        max_items: for the strategies that name items and choose nothing: items of one user that count at most (default: None,
            the number that nine tenths of the users stay within).
        large_from: an item of this many users or more is large, and missed if it is not shown (default: 100).
        user, item, count, relation, and all that follow: as for `histogram`.

    The result has a row for each release: question, method, command, epsilon, delta, relation, release, what it is worth, and
    what it decided; `to_pandas()` gives them, and `save(folder)` writes rehearse.csv and rehearse.html.
    """
    return _rehearsed({name: value for name, value in locals().items() if name != "public_data"}, public_data)


def _rehearsed(parameters: Mapping[str, Any], data: Any) -> Rehearsal:
    """What the command finds, by its flags, checks and runs."""
    from headcount.keywords import namespace, spelled
    from headcount.mechanisms.errors import HeadcountError
    from headcount.pipelines.commands.studies import rehearse as command
    from headcount.pipelines.in_memory import frames
    from headcount.pipelines.studies.data import in_memory

    try:
        args = namespace(command.COMMAND, {name: _with_commas(name, value) for name, value in parameters.items()})
        command.check(args)
        events = frames.counted(data, args)
        item_type = str if events.keys is None else events.keys.item_type
        return command.rehearsed(in_memory(events.batches, item_type), args)
    except HeadcountError as error:
        raise spelled(error) from None


@suggesting
def forecast(
    *,
    like: Path | Result | None = None,
    shape: Path | Result | None = None,
    users: float | None = None,
    events_per_user: float | None = None,
    items: float | Sequence[float] | None = None,
    skew: float | None = None,
    epsilon: float | Sequence[float],
    delta: float | None = None,
    relation: str | None = None,
    method: str | Sequence[str] | None = None,
) -> Forecast:
    """What an epsilon, bound or method would give, without any data: whole releases on made-up users.

    Guarantee: it costs nothing, as it reads what is released already, or assumed.

        headcount.forecast(like="last-week/", epsilon=[0.5, 1, 2])
        headcount.forecast(users=1e6, events_per_user=12, items=5000, skew=1.1, epsilon=[0.5, 1, 2])

    Parameters:
        like: an earlier release of histogram, plume or count_release: its folder, or what the call gave (default: None).
        shape: a release of `shape`, likewise; needs `events_per_user` (default: None).
        users, events_per_user, items, skew: what you assume, without a release: the item of rank r occurs as r^-skew. With
            `like`, `users` is how many of them there will be. For a key in levels, `items` may have a number for each level.
        epsilon: one, or several.
        delta, relation: those of every release (default: None, as the earlier release, or 1e-8 and "add-remove").
        method: a command with its own flags, such as "histogram --bound 20", or several (default: None, as the earlier release,
            or "histogram").

    The result has a row for each method and epsilon, with a range for every number; `to_pandas()` gives them, and
    `save(folder)` writes forecast.csv and forecast.html.
    """
    return _forecast(dict(locals()))


def _forecast(parameters: dict[str, Any]) -> Forecast:
    """What the command says, by its flags and checks; a result in memory stands for its folder."""
    from headcount.keywords import namespace, spelled
    from headcount.mechanisms.errors import HeadcountError
    from headcount.pipelines.commands.studies import forecast as command
    from headcount.result import Result

    held = {name: value for name in ("like", "shape") if isinstance(value := parameters[name], Result)}
    try:
        given = parameters | dict.fromkeys(held, "a result")
        args = namespace(command.COMMAND, {name: _with_commas(name, value) for name, value in given.items()})
        command.check(args)
        for result in held.values():
            return command.forecast_of(args, result.report, result.table.to_pylist())
        return command.forecast_of(args, *command.released(args))
    except HeadcountError as error:
        raise spelled(error) from None


def _with_commas(name: str, value: Any) -> Any:
    """A list of what the command line has as one text with commas."""
    listed = name in ("epsilon", "methods", "items") and isinstance(value, Iterable) and not isinstance(value, str)
    return ",".join(map(str, value)) if listed else value
