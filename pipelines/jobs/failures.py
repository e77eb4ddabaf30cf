"""Finding in the failure of a pipeline the one line that is meant for the person who ran it.

A worker's exception reaches the driver as text: wrapped in other exceptions, with a traceback before it and
the name of the step behind it, differently by runner.
"""

from __future__ import annotations

import re

from headcount.mechanisms.errors import HeadcountError

_REFUSAL = re.compile(r"headcount\.mechanisms\.errors\.(?:InputError|ParameterError): (.+)")
_STEP = re.compile(r" \[while running '[^']*'\]")


def input_error(exception: BaseException) -> str | None:
    """The message of the InputError or ParameterError that made a pipeline fail, or None if none did."""
    seen: BaseException | None = exception
    while seen is not None:
        if isinstance(seen, HeadcountError):
            return _one_line(str(seen))
        found = _REFUSAL.search(str(seen))
        if found:
            return _one_line(found.group(1))
        seen = seen.__cause__ or seen.__context__
    return None


def _one_line(message: str) -> str:
    return _STEP.split(message.splitlines()[0], maxsplit=1)[0].strip()
