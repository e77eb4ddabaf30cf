"""A ledger of SQLite for each test. The same tests run on PostgreSQL in tests/postgres."""

import pytest

from tests.pipelines.ledger.accounts import call, job, key, ledger  # noqa: F401


@pytest.fixture
def url(tmp_path):
    """Where a new ledger may be made."""
    return f"sqlite:///{tmp_path}/ledger.db"
