"""`golden(name, rows=..., report=...)` compares with digests.json, or with --golden-record writes into it."""

from __future__ import annotations

import json

import pytest

from tests.golden.digests import DIGESTS, after


@pytest.fixture
def golden(request):
    def compare(name: str, **content: object) -> None:
        known = json.loads(DIGESTS.read_text())
        recorded, changed = after(known, name, content, request.config.getoption("--golden-record"))
        if recorded != known:
            DIGESTS.write_text(json.dumps(dict(sorted(recorded.items())), indent=2) + "\n")
        assert not changed, f"{name}: other {' and another '.join(changed)} than before"

    return compare
