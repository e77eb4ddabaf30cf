"""Many runs of a report at once, for test_killed.py: prints how many of them ended with which status.

Each is of a period of its own and in a process of its own, forked from one that has imported all it needs; all begin at one
moment.
"""

import importlib
import json
import os
import sys

from headcount.pipelines.main import main


def race(report: str, runs: int) -> dict[int, int]:
    """How many runs ended with which status."""
    waiting, start = os.pipe()
    children = []
    for number in range(runs):
        child = os.fork()
        if child == 0:
            os.close(start)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.read(waiting, 1)  # until the other end is closed
            status = 1
            try:
                status = main(["run", report, "--period", f"2026-W{number + 1:02}"])
            finally:
                os._exit(status)
        children.append(child)
    os.close(start)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {status: ended.count(status) for status in set(ended)}


if __name__ == "__main__":
    for module in (
        "pipelines.jobs.run",
        "pipelines.report_file.run",
        "pipelines.ledger.resolve",
        "pipelines.pages.report",
    ):
        importlib.import_module(f"headcount.{module}")
    print(json.dumps(race(sys.argv[1], int(sys.argv[2]))))
