"""What a subcommand is: all that `main` knows of each of them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class Command:
    """One subcommand. A new one is a module with such an object, and one line in `main.COMMANDS`.

    `run` gets the parsed arguments and Beam's own flags, and returns the exit status; whatever it refuses is
    a `HeadcountError`. `takes_beam_flags` says whether flags of Beam are accepted besides our own.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Sequence[str]], int]
    example: str
    takes_beam_flags: bool = False
