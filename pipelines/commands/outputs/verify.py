"""`headcount verify`: whether the files of an output are still those that its report was written for.

It compares digests and needs no key. It does not tell who wrote the report: whoever can write the files can write that too.
"""

from __future__ import annotations

import argparse
import hashlib

from headcount.mechanisms.errors import InputError
from headcount.pipelines.command import say
from headcount.pipelines.commands.outputs.complete import Complete, OutputTool, add_folder, read_complete, reading
from headcount.pipelines.sinks.output import DATA_FILE, REPORT
from headcount.pipelines.storage import stores


def verify(args: argparse.Namespace) -> None:
    """Say that all is as the report says, or refuse with the first file that is not."""
    found = read_complete(args.output)
    check(found)
    number, rows = len(found.files), found.report["rows"]
    files = "1 file" if number == 1 else f"{number:,} files"
    say(
        f"complete and unchanged: {files}, {rows:,} {'row' if rows == 1 else 'rows'}, release {found.report['release_id']}"
    )


def check(found: Complete) -> None:
    """Refuse an output that lacks a listed file, has one of other bytes, or has a file of another release beside them."""
    with reading(found.directory):
        present = set(stores.names(found.directory))
    for file in found.files:
        path = stores.join(found.directory, file.name)
        if file.name not in present:
            raise InputError(f"incomplete: {path!r} is not there, and {REPORT} lists it")
        with reading(path):
            digest = hashlib.sha256(stores.read(path)).hexdigest()
        if digest != file.digest:
            raise InputError(f"changed: {path!r} has the SHA-256 digest {digest}, and {REPORT} says {file.digest}")
    listed = {file.name for file in found.files}
    other = sorted(name for name in present - listed if DATA_FILE.fullmatch(name))
    if other:
        path = stores.join(found.directory, other[0])
        raise InputError(f"not of this release: {path!r} lies beside its files, and {REPORT} does not list it")


COMMAND = OutputTool(
    name="verify",
    add_arguments=add_folder,
    do=verify,
    example="headcount verify out/",
)
