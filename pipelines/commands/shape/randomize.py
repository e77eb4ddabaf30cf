"""`headcount randomize`: the users' side of the shuffle model, from items to messages.

It runs where the users are, once for each of them; what it writes is kept, and goes to a shuffler that mixes the messages of
all users. The noise is the operating system's. It is written before anybody has it, under a name that must not be there yet: a
second run for the same users would send other noise, and whoever sees both sees less of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headcount.mechanisms.batches.shards import unite
from headcount.mechanisms.columns.row_schema import asked
from headcount.mechanisms.errors import InputError, ParameterError
from headcount.pipelines.command import Tool
from headcount.pipelines.commands.shape import models
from headcount.pipelines.flags import groups, options
from headcount.pipelines.flags.flag import add
from headcount.pipelines.sources import events
from headcount.pipelines.sources.columns import columns_of, place_of
from headcount.transforms.papers.bucket_sums import Hashing
from headcount.transforms.papers.shuffled import MESSAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    group = parser.add_argument_group("who reports")
    group.add_argument("--of", metavar="ITEM", help="the item of one user, whose messages these are")
    add(
        group,
        "--input",
        action="append",
        metavar="GLOB",
        help="in place of --of: files with one row for each user; may be repeated",
    )
    groups.add_kind_of_files(group)
    group.add_argument("--user", metavar="COLUMN", help="the column that tells users apart: each has one row")
    groups.add_item(group)
    groups.add_time_zone(group)
    groups.add_rows(group)
    group = groups.add_budget(parser)
    models.add_users(group)
    models.add_protocol(group)
    add(parser, "--output", metavar="FILE", help="the file to make, .parquet; one that is there is never touched")


def items(args: argparse.Namespace) -> pa.Array:
    """One item for each user."""
    if (args.of is None) == (args.input is None):
        raise ParameterError("give one of --of and --input: the item of one user, or files with a row for each")
    if args.of is not None:
        if args.salt is None or options.item_type(args) is int:
            return pa.array([_number(args.of)], pa.int64())
        return pa.array([args.of])
    options.require(args, "--user", "--item")
    inputs = events.expand_inputs(args.input, args.input_format, args.delimiter)
    prepare = options.preparation(args)
    columns = columns_of(args.user, args.item, None, args.explode, args.time_zone, prepare=prepare)
    types = events.column_types(inputs, columns)
    row_schema = asked(args.user, args.item, explode=args.explode, time_zone=args.time_zone).of_schema(types.schema)
    found = (batch for task in inputs.tasks() for batch in events.read_batches(task, columns, types))
    rows = [row_schema.batch(batch, place_of(batch)) for batch in found]
    if not rows:
        raise InputError("no user is in the files: there is nobody to report")
    (_, codes), (names, place) = (unite([batch.column(name) for batch in rows]) for name in ("user", "item"))
    if len(np.unique(codes)) < len(codes):
        raise InputError("a user has more than one row: each reports one item, once; keep one row of each")
    return names.take(pa.array(place))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ParameterError(f"--of must be the number of a bucket without --salt, got {text!r}") from None


def write(path: str, bucket: np.ndarray, sign: np.ndarray) -> None:
    """Store the messages, whole or not at all, and never in place of others."""
    draft = f"{path}.{uuid.uuid4().hex}.draft"  # of its own: a run at the same time writes other messages
    table = pa.table(dict(zip(MESSAGE, (pa.array(bucket), pa.array(sign.astype(np.int8))), strict=True)))
    try:
        with open(draft, "xb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())  # stored before anybody has them
        os.link(draft, path)  # fails if it is there, whoever made it meanwhile
    except FileExistsError:
        raise ParameterError(f"--output {path} is there: a user reports once; send those messages") from None
    except OSError as error:
        raise ParameterError(f"--output {path} cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(draft)


def run(args: argparse.Namespace) -> None:
    """Write the messages, or only explain what they promise."""
    options.require(args, "--epsilon", "--users", "--buckets")
    plan = models.make_shuffled(args)
    if args.explain:
        each = plan.cells / plan.users * plan.messages_per_bucket
        print(plan.guarantee().description(), "", f"a user sends some {each:,.0f} messages of noise", sep="\n")
        return
    options.require(args, "--output")
    if not args.output.endswith(".parquet"):
        raise ParameterError(f"--output must end in .parquet, got {args.output!r}")
    if os.path.exists(args.output):
        raise ParameterError(f"--output {args.output} is there: a user reports once; send those messages")
    own = Hashing(plan.buckets, args.salt, plan.ranks).buckets(items(args))
    bucket, sign = plan.report(own)
    write(args.output, bucket, sign)
    print(f"wrote {args.output}: {len(bucket):,} messages of {len(own):,} users; send them once, and never make others")


COMMAND = Tool(
    name="randomize",
    add_arguments=add_arguments,
    do=run,
    example=(
        "headcount randomize --of tea --epsilon 1 --delta 1e-8 --relation replace \\\n"
        "      --users 100000 --buckets 400000 --salt 'survey of May' --output messages.parquet"
    ),
)
