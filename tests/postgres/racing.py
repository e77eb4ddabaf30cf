"""Many calls at once, for test_races.py: prints how many of them wrote an output, and how many were refused.

Each runs in a process of its own, forked from one that has imported all it needs; all of them begin at one moment.
"""

import json
import os
import sys

import headcount

FRAME = {"user": [f"u{k}" for k in range(60)], "item": ["a", "b", "c"] * 20}
CALL = {"user": "user", "item": "item", "domain": ["a", "b"], "method": "one-stage", "bound": 1, "noise": "laplace"}


def call(url: str, folder: str, number: int) -> int:
    """One release of epsilon 0.1; 0 if it was made and saved, 2 if it was refused."""
    try:
        result = headcount.histogram(FRAME, **CALL, epsilon=0.1, ledger=url, dataset="visits")
    except headcount.ParameterError as error:
        return 2 if "is left" in str(error) else 1
    result.save(f"{folder}/{number}")
    return 0


def race(url: str, folder: str, calls: int) -> dict[int, int]:
    """How many calls ended with which status."""
    waiting, start = os.pipe()
    children = []
    for number in range(calls):
        child = os.fork()
        if child == 0:
            os.close(start)
            os.read(waiting, 1)  # until the other end is closed
            status = 1
            try:
                status = call(url, folder, number)
            finally:
                os._exit(status)
        children.append(child)
    os.close(start)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {status: ended.count(status) for status in set(ended)}


if __name__ == "__main__":
    headcount.histogram(FRAME, **CALL, epsilon=0.1, ledger=sys.argv[1], dataset="warm")  # imports all it needs
    print(json.dumps(race(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
