"""`golden(name, digest)` compares with digests.json, or with --golden-record writes into it."""

from __future__ import annotations

import json

import pytest

from tests.golden.events import DIGESTS


@pytest.fixture
def golden(request):
    def compare(name: str, digest: str) -> None:
        known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
        if request.config.getoption("--golden-record"):
            known[name] = digest
            DIGESTS.write_text(json.dumps(dict(sorted(known.items())), indent=2) + "\n")
        assert digest == known.get(name), f"{name} gives {digest}: other rows or another report than before"

    return compare
