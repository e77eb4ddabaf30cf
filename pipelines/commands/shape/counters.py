"""`headcount counters`: pan-private counters in a file, which are started, added to, and renewed after they were seen.

Nothing but the file stays when the events are deleted. Its shape is released by `headcount shape --model pan-private`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pyarrow as pa

from headcount.mechanisms.batches.contributions import contribution_batch
from headcount.mechanisms.columns.nested import exploded
from headcount.mechanisms.errors import ParameterError
from headcount.pipelines.command import Tool
from headcount.pipelines.commands.shape import models, wired
from headcount.pipelines.flags import groups, numbers, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.sources import events as sources
from headcount.pipelines.sources.columns import columns_of, place_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    group = parser.add_argument_group("what to do")
    do = group.add_mutually_exclusive_group(required=True)
    do.add_argument(
        "--start", action="store_true", help="make the file, with noise in every counter, before the first event"
    )
    do.add_argument(
        "--batch", metavar="NAME", help="add the events of --input under this name, which no other batch has"
    )
    do.add_argument(
        "--announce-intrusion",
        action="store_true",
        help="add fresh noise, after the file was seen or copied: it may then be seen once more",
    )
    group.add_argument("--state", required=True, metavar="FILE", help="the file of the counters")
    group = parser.add_argument_group("what to read")
    add(group, "--input", action="append", metavar="GLOB", help="files of events; may be repeated")
    groups.add_kind_of_files(group)
    groups.add_item(group)
    groups.add_time_zone(group)
    group.add_argument("--count", metavar="COLUMN", help="how many events a row is (default: each row is one)")
    group.add_argument("--drop-null", action="store_true", help="drop rows without an item or a count")
    groups.add_rows(group)
    add(
        group,
        "--max-item-bytes",
        type=numbers.whole_number(),
        default=4096,
        metavar="N",
        help="rows with a longer item are dropped (default: %(default)s)",
        rare=True,
    )
    group = groups.add_budget(parser)
    models.add_protocol(group)
    models.add_may_be_seen(group)


def events(args: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    """The events of the files, one batch after the other."""
    inputs = sources.expand_inputs(args.input, args.input_format, args.delimiter)
    prepare = options.preparation(args)
    columns = columns_of(None, args.item, args.count, args.explode, args.time_zone, prepare=prepare)
    types = sources.column_types(inputs, columns)
    keys = types.keys(columns)
    for task in inputs.tasks():
        for batch in sources.read_batches(task, columns, types):
            arrays = {name: batch.column(name) for name in columns.names}
            if args.explode is not None:
                arrays = exploded(arrays, args.explode)
            named = ", ".join(columns.held)
            place = place_of(batch, named, named, args.count or "count")
            item = keys.encode(arrays, place)
            given = {"drop_null": args.drop_null, "max_item_bytes": args.max_item_bytes, "place": place}
            yield contribution_batch(item, item, arrays.get(args.count), **given)


def run(args: argparse.Namespace) -> None:
    """Do what was asked for, or only explain what the counters promise."""
    options.require(args, "--epsilon", "--buckets")
    counts = wired.make_counts(args, args.state, args.batch or "")
    if args.explain:
        print(counts.guarantee().description())
        return
    if args.batch is None:
        for name in ("input", "input_format", "delimiter", "item", "count", "where", "join", "on"):
            if getattr(args, name) is not None:
                raise ParameterError(f"{options.as_flag(name)} is for --batch: leave it out")
    if args.start:
        counts.start()
        print(f"made {args.state}: {counts.mechanism.cells:,} counters; a copy of it that is kept is a view of them")
    elif args.batch is not None:
        options.require(args, "--input", "--item")
        added = counts.add(events(args))
        print(
            f"added batch {args.batch} to {args.state}" if added else f"batch {args.batch} is in {args.state} already"
        )
    else:
        counts.announce_intrusion()
        print(f"fresh noise is in {args.state}: it may be seen once more")


COMMAND = Tool(
    name="counters",
    add_arguments=add_arguments,
    do=run,
    example=(
        "headcount counters --start --state counters --epsilon 1 --buckets 100000 --salt visits\n"
        "  headcount counters --batch 2030-01-01 --input visits.parquet --item page \\\n"
        "      --state counters --epsilon 1 --buckets 100000 --salt visits"
    ),
)
