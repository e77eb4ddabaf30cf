#!/usr/bin/env python3
"""The pool of workers beside a task manager, for Beam's environment type EXTERNAL: Beam's own, on 127.0.0.1 alone.

Whoever reaches a pool has it run any code, so it serves the task manager of its own pod or host. Each worker that it is asked
for is started by boot.py. They find the key in a file: with --secret the pool first copies the key from a mounted secret, which
a group can read, into a file that only its own user can. No environment variable holds it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=50000, help="default: %(default)s")
    parser.add_argument("--secret", type=Path, metavar="FILE", help="where the key is mounted")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="where workers are to find it")
    args = parser.parse_args(argv)
    if (args.secret is None) != (args.key_file is None):
        parser.error("--secret and --key-file go together")
    if args.secret is not None:
        copy_key(args.secret, args.key_file)
    from apache_beam.runners.worker import worker_pool_main

    from headcount.pipelines.jobs import loopback

    loopback.bind()
    worker_pool_main.main(
        [f"--service_port={args.port}", f"--container_executable={Path(__file__).with_name('boot.py')}"]
    )


def copy_key(secret: Path, place: Path) -> None:
    """Write the key where its owner alone can read it; what an earlier start left is replaced."""
    draft = place.with_name(f"{place.name}.new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        written.write(secret.read_bytes())
    draft.replace(place)


if __name__ == "__main__":
    main(sys.argv[1:])
