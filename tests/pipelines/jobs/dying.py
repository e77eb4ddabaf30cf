"""Jobs that are killed, for test_killed.py: each line of input is a job, each line of output how it ended.

A job runs in a child that is forked after Beam has been imported, so that many of them cost little. It is killed (-9) just
before its n-th change to the files under a path or its n-th step in a database, or some seconds after its start.
"""

import importlib
import json
import os
import signal
import sys
import threading

import pyarrow as pa

from headcount.pipelines import command, main

_CHANGES = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def die_at(change: int, under: str, database: bool) -> None:
    """From now on count the changes to files under this path, and die just before this one; statements and commits to
    databases count too, if asked for."""
    left = change

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple) -> None:
        if event in _CHANGES or (event == "open" and arguments[2] & _WRITING):
            if str(arguments[0]).startswith(under):
                step()

    sys.addaudithook(hook)
    if database:
        from sqlalchemy import Engine, event

        for name in ("before_cursor_execute", "commit"):
            event.listen(Engine, name, step)


def run(words: list[str], under: str, change: int | None, seconds: float | None, database: bool = False) -> None:
    """One job, in this process, whose end is its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if change is not None:
        die_at(change, under, database)
    if seconds is not None:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    os._exit(main.main(words))


if __name__ == "__main__":
    command.load("histogram")
    # With Beam, SQLAlchemy, SciPy and Jinja: imports were seven eighths of what a job took.
    for module in (
        "pipelines.parser",
        "pipelines.jobs.run",
        "pipelines.ledger.resolve",
        "mechanisms.accounting.totals",
        "pipelines.pages.release",
    ):
        importlib.import_module(f"headcount.{module}")
    importlib.import_module("jinja2")
    pa.array([0])  # imports pandas
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
