"""A key for tests that look at what was drawn: with a fresh one, what is likely would fail now and then."""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from pathlib import Path

import pytest

from headcount.mechanisms.randomness import keys


def write_fixed_key(path: str | os.PathLike[str], byte: int = 7) -> None:
    """A key file of 32 equal bytes, readable by its owner only."""
    Path(path).write_text(f"{byte:02x}" * 32)
    os.chmod(path, 0o600)


def fix_fresh_keys(patch: pytest.MonkeyPatch) -> None:
    """Fresh keys and ids follow from a number, for what draws its own: `rehearse`, and calls without a key."""
    number = itertools.count()
    patch.setattr(
        secrets, "token_hex", lambda size: hashlib.blake2b(b"%d" % next(number), digest_size=size).hexdigest()
    )
    patch.setattr(keys, "_ephemeral", None)  # the key of a process, which another test may have made
