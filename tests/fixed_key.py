"""A key for tests that look at what was drawn: with a fresh one, what is likely would fail now and then."""

from __future__ import annotations

import os
from pathlib import Path


def write_fixed_key(path: str | os.PathLike[str], byte: int = 7) -> None:
    """A key file of 32 equal bytes, readable by its owner only."""
    Path(path).write_text(f"{byte:02x}" * 32)
    os.chmod(path, 0o600)
