"""The JSON schema of a report's file, for editors. `make stubs` writes it from the flags of the commands."""

from __future__ import annotations

from pathlib import Path

PLACE = Path(__file__).with_name("report.schema.json")


def schema_text() -> str:
    """The schema, as it is shipped."""
    return PLACE.read_text(encoding="utf-8")
