"""Which of Beam's runners work on this machine: the one list, for transforms that make a key and for jobs that pin a runner."""

from __future__ import annotations

# DirectRunner means Prism or FnApiRunner depending on the network, and may silently run a job twice.
_PINNED = {"fnapirunner", "directrunner", "switchingdirectrunner"}
_ON_THIS_MACHINE = {*_PINNED, "bundlebaseddirectrunner", "prismrunner"}

LOCAL_RUNNER = "FnApiRunner"


def is_pinned(runner: str | None) -> bool:
    """Whether this asks for the runner in this process, which a job then pins to LOCAL_RUNNER."""
    return runner is None or _name(runner) in _PINNED


def is_on_this_machine(runner: str | None) -> bool:
    """Whether the workers of this runner reach the files and the environment of this process."""
    return runner is None or _name(runner) in _ON_THIS_MACHINE


def _name(runner: str) -> str:
    """The name of the class, in one spelling: Beam takes Prism, prism, PrismRunner and its full path for the same."""
    return f"{runner.rsplit('.', 1)[-1].lower().removesuffix('runner')}runner"
