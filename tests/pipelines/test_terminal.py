"""What a terminal is shown: no letter that it obeys, and no password."""

import pytest

from headcount.pipelines.terminal import masked, one_line


@pytest.mark.parametrize("secret", ["hunter2", "a@b:c", "a b", "a/b", "%40", "$'x\"", "a\nb", "***"])
def test_the_password_of_a_url_is_masked(secret):
    """Plainly, after a flag, in a driver's URL, and among its options; the rest stays."""
    for url in (
        "postgresql://me:{}@host:5432/ledger?sslmode=require",
        "--ledger=postgres://me:{}@host/ledger",
        "PostgreSQL+psycopg://:{}@/ledger?host=/run",
        "postgresql://me@host/ledger?password={}&host=/run",
        "postgresql://host/ledger?sslpassword={}",
    ):
        assert masked(url.format(secret)) == url.format("***")
    if " " not in secret and "\n" not in secret:
        assert (
            one_line(f"see postgresql://me:{secret}@h/x, or ask a@b: c") == "see postgresql://me:***@h/x, or ask a@b: c"
        )


@pytest.mark.parametrize("text", ["postgresql://me@host:5432/ledger", "sqlite:///a:b@c.db", "a@b: c@d", "s3://b:1/a@b"])
def test_what_has_no_password_is_shown(text):
    assert masked(text) == one_line(text) == text
