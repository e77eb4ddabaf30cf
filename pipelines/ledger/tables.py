"""The tables of a ledger. Rows are only ever added: an entry is a release that was reserved, a change what became of it.

They hold nothing of the input and no key: a guarantee, public names and digests, and who did what when. Times are texts of UTC,
so that both databases order and print them alike.
"""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 3  # of these tables
BEFORE = 2  # the version without approvals, which is used as it is until something is to be approved

metadata = sa.MetaData()

# One row. Whoever writes locks it first, so that one transaction at a time looks and adds. PostgreSQL asks who locks for the
# right to UPDATE a column: that of `locked`, which means nothing, may be given to anybody (deploy/postgres/rights.sql).
ledger = sa.Table(
    "headcount_ledger",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("locked", sa.Integer),
)


def _users() -> list[sa.Column[str]]:
    """Who is protected: the column of users, and that of times with its zone, where a unit is a user's day or the like."""
    return [sa.Column(name, sa.Text) for name in ("user_column", "time_column", "time_zone")]


datasets = sa.Table(
    "headcount_datasets",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("unit", sa.String(32), nullable=False),
    sa.Column("relation", sa.String(32), nullable=False),
    sa.Column("limit_epsilon", sa.Double, nullable=False),
    sa.Column("limit_delta", sa.Double, nullable=False),
    sa.Column("per", sa.String(8), nullable=False),
    sa.Column("adaptive", sa.Boolean, nullable=False),
    *_users(),  # none if its first release says it
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("who", sa.Text, nullable=False),
)

entries = sa.Table(
    "headcount_entries",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("dataset", sa.ForeignKey(datasets.c.name), nullable=False, index=True),
    sa.Column("span", sa.String(8), nullable=False),  # the month or year whose limit it is under; empty without
    sa.Column("release_id", sa.String(64), nullable=False, index=True),
    sa.Column("command", sa.String(32), nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("period", sa.Text),
    sa.Column("guarantee", sa.Text, nullable=False),
    *_users(),
    sa.Column("parameters_sha256", sa.String(64), nullable=False),
    sa.Column("output", sa.Text),  # none of a call in Python
    sa.Column("files", sa.String(32), nullable=False),  # what the names of its files begin with
    sa.Column("replaces", sa.String(64)),  # the release whose output lay there
    sa.Column("runner", sa.Text),  # or another place where it may be released, if that is not the process itself
    sa.Column("process", sa.Text, nullable=False),
)

changes = sa.Table(
    "headcount_changes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("entry", sa.ForeignKey(entries.c.id), nullable=False, index=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("report_sha256", sa.String(64)),
    sa.Column("rows_sha256", sa.String(64)),
    sa.Column("release_sha256", sa.String(64)),  # of all that follows from the input, and of a keyed digest of that
    sa.Column("note", sa.Text),
)

# Data sets that refuse what is of no approved plan.
approved_only = sa.Table(
    "headcount_approved_only",
    metadata,
    sa.Column("dataset", sa.ForeignKey(datasets.c.name), primary_key=True),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("who", sa.Text, nullable=False),
)

approvals = sa.Table(
    "headcount_approvals",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("dataset", sa.ForeignKey(datasets.c.name), nullable=False, index=True),
    sa.Column("plan_sha256", sa.String(64), nullable=False),
    sa.Column("said_by", sa.Text, nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("who", sa.Text, nullable=False),
)

# The releases of an approved plan: a digest of what each asks, in whatever period, and what it costs.
approved = sa.Table(
    "headcount_approved",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("approval", sa.ForeignKey(approvals.c.id), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("command", sa.String(32), nullable=False),
    sa.Column("asked_sha256", sa.String(64), nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
)

withdrawals = sa.Table(
    "headcount_withdrawals",
    metadata,
    sa.Column("approval", sa.ForeignKey(approvals.c.id), primary_key=True),
    sa.Column("said_by", sa.Text, nullable=False),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("who", sa.Text, nullable=False),
)

# The approval under which an entry was reserved.
allowed = sa.Table(
    "headcount_allowed",
    metadata,
    sa.Column("entry", sa.ForeignKey(entries.c.id), primary_key=True),
    sa.Column("approval", sa.ForeignKey(approvals.c.id), nullable=False),
)
