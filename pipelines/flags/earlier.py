"""The report of an earlier release, from which a flag takes what was chosen there."""

from __future__ import annotations

import argparse
import json
from typing import Any

from headcount.pipelines.storage import stores


def earlier_report(place: str, path: str, what: str) -> Any:
    """The JSON at a place; None if it is none. What cannot be read is refused: the path that was given must be `what`."""
    try:
        return json.loads(stores.read(place))
    except OSError as error:
        reason = error.strerror or "no such file, or not readable"
        raise argparse.ArgumentTypeError(f"must be {what}, got {path!r}: {reason}") from None
    except (ValueError, RecursionError):
        return None
