"""A ledger of SQLite for each test. The same tests run on PostgreSQL in tests/postgres."""

import pytest


@pytest.fixture
def url(tmp_path):
    """Where a new ledger may be made."""
    return f"sqlite:///{tmp_path}/ledger.db"
