"""Neighbours made of a file that is public: all of its rows, and those of all users but one."""

from __future__ import annotations

import shlex

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headcount.mechanisms.errors import InputError, ParameterError
from headcount.mechanisms.randomness.keys import Release, ephemeral_key
from headcount.pipelines import parser
from headcount.pipelines.audits.neighbours import Neighbours, Watched
from headcount.pipelines.command import COMMANDS, JobCommand, load

_COUNTS = ("bounded_count", "count", "users", "events", "probability")  # the first of which an output has is looked at


def of_public_data(line: str, table: pa.Table) -> Neighbours:
    """The command line on the rows of all users, and without the one who has most of them."""
    words = shlex.split(line)
    command = load(words[0]) if words and words[0] in COMMANDS else None
    if not isinstance(command, JobCommand):
        raise ParameterError(
            f"line must begin with a command that counts, such as 'histogram --user ...', got {line!r}", "line"
        )
    args, _ = parser.parse(command, [*words[1:], "--input", "rows", "--output", "rows"])
    if args.user not in table.schema.names:
        raise InputError(f"no column {args.user!r} in the public data; the columns are {', '.join(table.schema.names)}")
    if table.num_rows == 0:
        raise InputError("the public data has no rows")
    users = table.column(args.user)
    counted = pc.value_counts(users)
    most = counted.field("values")[int(np.argmax(np.asarray(counted.field("counts"))))]
    theirs = pc.equal(users, most)
    one, others = table.filter(theirs), table.filter(pc.invert(theirs))
    alone = Neighbours(line, one, one.slice(0, 0), Watched()).prepared(False)
    released = alone.mechanism.run(iter(alone.batches), Release(ephemeral_key()), "Audit").schema.names
    column = next((name for name in (*_COUNTS, *released) if name in released and name != "item"), None)
    if "item" not in released:
        return Neighbours(line, others, one, Watched(column), by="epsilon")
    items = pa.chunked_array([batch.column("item") for batch in alone.batches]).unique().to_pylist()
    return Neighbours(line, others, one, Watched(column, {"item": items}), by="epsilon")
