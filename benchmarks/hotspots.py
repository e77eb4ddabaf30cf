"""Where a job's processor seconds go: by stage of the pipeline, and in each by the function of ours that spends them.

    python benchmarks/hotspots.py histogram --input events.parquet --user user --item item --epsilon 1 --delta 1e-8

The words are those of `headcount`, without an output. A thread looks at all others every few milliseconds. What the processor
spent on each since the last look goes to the innermost function of ours that the thread is in, and to the line where that
function stands. So all threads count, and work that NumPy and Arrow do outside of Python's lock does, too; a thread that waits
costs nothing. Arrow reads files in threads of its own, which are told in one number. A look takes Python's lock itself, so a
function of some milliseconds may be taken for its neighbour.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import logging
import os
import sys
import tempfile
import threading
import time
from types import FrameType

from stages import AROUND, steps_of

_EVERY = 0.002  # seconds between two looks
# Where our modules lie: under the package, or in an editable install in the folders of the checkout.
_OURS = tuple(
    dict.fromkeys(
        folder + os.sep
        for name in ("headcount", "headcount.mechanisms", "headcount.transforms", "headcount.pipelines")
        for spec in [importlib.util.find_spec(name)]
        for folder in (spec.submodule_search_locations or () if spec else ())
    )
)


class Looks:
    """Processor seconds by (stage, function and line of ours), of all threads but the one that looks."""

    def __init__(self) -> None:
        self.spent: collections.Counter[tuple[str, str]] = collections.Counter()
        self.stage = AROUND[0]
        self._clocks: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Looks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(_EVERY):
            stage = self.stage
            for thread, frame in sys._current_frames().items():
                if thread == self._thread.ident:
                    continue
                try:
                    now = time.clock_gettime(time.pthread_getcpuclockid(thread))
                except OSError:  # it has ended by now
                    continue
                self.spent[stage, _place(frame)] += now - self._clocks.get(thread, 0.0)
                self._clocks[thread] = now


def _place(frame: FrameType | None) -> str:
    """The innermost function of ours that a frame is in, and its line; what is outside of all of ours has its module."""
    outermost = innermost = "?"
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OURS):
            return f"{_module(path)}:{frame.f_lineno} {frame.f_code.co_name}"
        outermost = path
        innermost = path if innermost == "?" else innermost
        frame = frame.f_back
    return f"({_module(innermost)}, from {_module(outermost)})"


def _module(path: str) -> str:
    return os.sep.join(path.rpartition("site-packages" + os.sep)[2].split(os.sep)[-2:])


def main() -> None:
    """Runs the job in this process, and prints the stages and places that take the most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=12, help="how many to show of a stage (default: %(default)s)")
    parser.add_argument("--least", type=float, default=0.02, help="seconds below which none is shown (%(default)s)")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="a command of headcount")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, Looks() as looks:
        logging.disable()
        from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

        from headcount.pipelines.main import main as headcount

        execute = FnApiRunner._execute_bundle

        def watched(self: FnApiRunner, context: object, manager: object, bundle: object) -> object:
            looks.stage = steps_of(manager.stage.name)  # type: ignore[attr-defined]
            try:
                return execute(self, context, manager, bundle)
            finally:
                looks.stage = "between stages"

        FnApiRunner._execute_bundle = watched
        if code := headcount([*args.words, "--output", f"{scratch}/out", "--overwrite"]):
            sys.exit(code)
    show(looks.spent, args.places, args.least)


def show(spent: collections.Counter[tuple[str, str]], places: int, least: float) -> None:
    """Stages by their seconds, and under each its places."""
    stages: collections.Counter[str] = collections.Counter()
    for (stage, _), seconds in spent.items():
        stages[stage] += seconds
    for stage, whole in stages.most_common():
        if whole < least:
            break
        print(f"{whole:7.2f}  {stage[:150]}")
        inside = collections.Counter({place: seconds for (found, place), seconds in spent.items() if found == stage})
        for place, seconds in inside.most_common(places):
            if seconds >= least:
                print(f"{seconds:15.2f}  {place}")
    print(
        f"{time.process_time() - stages.total():7.2f}  threads that Python does not know, such as Arrow's, and these looks"
    )


if __name__ == "__main__":
    main()
